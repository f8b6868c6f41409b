"""Temporal models: the embeddings of a clip's frames become one logit per component: did it change within the clip?

All have the same interface, `forward(embedding_BND, mask_BN) -> logits_BC`. The mask is False for frames before
the recording began; what stands in their place has no influence. Clips are aligned at their last frame.

A model is a class, its settings in `stormpsr.config`, and a line in each of two lists; a model that is in neither is
named by its class, `temporal.kind=package.module:Class`. Naming it imports its module, which must be installed here.

Shape legend: B clips, N frames of a clip, D dimensions of an embedding, W width of the model, C components,
M members.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stormpsr.config import TEMPORAL_CONFIGS, TemporalConfig, UsersConfig
from stormpsr.decoding.methods import import_class
from stormpsr.errors import InputError


class TemporalModel(nn.Module):
    """What all have in common."""

    def __init__(self, n_frames: int) -> None:
        super().__init__()
        self.n_frames = n_frames

    def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        raise NotImplementedError

    def outputs(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        """All that is said of each component, (B, C, 10): the logit of a change within the window; then logarithms of

        the probabilities of absent, correct and wrong in the last frame, and at the window's first frame and its last.
        """
        return change_only(self(embedding_BND, mask_BN))


def change_only(logits_BC: Tensor) -> Tensor:
    """The outputs of a model that knows of changes only."""
    return torch.cat([logits_BC[..., None], logits_BC.new_full((*logits_BC.shape, 9), torch.nan)], dim=-1)


def all_outputs(temporal: nn.Module, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
    """`TemporalModel.outputs`, or as much of it as a class of somebody's own has to say."""
    if isinstance(temporal, TemporalModel):
        return temporal.outputs(embedding_BND, mask_BN)
    return change_only(temporal(embedding_BND, mask_BN))


def _head(width: int, n_components: int) -> nn.Sequential:
    """One hidden layer, then a logit per component."""
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, n_components))


class AveragedModel(TemporalModel):
    """Several models that differ by chance; what they have in common is what the data says.

    Each is trained for itself. Their probabilities are averaged.
    """

    def __init__(self, members: Sequence[TemporalModel]) -> None:
        super().__init__(members[0].n_frames)
        self.members = nn.ModuleList(members)

    def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        return _averaged([member(embedding_BND, mask_BN) for member in self.members])

    def outputs(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        outputs = [member.outputs(embedding_BND, mask_BN) for member in self.members]
        change_BC = _averaged([output_BCF[..., 0] for output_BCF in outputs])
        return torch.cat([change_BC[..., None], torch.stack(outputs)[..., 1:].mean(dim=0)], dim=-1)


def _averaged(logits: Sequence[Tensor]) -> Tensor:
    """The logits of the mean of probabilities."""
    return torch.logit(torch.sigmoid(torch.stack(list(logits))).mean(dim=0), eps=1e-6)


class TransformerModel(TemporalModel):
    """Self-attention over the frames and a [CLS] token, whose final state is classified.

    Positions are learnt, one per place in the clip: the last frame always has the same.
    """

    def __init__(
        self,
        *,
        embedding_dim: int,
        n_frames: int,
        n_components: int,
        width: int,
        layers: int,
        heads: int,
        mlp_width: int,
        dropout: float,
        head_width: int | None = None,
        classifier: str = "mlp",
    ) -> None:
        super().__init__(n_frames)
        self.enter = nn.Linear(embedding_dim, width) if width != embedding_dim else nn.Identity()
        self.cls_token_W = nn.Parameter(torch.zeros(width))
        self.position_NW = nn.Parameter(torch.zeros(n_frames + 1, width))
        if head_width is None:
            layer = nn.TransformerEncoderLayer(
                width, heads, mlp_width, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            norm = nn.LayerNorm(width)
            self.encoder: nn.Module = nn.TransformerEncoder(layer, layers, norm=norm, enable_nested_tensor=False)
        else:
            wide = [_WideHeadLayer(width, heads, head_width, mlp_width, dropout) for _ in range(layers)]
            self.encoder = _WideHeadEncoder(wide, width)
        linear = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, n_components))
        self.head = _head(width, n_components) if classifier == "mlp" else linear
        for parameter in (self.cls_token_W, self.position_NW):
            nn.init.trunc_normal_(parameter, std=0.02)
        for parameter in self.encoder.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)  # anew: torch makes all layers copies of one

    def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        frames_BNW = self.enter(embedding_BND)
        batch = frames_BNW.shape[0]
        tokens_BNW = torch.cat([self.cls_token_W.expand(batch, 1, -1), frames_BNW], dim=1) + self.position_NW
        hidden_BN = torch.cat([mask_BN.new_zeros(batch, 1), ~mask_BN], dim=1)  # True: not to be attended to
        return self.head(self.encoder(tokens_BNW, src_key_padding_mask=hidden_BN)[:, 0])


class _WideHeadLayer(nn.Module):
    """Self-attention whose heads have a width of their own, and a perceptron, as in the released code.

    (torch's own layer always shares the width among its heads.)
    """

    def __init__(self, width: int, heads: int, head_width: int, mlp_width: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * heads * head_width, bias=False)
        self.out = nn.Sequential(nn.Linear(heads * head_width, width), nn.Dropout(dropout))
        self.mlp = nn.Sequential(
            nn.Linear(width, mlp_width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(mlp_width, width),
            nn.Dropout(dropout),
        )

    def forward(self, tokens_BNW: Tensor, seen_BN: Tensor) -> Tensor:
        q, k, v = self.to_qkv(self.norm_attention(tokens_BNW)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        found = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen_BN[:, None, None, :], dropout_p=dropout
        )
        tokens_BNW = tokens_BNW + self.out(found.transpose(1, 2).flatten(2))
        return tokens_BNW + self.mlp(self.norm_mlp(tokens_BNW))


class _WideHeadEncoder(nn.Module):
    """Such layers one after the other, called as torch's encoder is."""

    def __init__(self, layers: Sequence[_WideHeadLayer], width: int) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(width)

    def forward(self, tokens_BNW: Tensor, src_key_padding_mask: Tensor) -> Tensor:
        for layer in self.layers:
            tokens_BNW = layer(tokens_BNW, ~src_key_padding_mask)
        return self.norm(tokens_BNW)


class LSTMModel(TemporalModel):
    """A long short-term memory that reads the frames in order; its state after the last one is classified.

    Frames that do not exist are read as zeros.
    """

    def __init__(
        self,
        *,
        embedding_dim: int,
        n_frames: int,
        n_components: int,
        width: int,
        layers: int,
        dropout: float,
        cell: str = "lstm",
    ) -> None:
        super().__init__(n_frames)
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.lstm = kind(embedding_dim, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head = _head(width, n_components)

    def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        output_BNW, _ = self.lstm(embedding_BND * mask_BN[:, :, None])
        return self.head(output_BNW[:, -1])


class TCNModel(TemporalModel):
    """Causal convolutions over time with doubling dilation, as many as it takes for the last frame to see the first.

    A frame that does not exist is a zero in every layer, exactly as what lies before the clip's beginning.
    """

    def __init__(
        self, *, embedding_dim: int, n_frames: int, n_components: int, width: int, kernel: int, dropout: float
    ) -> None:
        super().__init__(n_frames)
        self.enter = nn.Linear(embedding_dim, width)
        self.blocks = nn.ModuleList()
        reach = 1
        while reach < n_frames or not self.blocks:
            dilation = 2 ** len(self.blocks)
            self.blocks.append(_CausalBlock(width, kernel, dilation, dropout))
            reach += 2 * (kernel - 1) * dilation
        self.head = _head(width, n_components)

    def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        exists_BN1 = mask_BN[:, :, None]
        feature_BNW = self.enter(embedding_BND) * exists_BN1
        for block in self.blocks:
            feature_BNW = block(feature_BNW, exists_BN1)
        return self.head(feature_BNW[:, -1])


class _CausalBlock(nn.Module):
    """Two convolutions that look back only, with a way around them."""

    def __init__(self, width: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.look_back_frames = (kernel - 1) * dilation
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, kernel, dilation=dilation) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, feature_BNW: Tensor, exists_BN1: Tensor) -> Tensor:
        hidden_BNW = feature_BNW
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            padded_BWN = nn.functional.pad(hidden_BNW.transpose(1, 2), (self.look_back_frames, 0))
            hidden_BNW = torch.relu(norm(convolution(padded_BWN).transpose(1, 2)))
            hidden_BNW = self.dropout(hidden_BNW) * exists_BN1
        return feature_BNW + hidden_BNW


class MLPModel(TemporalModel):
    """All embeddings of the clip, one after the other, through two hidden layers. Missing frames are zeros."""

    def __init__(
        self, *, embedding_dim: int, n_frames: int, n_components: int, width: int, hidden_width: int, dropout: float
    ) -> None:
        super().__init__(n_frames)
        self.body = nn.Sequential(
            nn.Linear(n_frames * embedding_dim, hidden_width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_width, width),
            nn.GELU(),
        )
        self.head = _head(width, n_components)

    def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        return self.head(self.body((embedding_BND * mask_BN[:, :, None]).flatten(1)))


class StatesModel(TemporalModel):
    """What each frame says about each component, pooled over the window; the same weights for all components.

    A linear layer reads from every frame whether each component is absent, correct or wrong. A few queries
    pool what was read by attention: each scores places in the window and readings; a small network compares the means.
    Components share everything but a bias, so every one of them teaches all others: a model for little data, with some
    ten thousand parameters. What it reads can be taught the labelled state of every frame, and the small network also
    the states at both ends of the window (`frame_state_weight`): that a part was put on says more than that it changed.
    The answer is the mean of two: what is said of the change, and the probability that the states at the ends differ.

    The paper has no such model.
    """

    def __init__(
        self,
        *,
        embedding_dim: int,
        n_frames: int,
        n_components: int,
        queries: int,
        context: int,
        hidden_width: int,
        ends_share: float = 0.5,
    ) -> None:
        super().__init__(n_frames)
        self.n_components, self.ends_share = n_components, ends_share
        self.scale = nn.BatchNorm1d(embedding_dim, affine=False)
        self.read = nn.Linear(embedding_dim, 3 * n_components)
        self.context = nn.Linear(embedding_dim, context)
        self.reading_score = nn.Linear(6, queries)  # of readings: probabilities and their logarithms
        place_N = torch.linspace(-1, 1, n_frames) if n_frames > 1 else torch.zeros(1)
        self.place_QN = nn.Parameter(torch.linspace(-4, 4, queries)[:, None] * place_N)  # from the oldest to the newest
        self.compare = nn.Sequential(
            nn.Linear(queries * (3 + context) + n_components, hidden_width),
            nn.GELU(),
            nn.Linear(hidden_width, hidden_width),
            nn.GELU(),
            nn.Linear(hidden_width, 1 + 2 * 3),  # change; absent, correct, wrong at the window's first and last frame
        )
        self.register_buffer("which_CC", torch.eye(n_components), persistent=False)

    def forward(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        logit_BC, _, ends_BC23 = self.with_states(embedding_BND, mask_BN)
        return self._with_ends(logit_BC, ends_BC23)

    def outputs(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        logit_BC, read_BNC3, ends_BC23 = self.with_states(embedding_BND, mask_BN)
        change_BC1 = self._with_ends(logit_BC, ends_BC23)[..., None]
        states = [read_BNC3[:, -1], ends_BC23[:, :, 0], ends_BC23[:, :, 1]]
        return torch.cat([change_BC1, *(logits_BC3.log_softmax(dim=-1) for logits_BC3 in states)], dim=-1)

    def _with_ends(self, logit_BC: Tensor, ends_BC23: Tensor) -> Tensor:
        if not self.ends_share:
            return logit_BC
        first_BC, last_BC = ends_BC23.softmax(dim=-1)[..., 1].unbind(dim=-1)  # correct
        differ_BC = first_BC * (1 - last_BC) + last_BC * (1 - first_BC)
        probability_BC = torch.lerp(torch.sigmoid(logit_BC), differ_BC, self.ends_share)
        return torch.logit(probability_BC, eps=1e-6)

    def _scaled(self, embedding_BND: Tensor, mask_BN: Tensor) -> Tensor:
        """Every dimension with mean 0 and variance 1; frames that do not exist are zeros, and not part of either."""
        if self.training:
            scaled_BND = torch.zeros_like(embedding_BND)
            scaled_BND[mask_BN] = self.scale(embedding_BND[mask_BN])
            return scaled_BND
        # in use the statistics are known: a mask then does the same, and its shapes do not depend on what it holds
        scaled_BND = self.scale(embedding_BND.flatten(0, 1)).view_as(embedding_BND)
        return scaled_BND.masked_fill(~mask_BN[:, :, None], 0.0)

    def with_states(self, embedding_BND: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of a change, (B, C); of what each frame shows: absent, correct, wrong, (B, N, C, 3); of what is true

        at both ends of the window, (B, C, 2, 3).
        """
        scaled_BND = self._scaled(embedding_BND, mask_BN)
        logits_BNC3 = self.read(scaled_BND).unflatten(-1, (self.n_components, 3))
        log_BNC3 = torch.log_softmax(logits_BNC3, dim=-1)
        read_BNC3 = log_BNC3.exp()
        score_BNCQ = self.reading_score(torch.cat([read_BNC3, log_BNC3.clamp(min=-6) / 3], dim=-1))
        hidden_B11N = ~mask_BN[:, None, None]
        weight_BCQN = (score_BNCQ.permute(0, 2, 3, 1) + self.place_QN).masked_fill(hidden_B11N, -1e4).softmax(dim=-1)
        pooled_BCX = torch.einsum("bcqn,bncs->bcqs", weight_BCQN, read_BNC3).flatten(2)
        place_BQN = self.place_QN.masked_fill(hidden_B11N[:, 0], -1e4).softmax(dim=-1)
        context_BX = (place_BQN @ self.context(scaled_BND)).flatten(1)
        batch, n = mask_BN.shape[0], self.n_components
        known = [pooled_BCX, context_BX[:, None].expand(-1, n, -1), self.which_CC.expand(batch, -1, -1)]
        output_BC7 = self.compare(torch.cat(known, dim=-1))
        return output_BC7[..., 0], logits_BNC3, output_BC7[..., 1:].unflatten(-1, (2, 3))


def averaged_states(*, members: int, **sizes: Any) -> TemporalModel:
    """One model, or several side by side."""
    models = [StatesModel(**sizes) for _ in range(members)]
    return AveragedModel(models) if members > 1 else models[0]


# ---------------------------------------------------------------------- the list of them, and those of others
_MAKE: Mapping[str, Callable[..., nn.Module]] = {
    "transformer": TransformerModel,
    "lstm": LSTMModel,
    "tcn": TCNModel,
    "mlp": MLPModel,
    "states": averaged_states,
}
TEMPORAL_MODELS = {kind: (config, _MAKE[kind]) for kind, config in TEMPORAL_CONFIGS.items()}


def make_temporal(config: TemporalConfig, *, embedding_dim: int, n_window: int, n_components: int) -> nn.Module:
    """A new temporal model."""
    if isinstance(config, UsersConfig):
        return _users_model(config, embedding_dim, n_window, n_components)
    make = TEMPORAL_MODELS[config.kind][1]
    settings = config.model_dump(exclude={"kind"})
    return make(embedding_dim=embedding_dim, n_frames=n_window, n_components=n_components, **settings)


def _users_model(config: UsersConfig, embedding_dim: int, n_window: int, n_components: int) -> nn.Module:
    """A model of somebody else's class, tried on two clips, so that a mistake is named before hours of training."""
    name = f"temporal model {config.kind!r}"
    make = import_class(config.kind, name)
    if make is None:
        raise InputError(f"{name}: its module has no such class", cure="write it like package.module:Class")
    cure = "it is called as Class(embedding_dim, n_window, n_components, settings), then as model(embedding, mask)"
    try:
        model = make(embedding_dim, n_window, n_components, dict(config.settings))
        with torch.no_grad():
            clip_BND, mask_BN = torch.zeros(2, n_window, embedding_dim), torch.ones(2, n_window, dtype=torch.bool)
            logits_BC = model.eval()(clip_BND, mask_BN)
    except Exception as error:  # whatever goes wrong in there
        raise InputError(f"{name} does not work ({type(error).__name__}: {error})", cure=cure) from error
    shape = tuple(getattr(logits_BC, "shape", ()))
    if not isinstance(model, nn.Module) or shape != (2, n_components):
        problem = f"{name} gives {shape or type(logits_BC).__name__} for 2 clips"
        raise InputError(problem, cure=f"forward returns logits of shape (clips, components): (2, {n_components})")
    return model.train()

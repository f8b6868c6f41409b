# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False
"""All settings of the spatio-temporal stream: one documented line each, with its only default.

The defaults are the paper's (section 5.2); what the paper does not say is marked. A preset is a YAML file that lists
what differs from them, and `-o key=value` changes single settings on top:

    load_config("paper-meccano", ["encoder.backbone=vit_small_patch14_dinov2.lvd142m", "seed=1"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator

from stormpsr.data.sampling import ClipDistribution, KeyStates, WrongStates
from stormpsr.errors import InputError
from stormpsr.files import read_text
from stormpsr.yaml_loader import ComplaintError, Document, guess, parse_yaml, validate

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class EncoderConfig(_Section):
    """The spatial encoder."""

    backbone: str = "vit_small_patch16_224.augreg_in21k"  # any network of timm
    weights: str = "hub"  # none, hub, package, the path of a file, or a detector's folder (not in the paper)
    image_size: Annotated[int, Field(ge=16, le=2048)] = 224  # frames are letterboxed to this square, in pixels
    embedding_dim: Positive = 128  # of h, of what the temporal stage takes, and of z
    projection_norm: Literal["batch", "none"] = "batch"  # in the projection head (not in the paper)
    head_on_features: bool = False  # g reads the network's features, not h; as released (not in the paper)
    embedding_norm: Literal["none", "l2"] = "none"  # l2: what the temporal stage takes has length 1; as released
    n_queries: Count = 0  # learned queries that read features; 0: the network's own end (not in the paper)
    crop_size: Annotated[int, Field(ge=0, le=2048)] = 0  # look at a crop of the assembly; 0: at all (not in the paper)
    frozen_stride: Literal[0, 2, 4, 8, 16] = 0  # layers up to it do not learn; with queries only (not in the paper)
    frozen_reader: bool = False  # a detector's reader stays as it is: frames are read once for both (not in the paper)

    @model_validator(mode="after")
    def _freezes_what_is_read(self) -> EncoderConfig:
        if self.frozen_stride and not self.n_queries:
            raise ValueError("frozen_stride needs n_queries")
        if self.frozen_reader and not (self.n_queries and self.crop_size):
            raise ValueError("frozen_reader needs n_queries and crop_size, as the detector has them")
        if self.head_on_features and self.n_queries:
            raise ValueError("head_on_features reads the network's own end, n_queries replaces it: choose one")
        return self


class KeyFrameConfig(_Section):
    """Key-frame sampling (KFS), for the spatial encoder."""

    after_seconds: NotNegative = 2.0  # t_f: how long after a completion frames are taken for the new state
    after_fps: PositiveNumber | None = None  # frames per second of t_f; Algorithm 1: 10. If not given, the recordings'
    states: KeyStates = "all"  # listed: those that have a class, as in the paper; all: any that recordings go through
    n_sample: Positive = 16  # real images per state and batch
    n_syn: Count = 0  # rendered images per state and batch
    states_per_batch: Positive | None = None  # all states if not given
    n_more_renders: Count = 0  # per batch, of any state, also of those that no key frame shows (not in the paper)
    wrong_states: WrongStates = "own_label"  # states with a wrong part: own_label or leave_out (not in the paper)
    initial_state: bool = True  # the beginning of a recording is a state like others (not in the paper)


# ---------------------------------------------------------------------- temporal models, by the names of their kinds
class TemporalConfig(_Section):
    """The settings of a temporal model."""

    kind: str


class TransformerConfig(TemporalConfig):
    """Self-attention over the frames of a clip and a [CLS] token."""

    kind: Literal["transformer"] = "transformer"
    width: Positive = 128  # of a token (not in the paper: that of the embeddings)
    layers: Positive = 6  # of self-attention, one after the other
    heads: Positive = 8  # of the attention; they share the width
    mlp_width: Positive = 4096  # inside the perceptron of each layer
    dropout: Share = 0.0  # not in the paper; slow on a CPU
    head_width: Positive | None = None  # of each head; width / heads if not given (released: 128)
    classifier: Literal["mlp", "linear"] = "mlp"  # one hidden layer, or a norm and a linear layer (released)

    @model_validator(mode="after")
    def _heads_divide_width(self) -> TransformerConfig:
        if self.head_width is None and self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be divided among {self.heads} heads")
        return self


class LSTMConfig(TemporalConfig):
    """A long short-term memory. The paper gives no sizes."""

    kind: Literal["lstm"] = "lstm"
    cell: Literal["lstm", "gru"] = "lstm"  # the released code's "LSTM" is a GRU
    width: Positive = 256  # of the memory
    layers: Positive = 2  # one after the other
    dropout: Share = 0.0  # between the layers


class TCNConfig(TemporalConfig):
    """Dilated causal convolutions over time. The paper gives no sizes."""

    kind: Literal["tcn"] = "tcn"
    width: Positive = 256  # channels
    kernel: Annotated[int, Field(ge=2)] = 3  # frames that a convolution spans, before dilation
    dropout: Share = 0.0  # after every convolution


class MLPConfig(TemporalConfig):
    """A perceptron over the clip's embeddings, one after the other. The paper gives no sizes."""

    kind: Literal["mlp"] = "mlp"
    width: Positive = 256  # of what goes to the classifier
    hidden_width: Positive = 4096  # of the layer before
    dropout: Share = 0.0  # after the hidden layer


class StatesConfig(TemporalConfig):
    """What each frame says about each component, pooled with shared weights: for little data (not in the paper)."""

    kind: Literal["states"] = "states"
    members: Positive = 1  # models that are trained side by side and averaged
    queries: Positive = 8  # averages over the window per component
    context: Positive = 8  # dimensions of a frame's embedding that all components see
    hidden_width: Positive = 64  # of the perceptron that reads these averages
    ends_share: Share = 0.5  # of what the states at the window's ends say of a change, in the answer


class UsersConfig(TemporalConfig):
    """A class of your own, called with (embedding_dim, n_window, n_components, settings): see
    [the spatio-temporal stream](spatio-temporal-stream.md#a-temporal-model-of-your-own).
    """

    kind: str  # package.module:Class
    settings: dict[str, Any] = {}  # whatever the class wants to know; plain values


TEMPORAL_CONFIGS: Mapping[str, type[TemporalConfig]] = {
    "transformer": TransformerConfig,
    "lstm": LSTMConfig,
    "tcn": TCNConfig,
    "mlp": MLPConfig,
    "states": StatesConfig,
}


def _read_temporal(values: Any) -> Any:
    """The settings of the kind that a table of values names; for pydantic, which complains of anything else."""
    if not isinstance(values, dict):
        return values
    kind = values.get("kind", "transformer")
    if kind in TEMPORAL_CONFIGS:
        return TEMPORAL_CONFIGS[kind].model_validate(values)
    if not isinstance(kind, str) or ":" not in kind:
        cure = f"choose: {', '.join(sorted(TEMPORAL_CONFIGS))}, or a class of your own: package.module:Class"
        raise ComplaintError("temporal.kind is not known", cure)
    return UsersConfig.model_validate(values)


# ---------------------------------------------------------------------- clips, training, everything
class ClipConfig(_Section):
    """Clips, and key-clip aware sampling (KCAS) of them."""

    window_frames: Positive = 256  # w: how far back a clip reaches
    n_window: Positive = 64  # N_w: how many of its frames are taken, equally spaced
    distribution: ClipDistribution = "kcas"  # of the last frame: kcas, gaussian, positive or uniform
    delta_frames: NotNegative = 80.0  # from a completion to the two modes of KCAS
    sigma_frames: PositiveNumber = 45.0  # standard deviation of each mode
    aligned: bool = False  # end clips at every (w / N_w)th frame: no other is ever encoded (not in the paper)

    @property
    def stride_frames(self) -> int:
        """From one frame of a clip to the next."""
        return max(self.window_frames // self.n_window, 1)

    @property
    def frame_step(self) -> int:
        """Every so many frames are encoded for the temporal model."""
        return self.stride_frames if self.aligned else 1

    @model_validator(mode="after")
    def _window_holds_its_frames(self) -> ClipConfig:
        if self.n_window > self.window_frames:
            raise ValueError(f"n_window is {self.n_window}, but the window has only {self.window_frames} frames")
        if self.aligned and self.window_frames % self.n_window:
            needed = f"a window ({self.window_frames}) that n_window ({self.n_window}) divides"
            raise ValueError(f"aligned clips need {needed}")
        return self


class _TrainingConfig(_Section):
    """What all three stages share."""

    epochs: Positive = 100  # the longest a stage trains
    batches_per_epoch: Positive | None = None  # if not given: as many as it takes to draw as much as there is
    optimiser: Literal["sgd", "adamw"] = "sgd"  # which way of gradient descent
    learning_rate: PositiveNumber = 1e-3  # after the warm-up; then it falls along a cosine to 0
    momentum: Share = 0.9  # of SGD; the first beta of AdamW
    weight_decay: NotNegative = 0.0  # not in the paper
    warmup_epochs: Count = 5  # in which the learning rate rises from 0


class LocatorTrainingConfig(_TrainingConfig):
    """Training of the network that finds the assembly, where the encoder looks at a crop (not in the paper)."""

    epochs: Positive = 10
    batches_per_epoch: Positive | None = 100
    optimiser: Literal["sgd", "adamw"] = "adamw"
    learning_rate: PositiveNumber = 2e-3
    weight_decay: NotNegative = 0.05
    warmup_epochs: Count = 1
    batch_size: Positive = 64  # images
    render_share: Share = 0.5  # of a batch, where there are renders


class EncoderTrainingConfig(_TrainingConfig):
    """Contrastive training of the spatial encoder."""

    epochs: Count = 100  # the longest it trains; 0: ImageNet weights alone, "without KFS" in the paper's tables
    temperature: PositiveNumber = 0.07  # similarities are divided by it: less of it looks at the nearest strangers only
    margin: NotNegative = 0.01  # by how much partners must be closer than strangers
    loss_form: Literal["paper", "common"] = "paper"  # the logarithm outside (paper) or inside (common) the mean
    component_weight: NotNegative = 0.0  # of a second loss: is each part absent, correct, wrong? (not in the paper)
    wrong_weight: PositiveNumber = 1.0  # in that loss, how often a wrong part counts: hardly any is
    augmentation: Literal["none", "light", "strong"] = "light"  # not in the paper
    calm_share: Share = 0.0  # of the epochs, the last ones, have light augmentation instead (not in the paper)
    held_out_share: Share = 0.0  # of the training recordings, kept for the temporal stage (not in the paper)
    select_by: Literal["precision", "components", "loss"] = "precision"  # which epoch is kept, on validation recordings

    @model_validator(mode="after")
    def _can_be_selected_by(self) -> EncoderTrainingConfig:
        if self.select_by == "components" and not self.component_weight:
            raise ValueError("select_by components needs a component_weight")
        return self


class TemporalTrainingConfig(_TrainingConfig):
    """Training of the temporal model on stored embeddings."""

    batch_size: Positive = 256  # clips
    recordings: Literal["all", "held_out"] = "all"  # held_out: those kept from the encoder (not in the paper)
    embedding_noise: NotNegative = 0.0  # standard deviation, in those of the embeddings (not in the paper)
    frame_drop: Share = 0.0  # share of a clip's frames that are hidden, never the last (not in the paper)
    frame_state_weight: NotNegative = 0.0  # of a second loss, the state of every frame and window; kind states only
    wrong_weight: PositiveNumber = 1.0  # in that loss, how often a wrong part counts: hardly any is
    select_by: Literal["event_f1", "clip_f1", "loss"] = "event_f1"  # after decoding into events, per clip, or loss


class JointTrainingConfig(TemporalTrainingConfig):
    """Training of both together, from images."""

    epochs: Positive = 75
    encoder_learning_rate: PositiveNumber = 1e-5  # the encoder is trained already


class DecodingConfig(_Section):
    """How a model decides that was packed and not tuned yet; `stormpsr tune` replaces it."""

    threshold: PositiveNumber = 6.0  # T: evidence that completes a step
    decay: Annotated[float, Field(ge=0, le=1)] = 0.75  # factor per frame for steps that the frame does not support
    min_change_probability: Annotated[float, Field(ge=0, le=1)] = 0.5  # the temporal stream is heard above (paper: 0)


class Config(_Section):
    """Everything. Two equal configurations train the same network on the same data."""

    name: str = "unnamed"  # a word for what these settings are
    procedure: str | None = None  # a shipped one by name, or a YAML file; if not given, the data set's own
    seed: Count = 0  # of every draw: data, weights, augmentation
    encoder: EncoderConfig = EncoderConfig()
    key_frames: KeyFrameConfig = KeyFrameConfig()
    temporal: Annotated[SerializeAsAny[TemporalConfig], BeforeValidator(_read_temporal)] = TransformerConfig()
    clips: ClipConfig = ClipConfig()
    train_locator: LocatorTrainingConfig = LocatorTrainingConfig()
    train_encoder: EncoderTrainingConfig = EncoderTrainingConfig()
    train_temporal: TemporalTrainingConfig = TemporalTrainingConfig()
    train_joint: JointTrainingConfig = JointTrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _states_can_be_taught(self) -> Config:
        stages = {"train_temporal": self.train_temporal, "train_joint": self.train_joint}
        weighted = [name for name, stage in stages.items() if stage.frame_state_weight]
        if weighted and not isinstance(self.temporal, StatesConfig):
            flags = " ".join(f"-o {name}.frame_state_weight=0" for name in weighted)
            raise ValueError(
                f"temporal.kind={self.temporal.kind} reads no single frames, so it cannot be taught what they show; "
                f"add {flags}"
            )
        return self


# ---------------------------------------------------------------------- reading
def shipped_presets() -> list[str]:
    """Names of the presets that come with the package."""
    folder = resources.files("stormpsr") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_config(source: str | Path, overrides: Sequence[str] = ()) -> Config:
    """A preset by name, or a YAML file, with single settings changed by `key=value`."""
    known = shipped_presets()
    if str(source) in known:
        text = (resources.files("stormpsr") / "presets" / f"{source}.yaml").read_text(encoding="utf-8")
        return parse_config(text, where=str(source), overrides=overrides)
    if not Path(source).is_file():
        cure = guess(str(source), known, f"give the path of a YAML file or one of: {', '.join(known)}")
        raise InputError(f"there is no preset {str(source)!r}", cure=cure)
    return parse_config(read_text(source), where=str(source), overrides=overrides)


def parse_config(text: str, *, where: str, overrides: Sequence[str] = ()) -> Config:
    """A configuration from YAML text; `where` names the text in complaints."""
    read = parse_yaml(text, where)
    document = Document({} if read.data is None else read.data, where, read.lines)
    if not isinstance(document.data, dict):
        raise InputError("settings are a table", path=where, line=1, cure="write 'key: value' lines")
    for override in overrides:
        _override(document, override)
    return validate(Config, document)


def dump_config(config: Config) -> str:
    """Every setting as YAML text that `parse_config` reads back equal."""
    text: str = yaml.safe_dump(config.model_dump(), sort_keys=False)
    return text


def _override(document: Document, override: str) -> None:
    """Set one value, given as `section.key=value` with the value in YAML; complaints of it do not name the file."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InputError(f"override {override!r} is not understood", cure="write it like clips.window_frames=64")
    try:
        value = parse_yaml(text).data
    except InputError as error:
        raise InputError(f"override {override!r}: {error.problem}", cure=error.cure or "put text in quotes") from None
    table = document.data
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"override {override!r}: {part!r} is no section", cure="write section.key=value")
    if parts == ["temporal", "kind"] and table.get("kind", TransformerConfig().kind) != value:
        table.clear()  # the preset's sizes are those of another kind of model
    table[parts[-1]] = value
    document.lines.update({tuple(parts[:n]): 0 for n in range(1, len(parts) + 1)})

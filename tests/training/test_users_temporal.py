"""A temporal model of somebody else's: the one of the documentation, trained and loaded again; and mistakes in one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from stormpsr.config import dump_config, parse_config
from stormpsr.errors import InputError
from stormpsr.models.checkpoint import load_checkpoint
from stormpsr.models.stream import build_temporal, stage_sizes
from stormpsr.training.data import load_training_data
from stormpsr.training.fit import FitOptions
from stormpsr.training.stages import Run, train_encoder, train_temporal

PAGE = Path(__file__).parents[2] / "docs" / "spatio-temporal-stream.md"
OWN = ("temporal.kind=pooled:Pooled", "temporal.settings.width=12")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example of the documentation in a module of its own."""
    example = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "Pooled" in block)
    path = tmp_path / "modules" / "pooled.py"
    path.parent.mkdir()
    path.write_text(example)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.delitem(__import__("sys").modules, "pooled", raising=False)
    return path


@pytest.mark.usefixtures("module")
def test_the_model_of_the_documentation_is_trained_and_loaded_again(
    world: Path, settings_text: str, tmp_path: Path
) -> None:
    config = parse_config(settings_text, where="tiny", overrides=[*OWN, "train_temporal.epochs=1"])
    options = FitOptions(device="cpu")
    run = Run(config, load_training_data(world, config), tmp_path / "run", options=options)
    trained = train_temporal(run, train_encoder(run))
    checkpoint = load_checkpoint(trained)
    assert checkpoint.config.temporal.model_dump() == {"kind": "pooled:Pooled", "settings": {"width": 12}}
    temporal = checkpoint.stream().temporal
    assert type(temporal).__name__ == "Pooled"
    n, dim = config.clips.n_window, config.encoder.embedding_dim
    logits_BC = temporal(torch.randn(2, n, dim), torch.ones(2, n, dtype=torch.bool))
    assert logits_BC.shape == (2, checkpoint.procedure.n_components)


@pytest.mark.usefixtures("module")
def test_its_settings_survive_being_written_and_read(settings_text: str) -> None:
    config = parse_config(settings_text, where="tiny", overrides=OWN)
    assert parse_config(dump_config(config), where="again") == config


@pytest.mark.usefixtures("module")
def test_its_size_is_counted_without_computing(settings_text: str) -> None:
    config = parse_config(settings_text, where="tiny", overrides=OWN)
    dim = config.encoder.embedding_dim
    assert stage_sizes(config, 3)[-1].parameters == (dim * 12 + 12) + (12 * 3 + 3)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("nowhere:Pooled", r"temporal model 'nowhere:Pooled': there is no module 'nowhere'; .*PYTHONPATH"),
        ("pooled:Pool", r"temporal model 'pooled:Pool': its module has no such class"),
        ("collections:Counter", r"'collections:Counter' does not work \(TypeError: .*\); it is called as Class"),
        ("pooled:Wrong", r"'pooled:Wrong' gives \(2, 16\) for 2 clips; forward returns logits .*: \(2, 3\)"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_before_training(
    module: Path, settings_text: str, kind: str, complaint: str
) -> None:
    wrong = "\n\nclass Wrong(Pooled):\n    def forward(self, clip, mask):\n        return clip[:, -1]\n"
    module.write_text(module.read_text() + wrong)
    config = parse_config(settings_text, where="tiny", overrides=[f"temporal.kind={kind}"])
    with pytest.raises(InputError, match=complaint):
        build_temporal(config, 3)


def test_a_wrong_setting_of_a_model_of_ours_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match=r"my\.yaml:3: temporal\.width is 0: it should be greater"):
        parse_config("temporal:\n  kind: lstm\n  width: 0\n", where="my.yaml")

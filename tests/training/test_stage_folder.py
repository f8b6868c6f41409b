"""A stage goes on with nothing but what it was begun with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from stormpsr.config import Config, dump_config, parse_config
from stormpsr.errors import InputError
from stormpsr.training.stage_folder import StageFolder, digest_of


def begun(path: Path, **about: object) -> StageFolder:
    path.mkdir(parents=True, exist_ok=True)
    (path / "stage.json").write_text(json.dumps(about))
    return StageFolder(path)


def without(text: str, setting: str) -> str:
    lines = [line for line in text.splitlines() if not line.strip().startswith(f"{setting}:")]
    assert len(lines) < len(text.splitlines())
    return "\n".join(lines)


def test_a_setting_that_is_newer_than_the_stage_has_its_default(tmp_path: Path) -> None:
    old = without(dump_config(Config()), "aligned")
    begun(tmp_path / "a", config=old, finished=False).begin(Config(), resume=True)
    other = parse_config("clips: {aligned: true}", where="test")
    with pytest.raises(
        InputError, match=r"other settings: clips\.aligned was False and is True; choose another folder"
    ):
        begun(tmp_path / "b", config=old, finished=False).begin(other, resume=True)


def test_settings_that_differ_are_named_and_if_they_are_many_the_first(tmp_path: Path) -> None:
    folder = begun(tmp_path, config=dump_config(Config()), finished=False)
    few = parse_config("{seed: 2, temporal: {kind: lstm}}", where="test")
    with pytest.raises(InputError) as complaint:
        folder.check(few, resume=True)
    said = str(complaint.value)
    assert "seed was 0 and is 2, temporal.kind was transformer and is lstm" in said
    many = parse_config(
        "train_encoder: {epochs: 1, learning_rate: 1, momentum: 0, margin: 0}\nseed: 1\nname: x", where=""
    )
    with pytest.raises(InputError, match=r"train_encoder\.\w+ was .*, and 1 more; "):
        folder.check(many, resume=True)


def test_a_stage_with_a_setting_that_is_gone_says_so(tmp_path: Path) -> None:
    folder = begun(tmp_path, config="clips: {colour: red}\n", finished=False)
    with pytest.raises(InputError, match=r"not known any more: there is no key 'clips\.colour'; choose another"):
        folder.begin(Config(), resume=True)


@pytest.mark.parametrize("config", [1, ["seed"], True])
def test_a_stage_begun_with_what_are_no_settings_says_so(tmp_path: Path, config: object) -> None:
    with pytest.raises(InputError, match=r"stage\.json: 'config' is .*, which are no settings; delete the folder"):
        begun(tmp_path, config=config, finished=False).check(Config(), resume=True)


def test_a_stage_is_not_resumed_from_other_networks_than_it_began_from(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "temporal")
    folder.begin(Config(), resume=False, began_from="abc")
    folder.begin(Config(), resume=True, began_from="abc")
    with pytest.raises(InputError, match=r"another stage before than there is now; delete the folder .*temporal"):
        folder.begin(Config(), resume=True, began_from="xyz")
    folder.finish()
    assert (folder.is_finished, folder.began_from) == (True, "abc")


def test_a_stage_that_never_wrote_down_what_it_began_from_is_accepted(tmp_path: Path) -> None:
    folder = begun(tmp_path, config=dump_config(Config()), finished=False)
    folder.begin(Config(), resume=True, began_from="abc")
    assert folder.began_from is None  # nobody knows
    folder.begin(Config(), resume=True, began_from="xyz")


def test_a_digest_is_of_names_shapes_and_numbers() -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(3)}
    others = [
        {**tensors, "a": tensors["a"] + 1e-6},
        {**tensors, "a": tensors["a"].reshape(3, 2)},
        {"b": tensors["a"], "count": tensors["count"]},
        {**tensors, "count": torch.tensor(4)},
        {"a": tensors["a"]},
    ]
    same = {"count": torch.tensor(3), "a": tensors["a"].t().contiguous().t()}
    assert digest_of(same) == digest_of(tensors)
    assert len({digest_of(found) for found in (tensors, *others)}) == 6

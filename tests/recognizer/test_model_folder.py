"""A model's folder: packed, halved, read strictly, and of one procedure."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stormpsr.decoding.fusion import FusionSettings
from stormpsr.decoding.procedure_filter import FilterSettings
from stormpsr.errors import InputError
from stormpsr.procedure.model import Component, Procedure
from stormpsr.recognizer.model_folder import (
    RecognizerSettings,
    load_model,
    load_settings,
    pack_model,
    procedure_difference,
    resolve_model,
    save_settings,
)
from stormpsr.recognizer.networks import Networks, View


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def test_a_packed_model_has_both_streams_and_says_nothing(model_folder: Path) -> None:
    model = load_model(model_folder)
    assert model.streams == ("detection", "temporal")
    assert model.methods == ("detection", "temporal", "average", "filter")
    assert model.ready_methods == ("detection", "temporal", "average")  # nobody has fitted the filter
    assert model.method_or_fallback(None) == "average"
    assert model.notes == ()
    assert model.metrics["stream"] == {"event_f1": 0.5}
    names = {"recognizer.yaml", "procedure.yaml", "metrics.json", "stream", "detector"}
    assert {path.name for path in model_folder.iterdir()} == names


def test_the_temporal_model_runs_at_the_pace_of_its_window(stream_folder: Path, tmp_path: Path) -> None:
    assert load_model(pack_model(tmp_path / "m", stream=stream_folder)).settings.temporal_stride == 4  # 16 of 4


def test_half_of_the_bytes_compute_nearly_the_same(
    model_folder: Path, stream_folder: Path, detector_folder: Path, tmp_path: Path
) -> None:
    halved = pack_model(tmp_path / "half", stream=stream_folder, detector=detector_folder, half=True)
    assert bytes_of(halved) < 0.75 * bytes_of(model_folder)  # small networks have many short vectors, which stay
    ours, theirs = load_model(halved).networks, load_model(model_folder).networks
    assert ours.stream is not None
    assert all(p.dtype == torch.float32 for p in ours.stream.model.parameters())
    images = [View(image) for image in np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)]
    np.testing.assert_allclose(ours.encode(images), theirs.encode(images), atol=0.02)
    half_found, found = (n.detect(images, range(4)) for n in (replace_floor(ours), replace_floor(theirs)))
    np.testing.assert_allclose(
        [d.detections[0].confidence for d in half_found], [d.detections[0].confidence for d in found], atol=0.02
    )


def replace_floor(networks: Networks) -> Networks:
    networks.settings = replace(networks.settings, detector_min_confidence=0.0)
    return networks


def test_strides_can_be_given_when_a_model_is_packed(stream_folder: Path, tmp_path: Path) -> None:
    packed = pack_model(tmp_path / "model", stream=stream_folder, detector_stride=3)
    assert load_model(packed).settings.detector_stride == 3
    again = pack_model(tmp_path / "model", stream=stream_folder, temporal_stride=2)
    assert load_model(again).settings.detector_stride == 3  # kept
    assert load_model(again).settings.temporal_stride == 2


def test_a_model_that_is_packed_again_keeps_its_settings(
    stream_folder: Path, detector_folder: Path, tmp_path: Path
) -> None:
    folder = pack_model(tmp_path / "m", stream=stream_folder)
    tuned = load_settings(folder / "recognizer.yaml").with_method("average", FusionSettings(threshold=3.5))
    save_settings(folder / "recognizer.yaml", tuned)
    pack_model(folder, stream=stream_folder, detector=detector_folder)
    assert load_model(folder).settings.methods["average"].threshold == 3.5
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(("missing", "method"), [("stream", "detection"), ("detector", "temporal")])
def test_a_missing_stream_leaves_the_other_one(model_folder: Path, tmp_path: Path, missing: str, method: str) -> None:
    shutil.copytree(model_folder, tmp_path / "m")
    shutil.rmtree(tmp_path / "m" / missing)
    model = load_model(tmp_path / "m")
    assert model.methods == (method, "filter")
    assert model.method_or_fallback(None) == method
    assert f"({missing}/)" in model.notes[0]
    assert model.method_or_fallback("average") == method


def test_a_model_without_networks_is_refused(model_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(model_folder, tmp_path / "m", ignore=shutil.ignore_patterns("stream", "detector"))
    with pytest.raises(InputError, match="the model has no networks"):
        load_model(tmp_path / "m")


# ---------------------------------------------------------------------- one procedure
def other(lamp: Procedure) -> Procedure:
    return replace(lamp, name="torch", components=(Component("foot"), Component("rod"), Component("shade")))


def test_parts_of_different_procedures_do_not_fit(model_folder: Path, lamp: Procedure, tmp_path: Path) -> None:
    shutil.copytree(model_folder, tmp_path / "m")
    other(lamp).save(tmp_path / "m" / "detector" / "procedure.yaml")
    with pytest.raises(
        InputError, match=r"detector: this part is for procedure 'torch' and does not fit 'lamp': its comp"
    ):
        load_model(tmp_path / "m")


def test_packing_parts_of_different_procedures_is_refused(
    stream_folder: Path, detector_folder: Path, lamp: Procedure, tmp_path: Path
) -> None:
    shutil.copytree(detector_folder, tmp_path / "d")
    other(lamp).save(tmp_path / "d" / "procedure.yaml")
    with pytest.raises(InputError, match="pack parts that were trained for the same procedure"):
        pack_model(tmp_path / "m", stream=stream_folder, detector=tmp_path / "d")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_what_makes_procedures_different_is_named(lamp: Procedure) -> None:
    assert procedure_difference(lamp, replace(lamp, title="another title")) is None
    assert "'pole' and 'rod'" in (procedure_difference(lamp, other(lamp)) or "")
    assert procedure_difference(lamp, replace(lamp, fps=20)) == "it runs at 20 frames per second, not 10"
    one = {"build": lamp.variants["build"]}
    assert procedure_difference(lamp, replace(lamp, variants=one)) == "its variants differ"
    assert procedure_difference(lamp, replace(lamp, states=lamp.states[:5])) == "its states differ"


# ---------------------------------------------------------------------- finding and refusing
def test_a_name_that_is_no_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="there is no model 'vehicel'; give the folder of a model"):
        resolve_model("vehicel")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="this is a file"):
        resolve_model(tmp_path / "file")
    with pytest.raises(InputError, match="not a model's folder"):
        load_model(tmp_path)


def test_shipped_models_are_found_by_name(monkeypatch: pytest.MonkeyPatch, model_folder: Path, tmp_path: Path) -> None:
    from stormpsr.recognizer import model_folder as folder

    shutil.copytree(model_folder, tmp_path / "weights" / "toy")
    monkeypatch.setattr(folder.resources, "files", lambda package: tmp_path)
    monkeypatch.chdir(tmp_path)
    assert folder.shipped_models() == ["toy"]
    assert resolve_model("toy") == tmp_path / "weights" / "toy"


def test_packing_never_overwrites_something_else(stream_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.tex").touch()
    with pytest.raises(InputError, match="would be overwritten"):
        pack_model(tmp_path / "m", stream=stream_folder)
    with pytest.raises(InputError, match="needs a stream or a detector"):
        pack_model(tmp_path / "n")


# ---------------------------------------------------------------------- settings
def test_settings_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    settings = RecognizerSettings(temporal_stride=8, bridge_seconds=0.2).with_method("temporal", FusionSettings(9.5))
    settings = settings.with_method("average", FusionSettings(implied_share=0.1))
    save_settings(tmp_path / "recognizer.yaml", settings)
    read = load_settings(tmp_path / "recognizer.yaml")
    assert dict(read.methods) == {"detection": FusionSettings(), "filter": FilterSettings(), **settings.methods}
    assert (read.temporal_stride, read.bridge_seconds) == (8, 0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temporal_stride: 0", ":2: temporal_stride is 0"),
        ("temporal_strid: 4", ":2: there is no key 'temporal_strid'; did you mean 'temporal_stride'"),
        ("bridge_seconds: soon", ":2: bridge_seconds is 'soon'"),
        ("methods:\n  average: {threshold: -1}", "threshold is -1"),
        ("methods:\n  average: {implied_share: 2}", "implied_share is 2"),
        (
            "methods:\n  average:\n    treshold: 3",
            ":4: treshold is no setting of method 'average'; did you mean",
        ),
        ("methods:\n  avrage: {}", ":3: unknown method 'avrage'; did you mean 'average'"),
        ("methods: [average]", ":2: methods must be a table"),
        ("temporal_stride: true", ":2: temporal_stride is True"),
        ("temporal_stride: '4'", ":2: temporal_stride is '4'"),
        ("a: b: c", ":2: a ':' too many"),
    ],
)
def test_wrong_settings_are_named_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "recognizer.yaml"
    path.write_text(f"format: stormpsr recognizer 1\n{text}\n")
    with pytest.raises(InputError) as caught:
        load_settings(path)
    assert words in str(caught.value)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: lamp\n")
    with pytest.raises(InputError, match="does not describe a recogniser"):
        load_settings(tmp_path / "a.yaml")


def test_a_shipped_model_is_found_beside_a_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vehicle").mkdir()
    assert (resolve_model("vehicle") / "recognizer.yaml").is_file()
    Path("vehicle/recognizer.yaml").touch()
    assert resolve_model("vehicle") == Path("vehicle")

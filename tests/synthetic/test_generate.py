"""Tiny sets, from the command's arguments to the files on disk."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stormpsr.data.coco import read_coco_boxes
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    read_states,
    read_steps,
    steps_from_states,
)
from stormpsr.data.visibility import read_visibility
from stormpsr.errors import InputError
from stormpsr.files import draft_of
from stormpsr.procedure.model import Procedure
from stormpsr.synthetic import generate as generate_module
from stormpsr.synthetic.actions import ErrorRates
from stormpsr.synthetic.generate import GenerateResult, WorkerCrashError, generate, recording_folder
from stormpsr.synthetic.product import Product
from stormpsr.synthetic.recording import SPLITS, DatasetSpec, annotated_by_people_F, product_digest

Made = tuple[Path, GenerateResult, list[tuple[str, int, int]]]  # folder, result, calls of on_progress
PRODUCT = Product.load("vehicle")
RATES = ErrorRates(error_rate=0.3, removal_rate=0.3, omission_rate=0.0, uncorrected_share=0.3)


def tiny(**changes: object) -> DatasetSpec:
    spec = DatasetSpec(
        product="vehicle",
        product_digest=product_digest(PRODUCT),
        profile="quick",
        size=64,
        seed=3,
        counts={"train": 1, "val": 0, "test": 1},
        occlusion=0.3,
        rates=dict.fromkeys(SPLITS, RATES),
        max_seconds=4.0,
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    out = tmp_path_factory.mktemp("set") / "vehicle"
    calls: list[tuple[str, int, int]] = []
    result = generate(out, tiny(), workers=2, on_progress=lambda *call: calls.append(call))
    return out, result, calls


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_recording_has_the_layout_of_the_field(made: Made) -> None:
    out, result, _ = made
    assert len(result.made) == 2
    for spec in tiny().recordings(PRODUCT):
        folder = recording_folder(out, spec)
        assert len(list((folder / "rgb").glob("*.jpg"))) == 40
        assert (folder / "rgb" / "000000.jpg").is_file()
        names = {path.name for path in folder.iterdir()}
        assert {STEPS_FILE, STEPS_WITH_ERRORS_FILE, STATES_FILE, "OD_labels.json", "visibility.csv"} <= names
        assert {"procedure.yaml", "recording.json", "places.npz"} <= names
        about = json.loads((folder / "recording.json").read_text())
        assert about["variant"] == spec.variant
        assert Procedure.load(folder / "procedure.yaml").variant(about["variant"]).name in spec.id


def test_progress_reaches_the_end(made: Made) -> None:
    _, result, calls = made
    assert {call for call in calls if call[1] == call[2]} == {(name, 40, 40) for name in result.made}


def test_boxes_stand_on_readable_frames_with_the_class_of_their_state(
    made: Made,
) -> None:
    out, _, _ = made
    boxes_in_all = 0
    for spec in tiny().recordings(PRODUCT):
        folder = recording_folder(out, spec)
        procedure = Procedure.load(folder / "procedure.yaml")
        readable = read_visibility(folder / "visibility.csv", procedure.n_components).readable_F()
        states = read_states(folder / STATES_FILE, procedure)
        boxes = read_coco_boxes(folder / "OD_labels.json", procedure)
        boxes_in_all += len(boxes)
        for box in boxes:
            assert readable[box.frame]
            assert box.state_class == procedure.state_class(states.at(box.frame))
        counts = json.loads((folder / "recording.json").read_text())["counts"]
        assert counts["readable_frames"] == readable.sum()
        assert counts["boxes"] + counts["readable_without_class"] == counts["readable_frames"]
    assert boxes_in_all > 0


def test_one_recording_alone_gives_the_same_bytes(made: Made, tmp_path: Path) -> None:
    out, _, _ = made
    spec = tiny().recordings(PRODUCT)[1]
    alone = generate(tmp_path / "alone", tiny(), workers=1, only=[spec.id])
    assert alone.made == (spec.id,)
    assert files_of(recording_folder(tmp_path / "alone", spec)) == files_of(recording_folder(out, spec))


def test_a_set_that_is_complete_is_not_made_again(
    made: Made,
) -> None:
    out, result, _ = made
    again = generate(out, tiny())
    assert again.made == ()
    assert set(again.skipped) == set(result.made)


def test_an_interrupted_set_goes_on_where_it_stopped(made: Made, tmp_path: Path) -> None:
    out, _, _ = made
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    spec = tiny().recordings(PRODUCT)[0]
    half = recording_folder(copy, spec)
    half.rename(draft_of(half))  # what an interrupted process leaves behind
    (draft_of(half) / "recording.json").unlink()
    assert generate(copy, tiny()).made == (spec.id,)
    assert files_of(copy) == files_of(out)


def test_a_folder_with_another_set_is_refused(made: Made, tmp_path: Path) -> None:
    out, _, _ = made
    with pytest.raises(InputError, match=r"holds another set: seed is 3 there and 4 here.*another output folder"):
        generate(out, tiny(seed=4))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty and holds no set"):
        generate(tmp_path, tiny())
    with pytest.raises(InputError, match="the output is a file"):
        generate(tmp_path / "notes.txt", tiny())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 0}, "image size is 0"),
        ({"size": 65}, "image size is 65"),
        ({"counts": {"train": 0, "val": 0, "test": 0}}, "no recordings are asked for"),
        ({"counts": {"train": -1}}, "-1 recordings for train"),
        ({"occlusion": 2.0}, "occlusion is 2"),
        ({"difficulty": 1.1}, r"difficulty is 1\.1"),
        ({"train_difficulty": -0.5}, r"difficulty is -0\.5"),
        ({"profile": "slow"}, "no profile 'slow'"),
        ({"seed": -1}, "seed is -1"),
        ({"frame_step": 0}, "every 0th frame"),
        ({"frame_step": 4, "video": True}, "a video cannot leave frames out.*leave --video out"),
        ({"rates": {"train": ErrorRates(1.5, 0, 0, 0)}}, r"error_rate of train is 1\.5"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny(**changes)


def test_an_unknown_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recording '99_x'"):
        generate(tmp_path / "out", tiny(), only=["99_x"])


def test_a_recording_depends_on_its_number_and_not_on_how_many_there_are() -> None:
    few, many = (tiny(counts={"train": n, "val": 2, "test": 2}).recordings(PRODUCT) for n in (2, 5))
    assert {spec.id: spec for spec in few}.items() <= {spec.id: spec for spec in many}.items()
    assert len({spec.id for spec in many}) == len(many)


def test_a_worker_that_crashes_is_tried_again_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = tmp_path / "crash.py"
    crash.write_text("import os; os.abort()")
    real = subprocess.Popen
    attempts = []

    def popen(command: list[str], **options: object) -> subprocess.Popen[str]:
        attempts.append(command)
        return real([sys.executable, str(crash)], **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(generate_module.subprocess, "Popen", popen)
    with pytest.raises(WorkerCrashError, match=r"failed 3 times.*SIGABRT"):
        generate(tmp_path / "out", tiny(counts={"train": 1}), workers=1)
    assert len(attempts) == 3
    assert not list((tmp_path / "out" / "recordings" / "train").iterdir())


def test_a_full_disk_is_named_and_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tmp_path / "full.py"
    full.write_text(
        "import errno, sys\n"
        "from pathlib import Path\n"
        "def no_room(self, *arguments):\n"
        "    raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "Path.write_bytes = no_room\n"
        "from stormpsr.synthetic.recording import main\n"
        "sys.exit(main())\n"
    )
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[str]:
        return real([sys.executable, str(full), *command[3:]], **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(generate_module.subprocess, "Popen", popen)
    with pytest.raises(InputError, match=r"train/\w+: the disk is full .*; make room"):
        generate(tmp_path / "out", tiny(counts={"train": 1}), workers=1)
    assert not list((tmp_path / "out" / "recordings" / "train").iterdir())


def test_ctrl_c_leaves_no_process_and_nothing_half_written(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(
            tmp_path / "out",
            tiny(counts={"train": 1}, max_seconds=None),
            workers=1,
            on_progress=interrupt,
        )
    assert not list((tmp_path / "out" / "recordings" / "train").iterdir())
    if Path("/proc").is_dir():
        mine = [
            path.read_bytes()
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if os.access(path, os.R_OK) and path.exists()
        ]
        assert not any(str(tmp_path).encode() in command for command in mine)


def test_a_video_has_as_many_frames_as_the_labels_say(tmp_path: Path) -> None:
    import av

    spec = tiny(video=True, counts={"train": 1}, max_seconds=2.0)
    generate(tmp_path / "out", spec, workers=1)
    folder = recording_folder(tmp_path / "out", spec.recordings(PRODUCT)[0])
    with av.open(str(folder / "rgb.mp4")) as container:
        frames = sum(1 for _ in container.decode(video=0))
    assert frames == json.loads((folder / "recording.json").read_text())["n_frames"] == 20
    assert not (folder / "rgb").exists()


def test_a_recording_may_have_images_of_every_fourth_frame_only(tmp_path: Path) -> None:
    from stormpsr.data.dataset import Dataset

    whole = tiny(size=32, max_seconds=3.0, occlusion=0.0, counts={"train": 1, "val": 0, "test": 0})
    folders = []
    for step in (1, 4):
        spec = replace(whole, frame_step=step)
        generate(tmp_path / str(step), spec, workers=1)
        folders.append(recording_folder(tmp_path / str(step), spec.recordings(PRODUCT)[0]))
    drawn, sparse = (files_of(folder) for folder in folders)
    drawn_at = range(0, 30, 4)
    images = {f"rgb/{frame:06d}.jpg" for frame in drawn_at}
    assert {name for name in sparse if name.startswith("rgb/")} == images
    for name in (STATES_FILE, STEPS_FILE, STEPS_WITH_ERRORS_FILE, *images):
        assert sparse[name] == drawn[name], name  # same frames, same labels: nothing else has changed

    procedure = Procedure.load(folders[1] / "procedure.yaml")
    boxes = [read_coco_boxes(folder / "OD_labels.json", procedure) for folder in folders]
    assert boxes[1]
    assert boxes[1] == [box for box in boxes[0] if box.frame in drawn_at]
    about = json.loads(sparse["recording.json"])
    assert (about["n_frames"], about["frame_step"], about["counts"]["frames"]) == (30, 4, len(drawn_at))

    (recording,) = Dataset.open(tmp_path / "4", split="train")
    assert (recording.n_frames, len(recording.states_FC)) == (30, 30)
    assert [frame.index for frame in recording.frames()] == list(drawn_at)
    (last,) = recording.images_at([29])
    assert (last == next(recording.images_at([28]))).all()


def test_a_harder_world_has_the_same_work_in_harder_images_and_fewer_boxes_drawn_by_hand(
    made: Made, tmp_path: Path
) -> None:
    out, _, _ = made
    hard = tiny(difficulty=1.0)
    generate(tmp_path / "hard", hard)
    exact, by_hand = [], []
    for plain_spec, hard_spec in zip(tiny().recordings(PRODUCT), hard.recordings(PRODUCT), strict=True):
        plain, harder = recording_folder(out, plain_spec), recording_folder(tmp_path / "hard", hard_spec)
        for name in (STATES_FILE, STEPS_FILE, STEPS_WITH_ERRORS_FILE):
            assert (plain / name).read_bytes() == (harder / name).read_bytes()
        assert (plain / "rgb" / "000000.jpg").read_bytes() != (harder / "rgb" / "000000.jpg").read_bytes()
        procedure = Procedure.load(harder / "procedure.yaml")
        exact += read_coco_boxes(plain / "OD_labels.json", procedure)
        by_hand += read_coco_boxes(harder / "OD_labels.json", procedure)
        counts = json.loads((harder / "recording.json").read_text())["counts"]
        assert counts["boxes"] == len(read_coco_boxes(harder / "OD_labels.json", procedure))
    assert by_hand
    assert all(0 <= box.box.x0 <= box.box.x1 <= 64 for box in by_hand)
    assert {(box.frame, box.box) for box in by_hand}.isdisjoint({(box.frame, box.box) for box in exact})


def test_training_recordings_can_be_as_hard_as_each_other_or_not() -> None:
    counts = {"train": 40, "val": 2, "test": 2}
    plain, mixed = tiny(counts=counts), tiny(counts=counts, train_difficulty=0.8)
    hard = {split: [spec.difficulty for spec in mixed.recordings(PRODUCT) if spec.split == split] for split in counts}
    assert hard["val"] == hard["test"] == [0.0, 0.0]
    assert 0.0 <= min(hard["train"]) < 0.15
    assert 0.65 < max(hard["train"]) <= 0.8
    assert len(set(hard["train"])) > 35
    more = tiny(counts={**counts, "train": 41}, train_difficulty=0.8).recordings(PRODUCT)
    assert [spec.difficulty for spec in more[:40]] == hard["train"], "more recordings change those before"
    same = [replace(spec, difficulty=0.0) for spec in mixed.recordings(PRODUCT)]
    assert same == plain.recordings(PRODUCT), "the same work"


def test_people_annotate_more_than_what_is_clear_and_leave_stretches_out() -> None:
    from stormpsr.data.visibility import Visibility

    shows_FC = np.repeat([[1.0, 1.0], [1.0, 0.6]], 2000, axis=0).astype(
        np.float32
    )  # clear, then with fingers on a part
    seen = Visibility(shows_FC, np.ones_like(shows_FC), shows_FC)
    plain_F, hard_F = (annotated_by_people_F(seen, 5, 10.0, difficulty) for difficulty in (0.0, 1.0))
    assert plain_F.tolist() == seen.readable_F().tolist()
    assert 0.5 < hard_F[:2000].mean() < 0.9
    assert 0.5 < hard_F[2000:].mean() < 0.9
    assert 10 < np.abs(np.diff(hard_F.astype(int))).sum() < 300, "stretches, not single frames"


def test_a_set_from_before_there_were_difficulties_goes_on(made: Made, tmp_path: Path) -> None:
    out, _, _ = made
    old = tmp_path / "old"
    shutil.copytree(out, old)
    for path in (old / "dataset.json", *old.rglob("recording.json")):
        content = json.loads(path.read_text())
        for key in ("difficulty", "train_difficulty"):
            content.pop(key, None)
        content.get("parameters", {}).pop("difficulty", None)
        path.write_text(json.dumps(content))
    assert generate(old, tiny()).made == ()
    with pytest.raises(InputError, match=r"difficulty is 0\.0 there and 0\.5 here"):
        generate(old, tiny(difficulty=0.5))


@pytest.mark.parametrize("parameters", [None, [], "quick", {}])
def test_a_recording_whose_description_is_damaged_is_not_taken_for_one_of_these(
    made: Made, tmp_path: Path, parameters: object
) -> None:
    out, _, _ = made
    damaged = tmp_path / "damaged"
    shutil.copytree(out, damaged)
    path = next(damaged.rglob("recording.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "parameters": parameters}))
    with pytest.raises(InputError, match="was made from other parameters"):
        generate(damaged, tiny())


@pytest.mark.parametrize("counts", [None, [], {"train": "2"}, {"train": None}])
def test_a_damaged_description_of_a_set_is_refused(made: Made, tmp_path: Path, counts: object) -> None:
    out, _, _ = made
    damaged = tmp_path / "damaged"
    shutil.copytree(out, damaged)
    path = damaged / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "counts": counts}))
    with pytest.raises(InputError, match=r"dataset\.json: 'counts' is .*delete it and generate again"):
        generate(damaged, tiny())


def test_labels_convert_into_each_other_and_pass_the_audit(tmp_path: Path) -> None:
    from stormpsr.data.audit import audit_labels

    spec = tiny(size=16, max_seconds=40.0, counts={"train": 1, "val": 0, "test": 0})
    generate(tmp_path / "out", spec, workers=1)
    folder = recording_folder(tmp_path / "out", spec.recordings(PRODUCT)[0])
    procedure = Procedure.load(folder / "procedure.yaml")
    states = read_states(folder / STATES_FILE, procedure)
    assert len(states.frames) > 2
    for name, with_errors in ((STEPS_FILE, False), (STEPS_WITH_ERRORS_FILE, True)):
        assert read_steps(folder / name, procedure) == steps_from_states(states, procedure, with_errors=with_errors)
    audit = audit_labels(tmp_path / "out", procedure)
    assert audit.n_errors == 0, [str(finding) for finding in audit.findings]
    assert audit.n_recordings == 1

"""The published data sets in the layouts in which they are downloaded, made small."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
import pytest

from stormpsr.cli.main import main
from stormpsr.data.annotated_frames import read_frames
from stormpsr.data.dataset import Dataset
from stormpsr.data.downloads import UNITY_IDS, adopt_renders, check_downloads, find_parts, link_downloads, read_ids
from stormpsr.data.frame_cache import FrameCache
from stormpsr.data.layouts import find_recordings
from stormpsr.data.recording import variant_name_of
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

SPLITS = ("train", "val", "test")


def images(folder: Path, names: Iterable[str]) -> None:
    folder.mkdir(parents=True)
    for k, name in enumerate(names):
        cv2.imwrite(str(folder / name), np.full((36, 64, 3), k, dtype=np.uint8))


def video(path: Path, n_frames: int) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), 30, (32, 32))
    for _ in range(n_frames):
        writer.write(np.zeros((32, 32, 3), dtype=np.uint8))
    writer.release()


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def states(n_components: int, n_digits: int, *frames: int) -> str:
    """A raw label file in which one component after the other is put on."""
    rows = [[int(k < done) for k in range(n_components)] for done in range(len(frames))]
    return "".join(f"{frame:0{n_digits}d}.jpg,{','.join(map(str, r))}\n" for frame, r in zip(frames, rows, strict=True))


# ---------------------------------------------------------------------- MECCANO
@pytest.fixture
def meccano_parts(tmp_path: Path) -> list[Path]:
    """Frames by `Train`, numbered from 1; labels and boxes by `train`, in folders of their own."""
    frames, labels, boxes = (tmp_path / name for name in ("RGB_frames", "MECCANO_PSR_Annotations", "MECCANO_ASD"))
    for split, name in zip(SPLITS, ("0001", "0004", "0008"), strict=True):
        images(frames / split.capitalize() / name, (f"{n:05d}.jpg" for n in range(1, 21)))
        first = ",".join("10001000100000000")  # the first state that has a class
        text(labels / split / name / "PSR_labels_raw.csv", f"{states(17, 5, 0)}00005.jpg,{first}\n")
        steps = "00005.jpg,0,Install left dampling fork\n00005.jpg,12,\n00005.jpg,24,\n"
        text(labels / split / name / "PSR_labels.csv", steps)
        text(boxes / split / f"{name}_GT.csv", "00006.jpg,0,1,0.5,0.5,0.5,0.5\n00007.jpg,0,1,0.5,0.5,0.4,0.5\n")
    return [frames, labels, boxes]


def test_meccano_is_linked_from_its_three_folders(
    meccano_parts: list[Path], meccano: Procedure, tmp_path: Path
) -> None:
    link_downloads(meccano_parts, tmp_path / "data", meccano)
    dataset = Dataset.open(tmp_path / "data")
    assert [(r.split, r.name, r.n_frames, r.fps) for r in dataset] == [
        ("test", "0008", 21, 12.0),
        ("train", "0001", 21, 12.0),
        ("val", "0004", 21, 12.0),
    ]
    assert dataset["0001"].source.numbers()[0] == 1
    frames = read_frames(tmp_path / "data", "train", meccano)
    assert [(frame.frame, frame.state_class) for frame in frames.readable] == [(6, 1), (7, 1)]
    assert len(frames.unreadable) == 18


def test_frames_alone_are_found_whatever_the_case_of_a_split(meccano_parts: list[Path], meccano: Procedure) -> None:
    dataset = Dataset.open(meccano_parts[0], "val", meccano)
    assert [(r.name, r.states) for r in dataset] == [("0004", None)]


def test_a_locator_learns_from_boxes_of_meccano(meccano_parts: list[Path], meccano: Procedure, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from stormpsr.training.data import boxed_frames_of

    link_downloads(meccano_parts, tmp_path / "data", meccano)
    boxed = boxed_frames_of(list(Dataset.open(tmp_path / "data", "train")), meccano)
    assert boxed.frame_M.tolist() == [6, 7]
    # half of 64 pixels, half of 36 of which 28 are border, as shares of the square
    assert boxed.corners_M4[0].tolist() == pytest.approx([0.25, 0.359375, 0.75, 0.640625])


def test_a_recording_that_has_no_labels_is_told_and_left_out(
    meccano_parts: list[Path], meccano: Procedure, tmp_path: Path
) -> None:
    images(meccano_parts[0] / "Train" / "0002", ["00001.jpg"])
    found = check_downloads(meccano_parts, meccano)
    assert found.errors == ["no labels: 0002"]
    assert "train: 2 recordings, 11 were published" in found.notes
    linked, left_out = link_downloads(meccano_parts, tmp_path / "data", meccano)
    assert [part.name for part in linked] == ["0008", "0001", "0004"]
    assert [part.name for part in left_out] == ["0002"]


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own")
@pytest.mark.parametrize("target", ["PSR_labels.csv", "nowhere"])
def test_links_that_lead_in_a_circle_or_nowhere_are_no_files(
    meccano_parts: list[Path], meccano: Procedure, target: str
) -> None:
    label = meccano_parts[1] / "train" / "0001" / "PSR_labels.csv"
    label.unlink()
    label.symlink_to(target)
    found = check_downloads(meccano_parts, meccano)
    assert [path.name for path in found.recordings[1].labels] == ["PSR_labels_raw.csv"]


def test_frames_in_two_places_are_refused(meccano_parts: list[Path], tmp_path: Path) -> None:
    images(tmp_path / "Depth_frames" / "Train" / "0001", ["00001.png"])
    with pytest.raises(InputError, match="'0001' has frames in two places"):
        find_parts([*meccano_parts, tmp_path / "Depth_frames"])


def test_a_recording_in_two_splits_is_refused(meccano_parts: list[Path]) -> None:
    text(meccano_parts[2] / "val" / "0001_GT.csv", "")
    with pytest.raises(InputError, match="'0001' is in split 'train' and in 'val'"):
        find_parts([meccano_parts[0], meccano_parts[2] / "val"])


def test_a_missing_image_and_a_label_beyond_the_end_are_errors(meccano_parts: list[Path], meccano: Procedure) -> None:
    (meccano_parts[0] / "Train" / "0001" / "00010.jpg").unlink()
    text(meccano_parts[1] / "val" / "0004" / "PSR_labels.csv", "00099.jpg,0,\n")
    assert sorted(check_downloads(meccano_parts, meccano).errors) == [
        "0001: the image after frame 9 is missing",
        "0004: PSR_labels.csv goes up to frame 99, the images up to 20",
    ]


def test_the_published_boxes_of_meccano_are_as_many_as_were_published(meccano_psr: Path, meccano: Procedure) -> None:
    """In a few frames two boxes are drawn: they count once."""
    boxes = meccano_psr.with_name("meccano_asd")
    if not boxes.is_dir():
        pytest.skip(f"there are no MECCANO boxes at {boxes}")
    found = check_downloads([meccano_psr, boxes], meccano)
    assert {split: row["boxes"] for split, row in found.counts().items()} == {"train": 6928, "val": 3052, "test": 3655}
    assert found.notes == []


def test_what_a_check_refuses_is_not_linked(meccano_parts: list[Path], meccano: Procedure, tmp_path: Path) -> None:
    text(meccano_parts[1] / "val" / "0004" / "PSR_labels.csv", "06205.jpg,0,\n")
    message = "0004: PSR_labels.csv goes up to frame 6205, the images up to 20; .*'stormpsr data check' tells all"
    with pytest.raises(InputError, match=message):
        link_downloads(meccano_parts, tmp_path / "data", meccano)
    assert not (tmp_path / "data").exists()


def test_recordings_are_found_as_deep_as_they_are_linked_from(meccano_parts: list[Path], tmp_path: Path) -> None:
    deep = tmp_path / "deep" / "release" / "PSR"
    deep.mkdir(parents=True)
    meccano_parts[1].rename(deep / "labels")
    expected = [("test", "0008"), ("train", "0001"), ("val", "0004")]
    for found in (find_parts([tmp_path / "deep"]), find_recordings(tmp_path / "deep")):
        assert [(one.split, one.name) for one in found] == expected


# ---------------------------------------------------------------------- IndustReal
@pytest.fixture
def industreal_folder(tmp_path: Path) -> Path:
    """As it is unpacked: one recording begins at frame 30, other cameras lie beside `rgb`."""
    root = tmp_path / "IndustReal"
    for split, name, first in (("train", "11_assy_0_1", 30), ("val", "02_assy_0_1", 0), ("test", "03_main_0_1", 0)):
        place = root / "recordings" / split / name
        images(place / "rgb", (f"{n:06d}.jpg" for n in range(first, first + 30)))
        images(place / "stereo_left", ["000000.jpg"])
        text(place / "PSR_labels_raw.csv", states(11, 6, 0, first + 5, first + 12))
        text(place / "PSR_labels.csv", f"{first + 5:06d}.jpg,0,Install base\n{first + 12:06d}.jpg,3,x\n")
        text(place / "gaze.csv", "000000.jpg,1,2\n")
        box = {"id": 1, "image_id": 7, "category_id": 1, "bbox": [10, 5, 30, 20]}
        image = {"id": 7, "file_name": f"{first + 6:06d}.jpg", "width": 64, "height": 36}
        text(place / "OD_labels.json", json.dumps({"images": [image], "annotations": [box]}))
    text(root / "train.csv", "x,1\n")
    (root / "part_geometries").mkdir()
    return root


def test_industreal_is_read_as_it_is_unpacked(industreal_folder: Path, industreal: Procedure) -> None:
    assert check_downloads([industreal_folder], industreal).errors == []
    dataset = Dataset.open(industreal_folder, procedure=industreal)
    assert [(r.split, r.name, r.n_frames) for r in dataset] == [
        ("test", "03_main_0_1", 30),
        ("train", "11_assy_0_1", 60),
        ("val", "02_assy_0_1", 30),
    ]
    assert [len(read_frames(industreal_folder, split, industreal).readable) for split in SPLITS] == [1, 1, 1]


def test_the_first_image_stands_for_frames_before_it(
    industreal_folder: Path, industreal: Procedure, tmp_path: Path
) -> None:
    recording = Dataset.open(industreal_folder, "train", industreal)[0]
    frames = FrameCache(tmp_path / "cache", 16).frames(recording.source)
    assert [int(frames[number][8, 8, 0]) for number in (0, 30, 31, 59)] == [0, 0, 1, 29]
    assert next(iter(recording.frames())).index == 30
    notes = check_downloads([industreal_folder], industreal).notes
    assert "11_assy_0_1: images begin at frame 30, which stands for those before it" in notes


# ---------------------------------------------------------------------- IMPACT
NAMES = ("20250411_1628_color_front_clipped", "20250407_1420_color_front_clipped")


@pytest.mark.parametrize("as_video", [True, False])
def test_impact_is_linked_from_videos_or_frames_without_leading_zeros(tmp_path: Path, as_video: bool) -> None:
    impact = Procedure.load("impact")
    for name, rows in zip(NAMES, ("0.jpg,{0}\n9.jpg,1,{1}\n", "0.jpg,1,{1}\n9.jpg,0,{1}\n"), strict=True):
        labels = rows.format(",".join("0" * 17), ",".join(("1" if rows.startswith("0.jpg,1") else "0") * 16))
        text(tmp_path / "labels_front_only_v1" / "test" / name / "PSR_labels_raw.csv", labels)
        step = "9.jpg,0,Install anti_vibration_handle\n" if "{0}" in rows else "9.jpg,2,Remove it\n"
        text(tmp_path / "labels_front_only_v1" / "test" / name / "PSR_labels.csv", step)
        if as_video:
            (tmp_path / "videos_front").mkdir(exist_ok=True)
            video(tmp_path / "videos_front" / f"{name}.mp4", n_frames=12)
        else:
            images(tmp_path / "videos_front" / name, (f"{n}.jpg" for n in range(12)))
    roots = [tmp_path / "videos_front", tmp_path / "labels_front_only_v1"]
    assert check_downloads(roots, impact).errors == []
    link_downloads(roots, tmp_path / "data", impact)
    found = {r.name: r for r in Dataset.open(tmp_path / "data", "test")}
    assert {name: (r.n_frames, r.fps) for name, r in found.items()} == dict.fromkeys(NAMES, (12, 30.0))
    assert [variant_name_of(found[name], impact) for name in NAMES] == ["assembly", "disassembly"]


# ---------------------------------------------------------------------- renders
@pytest.fixture
def unity(tmp_path: Path) -> Path:
    """Renders with the ids of another program, and names that are not states."""
    folder = tmp_path / "synthetic"
    images(folder / "images", ("1.png", "2.png", "3.png"))
    entries = [{"id": k, "file_name": f"{k}.png", "width": 64, "height": 36} for k in (1, 2, 3)]
    boxes = [
        {"id": k, "image_id": k, "category_id": unity_id, "bbox": [10, 5, 30, 20]}
        for k, unity_id in ((1, 1), (2, 14), (3, 23))
    ]
    categories = [{"id": number, "name": f"object_{number}"} for number in (1, 14, 23)]
    content = {"images": entries, "annotations": boxes, "categories": categories}
    text(folder / "labels_coco.json", json.dumps(content))
    return folder


def test_ids_of_unity_are_mapped_to_states(unity: Path, industreal: Procedure) -> None:
    pytest.importorskip("torch")
    from stormpsr.training.data import load_renders

    path, n = adopt_renders(unity, industreal, UNITY_IDS)
    assert (path, n) == (unity / "annotations.json", 2)  # an error state does not say which part is wrong
    renders = load_renders([unity], industreal)
    assert renders.states == tuple(industreal.states[k].bits for k in (15, 1))


def test_every_unity_id_is_another_class() -> None:
    assert sorted(UNITY_IDS.values()) == list(range(24))
    assert [UNITY_IDS[k] for k in (1, 2)] == [15, 12]


def test_names_that_are_not_states_are_refused(unity: Path, industreal: Procedure, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"category 'object_1' is not a state of 'industreal'; .*--ids unity"):
        adopt_renders(unity, industreal, None)
    (unity / "labels_coco.json").rename(unity / "images" / "annotations.json")
    from stormpsr.data.coco import read_state_images

    with pytest.raises(InputError, match="category 'object_1' is not a state"):
        read_state_images(unity / "images" / "annotations.json", industreal)


@pytest.mark.parametrize(("unity_id", "is_refused"), [(1, True), (14, False)])
def test_ids_that_contradict_the_name_of_a_state_are_refused(
    unity: Path, industreal: Procedure, unity_id: int, is_refused: bool
) -> None:
    """Category 14 of the renders is class 1, whose name it may have; category 1 is another one."""
    content = json.loads((unity / "labels_coco.json").read_text())
    category = next(category for category in content["categories"] if category["id"] == unity_id)
    category["name"] = industreal.states[1].name
    text(unity / "labels_coco.json", json.dumps(content))
    if not is_refused:
        assert adopt_renders(unity, industreal, UNITY_IDS)[1] == 2
        return
    with pytest.raises(InputError, match="category 1 is called '10000000000', class 1, but its id means class 15; "):
        adopt_renders(unity, industreal, UNITY_IDS)


def test_images_are_found_by_windows_paths_and_counted_once(unity: Path, industreal: Procedure) -> None:
    content = json.loads((unity / "labels_coco.json").read_text())
    for image in content["images"]:
        image["file_name"] = "images\\" + image["file_name"]
    content["annotations"][1]["image_id"] = 1  # two boxes in the first image
    text(unity / "labels_coco.json", json.dumps(content))
    path, n = adopt_renders(unity, industreal, UNITY_IDS)
    assert n == 1
    written = json.loads(path.read_text())
    assert [image["file_name"] for image in written["images"]] == ["images/1.png"]
    assert len(written["annotations"]) == 2


def test_a_file_may_say_what_ids_mean(tmp_path: Path, unity: Path, industreal: Procedure) -> None:
    text(tmp_path / "ids.yaml", "1: 2\n14: 3\n23: 4\n")
    assert adopt_renders(unity, industreal, read_ids(str(tmp_path / "ids.yaml")))[1] == 3
    text(tmp_path / "ids.yaml", "1: two\n")
    with pytest.raises(InputError, match="no table of class ids"):
        read_ids(str(tmp_path / "ids.yaml"))


def test_renders_are_read_when_they_are_asked_for(unity: Path, industreal: Procedure, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from stormpsr.training.data import RenderImages, load_renders

    adopt_renders(unity, industreal, UNITY_IDS)
    ((source, numbers),) = load_renders([unity], industreal).sources
    frames = FrameCache(tmp_path / "cache", 16).frames(source, numbers)
    renders = RenderImages([(frames, numbers), (frames, numbers[:1])])
    assert [int(image[8, 8, 0]) for image in renders] == [0, 1, 0]
    assert (len(renders), len(renders[1:])) == (3, 2)
    with pytest.raises(IndexError):
        renders[3]


# ---------------------------------------------------------------------- commands
def test_the_commands_check_link_and_prepare(
    meccano_parts: list[Path], unity: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [str(part) for part in meccano_parts]
    assert main(["data", "check", *parts, "-p", "meccano"]) == 0
    assert "3 recordings: 0 errors" in capsys.readouterr().out
    text(meccano_parts[1] / "train" / "0002" / "PSR_labels.csv", "")
    assert main(["data", "link", *parts, "-p", "meccano", "--out", str(tmp_path / "data")]) == 0
    said = capsys.readouterr()
    assert "3 recordings (1 train, 1 val, 1 test), 3 with boxes" in said.out
    assert said.err == "note: left out: 0002 (no frames)\n"
    assert main(["data", "link", *parts, "-p", "meccano", "--out", str(tmp_path / "data")]) == 2
    assert main(["data", "check", parts[0], "-p", "meccano"]) == 1
    capsys.readouterr()
    assert main(["data", "renders", str(unity), "-p", "industreal", "--ids", "unity"]) == 0
    assert capsys.readouterr().out.startswith("2 images: ")

"""Boxes of CVAT and Label Studio, out and back in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stormpsr.data.annotation_tools import ToolRecordings, between, read_cvat, read_label_studio
from stormpsr.data.box_exchange import export_recordings, read_exchange, write_recording_boxes
from stormpsr.data.boxes import Box
from stormpsr.data.coco import read_coco_boxes
from stormpsr.data.layouts import RecordingFolder, find_recordings
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

Read = Callable[[str], list[tuple[int, int, tuple[float, ...]]]]  # text of a file -> frame, class, corners


@pytest.fixture
def folder(write_lamp: Callable[..., Path]) -> RecordingFolder:
    """A recording of the lamp: 20 frames of 64 by 64 pixels; foot on from frame 4, pole from 8, shade wrong from 12."""
    return RecordingFolder("01_build", "train", write_lamp("train", "01_build"))


@pytest.fixture
def cvat(tmp_path: Path, folder: RecordingFolder, lamp: Procedure) -> Read:
    def read(text: str) -> list[tuple[int, int, tuple[float, ...]]]:
        path = tmp_path / "01_build.xml"
        path.write_text(text)
        found = read_cvat(path, ToolRecordings.of([folder], lamp))
        return [(box.frame, box.state_class, box.box.corners) for box in found]

    return read


@pytest.fixture
def studio(tmp_path: Path, folder: RecordingFolder, lamp: Procedure) -> Callable[[Any], list[Any]]:
    def read(content: Any) -> list[Any]:
        path = tmp_path / "tasks.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        found = read_label_studio(path, ToolRecordings.of([folder], lamp))
        return [(box.frame, box.state_class, box.box.corners) for box in found]

    return read


def box_xml(frame: int, left: float = 10, outside: int = 0, **more: object) -> str:
    attributes = {"frame": frame, "outside": outside, "xtl": left, "ytl": 20, "xbr": left + 10, "ybr": 40, **more}
    return "<box " + " ".join(f'{name}="{value}"' for name, value in attributes.items()) + "/>"


def track(*boxes: str, label: str = "state 2") -> str:
    return f'<annotations>\n<track id="0" label="{label}">\n' + "\n".join(boxes) + "\n</track>\n</annotations>"


def video_task(*keys: dict[str, Any], labels: tuple[str, ...] = ("state 2",), **data: object) -> list[Any]:
    place = {"y": 25, "width": 25, "height": 50, "rotation": 0}
    value = {"framesCount": 20, "sequence": [{**place, **key} for key in keys], "labels": list(labels)}
    result = {"type": "videorectangle", "from_name": "box", "to_name": "video", "value": value}
    return [{"data": {"video": "01_build.mp4", **data}, "annotations": [{"result": [result]}]}]


# ---------------------------------------------------------------------- out and back
@pytest.mark.parametrize("box_format", ["cvat", "label-studio"])
@pytest.mark.parametrize("video", [False, True])
def test_boxes_come_back_as_they_went_out(
    write_lamp: Callable[..., Path], lamp: Procedure, tmp_path: Path, box_format: Any, video: bool
) -> None:
    place = write_lamp("train", "01_build", video=video) / "OD_labels.json"
    before = read_coco_boxes(place, lamp)
    folders = find_recordings(tmp_path / "data")
    counts = export_recordings(tmp_path / "out", folders, lamp, box_format)
    assert counts == {"01_build": {"images": 20, "boxes": 15}}
    boxes = read_exchange(tmp_path / "out", lamp, folders)
    write_recording_boxes(boxes, {"01_build": place.parent}, replace=True)
    after = read_coco_boxes(place, lamp)
    assert [(box.frame, box.state_class) for box in after] == [(box.frame, box.state_class) for box in before]
    for old, new in zip(before, after, strict=True):
        assert new.box.corners == pytest.approx(old.box.corners, abs=0.02)


@pytest.mark.parametrize("box_format", ["cvat", "label-studio"])
def test_a_recording_without_boxes_goes_out_to_be_annotated(
    folder: RecordingFolder, lamp: Procedure, tmp_path: Path, box_format: Any
) -> None:
    (folder.path / "OD_labels.json").unlink()
    export_recordings(tmp_path / "out", [folder], lamp, box_format, every=8)
    files = sorted(path.name for path in (tmp_path / "out" / "images").rglob("*.png"))
    if box_format == "cvat":
        assert files == [f"{frame:06d}.png" for frame in range(20)]
    else:
        assert files == [f"01_build_{frame:06d}.png" for frame in (0, 8, 16)]
        assert all(task["annotations"] == [] for task in json.loads((tmp_path / "out" / "tasks.json").read_text()))
    assert read_exchange(tmp_path / "out", lamp, [folder]) == {}


def test_a_box_moves_evenly_between_key_frames() -> None:
    moved = list(between((4, Box(0, 0, 10, 10)), (8, Box(8, 4, 18, 14))))
    assert moved[0] == (4, Box(0, 0, 10, 10))
    assert moved[3] == (7, Box(6, 3, 16, 13))
    assert len(moved) == 4


# ---------------------------------------------------------------------- CVAT
def test_cvat_boxes_are_interpolated_until_they_are_outside(cvat: Read) -> None:
    found = cvat(track(box_xml(4, 10), box_xml(6, 14), box_xml(8, 14, outside=1)))
    assert [(frame, corners[0]) for frame, _, corners in found] == [(4, 10), (5, 12), (6, 14), (7, 14)]
    assert {state_class for _, state_class, _ in found} == {2}


def test_the_label_assembly_takes_the_state_of_the_labels(cvat: Read) -> None:
    found = cvat(track(box_xml(3), box_xml(4), box_xml(12), label="assembly"))
    assert [(frame, state) for frame, state, _ in found if frame in (3, 4, 8, 12)] == [(3, 1), (4, 2), (8, 3), (12, 5)]


def test_images_of_cvat_are_known_by_their_names(cvat: Read) -> None:
    box = '<box label="state 1" xtl="1" ytl="2" xbr="30" ybr="40"/>'
    found = cvat(f'<annotations><image id="0" name="train/01_build_000002.png">{box}</image></annotations>')
    assert found == [(2, 1, (1, 2, 30, 40))]


def test_a_file_with_entities_is_refused_before_anything_is_expanded(cvat: Read) -> None:
    bomb = (
        '<?xml version="1.0"?>\n<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<annotations>&b;</annotations>'
    )
    with pytest.raises(InputError, match=r"01_build.xml:2: the file has definitions of its own"):
        cvat(bomb)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<annotations><track", "01_build.xml:1: this is not XML"),
        ("<html/>", "01_build.xml:1: this is no file of CVAT"),
        ("<annotations><meta><project/></meta></annotations>", "export its tasks one by one"),
        (track(box_xml(4), label="lamp"), "01_build.xml:3: label 'lamp' is not a state"),
        (track(box_xml(99)), "01_build.xml:3: there is no frame 99 in recording '01_build', it has 20"),
        (track(box_xml(4), box_xml(4)), "01_build.xml:3: two boxes of one track in frame 4"),
        (track(box_xml(4, xtl="nan")), "01_build.xml:3: xtl is 'nan', not a number"),
        (track(box_xml(4, xtl=900)), "01_build.xml:3: a box outside the image"),
        (track(box_xml(4, rotation=12)), "01_build.xml:3: the box is rotated"),
        (track("<polygon frame='4'/>"), "01_build.xml:3: a shape that is no box: <polygon>"),
        (track("<box frame='4'/>"), "there is no attribute 'xtl'"),
        (track("<box frame='-1'/>"), "frame is '-1', not a whole number"),
        ('<?xml version="1.0" encoding="utb-8"?>\n<html/>', "01_build.xml:2: this is no file of CVAT"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(cvat: Read, text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        cvat(text)
    assert said in str(error.value)


def test_a_track_without_boxes_and_boxes_that_belong_to_nothing_say_nothing(cvat: Read) -> None:
    assert cvat(track()) == []
    assert cvat(f"<annotations><meta><track>{box_xml(4)}</track></meta></annotations>") == []
    assert cvat(f"<annotations><meta><image>{box_xml(4)}</image></meta></annotations>") == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
@pytest.mark.parametrize("name", ["01_build.xml", "tasks.json"])
def test_a_pipe_among_a_tools_files_is_refused_and_not_waited_for(
    tmp_path: Path, folder: RecordingFolder, lamp: Procedure, name: str
) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / name)
    code = """
import sys
from pathlib import Path
from stormpsr.data.box_exchange import read_exchange
from stormpsr.data.layouts import RecordingFolder
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
out, folder, procedure = map(Path, sys.argv[1:])
try:
    read_exchange(out, Procedure.load(procedure), [RecordingFolder("01_build", None, folder)])
except InputError as error:
    print(error)
"""
    paths = [str(tmp_path / "out"), str(folder.path), str(folder.path / "procedure.yaml")]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True, timeout=120)
    assert f"{name}: this is not a file" in done.stdout


def test_a_task_that_names_no_recording_says_which_there_are(
    tmp_path: Path, folder: RecordingFolder, lamp: Procedure
) -> None:
    path = tmp_path / "job_7.xml"
    path.write_text(track(box_xml(4)))
    with pytest.raises(InputError, match=r"'job_7' names no recording; .* recordings here are: 01_build"):
        list(read_cvat(path, ToolRecordings.of([folder], lamp)))
    named = track(box_xml(4)).replace("<track", "<meta><task><name>01_build</name></task></meta><track", 1)
    path.write_text(named)
    assert len(list(read_cvat(path, ToolRecordings.of([folder], lamp)))) == 1


# ---------------------------------------------------------------------- Label Studio
def test_frames_of_label_studio_count_from_one_and_go_on_while_they_are_enabled(studio: Callable[[Any], Any]) -> None:
    keys = {"frame": 1, "x": 0, "enabled": True}, {"frame": 3, "x": 25, "enabled": False}, {"frame": 19, "x": 50}
    found = studio(video_task(*keys))
    assert [(frame, corners) for frame, _, corners in found] == [
        (0, (0, 16, 16, 48)),
        (1, (8, 16, 24, 48)),
        (2, (16, 16, 32, 48)),
        (18, (32, 16, 48, 48)),
        (19, (32, 16, 48, 48)),
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"video": "/data/upload/1/3fa9c2d1-01_build.mp4"},
        {"video": "/data/local-files/?d=films/01_build/rgb.mp4"},
        {"video": "s3://bucket/x.mp4", "recording": "01_build"},
    ],
)
def test_a_task_is_known_by_what_its_file_is_called(studio: Callable[[Any], Any], data: dict[str, str]) -> None:
    assert [frame for frame, *_ in studio(video_task({"frame": 20, "x": 0}, **data))] == [19]


def test_rectangles_in_images_are_percent_of_the_image(studio: Callable[[Any], Any]) -> None:
    value = {"x": 25, "y": 50, "width": 50, "height": 25, "rectanglelabels": ["state 1"], "rotation": 0}
    result = {"type": "rectanglelabels", "value": value}
    ignored = {"type": "choices", "value": {"choices": ["blurred"]}}
    task = {
        "data": {"image": "/data/upload/7/ab12-01_build_000003.png"},
        "annotations": [{"result": [result, ignored]}],
    }
    assert studio([task]) == [(3, 1, (16, 32, 48, 48))]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "tasks.json:1: this is not JSON"),
        ({}, "this is no export of Label Studio"),
        ([7], "task #1: there is no 'data'"),
        ([{"data": {}, "annotations": 3}], "task #1: 'annotations' is no list"),
        (video_task({"frame": 0, "x": 0}), "task #1: result #1: "),
        (video_task({"frame": 1, "x": "left"}), "task #1: result #1: "),
        (video_task({"frame": 1, "x": 0}, labels=()), "task #1: result #1: "),
        (video_task({"frame": 1, "x": 0}, {"frame": 1, "x": 0}), "task #1: result #1: two key frames 1"),
        (video_task({"frame": 21, "x": 0}), "there is no frame 20 in recording '01_build'"),
        (video_task({"frame": 1, "x": 0, "rotation": 5}), "the box is rotated"),
        (video_task({"frame": 1, "x": 0}, labels=("state 1", "state 2")), "a box with 2 labels"),
        (video_task({"frame": 1, "x": 0}, labels=("lamp",)), "label 'lamp' is not a state"),
        (video_task({"frame": 1, "x": 0}, video="other.mp4"), "'other.mp4' names no recording"),
        (
            [{"data": {"video": "01_build.mp4"}, "annotations": [{"result": []}, {"result": []}]}],
            "task #1: 2 people annotated it",
        ),
    ],
)
def test_what_label_studio_cannot_mean_is_refused_with_its_place(
    studio: Callable[[Any], Any], content: Any, said: str
) -> None:
    with pytest.raises(InputError) as error:
        studio(content)
    assert said in str(error.value)

"""Frames with boxes, frames without, and everything that can be wrong with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpsr.data.annotated_frames import images_of, read_frames
from stormpsr.data.boxes import Box
from stormpsr.data.visibility import Visibility, write_visibility
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

WriteLamp = Callable[..., Path]


def change_boxes(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    path = folder / "OD_labels.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


# ---------------------------------------------------------------------- what is read
def test_frames_with_a_box_are_readable_and_all_others_are_negatives(lamp_data: Path, lamp: Procedure) -> None:
    frames = read_frames(lamp_data, "train", lamp)
    assert [frame.frame for frame in frames.readable] == [k for k in range(20) if k % 4 != 3]
    assert [frame.frame for frame in frames.unreadable] == [3, 7, 11, 15, 19]
    assert Counter(frame.state_class for frame in frames.readable) == {1: 3, 2: 3, 3: 3, 4: 3, 5: 3}


def test_where_visibility_was_measured_frames_say_which_parts_can_be_told(
    write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path
) -> None:
    folder = write_lamp()
    before = read_frames(tmp_path / "data", "train", lamp)
    assert {frame.told for frame in (*before.readable, *before.unreadable)} == {None}
    hidden = before.unreadable[0].frame
    n = 1 + max(frame.frame for frame in (*before.readable, *before.unreadable))
    open_FC = np.ones((n, 3), dtype=np.float32)
    shown_FC = open_FC.copy()
    shown_FC[hidden, 1] = 0.1
    write_visibility(folder / "visibility.csv", Visibility(shown_FC, open_FC, open_FC), lamp)
    after = read_frames(tmp_path / "data", "train", lamp)
    assert {frame.told for frame in after.readable} == {(True, True, True)}
    assert after.unreadable[0].told == (True, False, True)
    assert after.unreadable[0].bits is not None
    assert after.unreadable[0].box is None


def test_a_box_of_the_error_class_knows_from_the_labels_which_part_is_wrong(lamp_data: Path, lamp: Procedure) -> None:
    frames = read_frames(lamp_data, "train", lamp)
    assert [frame.bits for frame in frames.readable if frame.state_class == 5] == [(1, 1, -1)] * 3


def test_a_box_without_raw_labels_has_the_bits_of_its_class_and_an_error_none(
    write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path
) -> None:
    (write_lamp() / "PSR_labels_raw.csv").unlink()
    bits = {f.state_class: f.bits for f in read_frames(tmp_path / "data", "train", lamp).readable}
    assert bits == {1: (0, 0, 0), 2: (1, 0, 0), 3: (1, 1, 0), 4: (1, 1, 1), 5: None}


def test_boxes_are_corners_in_pixels(write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path) -> None:
    change_boxes(write_lamp(), lambda coco: coco["annotations"][0].update(bbox=[16, 32, 32, 16]))
    assert read_frames(tmp_path / "data", "train", lamp).readable[0].box == Box(16, 32, 48, 48)


def test_boxes_of_meccano_take_the_class_of_the_labelled_state_and_unlisted_states_are_left_out(
    write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path
) -> None:
    write_lamp(states=[(1, 0, 0), (0, 1, 0)])  # the second is no class of the lamp
    (tmp_path / "asd").mkdir()
    rows = ["000001.png,1,0,0.5,0.5,0.2,0.4", "000005.png,1,0,0.5,0.5,0.2,0.4"]
    (tmp_path / "asd" / "01_build_GT.csv").write_text("\n".join(rows))
    frames = read_frames(tmp_path / "data", "train", lamp, boxes_folder=tmp_path / "asd")
    assert [(f.frame, f.state_class) for f in frames.readable] == [(1, 2)]
    assert frames.readable[0].box is not None
    assert frames.readable[0].box.corners == pytest.approx((0.4 * 64, 0.3 * 64, 0.6 * 64, 0.7 * 64))
    assert 5 not in [frame.frame for frame in frames.unreadable]
    assert frames.n_without_class == 1


def test_a_box_that_reaches_a_little_over_the_border_is_cut_there(
    write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path
) -> None:
    change_boxes(write_lamp(), lambda coco: coco["annotations"][0].update(bbox=[-8, 0, 32, 32]))
    assert read_frames(tmp_path / "data", "train", lamp).readable[0].box == Box(0, 0, 24, 32)


def test_of_two_boxes_in_a_frame_the_second_is_ignored_with_a_note(
    write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path
) -> None:
    path = change_boxes(write_lamp(), lambda coco: coco["annotations"].append(coco["annotations"][0]))
    notes: list[Any] = []
    frames = read_frames(tmp_path / "data", "train", lamp, on_note=notes.append)
    assert len(frames.readable) == 15
    assert [str(note) for note in notes] == [f"{path}:1: frame 0 has two boxes, the second is ignored"]


def test_a_video_has_the_frames_of_a_folder_of_images(write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path) -> None:
    write_lamp("train")
    write_lamp("val", states=[(1, 0, 0)] * 3, video=True, name="02_film")
    write_lamp("val", states=[(1, 0, 0)] * 3, root=tmp_path / "other", name="02_film")
    film, folder = (read_frames(tmp_path / root, "val", lamp) for root in ("data", "other"))
    assert [(f.frame, f.box, f.bits) for f in film.readable] == [(f.frame, f.box, f.bits) for f in folder.readable]
    assert [f.frame for f in film.unreadable] == [3, 7, 11]
    backwards = [*film.readable[::-1], *film.unreadable]
    for ours, theirs in zip(images_of(backwards), images_of([*folder.readable[::-1], *folder.unreadable]), strict=True):
        assert np.abs(ours.astype(int) - theirs).max() <= 4


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda coco: coco["annotations"][0].update(bbox=[60, 60, 20, 20]), "frame 0: a box outside the image"),
        (lambda coco: coco["annotations"][0].update(bbox=[10, 10, 0, 20]), "without size"),
        (lambda coco: coco["annotations"][0].update(category_id=9), "category 9 is not a state class"),
        (lambda coco: coco["annotations"][0].update(category_id=0), "frame 0: its box is of the background class"),
        (lambda coco: coco["images"][0].update(file_name="000999.png"), "no image of frame 999"),
    ],
)
def test_a_box_that_cannot_be_meant_is_refused_with_the_name_of_its_file(
    write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path, change: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    path = change_boxes(write_lamp(), change)
    with pytest.raises(InputError, match=complaint) as caught:
        read_frames(tmp_path / "data", "train", lamp)
    assert caught.value.path == str(path)


def test_an_image_that_cannot_be_read_is_named(write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path) -> None:
    path = write_lamp() / "rgb" / "000002.png"
    path.write_bytes(b"no image")
    frames = read_frames(tmp_path / "data", "train", lamp)
    with pytest.raises(InputError, match="not an image") as caught:
        frames.readable[2].read()
    assert caught.value.path == str(path)


def test_an_empty_split_and_a_split_without_boxes_are_refused(
    write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path
) -> None:
    change_boxes(write_lamp(), lambda coco: coco.update(annotations=[]))
    with pytest.raises(InputError, match="no recordings in split 'val'"):
        read_frames(tmp_path / "data", "val", lamp)
    with pytest.raises(InputError, match="no boxes in any recording of split 'train'"):
        read_frames(tmp_path / "data", "train", lamp)


def test_a_recording_without_images_is_refused(write_lamp: WriteLamp, lamp: Procedure, tmp_path: Path) -> None:
    folder = write_lamp()
    for path in (folder / "rgb").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="no images"):
        read_frames(tmp_path / "data", "train", lamp)

"""Detection files: the published columns, and what bad ones get."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormpsr.data.detection_csv import read_detection_table, read_detections, write_detections
from stormpsr.data.events import StateDetection
from stormpsr.data.labels import Note
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

HEADER = "recording,frame,class,confidence,x,y,w,h\n"


def file_of(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "detections.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def frames(detections: list[StateDetection]) -> list[tuple[int, int]]:
    return [(detection.frame, detection.state_class) for detection in detections]


# ---------------------------------------------------------------------- what is accepted
def test_a_row_becomes_a_detection_of_its_recording(tmp_path: Path, lamp: Procedure) -> None:
    path = file_of(tmp_path, HEADER + "r1,12,3,0.75,10,20,30.5,40\nr2,0,0,1,0,0,0,0\n")
    assert read_detection_table(path, lamp) == {
        "r1": [StateDetection(12, 3, 0.75, (10.0, 20.0, 30.5, 40.0))],
        "r2": [StateDetection(0, 0, 1.0, (0.0, 0.0, 0.0, 0.0))],
    }


@pytest.mark.parametrize(
    "content",
    [
        HEADER + "r,12,3,0.5,1,1,1,1\n",
        "r,12,3,0.5,1,1,1,1\n",
        "name,frame id,cls,conf,x,y,w,h\nr,12,3,0.5,1,1,1,1\n",
        "\ufeff" + HEADER + "r,12,3,0.5,1,1,1,1\n",
        (HEADER + "\nr,12,3,0.5,1,1,1,1").replace("\n", "\r\n"),
        HEADER + " r , 000012.jpg , 3 , 5e-1 , 1,1,1,1 \n",
        HEADER + "r,rgb\\000012.jpg,3,0.5,1,1,1,1\n",
        HEADER + "r,C:\\data\\rgb\\000012.png,3,0.5,1,1,1,1\n",
    ],
    ids=["header", "no header", "other header", "BOM", "CRLF and blank line", "spaces", "Windows path", "drive"],
)
def test_the_same_detection_is_read_however_it_is_spelt(tmp_path: Path, content: str) -> None:
    assert read_detections(file_of(tmp_path, content)) == [StateDetection(12, 3, 0.5, (1.0, 1.0, 1.0, 1.0))]


def test_four_columns_are_detections_without_boxes(tmp_path: Path) -> None:
    assert read_detections(file_of(tmp_path, "r,5,2,0.9\n")) == [StateDetection(5, 2, 0.9, None)]


def test_confidences_are_rounded_as_the_published_programs_do(tmp_path: Path) -> None:
    assert read_detections(file_of(tmp_path, "r,5,2,0.87654\n"))[0].confidence == 0.877


def test_rows_out_of_order_are_sorted_with_one_note_per_recording(tmp_path: Path) -> None:
    notes: list[Note] = []
    path = file_of(tmp_path, "r,9,1,1\nr,5,2,1\nr,7,3,1\nother,1,1,1\nr,6,4,1\n")
    table = read_detection_table(path, on_note=notes.append)
    assert frames(table["r"]) == [(5, 2), (6, 4), (7, 3), (9, 1)]
    assert [(note.line, note.text) for note in notes] == [(2, "frame 5 comes after frame 9, sorted")]


def test_rows_of_one_frame_keep_their_order_and_duplicates_stay(tmp_path: Path) -> None:
    path = file_of(tmp_path, "r,5,2,0.4\nr,5,1,0.9\nr,5,2,0.4\nr,4,3,0.1\n")
    assert frames(read_detections(path)) == [(4, 3), (5, 2), (5, 1), (5, 2)]


@pytest.mark.parametrize("content", ["", HEADER, "\n\r\n", "\ufeff"])
def test_a_file_without_rows_has_no_detections(tmp_path: Path, content: str) -> None:
    assert read_detection_table(file_of(tmp_path, content)) == {}
    assert read_detections(file_of(tmp_path, content)) == []


# ---------------------------------------------------------------------- what is refused, with file and line
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("r,5,2", "a row with 3 columns; the columns are: recording, frame, class, confidence, x, y, w, h"),
        ("r;5;2;0.9", "a row with 1 column; the columns are"),
        ("r,5,2,0.9,1,1,1", "a row with 7 columns"),
        ("r,5,2,0.9,1,1,1,1,1", "a row with 9 columns"),
        (",5,2,0.9", "the recording has no name"),
        ("r,-5,2,0.9", "frame '-5' is negative; frames count from 0"),
        ("r,five,2,0.9", "'five' is not a frame"),
        ("r,5.5,2,0.9", "'5.5' is not a frame"),
        ("r,5,two,0.9", "the class is 'two', not a whole number"),
        ("r,5,2.0,0.9", "the class is '2.0', not a whole number"),
        ("r,5,6,0.9", "state class 6 does not exist in 'lamp'; its classes are 0 to 5"),
        ("r,5,-1,0.9", "state class -1 does not exist in 'lamp'"),
        ("r,5,2,nan", "confidence is 'nan', not a finite number"),
        ("r,5,2,inf", "confidence is 'inf', not a finite number"),
        ("r,5,2,1.01", "confidence is 1.01, but it must lie between 0 and 1"),
        ("r,5,2,-0.5", "confidence is -0.5, but it must lie between 0 and 1"),
        ("r,5,2,sure", "confidence is 'sure', not a number"),
        ("r,5,2,", "confidence is '', not a number"),
        ("r,5,2,0.9,1,1,1,wide", "h is 'wide', not a number"),
        ("r,5,2,0.9,1,1,nan,1", "is 'nan', not a finite number"),
        ('r,5,"2,0.9', "this is not a CSV row"),
        ("r,5,2\0,0.9", "holds binary data"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, lamp: Procedure, row: str, message: str) -> None:
    path = file_of(tmp_path, HEADER + "r,1,1,1\n" + row + "\n")
    with pytest.raises(InputError) as caught:
        read_detection_table(path, lamp)
    assert caught.value.path == str(path)
    assert caught.value.line == 3
    assert message in str(caught.value)


@pytest.mark.parametrize("row", ["r,-5,2,0.9", "r,five,2,0.9", "r,5,two,0.9", "r,five,two,0.9", "recording,frame"])
def test_a_bad_first_row_is_not_mistaken_for_a_header(tmp_path: Path, row: str) -> None:
    with pytest.raises(InputError, match=r"detections\.csv:1: "):
        read_detection_table(file_of(tmp_path, row + "\nr,5,2,0.9\n"))


def test_without_a_procedure_classes_are_not_checked(tmp_path: Path) -> None:
    assert frames(read_detections(file_of(tmp_path, "r,5,999,0.9\n"))) == [(5, 999)]


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x00", b"\xff\xfer\x00,\x005\x00"])
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match=r"detections\.csv:1: (this is not text in UTF-8|holds binary data)"):
        read_detection_table(file_of(tmp_path, content))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.csv: there is no such file"):
        read_detection_table(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="this is a folder"):
        read_detection_table(tmp_path)


def test_a_file_of_several_recordings_is_refused_where_one_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the file holds 2 recordings; use read_detection_table"):
        read_detections(file_of(tmp_path, "r1,5,2,1\nr2,5,2,1\n"))


# ---------------------------------------------------------------------- writing
DETECTIONS = st.lists(
    st.builds(
        StateDetection,
        frame=st.integers(0, 10**6),
        state_class=st.integers(0, 30),
        confidence=st.integers(0, 1000).map(lambda thousandths: thousandths / 1000),
        box=st.tuples(*[st.integers(0, 4000).map(float)] * 4),
    ),
    max_size=8,
)


@given(first=DETECTIONS, second=DETECTIONS)
def test_what_was_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, first: list, second: list) -> None:
    path = tmp_path_factory.mktemp("detections") / "d.csv"
    table = {"01_assy": sorted(first, key=lambda d: d.frame), "with, comma": sorted(second, key=lambda d: d.frame)}
    write_detections(path, table)
    assert read_detection_table(path) == {name: rows for name, rows in table.items() if rows}


def test_a_detection_without_a_box_is_written_with_zeros(tmp_path: Path) -> None:
    write_detections(tmp_path / "d.csv", {"r": [StateDetection(5, 2, 0.25)]})
    assert (tmp_path / "d.csv").read_text() == HEADER + "r,5,2,0.25,0,0,0,0\n"

"""The field's label files: what is read, what is noted, what is refused and where, and how states become steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stormpsr.data.events import StepEvent
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    Note,
    StateTimeline,
    read_states,
    read_steps,
    steps_from_states,
    write_states,
    write_steps,
)
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A label file with the given content."""

    def make(content: str | bytes) -> Path:
        path = tmp_path / "labels.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return make


def brief(events: list[StepEvent]) -> list[tuple[int, int]]:
    return [(event.frame, event.step_id) for event in events]


def notes_of(read: Callable, *arguments: object) -> list[tuple[int, str]]:
    notes: list[Note] = []
    read(*arguments, on_note=notes.append)
    return [(note.line, note.text) for note in notes]


# ---------------------------------------------------------------------- step files: what is read
def test_a_step_row_is_frame_id_and_description(write: Write) -> None:
    path = write("01259.jpg,24,Install headlamp\n02127.jpg,26,Remove headlamp\n")
    assert read_steps(path) == [StepEvent(24, 1259), StepEvent(26, 2127)]
    assert notes_of(read_steps, path) == []


@pytest.mark.parametrize(
    "name",
    [
        "1259",
        "0000000001259",
        "01259.jpg",
        "001259.png",
        "001259.JPEG",
        "rgb/001259.jpg",
        r"rgb\001259.jpg",
        r"C:\data\01\001259.jpg",
    ],
)
def test_a_frame_is_the_number_in_its_files_name(write: Write, name: str) -> None:
    assert brief(read_steps(write(f"{name},0,Install foot\n"))) == [(1259, 0)]


def test_steps_are_read_by_id_whatever_the_description_says(write: Write, meccano: Procedure) -> None:
    path = write("00010.jpg,0,Install left dampling fork\n00020.jpg,3\n00030.jpg,6,\n")
    assert brief(read_steps(path, meccano)) == [(10, 0), (20, 3), (30, 6)]


def test_a_description_with_a_comma_is_quoted(write: Write) -> None:
    assert brief(read_steps(write('10.jpg,0,"Install foot, gently"\n'))) == [(10, 0)]


def test_a_fourth_column_is_the_confidence(write: Write) -> None:
    events = read_steps(write("10.jpg,0,Install foot,0.75\n20.jpg,3,Install pole,\n"))
    assert [event.confidence for event in events] == [0.75, None]


def test_windows_line_ends_blank_lines_and_a_missing_last_line_end_are_fine(write: Write) -> None:
    path = write("10.jpg,0,Install foot\r\n\r\n   \r\n,,\r\n20.jpg , 3 ,Install pole")
    assert brief(read_steps(path)) == [(10, 0), (20, 3)]
    assert notes_of(read_steps, path) == []


def test_an_empty_file_is_a_recording_without_steps(write: Write) -> None:
    assert read_steps(write("")) == []
    assert read_steps(write("\n\n")) == []


# ---------------------------------------------------------------------- step files: what is noted
def test_a_byte_order_mark_is_noted(write: Write) -> None:
    path = write(b"\xef\xbb\xbf10.jpg,0,Install foot\n")
    assert brief(read_steps(path)) == [(10, 0)]
    assert notes_of(read_steps, path) == [(1, "starts with a byte-order mark, ignored")]


def test_a_row_that_is_there_twice_counts_once_and_is_noted(write: Write) -> None:
    path = write("10.jpg,0,a\n20.jpg,3,b\n10.jpg,0,a\n")
    assert brief(read_steps(path)) == [(10, 0), (20, 3)]
    assert notes_of(read_steps, path) == [(3, "frame 10, step 0 is there twice (line 1), the second is ignored")]


def test_rows_out_of_order_are_sorted_and_noted(write: Write) -> None:
    path = write("20.jpg,3,b\n10.jpg,0,a\n30.jpg,6,c\n")
    assert brief(read_steps(path)) == [(10, 0), (20, 3), (30, 6)]
    assert notes_of(read_steps, path) == [(2, "frame 10 comes after frame 20, sorted")]


def test_rows_of_one_frame_are_in_order_in_any_order(write: Write) -> None:
    path = write("20.jpg,3,b\n20.jpg,0,a\n")
    assert brief(read_steps(path)) == [(20, 0), (20, 3)]
    assert notes_of(read_steps, path) == []


def test_a_note_names_file_and_line(write: Write) -> None:
    path = write("20.jpg,3\n10.jpg,0\n")
    notes: list[Note] = []
    read_steps(path, on_note=notes.append)
    assert str(notes[0]) == f"{path}:2: frame 10 comes after frame 20, sorted"


# ---------------------------------------------------------------------- step files: what is refused
@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("10.jpg,0,a\n-5.jpg,3,b\n", 2, "frame '-5.jpg' is negative; frames count from 0"),
        ("frame,id,description\n", 1, "'frame' is not a frame; write it like 001259.jpg"),
        ("10.jpg,0,a\n\n12.5,3,b\n", 3, "'12.5' is not a frame"),
        (",0,a\n", 1, "'' is not a frame"),
        (f"{'9' * 5000}.jpg,0,a\n", 1, "is not a frame"),
        ("10.jpg\n", 1, "a row with 1 column; a row is: frame, step id, description"),
        ("10.jpg,\n", 1, "the step id is '', not a whole number"),
        ("10.jpg,install,a\n", 1, "the step id is 'install', not a whole number"),
        ("10.jpg,3.0,a\n", 1, "the step id is '3.0', not a whole number"),
        (f"10.jpg,{'9' * 5000},a\n", 1, "not a whole number"),
        ("10.jpg,-3,a\n", 1, "step_id is -3, but it cannot be negative"),
        ("10.jpg,0,a,high\n", 1, "confidence is 'high', not a number"),
        ("10.jpg,0,a,nan\n", 1, "confidence is 'nan', not a finite number"),
        ("10.jpg,0,a\n20.jpg,3,b,inf\n", 2, "confidence is 'inf', not a finite number"),
        ('10.jpg,0,"a\n', 1, "this is not a CSV row"),
    ],
)
def test_a_bad_step_row_is_refused_with_its_line(write: Write, content: str, line: int, problem: str) -> None:
    path = write(content)
    with pytest.raises(InputError) as caught:
        read_steps(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_step_that_the_procedure_does_not_know_is_refused_with_its_line(write: Write, lamp: Procedure) -> None:
    path = write("10.jpg,0,a\n20.jpg,9,b\n")
    assert len(read_steps(path)) == 2  # without a procedure any id will do
    with pytest.raises(InputError, match=r"step id 9 does not exist in procedure 'lamp'; .* ids 0 to 8") as caught:
        read_steps(path, lamp)
    assert (caught.value.path, caught.value.line) == (str(path), 2)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", 1, "not text in UTF-8; save it as UTF-8"),
        ("10.jpg,0,Install für\n".encode("latin-1"), 1, "not text in UTF-8"),
        (b"10.jpg,0,a\n20.jpg,3,\xff\n", 2, "not text in UTF-8"),
        (b"10.jpg,0,a\n\x00\x00\x00\n", 2, "holds binary data"),
    ],
)
def test_a_file_that_is_not_text_is_refused(write: Write, content: bytes, line: int, problem: str) -> None:
    path = write(content)
    with pytest.raises(InputError, match=problem) as caught:
        read_steps(path)
    assert caught.value.line == line


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path, lamp: Procedure) -> None:
    with pytest.raises(InputError, match=r"gone\.csv: there is no such file"):
        read_steps(tmp_path / "gone.csv")
    with pytest.raises(InputError, match=r"gone\.csv: there is no such file"):
        read_states(tmp_path / "gone.csv", lamp)
    with pytest.raises(InputError, match="this is a folder"):
        read_steps(tmp_path)


# ---------------------------------------------------------------------- raw files
def test_a_raw_row_is_a_frame_and_the_state_of_every_component(write: Write, lamp: Procedure) -> None:
    timeline = read_states(write("0.jpg,0,0,0\n10.jpg,1,0,0\n25.jpg,1,-1,0\n"), lamp)
    assert timeline == StateTimeline((0, 10, 25), ((0, 0, 0), (1, 0, 0), (1, -1, 0)))


def test_a_raw_file_may_have_a_mark_windows_line_ends_and_a_comma_too_many(write: Write, lamp: Procedure) -> None:
    path = write(b"\xef\xbb\xbfrgb\\000000.jpg,0,0,0,\r\n\r\nrgb\\000010.jpg, 1, 0, 0,\r\n")
    assert read_states(path, lamp) == StateTimeline((0, 10), ((0, 0, 0), (1, 0, 0)))
    assert notes_of(read_states, path, lamp) == [(1, "starts with a byte-order mark, ignored")]


def test_raw_rows_out_of_order_or_there_twice_are_noted(write: Write, lamp: Procedure) -> None:
    path = write("10.jpg,1,0,0\n0.jpg,0,0,0\n10.jpg,1,0,0\n")
    assert read_states(path, lamp) == StateTimeline((0, 10), ((0, 0, 0), (1, 0, 0)))
    assert notes_of(read_states, path, lamp) == [
        (2, "frame 0 comes after frame 10, sorted"),
        (3, "frame 10 is there twice (line 1), the second is ignored"),
    ]


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("0.jpg,0,0,0\n10.jpg,1,0\n", 2, "2 states in a row, but 'lamp' has 3 components"),
        ("0.jpg,0,0,0,0\n", 1, "4 states in a row, but 'lamp' has 3 components"),
        ("0.jpg,0,2,0\n", 1, "a component's state is -1, 0 or 1, not 2"),
        ("0.jpg,0,x,0\n", 1, "component 1 is 'x', not a whole number"),
        ("0.jpg,0,0,\n", 1, "component 2 is '', not a whole number"),
        ("0.jpg,0,,0\n", 1, "component 1 is '', not a whole number"),
        ("0.jpg,0,0,0\n-1.jpg,1,0,0\n", 2, "frame '-1.jpg' is negative"),
        ("0.jpg,0,0,0\n10.jpg,1,0,0\n10.jpg,1,1,0\n", 3, "frame 10 is there twice, with different states"),
    ],
)
def test_a_bad_raw_row_is_refused_with_its_line(
    write: Write, lamp: Procedure, content: str, line: int, problem: str
) -> None:
    path = write(content)
    with pytest.raises(InputError) as caught:
        read_states(path, lamp)
    assert str(caught.value).startswith(f"{path}:{line}: {problem}")


def test_a_raw_file_needs_the_initial_state(write: Write, lamp: Procedure) -> None:
    with pytest.raises(InputError, match="the file has no rows; it needs at least one row, the initial state"):
        read_states(write("\n"), lamp)


# ---------------------------------------------------------------------- state timelines
def test_a_state_holds_until_the_next_row() -> None:
    timeline = StateTimeline((5, 10), ((0, 0), (1, 0)))
    assert [timeline.at(frame) for frame in (0, 5, 9, 10, 1000)] == [(0, 0), (0, 0), (0, 0), (1, 0), (1, 0)]
    assert timeline.initial == (0, 0)


def test_a_dense_timeline_has_a_row_per_frame() -> None:
    dense = StateTimeline((0, 2), ((0, 0), (1, -1))).dense(4)
    assert dense.tolist() == [[0, 0], [0, 0], [1, -1], [1, -1]]
    assert StateTimeline.from_dense(dense) == StateTimeline((0, 2), ((0, 0), (1, -1)))


@given(st.lists(st.tuples(*[st.integers(-1, 1)] * 2), min_size=1, max_size=30))
def test_a_timeline_made_from_every_frame_gives_every_frame_back(states: list[tuple[int, int]]) -> None:
    states_FC = np.array(states, dtype=np.int8)
    timeline = StateTimeline.from_dense(states_FC)
    assert np.array_equal(timeline.dense(len(states)), states_FC)
    assert all(a != b for a, b in itertools.pairwise(timeline.states))


def test_a_timeline_knows_whether_a_part_was_ever_wrong() -> None:
    assert StateTimeline((0, 5, 9), ((0,), (-1,), (1,))).has_errors
    assert not StateTimeline((0, 5), ((0,), (1,))).has_errors


@pytest.mark.parametrize(
    ("frames", "states", "problem"),
    [
        ((), (), "at least one row"),
        ((0, 1), ((0,),), "2 frames, but 1 states"),
        ((5, 5), ((0,), (1,)), "must ascend"),
        ((5, 4), ((0,), (1,)), "must ascend"),
    ],
)
def test_a_timeline_that_makes_no_sense_is_refused(frames: tuple, states: tuple, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        StateTimeline(frames, states)


# ---------------------------------------------------------------------- states into steps
INSTALL, INCORRECT, REMOVE = 3, 4, 5  # the steps of the pole, the lamp's second component


@pytest.mark.parametrize(
    ("before", "after", "with_errors", "without_errors"),
    [
        (0, 0, [], []),
        (0, 1, [INSTALL], [INSTALL]),
        (0, -1, [INCORRECT], []),
        (1, 0, [REMOVE], [REMOVE]),
        (1, 1, [], []),
        (1, -1, [INCORRECT], [REMOVE]),  # without errors a wrong part counts as absent
        (-1, 0, [], []),  # undoing a wrong part is not a step
        (-1, 1, [INSTALL], [INSTALL]),
        (-1, -1, [], []),
    ],
)
def test_each_change_of_a_component_is_the_published_step(
    lamp: Procedure, before: int, after: int, with_errors: list[int], without_errors: list[int]
) -> None:
    timeline = StateTimeline((0, 10), ((1, before, 0), (1, after, 0)))
    assert brief(steps_from_states(timeline, lamp, with_errors=True)) == [(10, step) for step in with_errors]
    assert brief(steps_from_states(timeline, lamp, with_errors=False)) == [(10, step) for step in without_errors]


def test_changes_in_one_row_are_steps_of_one_frame_in_order_of_id(lamp: Procedure) -> None:
    timeline = StateTimeline((0, 10, 20), ((0, 0, 0), (1, 1, 0), (0, 1, 1)))
    assert brief(steps_from_states(timeline, lamp, with_errors=False)) == [(10, 0), (10, 3), (20, 2), (20, 6)]


def test_the_initial_state_is_no_step(lamp: Procedure) -> None:
    assert steps_from_states(StateTimeline((0,), ((1, 1, 1),)), lamp, with_errors=True) == []


def test_a_timeline_of_another_procedure_is_refused(lamp: Procedure) -> None:
    with pytest.raises(InputError, match="'lamp' has 3 components, this one has 2"):
        steps_from_states(StateTimeline((0, 1), ((0, 0), (1, 0))), lamp, with_errors=True)


# ---------------------------------------------------------------------- writing
def test_steps_are_written_in_the_fields_format(tmp_path: Path, lamp: Procedure) -> None:
    path = tmp_path / STEPS_FILE
    events = [StepEvent(4, 20, confidence=0.5), StepEvent(0, 7)]
    write_steps(path, events, lamp)
    assert path.read_bytes() == b"000007.jpg,0,Install foot\n000020.jpg,4,Incorrectly installed pole\n"
    write_steps(path, events, lamp, digits=5, extension=".png", with_confidence=True)
    assert path.read_text() == "00007.png,0,Install foot,\n00020.png,4,Incorrectly installed pole,0.5000\n"


def test_states_are_written_in_the_fields_format(tmp_path: Path, lamp: Procedure) -> None:
    path = tmp_path / STATES_FILE
    write_states(path, StateTimeline((0, 12), ((0, 0, 0), (1, -1, 0))), lamp, digits=5)
    assert path.read_bytes() == b"00000.jpg,0,0,0\n00012.jpg,1,-1,0\n"


def test_a_step_that_the_procedure_does_not_know_is_not_written(tmp_path: Path, lamp: Procedure) -> None:
    with pytest.raises(InputError, match="step id 9 does not exist"):
        write_steps(tmp_path / STEPS_FILE, [StepEvent(9, 0)], lamp)
    assert not (tmp_path / STEPS_FILE).exists()


reused_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
frames = st.integers(0, 10**7)


@given(events=st.sets(st.tuples(frames, st.integers(0, 8)), max_size=20), digits=st.integers(1, 8))
@reused_folder
def test_steps_that_are_written_are_read_back(tmp_path: Path, lamp: Procedure, events: set, digits: int) -> None:
    path = tmp_path / STEPS_FILE
    write_steps(path, [StepEvent(step_id, frame) for frame, step_id in events], lamp, digits=digits)
    assert brief(read_steps(path, lamp)) == sorted(events)
    assert notes_of(read_steps, path, lamp) == []


@given(table=st.dictionaries(frames, st.tuples(*[st.integers(-1, 1)] * 3), min_size=1, max_size=20))
@reused_folder
def test_states_that_are_written_are_read_back(tmp_path: Path, lamp: Procedure, table: dict) -> None:
    timeline = StateTimeline(tuple(sorted(table)), tuple(table[frame] for frame in sorted(table)))
    path = tmp_path / STATES_FILE
    write_states(path, timeline, lamp)
    assert read_states(path, lamp) == timeline
    assert notes_of(read_states, path, lamp) == []


@given(rows=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=20, unique=True), seed=st.randoms())
@reused_folder
def test_the_order_of_the_rows_in_a_file_does_not_matter(write: Write, rows: list, seed) -> None:
    def content() -> str:
        return "".join(f"{frame:05d}.jpg,{step_id},text\n" for frame, step_id in rows)

    in_order = read_steps(write(content()))
    seed.shuffle(rows)
    assert read_steps(write(content())) == in_order


# ---------------------------------------------------------------------- the published labels of MECCANO
# Recording 0016: its raw file calls the headlamp wrong from frame 1144 to 2578 and from 2691 to 11134; its step files
# say that it was installed (24) and removed (26) at these frames. All rows of all other recordings agree.
STEP_FILES_OF_0016_ONLY = [(1144, 24), (2578, 26), (2691, 24), (11134, 26)]
RAW_FILE_OF_0016_ONLY = {STEPS_FILE: [], STEPS_WITH_ERRORS_FILE: [(1144, 25), (2691, 25)]}


@pytest.mark.parametrize("name", [STEPS_FILE, STEPS_WITH_ERRORS_FILE])
def test_every_raw_file_of_meccano_reproduces_its_step_files_but_for_rows_in_which_these_disagree(
    meccano: Procedure, meccano_psr: Path, name: str
) -> None:
    disagreements = {}
    recordings = sorted(path.parent for path in meccano_psr.glob(f"*/*/{STATES_FILE}"))
    assert len(recordings) == 20
    for folder in recordings:
        timeline = read_states(folder / STATES_FILE, meccano)
        converted = brief(steps_from_states(timeline, meccano, with_errors=name == STEPS_WITH_ERRORS_FILE))
        published = brief(read_steps(folder / name, meccano))
        if converted != published:
            disagreements[folder.name] = (
                sorted(set(published) - set(converted)),
                sorted(set(converted) - set(published)),
            )
    assert disagreements == {"0016": (STEP_FILES_OF_0016_ONLY, RAW_FILE_OF_0016_ONLY[name])}


def test_every_published_file_of_meccano_is_read_without_a_note(meccano: Procedure, meccano_psr: Path) -> None:
    notes: list[Note] = []
    for path in sorted(meccano_psr.glob("*/*/*.csv")):
        read = read_states if path.name == STATES_FILE else read_steps
        read(path, meccano, on_note=notes.append)
    assert notes == []

"""The audit of label folders: every kind of finding, with its file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stormpsr.data.audit import Audit, Finding, audit_labels
from stormpsr.procedure.model import AssemblyState, Component, Procedure, StateKind, Variant

STEPS, FULL, RAW = "PSR_labels.csv", "PSR_labels_with_errors.csv", "PSR_labels_raw.csv"

# the three files of a recording that has nothing wrong: foot on, pole wrong, pole on, shade on
GOOD = {
    STEPS: "000010.jpg,0,Install foot\n000030.jpg,3,Install pole\n000040.jpg,6,Install shade\n",
    FULL: "000010.jpg,0,\n000020.jpg,4,\n000030.jpg,3,\n000040.jpg,6,\n",
    RAW: "000000.jpg,0,0,0\n000010.jpg,1,0,0\n000020.jpg,1,-1,0\n000030.jpg,1,1,0\n000040.jpg,1,1,1\n",
}

Found = list[tuple[str, str, int | None, str]]
AuditOf = Callable[..., Found]


def listed(audit: Audit, root: Path) -> Found:
    """(severity, path below the folder, line, text)."""
    return [(f.severity, Path(f.path).relative_to(root).as_posix(), f.line, f.text) for f in audit.findings]


@pytest.fixture
def audit_of(tmp_path: Path, lamp: Procedure) -> AuditOf:
    """Audit a recording `01_build` whose files are the good ones but for those given; None leaves a file out."""

    def run(changes: dict[str, str | bytes | None], procedure: Procedure = lamp) -> Found:
        folder = tmp_path / "01_build"
        folder.mkdir()
        for name, content in {**GOOD, **changes}.items():
            if content is not None:
                (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return [
            (severity, path.removeprefix("01_build/"), line, text)
            for severity, path, line, text in listed(audit_labels(tmp_path, procedure), tmp_path)
        ]

    return run


def test_nothing_is_found_in_a_good_recording(audit_of: AuditOf) -> None:
    assert audit_of({}) == []


def test_the_audit_counts_what_it_saw(tmp_path: Path, lamp: Procedure) -> None:
    for name in ("a_build", "b_build"):
        (tmp_path / name).mkdir()
        for file, content in GOOD.items():
            (tmp_path / name / file).write_text(content)
    (tmp_path / "b_build" / FULL).unlink()
    (tmp_path / "a_build" / "recording.json").write_text('{"n_frames": 100}')
    audit = audit_labels(tmp_path, lamp)
    assert (audit.n_recordings, audit.n_files, audit.n_steps, audit.unchecked_ends) == (2, 5, 6, 1)
    assert audit.n_errors == 0


# ---------------------------------------------------------------------- rows
def test_a_row_out_of_order_is_a_warning(audit_of: AuditOf) -> None:
    swapped = "000030.jpg,3,\n000010.jpg,0,\n000040.jpg,6,\n"
    assert audit_of({STEPS: swapped}) == [("warning", STEPS, 2, "frame 10 comes after frame 30, sorted")]


def test_a_row_that_is_there_twice_is_a_warning(audit_of: AuditOf) -> None:
    text = "frame 40, step 6 is there twice (line 3), the second is ignored"
    assert audit_of({STEPS: GOOD[STEPS] + "000040.jpg,6,again\n"}) == [("warning", STEPS, 4, text)]


def test_a_state_that_is_there_twice_is_a_warning(audit_of: AuditOf) -> None:
    found = audit_of({RAW: GOOD[RAW] + "000040.jpg,1,1,1\n"})
    assert found == [("warning", RAW, 6, "frame 40 is there twice (line 5), the second is ignored")]


def test_a_byte_order_mark_is_a_warning_and_windows_line_ends_are_fine(audit_of: AuditOf) -> None:
    found = audit_of({STEPS: ("\ufeff" + GOOD[STEPS]).replace("\n", "\r\n")})
    assert found == [("warning", STEPS, 1, "starts with a byte-order mark, ignored")]


def test_every_bad_row_of_a_step_file_is_an_error(audit_of: AuditOf) -> None:
    bad = "000010.jpg,0,\n000011.jpg,9,\n-12.jpg,3,\n000013.jpg\n000014.jpg,six,\n000040.jpg,6,\n"
    found = audit_of({STEPS: bad})
    assert [(severity, path, line) for severity, path, line, _ in found] == [("error", STEPS, n) for n in (2, 3, 4, 5)]
    texts = [text for _, _, _, text in found]
    assert texts[0] == "step id 9 does not exist in procedure 'lamp'"
    assert "negative" in texts[1]
    assert "1 column" in texts[2]
    assert "'six', not a whole number" in texts[3]


def test_every_bad_row_of_a_raw_file_is_an_error(audit_of: AuditOf) -> None:
    bad = "0.jpg,0,0,0\n10.jpg,1,0\n20.jpg,1,2,0\n30.jpg,1,x,0\nlast.jpg,1,1,0\n40.jpg,1,1,1,\n50.jpg,1,1,1,1\n"
    found = audit_of({RAW: bad})
    assert [(severity, path, line) for severity, path, line, _ in found] == [("error", RAW, n) for n in (2, 3, 4, 5, 7)]
    assert [found[0][3], found[4][3]] == [f"{n} states in a row, but 'lamp' has 3 components" for n in (2, 4)]


def test_one_frame_with_two_different_states_is_an_error(audit_of: AuditOf) -> None:
    found = audit_of({RAW: GOOD[RAW] + "000040.jpg,1,1,0\n"})
    assert found == [("error", RAW, 6, "frame 40 is there twice, with different states")]


def test_an_empty_step_file_is_a_warning_and_contradicts_the_states(audit_of: AuditOf) -> None:
    found = audit_of({STEPS: "", FULL: "10.jpg,0,\n", RAW: "0.jpg,0,0,0\n10.jpg,1,0,0\n"})
    assert found == [
        ("warning", STEPS, None, "the file has no rows"),
        ("error", RAW, 2, f"frame 10: 'Install foot' is not in {STEPS}"),
    ]


def test_an_empty_raw_file_is_an_error(audit_of: AuditOf) -> None:
    assert audit_of({RAW: ""}) == [("error", RAW, None, "the file has no rows")]


def test_a_binary_file_is_an_error(audit_of: AuditOf) -> None:
    assert audit_of({STEPS: b"\xff\xd8\xff"}) == [("error", STEPS, 1, "this is not text in UTF-8")]


# ---------------------------------------------------------------------- what cannot be
def test_installing_what_is_there_is_impossible(audit_of: AuditOf) -> None:
    steps = "10.jpg,0,\n20.jpg,0,\n"
    found = audit_of({STEPS: steps, FULL: None, RAW: None})
    assert ("error", STEPS, 2, "impossible: 'Install foot', but it is installed already") in found


def test_removing_what_is_absent_is_impossible(audit_of: AuditOf) -> None:
    found = audit_of({STEPS: "10.jpg,2,\n", FULL: None, RAW: None})
    assert ("error", STEPS, 1, "impossible: 'Remove foot', but it is not there") in found


def test_removing_a_wrong_part_is_no_step(audit_of: AuditOf) -> None:
    found = audit_of({STEPS: None, FULL: "10.jpg,1,\n20.jpg,2,\n", RAW: None})
    text = "'Remove foot' of a wrong part; undoing something wrong is not a step"
    assert ("warning", FULL, 2, text) in found
    assert not [entry for entry in found if entry[0] == "error"]


def test_without_an_initial_state_steps_are_not_called_impossible(tmp_path: Path, lamp: Procedure) -> None:
    folder = tmp_path / "unnamed"  # says neither "build" nor "dismantle"
    folder.mkdir()
    (folder / STEPS).write_text("10.jpg,2,\n")
    audit = audit_labels(tmp_path, lamp)
    assert [finding.severity for finding in audit.findings] == ["warning"] * 2  # two files are not there
    assert audit.n_steps == 1


def test_frames_beyond_the_end_are_errors(audit_of: AuditOf) -> None:
    found = audit_of({"recording.json": '{"n_frames": 40}'})
    text = "frame 40 lies beyond the end, the recording has 40 frames"
    assert found == [("error", STEPS, 3, text), ("error", FULL, 4, text), ("error", RAW, 5, text)]


def test_a_bad_recording_json_is_a_finding_and_does_not_stop_the_audit(audit_of: AuditOf) -> None:
    found = audit_of({"recording.json": '{\n"n_frames": }', STEPS: GOOD[STEPS] + "50.jpg,9,\n"})
    assert [(severity, path, line) for severity, path, line, _ in found] == [
        ("error", "recording.json", 2),
        ("error", STEPS, 4),
    ]


def test_a_row_in_which_nothing_changes_is_a_warning(audit_of: AuditOf) -> None:
    assert audit_of({RAW: GOOD[RAW] + "000050.jpg,1,1,1\n"}) == [("warning", RAW, 6, "frame 50: nothing changes")]


def test_a_part_that_turns_wrong_in_place_is_a_warning(audit_of: AuditOf) -> None:
    raw = "0.jpg,0,0,0\n10.jpg,1,0,0\n20.jpg,-1,0,0\n"
    found = audit_of({STEPS: "10.jpg,0,\n20.jpg,2,\n", FULL: "10.jpg,0,\n20.jpg,1,\n", RAW: raw})
    assert found == [("warning", RAW, 3, "frame 20: 'foot' goes from correct to wrong without being removed")]


def test_a_start_that_is_not_the_variants_is_a_warning(audit_of: AuditOf) -> None:
    found = audit_of({STEPS: "10.jpg,3,\n", FULL: "10.jpg,3,\n", RAW: "0.jpg,1,0,0\n10.jpg,1,1,0\n"})
    assert found == [("warning", RAW, None, "starts in state 100, but variant 'build' starts in 000")]


def test_a_state_that_the_order_forbids_is_a_warning(audit_of: AuditOf) -> None:
    ordered = Procedure(
        name="pair",
        components=(Component("foot"), Component("pole")),
        states=(AssemblyState(0, StateKind.ASSEMBLY, "nothing", (0, 0)),),
        variants={"build": Variant("build", (0, 0), (0, 3))},
        fps=10,
        order={"pole": (("foot",),)},
    )
    found = audit_of({STEPS: "10.jpg,3,\n", FULL: "10.jpg,3,\n", RAW: "0.jpg,0,0\n10.jpg,0,1\n"}, ordered)
    assert found == [("warning", RAW, 2, "frame 10: state 01 is not possible by the procedure's order")]


# ---------------------------------------------------------------------- files that contradict each other
def test_a_step_that_does_not_follow_from_the_states_is_an_error_in_its_file(audit_of: AuditOf) -> None:
    found = audit_of({STEPS: GOOD[STEPS].replace("000030", "000031")})
    assert found == [
        ("error", STEPS, 2, f"frame 31: 'Install pole' does not follow from {RAW}"),
        ("error", RAW, 4, f"frame 30: 'Install pole' is not in {STEPS}"),
    ]


def test_descriptions_do_not_matter(audit_of: AuditOf) -> None:
    assert audit_of({STEPS: GOOD[STEPS].replace("Install", "Dampling")}) == []


# ---------------------------------------------------------------------- folders
def test_missing_files_are_warnings(audit_of: AuditOf) -> None:
    found = audit_of({FULL: None, RAW: None})
    assert [(severity, line, text) for severity, _, line, text in found] == [
        ("warning", None, f"there is no {FULL}"),
        ("warning", None, f"there is no {RAW}"),
    ]


def test_a_recording_without_any_label_file_is_an_error(tmp_path: Path, lamp: Procedure) -> None:
    (tmp_path / "test" / "0008").mkdir(parents=True)
    text = f"a recording without label files ({STEPS}, {FULL}, {RAW})"
    assert listed(audit_labels(tmp_path, lamp), tmp_path) == [("error", "test/0008", None, text)]


def test_a_recording_in_two_splits_is_a_warning(tmp_path: Path, lamp: Procedure) -> None:
    for split in ("train", "test"):
        (tmp_path / split / "7_build").mkdir(parents=True)
        for file, content in GOOD.items():
            (tmp_path / split / "7_build" / file).write_text(content)
    text = "recording '7_build' is there more than once: test, train"
    assert listed(audit_labels(tmp_path, lamp), tmp_path) == [("warning", ".", None, text)]


def test_a_missing_recording_is_an_error(tmp_path: Path, lamp: Procedure) -> None:
    (tmp_path / "7_build").mkdir()
    for file, content in GOOD.items():
        (tmp_path / "7_build" / file).write_text(content)
    audit = audit_labels(tmp_path, lamp, expected_names=["9_build", "7_build", "8_build"])
    assert [finding.text for finding in audit.findings] == [
        "recording '8_build' is missing",
        "recording '9_build' is missing",
    ]
    assert audit.n_errors == 2


def test_a_finding_reads_like_a_compilers_message() -> None:
    assert str(Finding("error", "a.csv", 3, "is wrong")) == "a.csv:3: error: is wrong"
    assert str(Finding("warning", "a", None, "is odd")) == "a: warning: is odd"


# ---------------------------------------------------------------------- real labels
def test_the_published_meccano_labels_disagree_in_recording_0016_and_nowhere_else(
    meccano_psr: Path, meccano: Procedure
) -> None:
    audit = audit_labels(meccano_psr, meccano)
    assert (audit.n_recordings, audit.n_files, audit.n_errors, len(audit.findings)) == (20, 60, 10, 10)
    assert {Path(finding.path).parent.name for finding in audit.findings} == {"0016"}
    places = [(Path(finding.path).name, finding.line) for finding in audit.findings]
    assert places == [
        *((STEPS, line) for line in (1, 2, 5, 21)),
        *((FULL, line) for line in (3, 4, 7, 23)),
        *((RAW, line) for line in (2, 4)),
    ]
    assert all("headlamp" in finding.text for finding in audit.findings)


# ---------------------------------------------------------------------- cost
def test_the_number_of_file_reads_grows_with_the_recordings_and_not_faster(
    tmp_path: Path, lamp: Procedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    read_bytes = Path.read_bytes

    def counting(path: Path) -> bytes:
        nonlocal reads
        reads += 1
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", counting)
    costs: list[int] = []
    for n in (1, 10):
        root = tmp_path / str(n)
        for i in range(n):
            (root / f"{i}_build").mkdir(parents=True)
            for file, content in GOOD.items():
                (root / f"{i}_build" / file).write_text(content)
        reads = 0
        audit_labels(root, lamp)
        costs.append(reads)
    assert 3 <= costs[0] <= 12  # three files, each at most four times
    assert costs[1] == 10 * costs[0]

"""`stormpsr report` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stormpsr.cli.main import main

MakeRun = Callable[..., Path]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a refused command prints."""
    assert main(["report", *map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_the_report_goes_into_the_run(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(2)
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert capsys.readouterr().out == f"written: {run / 'report.html'} ({len(page.encode()) / 1e6:.1f} MB)\n"


def test_the_report_goes_where_it_is_asked_to(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = make_run(2), tmp_path / "new" / "page.html"
    assert main(["report", str(run), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "report": str(out),
        "bytes": out.stat().st_size,
        "recordings": 2,
    }
    assert not (run / "report.html").exists()


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "this is no run folder" in refusal(capsys, tmp_path)
    assert "this is no run folder" in refusal(capsys, tmp_path / "missing")


def test_another_version_of_the_format_is_refused(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(1)
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "format": "stormpsr run 2"}))
    assert "the format is 'stormpsr run 2', not 'stormpsr run 1'" in refusal(capsys, run)


@pytest.mark.parametrize("name", ["00_assy.json", "00_assy.npz"])
def test_a_damaged_recording_is_refused_and_no_page_is_left(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run = make_run(1)
    path = run / "recordings" / name
    path.write_bytes(path.read_bytes()[:50])
    assert str(path) in refusal(capsys, run)
    assert not (run / "report.html").exists()


def test_a_folder_is_no_page_and_a_file_no_data(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(1)
    assert "this is a folder" in refusal(capsys, run, "--out", run)
    assert "there is no such folder" in refusal(capsys, run, "--data", run / "run.json")

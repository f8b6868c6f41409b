"""The annotator's interface without a browser: what is refused, what is written, what survives."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from io import FileIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from served_annotator import BOXES, LABELS
from starlette.testclient import TestClient

from stormpsr.annotate.api import Annotator, annotator_app
from stormpsr.annotate.frames import RecordingFrames, VideoFrames
from stormpsr.annotate.proposals import ModelProposer, Proposals, StepProposal, stretches_of
from stormpsr.annotate.session import JOURNAL_FILE, STATUS_FILE, Session
from stormpsr.data.audit import audit_labels
from stormpsr.data.dataset import Dataset
from stormpsr.data.labels import StateTimeline, steps_from_states, write_states, write_steps
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import Recording, open_recording
from stormpsr.data.sources import Video
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure
from stormpsr.web.security import Access

OURS = {"X-Requested-With": "stormpsr"}
N_FRAMES = 40


@pytest.fixture
def data(tmp_path: Path, lamp: Procedure) -> Path:
    """A data set of the lamp: one recording of forty grey images, without labels."""
    from stormpsr.data.images import write_image

    root = tmp_path / "data"
    folder = root / "recordings" / "01_build"
    (folder / "rgb").mkdir(parents=True)
    for number in range(N_FRAMES):
        write_image(folder / "rgb" / f"{number:06d}.jpg", np.full((24, 32, 3), number, dtype=np.uint8))
    (folder / "recording.json").write_text(json.dumps({"fps": 10.0, "n_frames": N_FRAMES}))
    lamp.save(root / "procedure.yaml")
    return root


@pytest.fixture
def folder(data: Path) -> Path:
    return data / "recordings" / "01_build"


def session_of(folder: Path, procedure: Procedure) -> Session:
    return Session(RecordingFolder(folder.name, None, folder), procedure)


@pytest.fixture
def client(data: Path, lamp: Procedure) -> Iterator[TestClient]:
    with TestClient(annotator_app(Annotator(data, lamp), Access()), base_url="http://127.0.0.1") as found:
        yield found


PATH = "/api/recordings/recordings/01_build"


def change(client: TestClient, revision: int, do: str, **values: Any) -> Any:
    return client.post(f"{PATH}/change", json={"revision": revision, "do": do, **values}, headers=OURS)


# ---------------------------------------------------------------------- who may ask, and for what
@pytest.mark.parametrize(
    "path",
    [
        "/api/recordings/../../procedure.yaml/frames/0",
        "/api/recordings/recordings/%2e%2e/%2e%2e/etc/frames/0",
        "/api/recordings/%2Fetc%2Fpasswd/about",
        "/api/recordings/recordings/01_build/frames/..%2f..%2frecording.json",
        "/static/../session.py",
        "/static/%2e%2e/session.py",
        "/api/recordings/nobody/document",
    ],
)
def test_nothing_outside_the_recordings_is_given(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_a_change_from_another_page_is_refused(client: TestClient) -> None:
    body = {"revision": 0, "do": "set", "frame": 3, "component": 0}
    assert client.post(f"{PATH}/change", json=body).status_code == 403
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post(f"{PATH}/change", json=body, headers={**OURS, **headers}).status_code == 403
    assert client.get("/api/recordings", headers={"Host": "evil.example"}).status_code == 421
    assert client.get(f"{PATH}/document").json()["revision"] == 0


def test_elsewhere_a_token_is_asked_for_and_the_viewers_may_only_look(data: Path, lamp: Procedure) -> None:
    access = Access("operator-token-1", "viewer-token-12")
    with TestClient(annotator_app(Annotator(data, lamp), access), base_url="http://bench:8770") as client:
        assert client.get("/api/recordings").status_code == 401
        assert client.get(f"{PATH}/frames/0").status_code == 401
        assert "token" in client.get("/", headers={"Accept": "text/html"}).text
        for token, status in (("viewer-token-12", 403), ("operator-token-1", 200)):
            headers = {"Authorization": f"Bearer {token}", **OURS}
            assert client.get("/api/recordings", headers=headers).json()["read_only"] == (status == 403)
            body = {"revision": 0, "do": "set", "frame": 3, "component": 0}
            assert client.post(f"{PATH}/change", json=body, headers=headers).status_code == status


def test_pages_carry_a_strict_policy(client: TestClient) -> None:
    for path in ("/", "/recordings/recordings/01_build", "/static/js/annotate.js", "/static/css/base.css"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"do": "explode"},
        {"do": ["set"]},
        {"do": "set", "frame": 3},
        {"do": "set", "frame": -1, "component": 0},
        {"do": "set", "frame": N_FRAMES, "component": 0},
        {"do": "set", "frame": 3.5, "component": 0},
        {"do": "set", "frame": True, "component": 0},
        {"do": "set", "frame": 3, "component": 3},
        {"do": "set", "frame": 3, "component": 0, "value": 2},
        {"do": "set", "frame": 3, "component": 0, "id": 7},
        {"do": "set", "frame": 3, "component": 0, "id": "two\u2028lines"},
        {"do": "set", "frame": 3, "component": 0, "id": "\ud800"},
        {"do": "move", "frame": 3, "component": 0, "to": 5},
        {"do": "box", "frame": 3, "box": [1, 2, 3]},
        {"do": "box", "frame": 3, "box": [1, 2, "3", 4]},
        {"do": "box", "frame": 3, "box": [50, 50, 10, 10]},
        {"do": "box", "frame": 3, "box": [1, 1, 0, 5]},
        {"do": "copy_box", "frame": 3},
        {"do": "fill", "frame": 3},
        {"do": "accept", "frame": 3, "proposal": "3:0:1"},
        {"do": "keep", "frame": 3},
        {"do": "undo"},
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(client: TestClient, folder: Path, body: Any) -> None:
    answer = client.post(f"{PATH}/change", content=json.dumps({"revision": 0, **body}), headers=OURS)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert not (folder / LABELS[0]).exists()


@pytest.mark.parametrize("content", [b"[]", b"{", b'"x"', b"\xff", b"1e999"])
def test_what_is_no_object_is_refused(client: TestClient, content: bytes) -> None:
    assert client.post(f"{PATH}/change", content=content, headers=OURS).status_code == 400
    assert client.post(f"{PATH}/change", content=b" " * 70_000, headers=OURS).status_code == 413


def test_frames_are_given_by_their_number_as_they_are(client: TestClient, folder: Path) -> None:
    answer = client.get(f"{PATH}/frames/7?v=1")
    assert answer.content == (folder / "rgb" / "000007.jpg").read_bytes()
    assert "immutable" in answer.headers["cache-control"]
    assert client.get(f"{PATH}/frames/{N_FRAMES}").status_code == 400


# ---------------------------------------------------------------------- changes
def test_a_late_change_is_told_and_one_that_is_sent_twice_is_made_once(client: TestClient) -> None:
    assert change(client, 0, "set", frame=3, component=0, id="one").json()["revision"] == 1
    assert change(client, 0, "set", frame=3, component=0, id="one").json()["revision"] == 1  # its answer was lost
    assert change(client, 0, "set", frame=5, component=1, id="two").status_code == 409
    assert client.get(f"{PATH}/document").json()["states"] == [[0, 0, 0, 0], [3, 1, 0, 0]]


def test_any_states_are_written_as_the_renderer_writes_them(folder: Path, lamp: Procedure, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    session = session_of(folder, lamp)
    for _ in range(60):
        body = {"do": "set", "frame": int(rng.integers(N_FRAMES)), "component": int(rng.integers(3))}
        session.change({"revision": session.revision, **body, "value": int(rng.integers(-1, 2))})
    dense = np.array([session.document.timeline.at(frame) for frame in range(N_FRAMES)])
    timeline = StateTimeline.from_dense(dense)
    write_states(tmp_path / LABELS[0], timeline, lamp)
    for name, with_errors in ((LABELS[1], False), (LABELS[2], True)):
        write_steps(tmp_path / name, steps_from_states(timeline, lamp, with_errors=with_errors), lamp)
    for name in LABELS:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()
    recording = open_recording(RecordingFolder("01_build", None, folder), lamp)
    assert recording.states == timeline
    for _ in range(session.revision):
        session.change({"revision": session.revision, "do": "undo"})
    assert session.document.states == {0: lamp.variant().initial}


def test_a_component_is_set_until_it_changes_next(folder: Path, lamp: Procedure) -> None:
    session = session_of(folder, lamp)

    def do(what: str, **values: Any) -> Any:
        return session.change({"revision": session.revision, "do": what, **values})["states"]

    assert do("set", frame=10, component=0) == [[0, 0, 0, 0], [10, 1, 0, 0]]
    assert do("set", frame=20, component=0, value=0) == [[0, 0, 0, 0], [10, 1, 0, 0], [20, 0, 0, 0]]
    assert do("set", frame=5, component=0) == [[0, 0, 0, 0], [5, 1, 0, 0], [20, 0, 0, 0]]  # it was earlier
    assert do("move", frame=20, component=0, to=30) == [[0, 0, 0, 0], [5, 1, 0, 0], [30, 0, 0, 0]]
    assert do("move", frame=30, component=0, to=2) == [[0, 0, 0, 0], [5, 1, 0, 0], [6, 0, 0, 0]]  # not past the other


def test_finishing_audits_and_a_later_change_takes_it_back(client: TestClient, folder: Path, lamp: Procedure) -> None:
    found = change(client, 0, "finish").json()
    assert found["finished"]["errors"] == 0
    assert json.loads((folder / STATUS_FILE).read_text())["finished"]
    assert audit_labels(folder, lamp).n_errors == 0
    row = client.get("/api/recordings").json()["recordings"][0]
    assert row["labelled_until"] == row["n_frames"] == N_FRAMES
    change(client, 1, "set", frame=4, component=2)
    assert json.loads((folder / STATUS_FILE).read_text())["finished"] is None


def test_boxes_take_their_class_from_the_states(client: TestClient, folder: Path, lamp: Procedure) -> None:
    change(client, 0, "box", frame=2, box=[1, 2, 10, 8])
    change(client, 1, "box", frame=6, box=[5, 2, 10, 12])
    change(client, 2, "fill", frame=2)
    boxes = json.loads((folder / BOXES).read_text())["annotations"]
    assert [(b["image_id"], b["bbox"]) for b in boxes] == [
        (2, [1, 2, 10, 8]),
        (3, [2, 2, 10, 9]),
        (4, [3, 2, 10, 10]),
        (5, [4, 2, 10, 11]),
        (6, [5, 2, 10, 12]),
    ]
    assert {b["category_id"] for b in boxes} == {lamp.state_class((0, 0, 0))}
    change(client, 3, "set", frame=5, component=0)
    boxes = json.loads((folder / BOXES).read_text())["annotations"]
    assert [b["category_id"] for b in boxes] == [lamp.state_class((0, 0, 0))] * 3 + [lamp.state_class((1, 0, 0))] * 2
    change(client, 4, "box", frame=6, box=[9, 2, 10, 8])  # those between follow
    boxes = json.loads((folder / BOXES).read_text())["annotations"]
    assert boxes[2]["bbox"] == [5, 2, 10, 8]
    change(client, 5, "repeat_box", frame=6)
    assert json.loads((folder / BOXES).read_text())["annotations"][-1]["image_id"] == N_FRAMES - 1


# ---------------------------------------------------------------------- what survives
def test_the_journal_gives_back_what_files_lost(folder: Path, lamp: Procedure) -> None:
    session = session_of(folder, lamp)
    session.change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    before = {name: (folder / name).read_bytes() for name in (*LABELS, STATUS_FILE)}
    session.change({"revision": 1, "do": "set", "frame": 20, "component": 1})
    after = {name: (folder / name).read_bytes() for name in (*LABELS, STATUS_FILE)}
    # killed after the journal was written, and before some or all of the files were
    for n_old in range(len(before) + 1):
        for name in list(before)[n_old:]:
            (folder / name).write_bytes(before[name])
        with (folder / JOURNAL_FILE).open("ab") as file:
            file.write(b'{"revision":3,"did":"se')  # and in the middle of a line
        again = session_of(folder, lamp)
        assert again.revision == 2
        assert {name: (folder / name).read_bytes() for name in after} == after
    for name in after:
        (folder / name).unlink()
    assert session_of(folder, lamp).revision == 2
    assert {name: (folder / name).read_bytes() for name in after} == after


def test_labels_that_somebody_else_changed_count_and_can_be_undone(folder: Path, lamp: Procedure) -> None:
    session = session_of(folder, lamp)
    session.change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    theirs = StateTimeline((0, 12), ((0, 0, 0), (1, 1, 0)))
    write_states(folder / LABELS[0], theirs, lamp)
    again = session_of(folder, lamp)
    assert (again.revision, again.document.timeline) == (2, theirs)
    again.change({"revision": 2, "do": "undo"})
    assert again.document.timeline == StateTimeline((0, 10), ((0, 0, 0), (1, 0, 0)))


def test_labels_of_a_rendered_recording_are_opened_and_left_alone(rendered: Path, tmp_path: Path) -> None:
    shutil.copytree(rendered, tmp_path / rendered.name)
    procedure = Procedure.load(rendered / "procedure.yaml")
    session = session_of(tmp_path / rendered.name, procedure)
    assert len(session.document.boxes) == len(json.loads((rendered / BOXES).read_text())["annotations"])
    session.change({"revision": 0, "do": "set", "frame": 0, "component": 1})
    session.change({"revision": 1, "do": "undo"})
    for name in (*LABELS, BOXES):
        assert (tmp_path / rendered.name / name).read_bytes() == (rendered / name).read_bytes(), name


def test_two_programs_on_one_recording_notice_each_other(folder: Path, lamp: Procedure) -> None:
    one, other = session_of(folder, lamp), session_of(folder, lamp)
    one.change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    with pytest.raises(InputError, match="another program"):
        other.change({"revision": 0, "do": "set", "frame": 10, "component": 1})
    assert other.revision == 1
    other.change({"revision": 1, "do": "set", "frame": 10, "component": 1})
    assert other.document.timeline.at(10) == (1, 1, 0)


def test_who_comes_late_reads_what_the_other_did_and_changes_nothing_of_it(folder: Path, lamp: Procedure) -> None:
    one, other = session_of(folder, lamp), session_of(folder, lamp)
    for number, frame in enumerate((10, 20, 30)):
        one.change({"revision": number, "do": "set", "frame": frame, "component": number, "value": 1})
    with pytest.raises(InputError, match="another program"):
        other.change({"revision": 0, "do": "set", "frame": 5, "component": 0})
    assert (other.revision, other.document) == (3, one.document)
    one.change({"revision": 3, "do": "set", "frame": 35, "component": 1, "value": 0})  # nobody was in its way
    with pytest.raises(InputError, match="another program"):
        other.change({"revision": 3, "do": "finish"})
    assert (other.revision, other.document) == (4, one.document)


def test_a_folder_that_must_not_be_written_to_is_refused_in_plain_words(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReadOnly(FileIO):
        def __init__(self, path: Path, mode: str) -> None:
            if "a" in mode:
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            super().__init__(path, mode)

    monkeypatch.setattr("stormpsr.annotate.session.FileIO", ReadOnly)
    body = {"revision": 0, "do": "set", "frame": 3, "component": 0}
    answer = client.post(f"{PATH}/change", json=body, headers=OURS)
    assert answer.status_code == 400
    assert "cannot be written: read-only file system" in answer.json()["error"]
    assert not (folder / LABELS[0]).exists()


def test_a_damaged_journal_is_named_with_its_line(folder: Path, lamp: Procedure) -> None:
    session_of(folder, lamp).change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    with (folder / JOURNAL_FILE).open("a") as file:
        file.write('{"revision":2,"did":"set","patch":{"states":{"4":[1,2]}}}\n')
    with pytest.raises(InputError, match=rf"{JOURNAL_FILE}:3: this is no change"):
        session_of(folder, lamp)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"revision":2,"did":"undo","patch":[]}',
        b'{"revision":2,"did":"undo","patch":{"shapes":{}}}',
        b'{"revision":2,"did":"redo","patch":{"marks":{}}}',
        b'{"revision":NaN,"did":"set","patch":{"marks":{}}}',
        b'{"revision":2,"did":"box","patch":{"boxes":{"4":[1,2,1e400,4,1]}}}',
        b'{"revision":2,"did":"box","patch":{"boxes":{"4":[1,2,-3,4,1]}}}',
        b'{"revision":2,"did":"box","patch":{"boxes":{"4":[1,2,3,4]}}}',
        b'{"revision":2,"did":"set","patch":{"marks":{"labelled_until":"a"}}}',
        b'{"revision":2,"did":"finish","patch":{"marks":{"finished":7}}}',
    ],
)
def test_nothing_that_a_journal_may_hold_is_more_than_a_complaint(folder: Path, lamp: Procedure, line: bytes) -> None:
    session_of(folder, lamp).change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    with (folder / JOURNAL_FILE).open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(InputError, match=rf"{JOURNAL_FILE}:3: this is no change"):
        session_of(folder, lamp)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
@pytest.mark.parametrize("name", [JOURNAL_FILE, STATUS_FILE, *LABELS, BOXES])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(folder: Path, lamp: Procedure, name: str) -> None:
    session_of(folder, lamp).change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(session_of, folder, lamp)
        try:
            with pytest.raises(InputError, match=f"{name}: this is not a file"):
                opening.result(timeout=60)
        finally:
            os.close(os.open(folder / name, os.O_RDWR | os.O_NONBLOCK))  # lets go of one that waits


@pytest.mark.parametrize("begun", [b"", b'{"revision":0,"did":"sta'])
def test_boxes_are_kept_where_the_first_change_never_reached_the_disk(
    write_lamp: Callable[..., Path], lamp: Procedure, begun: bytes
) -> None:
    folder = write_lamp("train", "01_build")
    (folder / JOURNAL_FILE).write_bytes(begun)  # no room for more, or the power went
    session = session_of(folder, lamp)
    assert len(session.document.boxes) == 15
    session.change({"revision": 0, "do": "set", "frame": 2, "component": 0})
    assert len(session_of(folder, lamp).document.boxes) == 15
    assert len(json.loads((folder / BOXES).read_text())["annotations"]) == 15


def test_a_change_that_finds_no_room_leaves_the_journal_as_it_was(
    folder: Path, lamp: Procedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(folder, lamp)
    session.change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    before = (folder / JOURNAL_FILE).read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(InputError, match=rf"{JOURNAL_FILE}: the disk is full"):
            session.change({"revision": 1, "do": "set", "frame": 20, "component": 1})
    assert (folder / JOURNAL_FILE).read_bytes() == before
    assert session.revision == 1
    session.change({"revision": 1, "do": "set", "frame": 20, "component": 1})  # and there is room again
    assert session_of(folder, lamp).document.timeline.at(20) == (1, 1, 0)


@pytest.mark.skipif(os.name == "nt", reason="files cannot be held")
def test_a_change_waits_for_another_program_that_is_writing_one(folder: Path, lamp: Procedure) -> None:
    import fcntl

    one, other = session_of(folder, lamp), session_of(folder, lamp)
    one.change({"revision": 0, "do": "set", "frame": 10, "component": 0})
    other = session_of(folder, lamp)
    line = (folder / JOURNAL_FILE).read_bytes().splitlines()[1]
    theirs = json.dumps({**json.loads(line), "revision": 2, "did": "mark", "patch": {"marks": {"labelled_until": 20}}})
    with (folder / JOURNAL_FILE).open("ab") as file, ThreadPoolExecutor(1) as pool:
        fcntl.flock(file, fcntl.LOCK_EX)
        late = pool.submit(other.change, {"revision": 1, "do": "set", "frame": 10, "component": 1})
        time.sleep(0.3)
        assert not late.done()
        file.write(theirs.encode() + b"\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_UN)
        with pytest.raises(InputError, match="another program"):
            late.result(timeout=60)
    assert other.revision == 2
    assert (folder / JOURNAL_FILE).read_bytes().endswith(theirs.encode() + b"\n")


# ---------------------------------------------------------------------- videos
def write_video(path: Path, times: list[float], size: tuple[int, int] = (64, 48), gop: int = 7) -> None:
    """Frame i is grey of value 5 i, so that it can be told which one was given."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        stream.options = {"crf": "1", "g": str(gop)}
        for number, seconds in enumerate(times):
            image = np.full((size[1], size[0], 3), 5 * number, dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = round(seconds * 1000), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def grey_of(jpeg: bytes) -> float:
    import cv2

    return float(cv2.imdecode(np.frombuffer(jpeg, dtype=np.uint8), cv2.IMREAD_COLOR).mean())


UNEVEN = [0.0, 0.1, 0.15, 0.5, *(0.5 + 0.033 * i for i in range(1, 25)), *(2 + 0.4 * i for i in range(20))]


@pytest.mark.parametrize("times", [UNEVEN, [i / 24 for i in range(48)]], ids=["uneven", "even"])
def test_every_frame_of_a_video_is_the_one_that_was_asked_for(tmp_path: Path, times: list[float]) -> None:
    write_video(tmp_path / "rgb.mp4", times)
    frames = VideoFrames(Video.counted(tmp_path / "rgb.mp4"), most_bytes=20_000)
    order = [0, 1, 2, 30, 29, 28, 27, 5, 47, 46, 0, 13, 14, 15, *range(47, -1, -1)]
    for number in order:
        assert grey_of(frames.get(number)) == pytest.approx(5 * number, abs=4), number
    frames.close()


def test_many_may_ask_for_frames_of_a_video_at_once(tmp_path: Path) -> None:
    write_video(tmp_path / "rgb.mp4", [i / 24 for i in range(48)])
    frames = VideoFrames(Video.counted(tmp_path / "rgb.mp4"))
    with ThreadPoolExecutor(8) as pool:
        order = [40, 30, 20, 10, 47, 0, 35, 5] * 2
        for number, jpeg in zip(order, pool.map(frames.get, order), strict=True):
            assert grey_of(jpeg) == pytest.approx(5 * number, abs=4)
    frames.close()


def test_uneven_times_are_told_and_even_ones_are_not(tmp_path: Path, lamp: Procedure) -> None:
    for name, times, told in (("even", [i / 24 for i in range(48)], None), ("uneven", UNEVEN, UNEVEN)):
        folder = tmp_path / name
        folder.mkdir()
        write_video(folder / "rgb.mp4", times)
        recording = open_recording(RecordingFolder(name, None, folder), lamp)
        found = RecordingFrames(recording).times()
        assert found is None if told is None else found == pytest.approx(told, abs=0.002)


def test_a_recording_with_a_video_is_labelled_like_one_with_images(tmp_path: Path, lamp: Procedure) -> None:
    folder = tmp_path / "data" / "recordings" / "02_build"
    folder.mkdir(parents=True)
    write_video(folder / "rgb.mp4", UNEVEN)
    (folder / "recording.json").write_text(json.dumps({"fps": 6.0}))
    lamp.save(tmp_path / "data" / "procedure.yaml")
    assert len(Dataset.open(tmp_path / "data")) == 1
    with TestClient(annotator_app(Annotator(tmp_path / "data", lamp), Access()), base_url="http://127.0.0.1") as client:
        path = "/api/recordings/recordings/02_build"
        about = client.get(f"{path}/about").json()
        assert about["times"] == pytest.approx(UNEVEN, abs=0.002)
        assert about["n_frames"] == len(UNEVEN)
        assert grey_of(client.get(f"{path}/frames/33").content) == pytest.approx(165, abs=4)
        body = {"revision": 0, "do": "set", "frame": 33, "component": 0}
        assert client.post(f"{path}/change", json=body, headers=OURS).status_code == 200
    assert (folder / LABELS[0]).read_text() == "000000.jpg,0,0,0\n000033.jpg,1,0,0\n"


# ---------------------------------------------------------------------- proposals
def test_how_unsure_a_model_is_is_told_by_stretches_of_ten_seconds() -> None:
    told = [(0, 0.2), (40, 0.4), (120, 0.9), (350, 0.5)]
    assert stretches_of(told, fps=10, n_frames=360) == [
        (0, 99, pytest.approx(0.3)),
        (100, 199, pytest.approx(0.9)),
        (300, 359, pytest.approx(0.5)),
    ]


def test_a_model_that_fails_on_a_recording_is_told_and_the_others_are_looked_at(data: Path, lamp: Procedure) -> None:
    shutil.copytree(data / "recordings" / "01_build", data / "recordings" / "02_build")
    told = threading.Event()

    class Fails:
        def propose(self, recording: Recording, on_progress: Any) -> Proposals:
            if recording.name == "01_build":
                raise RuntimeError("out of memory")
            told.set()
            return Proposals((StepProposal(5, 0, 1, 0.9),))

    annotator = Annotator(data, lamp, proposer=Fails())
    assert annotator.background is not None
    annotator.background.start()
    assert told.wait(timeout=120)
    annotator.close()
    assert annotator.background.progress()["problems"] == {"recordings/01_build": "out of memory"}


def test_the_shipped_model_proposes_steps_and_boxes_and_is_asked_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from stormpsr.cli.main import main
    from stormpsr.recognizer.model_folder import load_model

    drawn = "--train 0 --val 1 --test 0 --size 320 --every 1 --max-seconds 20 --occlusion 0 --profile quick --seed 3"
    assert main(["synth", "generate", str(tmp_path / "world"), *drawn.split()]) == 0
    (rendered,) = (tmp_path / "world" / "recordings" / "val").iterdir()
    model = load_model("vehicle", threads=1)
    recording = open_recording(RecordingFolder(rendered.name, None, rendered), model.procedure)
    progress: list[int] = []
    proposer = ModelProposer(model, tmp_path / "cache")
    first = proposer.propose(recording, lambda done, of: progress.append(done))
    assert progress[-1] == recording.n_frames
    assert len(first.boxes) > 5
    assert all(0 <= confidence <= 1 and 0 < seen < 24 for *_, confidence, seen in first.boxes.values())
    assert [last for _, last, _ in first.unsure][-1] == recording.n_frames - 1
    progress.clear()
    assert proposer.propose(recording, lambda done, of: progress.append(done)) == first
    assert progress == [recording.n_frames]  # what the networks said was kept


# ---------------------------------------------------------------------- the command
def test_the_command_serves_says_where_and_stops_when_it_is_told(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stormpsr", "annotate", str(data), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert address is not None, line
    with urllib.request.urlopen(f"{address[0]}api/recordings") as answer:
        assert json.load(answer)["recordings"][0]["name"] == "01_build"
    process.terminate()
    assert process.wait(timeout=60) == 0
    process.stdout.close()

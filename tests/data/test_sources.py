"""Sources of images: what they give, and what they say when something is wrong."""

from __future__ import annotations

import os
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stormpsr.data.labels import StateTimeline, write_states
from stormpsr.data.recording import Recording
from stormpsr.data.sources import (
    Camera,
    Frame,
    FrameSource,
    ImageFolder,
    InRealTime,
    LatestOnly,
    Video,
    _Times,
    open_source,
)
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

SIZE, N = 48, 40


def images(n: int = N) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8) for _ in range(n)]


def write_video(
    path: Path, *, codec: str = "libx264", fps: int = 10, n: int = N, encode: dict[str, str] | None = None, **file: str
) -> Path:
    """encode: options of the encoder; others are those of the file."""
    import av

    with av.open(str(path), "w", options=file) as container:
        stream = container.add_stream(codec, rate=fps, options=encode or {})
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for image in images(n):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


def write_images(folder: Path, numbers: list[int]) -> Path:
    import cv2

    folder.mkdir(parents=True)
    for number in numbers:
        cv2.imwrite(str(folder / f"{number:06d}.png"), np.full((8, 8, 3), number, np.uint8))
    return folder


def watch(source: FrameSource | LatestOnly) -> tuple[list[Frame], str | None]:
    """All frames, and the complaint at the end."""
    found: list[Frame] = []
    try:
        found.extend(source.frames())
    except InputError as error:
        return found, str(error)
    return found, None


# ---------------------------------------------------------------------- videos
@pytest.mark.parametrize(("fps", "name"), [(10, "a.mp4"), (30, "a.mkv"), (25, "a.ts")])
def test_a_video_gives_its_frames_with_their_times(tmp_path: Path, lamp: Procedure, fps: int, name: str) -> None:
    source = open_source(str(write_video(tmp_path / name, fps=fps)), lamp)
    assert isinstance(source, Video)
    frames, complaint = watch(source)
    assert complaint is None
    assert [frame.index for frame in frames] == list(range(N))
    np.testing.assert_allclose([frame.time_seconds for frame in frames], np.arange(N) / fps, atol=0.002)
    assert source.fps == fps
    assert frames[0].image.shape == (SIZE, SIZE, 3)


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.avi", "mjpeg", {}),
        ("a.mkv", "libx264", {}),
        ("a.ts", "libx264", {}),
        ("fast.mp4", "libx264", {"movflags": "+faststart"}),
    ],
)
def test_a_video_that_ends_in_the_middle_of_a_frame_gives_what_it_has_and_says_so(
    tmp_path: Path, lamp: Procedure, name: str, codec: str, options: dict[str, str]
) -> None:
    path = write_video(tmp_path / name, codec=codec, **options)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    frames, complaint = watch(open_source(str(path), lamp))
    assert 10 < len(frames) < N
    assert complaint is not None
    assert complaint.startswith(str(path))
    assert f"after {len(frames)}" in complaint


def test_a_video_without_its_index_cannot_be_opened(tmp_path: Path, lamp: Procedure) -> None:
    path = write_video(tmp_path / "a.mp4")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    frames, complaint = watch(open_source(str(path), lamp))
    assert frames == []
    assert complaint is not None
    assert "cannot be opened" in complaint


def test_something_that_is_no_video_is_refused(tmp_path: Path, lamp: Procedure) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    assert "cannot be opened" in (watch(open_source(str(path), lamp))[1] or "")
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(InputError, match="this file is empty"):
        open_source(str(tmp_path / "empty.mp4"), lamp)


def test_sound_alone_is_no_video(tmp_path: Path, lamp: Procedure) -> None:
    import wave

    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\0" * 16000)
    assert "there is no video in it" in (watch(open_source(str(tmp_path / "a.wav"), lamp))[1] or "")


@pytest.mark.parametrize(
    ("name", "codec", "encode"),
    [
        ("a.mp4", "libx264", {}),
        ("a.ts", "libx264", {}),
        ("a.avi", "mjpeg", {}),
        (
            "b.mp4",
            "libx264",
            {"x264-params": "bframes=3:b-adapt=0:scenecut=0:b-pyramid=normal"},
        ),  # most frames are needed by none
        ("b.mkv", "mpeg4", {"bf": "2", "b_strategy": "0"}),
    ],
)
def test_single_frames_of_a_video_are_those_that_come_in_order(
    tmp_path: Path, name: str, codec: str, encode: dict[str, str]
) -> None:
    source = Video.counted(write_video(tmp_path / name, codec=codec, encode=encode))
    assert source.n_frames == N
    in_order = list(source.images())
    numbers = [0, 3, 4, 39, 12, 12, *range(20, 26), *range(N - 1, 0, -3)]
    for number, image in zip(numbers, source.images_at(numbers), strict=True):
        np.testing.assert_array_equal(image, in_order[number])


def test_a_video_is_read_without_messages_that_could_block_it(tmp_path: Path, lamp: Procedure) -> None:
    import av

    source = open_source(str(write_video(tmp_path / "a.mp4")), lamp)
    av.logging.set_level(av.logging.ERROR)  # as older torchvisions do
    assert watch(source)[1] is None
    assert av.logging.get_level() is None


def test_a_video_that_was_filmed_upright_is_turned_upright(tmp_path: Path, lamp: Procedure) -> None:
    path = write_video(tmp_path / "a.mp4", n=3)
    plain = [frame.image for frame in watch(open_source(str(path), lamp))[0]]
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 44
    quarter_turn = (0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)  # clockwise, as phones write it
    data[matrix : matrix + 36] = struct.pack(">9i", *quarter_turn)
    path.write_bytes(data)
    turned = [frame.image for frame in watch(open_source(str(path), lamp))[0]]
    assert len(turned) == 3
    for before, after in zip(plain, turned, strict=True):
        np.testing.assert_array_equal(after, np.rot90(before, -1))
    np.testing.assert_array_equal(next(Video(path).images_at([2])), turned[2])


def test_a_video_whose_title_is_no_utf_8_is_read(tmp_path: Path, lamp: Procedure) -> None:
    path = write_video(tmp_path / "a.mp4", n=3)
    content = path.read_bytes()
    assert b"Lavf" in content  # the name of the program that wrote it
    path.write_bytes(content.replace(b"Lavf", b"\xff\xfevf"))
    frames, complaint = watch(open_source(str(path), lamp))
    assert (len(frames), complaint) == (3, None)


@pytest.mark.parametrize("other", ["000001.jpg", "1.png"])
def test_two_images_of_one_frame_are_refused_and_none_is_dropped(tmp_path: Path, lamp: Procedure, other: str) -> None:
    folder = write_images(tmp_path / "a", [0, 1, 2])
    shutil.copyfile(folder / "000001.png", folder / other)
    with pytest.raises(InputError, match="two images have the same number; keep one of them"):
        list(open_source(str(folder), lamp).frames())


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path, lamp: Procedure) -> None:
    write_images(tmp_path / "a", [0])
    for name in ("video.mp4", "a/000001.png"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="neither a file nor a folder"):
        open_source(str(tmp_path / "video.mp4"), lamp)
    with pytest.raises(InputError, match=r"video\.mp4: this is not a video file"):
        Video(tmp_path / "video.mp4")
    frames, complaint = watch(open_source(str(tmp_path / "a"), lamp))
    assert len(frames) == 1
    assert "000001.png: this is not a file" in str(complaint)


def test_an_image_that_claims_a_gigantic_size_is_refused_before_it_is_decoded(tmp_path: Path, lamp: Procedure) -> None:
    path = write_images(tmp_path / "a", [0]) / "000000.png"
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack(">2I", 10_000, 5_001)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    path.write_bytes(data)
    assert "it has 10000 x 5001 pixels, more than 50 million" in (
        watch(open_source(str(tmp_path / "a"), lamp))[1] or ""
    )


def test_times_never_run_backwards() -> None:
    times = _Times(10)
    stamps = [5.0, 5.1, None, 5.3, 0.0, 0.1, 0.1, 90000.0]
    found = [times.of(stamp, number) for number, stamp in enumerate(stamps)]
    assert found[:2] == [0.0, pytest.approx(0.1)]
    assert all(b > a for a, b in pairwise(found))
    assert found[-1] < 2


# ---------------------------------------------------------------------- folders
def test_a_folder_of_frames_runs_at_the_procedures_rate(tmp_path: Path, lamp: Procedure) -> None:
    source = open_source(str(write_images(tmp_path / "a", [0, 1, 2])), lamp)
    assert isinstance(source, ImageFolder)
    frames, _ = watch(source)
    assert [(f.index, f.time_seconds, int(f.image[0, 0, 0])) for f in frames] == [(0, 0, 0), (1, 0.1, 1), (2, 0.2, 2)]
    faster, _ = watch(open_source(str(tmp_path / "a"), lamp, fps=20))
    assert [frame.time_seconds for frame in faster] == [0, 0.05, 0.1]


def test_numbers_that_are_left_out_are_dropped_frames(tmp_path: Path, lamp: Procedure) -> None:
    frames, _ = watch(open_source(str(write_images(tmp_path / "a" / "rgb", [10, 11, 15])), lamp))
    assert [(frame.index, round(frame.time_seconds, 6)) for frame in frames] == [(10, 0), (11, 0.1), (15, 0.5)]


def test_images_with_other_names_come_by_name(tmp_path: Path, lamp: Procedure) -> None:
    folder = write_images(tmp_path / "a", [7, 3])
    (folder / "000007.png").rename(folder / "before.png")
    frames, _ = watch(open_source(str(tmp_path / "a"), lamp))
    assert [(frame.index, int(frame.image[0, 0, 0])) for frame in frames] == [(0, 3), (1, 7)]


def test_an_image_that_is_cut_short_is_named_after_the_good_ones(tmp_path: Path, lamp: Procedure) -> None:
    folder = write_images(tmp_path / "a", [0, 1, 2])
    (folder / "000002.png").write_bytes(b"\x89PNG")
    frames, complaint = watch(open_source(str(folder), lamp))
    assert len(frames) == 2
    assert "000002.png" in str(complaint)


def test_a_recording_says_its_own_rate(tmp_path: Path, lamp: Procedure) -> None:
    write_images(tmp_path / "a" / "rgb", [0, 1, 2])
    (tmp_path / "a" / "recording.json").write_text('{"fps": 5, "n_frames": 3}')
    write_states(tmp_path / "a" / "PSR_labels_raw.csv", StateTimeline((0,), ((0, 0, 0),)), lamp)
    source = open_source(str(tmp_path / "a"), lamp)
    assert isinstance(source, Recording)
    assert [frame.time_seconds for frame in watch(source)[0]] == [0, 0.2, 0.4]


def test_a_source_without_images_is_refused(tmp_path: Path, lamp: Procedure) -> None:
    for place, words in (("absent.mp4", "no such file or folder"), ("", "there are no images in this folder")):
        with pytest.raises(InputError, match=words):
            open_source(str(tmp_path / place), lamp)
    (tmp_path / "rgb").mkdir()
    with pytest.raises(InputError, match="no images"):
        open_source(str(tmp_path), lamp)
    write_images(tmp_path / "b", [0])
    with pytest.raises(InputError, match="a single image"):
        open_source(str(tmp_path / "b" / "000000.png"), lamp)


# ---------------------------------------------------------------------- cameras
class Webcam:
    """A camera that is unplugged after some images."""

    def __init__(self, n: int) -> None:
        self.left, self.released = n, False

    def isOpened(self) -> bool:
        return self.left > 0

    def read(self) -> tuple[bool, NDArray[np.uint8] | None]:
        self.left -= 1
        return (True, np.zeros((4, 4, 3), np.uint8)) if self.left >= 0 else (False, None)

    def release(self) -> None:
        self.released = True


def plug_in(monkeypatch: pytest.MonkeyPatch, webcam: Webcam) -> None:
    import cv2

    monkeypatch.setattr(cv2, "VideoCapture", lambda index: webcam)


def test_a_camera_that_disappears_is_reported_after_its_last_frame(
    monkeypatch: pytest.MonkeyPatch, lamp: Procedure
) -> None:
    webcam = Webcam(3)
    plug_in(monkeypatch, webcam)
    ticking = iter(np.arange(100) * 0.5)
    source = open_source("0", lamp, clock=lambda: float(next(ticking)))
    assert isinstance(source, Camera)
    frames, complaint = watch(source)
    assert [frame.time_seconds for frame in frames] == [0.5, 1.0, 1.5]
    assert complaint == "camera 0 is gone after 3 frames; check its cable, then start again"
    assert webcam.released


def test_a_camera_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, lamp: Procedure) -> None:
    plug_in(monkeypatch, Webcam(0))
    assert "there is no camera 7" in (watch(open_source("7", lamp, clock=lambda: 0.0))[1] or "")


def test_an_address_is_a_live_source(lamp: Procedure) -> None:
    source = open_source("rtsp://127.0.0.1:9/stream", lamp)
    assert isinstance(source, Video)
    assert source.is_live
    assert "check address, network and password" in (watch(source)[1] or "")


def test_a_network_camera_that_stops_sending_is_reported(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", n=5)
    frames, complaint = watch(Video(f"file://{path}", default_fps=10, is_live=True))
    assert len(frames) == 5
    assert complaint == f"file://{path}: the camera stopped sending after 5 frames; start again"


@pytest.mark.parametrize(
    "address", ["rtsp://anna:s3cret@127.0.0.1:9/stream", "http://127.0.0.1:9/video?user=anna&password=s3cret"]
)
def test_the_password_of_a_camera_is_never_shown(lamp: Procedure, address: str) -> None:
    source = open_source(address, lamp)
    with pytest.raises(InputError) as caught:
        list(source.frames())
    assert source.name.startswith(address[:4])
    assert "127.0.0.1:9" in source.name
    shown = f"{source.name} {source.path} {caught.value} {caught.value.__cause__}"
    assert "s3cret" not in shown
    assert "anna" not in shown


# ---------------------------------------------------------------------- the latest frame of a camera that comes, goes
def black(index: int, seconds: float) -> Frame:
    return Frame(np.zeros((1, 1, 3), np.uint8), index, seconds)


class Unsteady(FrameSource):
    """A camera whose connections do one thing after the other."""

    name, fps, n_frames, is_live = "unsteady", None, None, True

    def __init__(self, *connections: Callable[[], Iterator[Frame]]) -> None:
        self._connections = list(connections)

    def frames(self, start: int = 0) -> Iterator[Frame]:
        return self._connections.pop(0)()


def gone() -> Iterator[Frame]:
    raise InputError("unplugged")
    yield


def test_a_slow_reader_gets_the_latest_frame_of_a_live_source() -> None:
    read_on, taken = threading.Event(), threading.Event()

    def steady() -> Iterator[Frame]:
        yield black(0, 0.0)
        taken.wait(10)
        yield from (black(index, index / 10) for index in range(1, 10))
        read_on.set()

    latest, found = LatestOnly(Unsteady(steady)), []
    for frame in latest.frames():
        found.append(frame.index)
        taken.set()
        read_on.wait(10)
    assert found == [0, 9]
    assert latest.dropped == 8


def test_a_camera_that_was_gone_is_opened_again_until_it_is_there() -> None:
    taken = threading.Event()

    def one() -> Iterator[Frame]:
        yield black(0, 7.0)
        taken.wait(10)
        raise InputError("unplugged")

    latest = LatestOnly(Unsteady(one, gone, gone, lambda: iter([black(3, 0.0)])), pauses=(0, 0))
    found = []
    for frame in latest.frames():
        found.append(frame.index)
        taken.set()
    assert found == [0, 1]


def test_times_go_on_by_the_clock_over_a_gap() -> None:
    unplug, back = threading.Event(), threading.Event()
    seconds = [100.0]

    def one() -> Iterator[Frame]:
        yield black(5, 2.0)
        unplug.wait(10)
        raise InputError("unplugged")

    def two() -> Iterator[Frame]:
        back.wait(10)
        yield black(0, 0.0)
        yield black(1, 0.1)

    latest = LatestOnly(Unsteady(one, two), pauses=(0, 0), clock=lambda: seconds[0])
    assert latest.take(10).time_seconds == 2.0  # type: ignore[union-attr]
    unplug.set()
    seconds[0] += 60
    back.set()
    assert [frame.time_seconds for frame in latest.frames()][-1] == pytest.approx(62.1)


def test_a_camera_whose_own_clock_is_fast_goes_on_behind_its_last_frame() -> None:
    unplug = threading.Event()

    def fast() -> Iterator[Frame]:
        yield black(0, 0.0)
        yield black(99, 9.9)  # within a moment by the clock
        unplug.wait(10)
        raise InputError("unplugged")

    latest = LatestOnly(Unsteady(fast, lambda: iter([black(0, 0.0)])), pauses=(0, 0), clock=lambda: 100.0)
    while (frame := latest.take(10)) is not None and frame.index != 99:
        pass
    unplug.set()
    again = latest.take(10)
    assert again is not None
    assert (again.index, again.time_seconds) == (100, pytest.approx(10.0))


class JpegCamera(BaseHTTPRequestHandler):
    """Motion JPEG, which carries no times: 15 images, 10 of them per second."""

    def do_GET(self) -> None:
        import cv2

        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=x")
        self.end_headers()
        data = cv2.imencode(".jpg", np.zeros((32, 32, 3), np.uint8))[1].tobytes()
        for _ in range(15):
            time.sleep(0.1)
            self.wfile.write(b"--x\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(data))
            self.wfile.write(data + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


def test_the_clock_gives_times_to_a_camera_that_sends_none(lamp: Procedure) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), JpegCamera) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        frames = open_source(f"http://127.0.0.1:{server.server_address[1]}/", lamp).frames()
        found = list(islice(frames, 15))
        server.shutdown()
    assert [frame.index for frame in found] == list(range(15))
    assert found[-1].time_seconds > 0.9  # and not 14 times a 25th of a second


def test_a_camera_that_cannot_be_opened_at_all_is_an_error_unless_it_is_to_be_waited_for() -> None:
    with pytest.raises(InputError, match="unplugged"):
        list(LatestOnly(Unsteady(gone)).frames())
    patient = LatestOnly(Unsteady(gone, gone, lambda: iter([black(0, 0.0)])), wait_for_first=True, pauses=(0, 0))
    assert len(list(patient.frames())) == 1


def test_a_camera_that_stalls_is_noticed_given_up_and_opened_anew() -> None:
    for_ever, seconds = threading.Event(), [0.0]

    def stalls() -> Iterator[Frame]:
        yield black(0, 0.0)
        for_ever.wait(30)
        yield black(1, 99.0)  # nobody listens any more

    def works() -> Iterator[Frame]:
        yield black(0, 0.0)

    latest = LatestOnly(Unsteady(stalls, works), stall_seconds=5, clock=lambda: seconds[0])
    assert latest.take(10) is not None
    seconds[0] = 4.0
    assert (latest.take(0), latest.health) == (None, "ok")
    seconds[0] = 6.0
    assert (latest.take(0), latest.health) == (None, "stalled")
    seconds[0] = 16.0
    assert (latest.take(0), latest.problem) == (None, "it sends nothing")
    again = latest.take(10)
    for_ever.set()
    assert again is not None
    assert again.time_seconds == 16.0


def test_a_recording_is_shown_in_real_time_again_and_again() -> None:
    class Short(FrameSource):
        name, fps, n_frames = "short", 100.0, 3

        def frames(self, start: int = 0) -> Iterator[Frame]:
            yield from (black(index, index / 100) for index in range(3))

    shown = list(islice(InRealTime(Short(), repeat=True).frames(), 7))
    assert [frame.index for frame in shown] == [0, 1, 2, 0, 1, 2, 0]
    assert all(later.time_seconds > earlier.time_seconds for earlier, later in pairwise(shown))
    assert shown[-1].time_seconds >= 0.06
    assert [frame.index for frame in InRealTime(Short()).frames()] == [0, 1, 2]


# ---------------------------------------------------------------------- fingerprints
def test_the_fingerprint_of_images_knows_names_sizes_and_contents(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "rgb", [0, 1, 2])
    before = ImageFolder(folder).fingerprint()
    assert ImageFolder(write_images(tmp_path / "again", [0, 1, 2])).fingerprint() == before
    last = folder / "000002.png"
    last.write_bytes(last.read_bytes()[:-1] + b"\x77")  # another image of the same size
    assert ImageFolder(folder).fingerprint() != before
    (tmp_path / "again" / "000001.png").unlink()
    assert ImageFolder(tmp_path / "again").fingerprint() != before


def test_the_fingerprint_of_a_video_knows_its_contents(tmp_path: Path, lamp: Procedure) -> None:
    video = write_video(tmp_path / "a.mp4")
    before = open_source(video, lamp).fingerprint()
    assert open_source(video, lamp).fingerprint() == before
    content = bytearray(video.read_bytes())
    content[len(content) // 2] ^= 1
    video.write_bytes(content)
    assert open_source(video, lamp).fingerprint() != before

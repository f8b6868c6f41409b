"""The station itself: frames and an operator's words in, records and the page's snapshot out.

Two sides share it. One thread shows frames to the recogniser (`watch`, or `see` for a single one); others, those of the
page, give commands. What a command changes in the recogniser is done before the next frame, so that nobody waits for
networks, and networks never see half a change.

What is shown was recorded before: state is made of records alone.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from stormpsr import __version__
from stormpsr.data.events import StepEvent
from stormpsr.data.sources import Frame, LatestOnly
from stormpsr.decoding.methods import title_of
from stormpsr.decoding.predictions import Prediction
from stormpsr.errors import InputError, StormPSRError
from stormpsr.procedure.model import Procedure, StateBits, StepKind, Variant, parse_step_words
from stormpsr.station.alarms import Alarms, CameraStatus, Durations, ImageWatch
from stormpsr.station.clips import jpeg_of, write_clip
from stormpsr.station.records import Entry, Record, Records, Wall, making_sense_of, utc_seconds, utc_text
from stormpsr.station.work import Work, log_line

Clock = Callable[[], float]
_PROBABLE = 0.2  # share of the evidence from which a step counts as probably done
_GROWS = 0.005  # of it in one frame: something was seen
_LOG = 20  # lines
_LOGGED = ("step", "correction", "undo", "unit_started", "unit_finished", "alarm", "camera")


class AnyRecognizer(Protocol):
    """What the station needs of a recogniser."""

    method: str
    prediction: Prediction | None

    @property
    def procedure(self) -> Procedure: ...
    @property
    def variant(self) -> Variant: ...
    @property
    def state(self) -> StateBits | None: ...
    @property
    def share(self) -> NDArray[np.float64]: ...
    def reset(self) -> None: ...
    def update(self, frame: Frame) -> Sequence[StepEvent]: ...
    def correct(self, component: int, bit: int) -> None: ...
    def restore(self, bits: Sequence[int]) -> None: ...


@dataclass(frozen=True)
class StationSettings:
    """How a station works."""

    name: str = "station"
    is_demo: bool = False
    is_recording: bool = False  # the source is a recording: each pass through it is a unit
    model: str = ""
    source: str = ""  # its name, without secrets
    evidence_days: float = 30.0  # images and clips are deleted after so many days
    clip_seconds: tuple[float, float] = (5.0, 2.0)  # before an alarm, and after it
    video_fps: float = 10.0  # at most so many images per second are shown and kept for clips
    longest_side: int = 960  # of those images, in pixels
    correction_holds_seconds: float = 15.0  # for so long the camera does not contradict an operator
    initial_seconds: float = 3.0  # so long the initial state must be seen until it begins a new unit
    initial_confidence: float = 0.6
    pictures: Mapping[int, Path] = field(default_factory=dict)  # of steps, by id
    settle_seconds: float = 6.0  # once all is done, parts that seem to come off are believed after so long


PICTURES_FOLDER = "pictures"  # in a model's folder: images of steps, for the page
_PICTURES = (".png", ".jpg", ".jpeg", ".webp")


def step_pictures(model: Path, procedure: Procedure) -> dict[int, Path]:
    """The images of steps in a model's folder, by the step's id: `pictures/install front wheel.png`."""
    folder, found = model / PICTURES_FOLDER, dict[int, Path]()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        kind, name = parse_step_words(path.stem)
        if path.suffix.lower() not in _PICTURES or kind is None or name not in procedure.component_index:
            cure = f"name images after steps: 'install {procedure.components[0].name}.png'; {', '.join(_PICTURES)}"
            raise InputError("this is not the image of a step", path=path, cure=cure)
        found[procedure.step_id(procedure.component_index[name], kind)] = path
    return found


@dataclass
class Camera:
    """What there is to say about the camera."""

    status: CameraStatus = "starting"
    since: str = ""
    problem: str = ""
    fps: float | None = None
    latency_ms: float | None = None
    dropped: int = 0
    frame: int = 0
    width: int = 0
    height: int = 0


class Station:
    """One camera, one recogniser, one page."""

    def __init__(
        self,
        make_recognizer: Callable[[str | None], AnyRecognizer],
        records: Records,
        settings: StationSettings | None = None,
        *,
        durations: Durations | None = None,
        wall: Wall = time.time,
        clock: Clock = time.monotonic,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """make_recognizer: one for a variant, the procedure's first without a name."""
        self.settings, self.records, self._wall, self._clock = settings or StationSettings(), records, wall, clock
        self._make_recognizer, self.on_news = make_recognizer, on_news
        self._lock = threading.RLock()
        self._todo: list[tuple[str, Any, Any]] = []  # for the recogniser, before its next frame
        self.camera = Camera(since=utc_text(wall()))
        self.alarms, self.durations, self._image_watch = Alarms(), durations or Durations(), ImageWatch()
        self._clips = ThreadPoolExecutor(1, thread_name_prefix="clips")
        self.clips_due: set[int] = set()  # alarms whose clip is being made
        self._clip_at: list[tuple[float, Record]] = []  # those whose last images are still to come, and since when
        self._overdue: set[int] = set()  # steps that take too long
        self._looked_at: deque[float] = deque(maxlen=51)  # when the latest frames were looked at, by the clock
        self._ring: deque[tuple[float, bytes]] = deque()  # the latest images, with their times by the clock
        self.seq, self.n_frames, self.problem = 0, 0, ""
        self._reset_view()
        self._restore()

    def _reset_view(self) -> None:
        """Forget what was seen of the unit before."""
        self._share: NDArray[np.float64] | None = None
        self._box: list[float] | None = None
        self._began: float | None = None  # the time of the unit's first frame
        self._held: dict[int, float] = {}  # components that an operator spoke of, and until when that holds
        self._late: list[tuple[float, StepEvent]] = []  # parts that seem to come off a unit that is complete
        self._unrecorded: list[tuple[StepEvent, bool]] = []  # and whether they were held back already
        self._initial_since: float | None = None
        self._detected_at = self._readable_at = self._clock()
        self._is_foreign = False  # whether the networks do not know what they are shown

    # ------------------------------------------------------------------ restart
    def _restore(self) -> None:
        """Go on where the records end."""
        with making_sense_of(self.records.folder):
            started = self.records.find("kind = 'unit_started'", more="ORDER BY id DESC LIMIT 1")
            variant = started[0].data["variant"] if started else None
            if started and not isinstance(variant, str):
                raise TypeError(f"the variant of record {started[0].id} is no text")
        self.recognizer = self._make_recognizer(variant)
        self.procedure = self.recognizer.procedure
        self.work = Work(self.procedure)
        self.last_work: Work | None = None
        with making_sense_of(self.records.folder):
            self._restore_work(started)
        bits = self.work.bits if self.work.is_running else self.recognizer.variant.initial
        self.recognizer.restore(bits)  # says now if the method cannot be corrected
        about = {"what": "started", "version": __version__, "method": self.recognizer.method}
        self._record(Entry("station", {**about, "source": self.settings.source, "model_name": self.settings.model}))

    def _restore_work(self, started: Sequence[Record]) -> None:
        """What the records say of the last units, alarms and times."""
        if started:
            self.work = Work.of(self.procedure, self.records.find("unit = ?", (started[0].unit,)))
        n_units = self.records.rows("SELECT max(unit) FROM records")[0][0]
        self._n_units = int(n_units or 0)
        if self.work.is_running:
            before = self._finished_before(self._n_units)
            self.last_work = self.unit_work(before) if before else None
        else:
            self.last_work = self.work if started else None
        for record in self.records.find("kind IN ('alarm', 'alarm_closed', 'acknowledged', 'clip')"):
            self.alarms.apply(record)
        finished = self.records.rows("SELECT data FROM records WHERE kind = 'unit_finished'")
        self.unit_counts = Counter(str(json.loads(data)["status"]) for (data,) in finished)
        for unit in self._passed_units(200):
            self.durations.learn(self.unit_work(unit))
        kinds = ", ".join(f"'{kind}'" for kind in _LOGGED)
        recent = self.records.find(f"kind IN ({kinds})", more=f"ORDER BY id DESC LIMIT {_LOG}")
        self._log: deque[dict[str, Any]] = deque((log_line(record) for record in recent), maxlen=_LOG)

    def _finished_before(self, unit: int) -> int | None:
        sql = "SELECT max(unit) FROM records WHERE kind = 'unit_finished' AND unit < ?"
        found = self.records.rows(sql, (unit,))[0][0]
        return None if found is None else int(found)

    def _passed_units(self, most: int) -> list[int]:
        sql = "SELECT unit, data FROM records WHERE kind = 'unit_finished' ORDER BY id DESC LIMIT ?"
        return [int(unit) for unit, data in reversed(self.records.rows(sql, (most,))) if '"status": "pass"' in data]

    def unit_work(self, unit: int) -> Work:
        """A unit as its records tell it."""
        return Work.of(self.procedure, self.records.find("unit = ?", (unit,)))

    # ------------------------------------------------------------------ recording
    @property
    def now(self) -> str:
        return utc_text(self._wall())

    def _record(self, *entries: Entry) -> list[Record]:
        """On the disk first, then in the state, then on the page."""
        if not entries:
            return []
        found = self.records.append(*entries)
        for record in found:
            self.work.apply(record)
            self.alarms.apply(record)
            if record.kind in _LOGGED:
                self._log.appendleft(log_line(record))
            if record.kind in ("alarm", "correction"):
                self._begin_clip(record)
        self._news()
        return found

    def _news(self) -> None:
        self.seq += 1
        self.on_news()

    def _judge(self) -> None:
        """Alarms that begin or end."""
        waited = self.work.seconds_since_progress(self.now) if self.work.is_running else 0.0
        self._overdue, overdue = self.durations.overdue(self.work, waited)
        camera = self.camera.status
        due = list(self.alarms.due(self.work, camera, overdue))
        image = self._keep_image("alarm") if any(entry.kind == "alarm" for entry in due) else {}
        for entry in due:
            if entry.kind == "alarm":
                entry.data.update(picture=next(iter(image), None), files=image)
        self._record(*due)

    # ------------------------------------------------------------------ evidence
    def _keep_image(self, what: str) -> dict[str, str]:
        """The latest image as a file: its name and hash; nothing if there is none, or no room."""
        if not self._ring:
            return {}
        content = self._ring[-1][1]
        name = f"{self._n_units:06d}-{self.records.last_id + 1:08d}-{what}.jpg"
        try:
            self.records.keep(name, content)
        except InputError as error:
            self.problem = str(error)
            return {}
        return {name: hashlib.sha256(content).hexdigest()}

    def _begin_clip(self, record: Record) -> None:
        """A clip of what led to an alarm; and of what an operator corrects, to learn from."""
        if self._ring and record.data.get("alarm") not in ("camera_lost", "dark", "frozen"):
            if record.kind == "alarm":
                self.clips_due.add(record.id)
            self._clip_at.append((self._clock(), record))

    def _finish_clips(self) -> None:
        """Make the clips whose time is over; they are recorded when they are complete."""
        before, after = self.settings.clip_seconds
        for began, record in [item for item in self._clip_at if self._clock() - item[0] >= after]:
            self._clip_at.remove((began, record))
            images = [(at, image) for at, image in self._ring if began - before <= at]
            self._clips.submit(self._write_clip, record, began, images)

    def _write_clip(self, record: Record, began: float, images: list[tuple[float, bytes]]) -> None:
        name = f"{record.unit or 0:06d}-{record.id:08d}-clip.mp4"
        if not images:
            self.clips_due.discard(record.id)
            return
        try:
            write_clip(self.records.evidence / name, images)
            digest = hashlib.sha256((self.records.evidence / name).read_bytes()).hexdigest()
            kind = "clip" if record.kind == "alarm" else "correction_clip"
            about = {record.kind: record.id, "clip": name, "seconds_before": round(began - images[0][0], 3)}
            with self._lock:
                self._record(Entry(kind, {**about, "files": {name: digest}}, record.unit))
        except (StormPSRError, OSError) as error:
            self.problem = str(error)
        finally:
            self.clips_due.discard(record.id)

    # ------------------------------------------------------------------ frames
    def see(self, frame: Frame, *, arrived: float | None = None, dropped: int = 0) -> None:
        """The next frame."""
        arrived = self._clock() if arrived is None else arrived
        with self._lock:
            if self.settings.is_recording and (frame.index <= self.camera.frame or not self.n_frames):
                self._start(None, self.recognizer.variant.name, "camera")
        self.take_orders()
        if self._began is None:
            self._began = frame.time_seconds
        events = self.recognizer.update(replace(frame, time_seconds=max(frame.time_seconds - self._began, 0.0)))
        with self._lock:
            self._see(frame, events, arrived, dropped)
            self.camera.latency_ms = round(1000 * (self._clock() - arrived), 1)
            self._news()

    def take_orders(self) -> None:
        """What commands want of the recogniser, done by the thread that shows it frames."""
        with self._lock:
            todo, self._todo = self._todo, []
        for what, one, other in todo:
            if what == "correct":
                self.recognizer.correct(one, other)
                continue
            if one != self.recognizer.variant.name:
                self.recognizer = self._make_recognizer(one)
            self.recognizer.reset()

    def _see(self, frame: Frame, events: Sequence[StepEvent], arrived: float, dropped: int) -> None:
        self._count_frame(frame, arrived, dropped)
        if any(what == "unit" for what, *_ in self._todo):
            return  # what was recognised is of a unit that is over
        share = np.array(self.recognizer.share)
        if self._share is not None and (share > self._share + _GROWS).any():
            self._detected_at = self._readable_at = self._clock()  # evidence that grows was seen, detected or not
        self._share = share
        prediction = self.recognizer.prediction
        if prediction is not None and prediction.index == frame.index:
            self._look(prediction, frame.time_seconds)
        spoken_of = {one for what, one, _ in self._todo if what == "correct"}
        news = [e for e in events if self.procedure.step(e.step_id).component_index not in spoken_of]
        settled = self._settled(frame.time_seconds)
        self._unrecorded += [*((event, False) for event in news), *((event, True) for event in settled)]
        try:
            self._set_camera(self._image_watch.update(frame.image, frame.time_seconds))
            if self.work.is_running:
                for event, is_settled in (*self._unrecorded, *((e, False) for e in self._wrong_parts_off())):
                    self._take_event(event, frame.time_seconds, is_settled=is_settled)
                self._mark_left_out()
            self._watch_initial(frame.time_seconds)
            self._judge()
            self._finish_clips()
        except InputError as error:  # a full disk: what could not be recorded is tried again with the next frame
            self.problem = str(error)
        else:
            self.problem, self._unrecorded = "", []

    def _count_frame(self, frame: Frame, arrived: float, dropped: int) -> None:
        camera, now = self.camera, self._clock()
        self._looked_at.append(now)
        if now > self._looked_at[0]:
            camera.fps = round((len(self._looked_at) - 1) / (now - self._looked_at[0]), 2)
        self.n_frames += 1
        camera.frame, camera.dropped = frame.index, dropped
        camera.height, camera.width = frame.image.shape[:2]
        if not self._ring or arrived - self._ring[-1][0] >= 0.9 / self.settings.video_fps:
            self._ring.append((arrived, jpeg_of(frame.image, self.settings.longest_side)))
            while self._ring[0][0] < arrived - sum(self.settings.clip_seconds) - 1:
                self._ring.popleft()

    def _look(self, prediction: Prediction, seconds: float) -> None:
        """What the detector said: where the assembly is, if it can be read, and if it is the initial state."""
        now = self._clock()
        if prediction.detections is None:
            return
        self._is_foreign = prediction.is_foreign
        box = prediction.box
        self._box = None if box is None else [round(float(side), 1) for side in box.corners]
        if prediction.detections:
            self._detected_at = now
            readable = None if prediction.outputs_CF is None else float(prediction.outputs_CF[0, 3])
            if readable is None or not readable < 0:
                self._readable_at = now
            best = prediction.detections[0]
            initial = self.procedure.class_of_bits.get(self.recognizer.variant.initial)
            if best.state_class != initial or best.confidence < self.settings.initial_confidence:
                self._initial_since = None
            elif self._initial_since is None:
                self._initial_since = seconds

    def _watch_initial(self, seconds: float) -> None:
        """A new unit begins when the initial state is seen for a while, and none is in work that is not complete."""
        if self._initial_since is None or seconds - self._initial_since < self.settings.initial_seconds:
            return
        if not self.work.is_running or self.work.is_complete:
            self._start(None, self.recognizer.variant.name, "camera")

    def _settled(self, seconds: float) -> list[StepEvent]:
        """What was held back long enough."""
        due = [event for at, event in self._late if seconds - at >= self.settings.settle_seconds]
        self._late = [(at, event) for at, event in self._late if event not in due]
        return due

    def _take_event(self, event: StepEvent, seconds: float, *, is_settled: bool) -> None:
        step = self.procedure.step(event.step_id)
        k, leads_to = step.component_index, self.procedure.apply(self.work.bits, event.step_id)
        contradicts = event.kind != "skipped" and leads_to != tuple(self.work.bits)
        if contradicts and self._clock() < self._held.get(k, -1.0):
            self._todo.append(("correct", k, self.work.bits[k]))  # an operator has just said otherwise
            return
        if self.work.is_complete and event.kind == "unexpected" and not is_settled:
            self._late.append((seconds, event))  # perhaps the next unit comes into view
            return
        entry = self.work.entry_of_event(event, self.now)
        if entry is not None:
            image = self._keep_image("step")
            entry.data.update(picture=next(iter(image), None), files=image)
            found = [entry]
            if event.kind == "unexpected" and step.installs:  # a part that does not belong there
                data = {name: entry.data[name] for name in ("step_id", "text", "picture")}
                found.append(Entry("alarm", {"alarm": "unexpected", **data}, entry.unit))
            self._record(*found)

    def _wrong_parts_off(self) -> list[StepEvent]:
        """A wrong part that was taken off is no step to a decoder; the page is to know of it."""
        state = self.recognizer.state
        if state is None or self.work.unit is None:
            return []
        off = [k for k, bit in enumerate(self.work.bits) if bit == -1 and state[k] == 0]
        queued = {one for what, one, _ in self._todo if what == "correct"}
        step_id = self.procedure.step_id
        return [
            StepEvent(step_id(k, StepKind.REMOVE), self.camera.frame, kind="unexpected") for k in off if k not in queued
        ]

    def _mark_left_out(self) -> None:
        for step_id in self.work.left_out():
            event = StepEvent(step_id, max(self.camera.frame, 0), kind="skipped")
            entry = self.work.entry_of_event(event, self.now, by="station")
            if entry is not None:
                self._record(entry)

    def _set_camera(self, status: CameraStatus, problem: str = "") -> None:
        if status == self.camera.status:
            return
        self._record(Entry("camera", {"status": status, "from": self.camera.status, "problem": problem}))
        self.camera.status, self.camera.since, self.camera.problem = status, self.now, problem

    def lose_camera(self, status: Literal["lost", "stalled", "ended"], problem: str = "") -> None:
        """No frame comes; time passes all the same."""
        with self._lock:
            self._set_camera(status, problem)
            self._image_watch.reset()
            if status == "ended" and self.settings.is_recording and self.work.is_running:
                self._finish("camera")
            self._judge()
            self._finish_clips()
            self._news()

    def pass_time(self) -> None:
        """Between frames: alarms may be due, and clips."""
        with self._lock:
            self._judge()
            self._finish_clips()

    def watch(self, frames: LatestOnly, stopped: threading.Event) -> None:
        """Show all frames, until somebody stops it. Time also passes without frames."""
        while not stopped.is_set():
            with self._naming_problems():
                self._watch(frames, stopped)

    @contextmanager
    def _naming_problems(self) -> Iterator[None]:
        """What can be cured while the station runs, as a full disk, is said and tried again."""
        try:
            yield
        except InputError as error:
            self.problem = str(error)

    def _watch(self, frames: LatestOnly, stopped: threading.Event) -> None:
        try:
            frame = frames.take(timeout=0.25)
        except InputError as error:
            self.lose_camera("ended", error.problem)
            return
        if frame is not None:
            self.see(frame, arrived=frames.arrived, dropped=frames.dropped)
        elif frames.health == "ended":
            self.lose_camera("ended")
            stopped.wait(0.25)
        elif frames.health in ("lost", "stalled"):
            self.lose_camera(frames.health, frames.problem)
        else:
            self.pass_time()

    def close(self) -> None:
        self._clips.shutdown()
        with self._lock:
            self._record(Entry("station", {"what": "stopped"}))

    # ------------------------------------------------------------------ commands
    def start_unit(self, serial: str | None, variant: str | None, by: str = "operator") -> int:
        """Begin a unit; one that is in work is finished first."""
        with self._lock:
            name = self.procedure.variant(variant or self.recognizer.variant.name).name
            text = None if serial is None or not serial.strip() else serial.strip()
            if text is not None and (len(text) > 80 or not text.isprintable()):
                raise InputError("this is no serial number", cure="give at most 80 characters")
            self._start(text, name, by)
            self._judge()
            return self.seq

    def _start(self, serial: str | None, variant: str, by: str) -> None:
        if self.work.is_running:
            self._finish(by)
        self._n_units += 1
        self._record(Entry("unit_started", {"serial": serial, "variant": variant, "by": by}, self._n_units))
        self._todo.append(("unit", variant, None))
        self._reset_view()

    def finish_unit(self, by: str = "operator") -> int:
        with self._lock:
            self._finish(by)
            self._judge()
            return self.seq

    def _finish(self, by: str) -> None:
        self._judge()
        entries = list(self.work.entries_of_finish(self.now, by))
        missing = [entry.data for entry in entries if entry.kind == "step"]
        if missing:
            image = self._keep_image("alarm")
            data = {"alarm": "skipped", "step_id": missing[0]["step_id"], "picture": next(iter(image), None)}
            text = ", ".join(one["text"] for one in missing)
            entries.insert(-1, Entry("alarm", {**data, "text": text, "files": image}, entries[-1].unit))
        self._record(*entries)
        self.durations.learn(self.work)
        self.unit_counts[self.work.verdict()] += 1
        self.last_work = Work.of(self.procedure, self.records.find("unit = ?", (entries[-1].unit,)))

    def correct_step(self, step_id: int, status: str) -> int:
        """The operator's word on a step: the recogniser's state from now on."""
        with self._lock:
            entry = self.work.entry_of_correction(step_id, status, self.now)
            image = self._keep_image("correction")
            entry.data.update(picture=next(iter(image), None), files=image)
            self._record(entry)
            self._tell_recognizer(entry.data["component"])
            self._mark_left_out()
            self._judge()
            return self.seq

    def undo(self) -> int:
        """Take the operator's latest correction back."""
        with self._lock:
            entry = self.work.entry_of_undo()
            self._record(entry)
            self._tell_recognizer(entry.data["component"])
            self._judge()
            return self.seq

    def _tell_recognizer(self, component: int) -> None:
        self._todo.append(("correct", component, self.work.bits[component]))
        self._held[component] = self._clock() + self.settings.correction_holds_seconds

    def acknowledge(self, alarm: int) -> int:
        with self._lock:
            if alarm not in self.alarms.open:
                raise InputError(f"there is no open alarm {alarm}")
            if not self.alarms.open[alarm].acknowledged:
                data = {"alarm": alarm, "kind": self.alarms.open[alarm].kind, "by": "operator"}
                self._record(Entry("acknowledged", data, self.alarms.open[alarm].unit))
                self._judge()
            return self.seq

    # ------------------------------------------------------------------ the page
    @property
    def image(self) -> tuple[float, bytes] | None:
        """The latest image and when it came, by the clock."""
        try:
            return self._ring[-1]
        except IndexError:
            return None

    def about(self) -> dict[str, Any]:
        recognizer, own = self.recognizer, self.settings
        return {
            "name": own.name,
            "title": self.procedure.title or self.procedure.name,
            "model": own.model,
            "model_digest": self.records.model,
            "procedure": self.procedure.name,
            "variant": recognizer.variant.name,
            "variants": list(self.procedure.variants),
            "method": recognizer.method,
            "method_title": title_of(recognizer.method),
            "demo": own.is_demo,
            "version": __version__,
        }

    def snapshot(self) -> dict[str, Any]:
        """All that the page shows."""
        with self._lock:
            now, running = self.now, self.work.is_running
            shown = self.work if running else self._blank()
            units = [work.unit for work in (self.work, self.last_work) if work is not None and work.unit is not None]
            serials = {unit.id: unit.serial for unit in units}
            camera = self.camera
            return {
                "seq": self.seq,
                "time": now,
                "station": {**self.about(), "variant": shown.unit.variant if shown.unit else None},
                "camera": {
                    **{name: getattr(camera, name) for name in ("status", "since", "fps", "latency_ms", "dropped")},
                    **{name: getattr(camera, name) for name in ("frame", "width", "height")},
                    "name": self.settings.source,
                },
                "box": self._box,
                "unit": self.work.unit_json(now) if running else None,
                "last_unit": self.last_work.unit_json(now) if self.last_work else None,
                "steps": self._steps(shown),
                "words": self._words(),
                "alarms": [{**alarm, "serial": serials.get(alarm["unit"])} for alarm in self.alarms.to_json()],
                "log": list(self._log),
            }

    def _blank(self) -> Work:
        """The work instruction before a unit begins."""
        data = {"serial": None, "variant": self.recognizer.variant.name, "by": "station"}
        return Work.of(self.procedure, [Record(0, self.now, "unit_started", 0, "", data, "")])

    def _steps(self, work: Work) -> list[dict[str, Any]]:
        rows = work.steps_json(self.settings.pictures)
        for row in rows:
            step_id = row["step_id"]
            if work.unit is not None:
                row["usual_seconds"] = self.durations.usual(work.unit.variant, step_id)
            row["overdue"] = work.is_running and step_id in self._overdue
            if row["status"] not in ("done", "wrong") and self._share is not None and work is self.work:
                row["share"] = round(float(min(max(self._share[step_id], 0.0), 1.0)), 3)
                if row["share"] >= _PROBABLE and row["status"] == "open":
                    row["status"] = "probable"
        return rows

    def _words(self) -> list[dict[str, Any]]:
        """What the machine is unsure of."""
        since = round(self._wall() - utc_seconds(self.camera.since))
        of_camera = {"lost": "camera_lost", "stalled": "camera_lost", "dark": "camera_dark", "frozen": "camera_frozen"}
        if self.camera.status in of_camera:
            return [_word(of_camera[self.camera.status], seconds=since)]
        if self.camera.status == "starting":
            return [_word("starting")]
        if not self.work.is_running:
            return [_word("waiting_for_unit")]
        if self.work.is_complete:
            return [_word("all_done")]
        if self._is_foreign:
            return [_word("foreign_view")]
        found, now = [], self._clock()
        unseen, unreadable = (round(now - at) for at in (self._detected_at, self._readable_at))
        if unseen >= 4:
            found.append(_word("nothing_seen", seconds=unseen))
        elif unreadable >= 4:
            found.append(_word("hidden", seconds=unreadable))
        text = {step.id: step.description for step in self.procedure.steps}
        likely = []
        if self._share is not None:
            for step_id, state in self.work.steps.items():
                k = self.procedure.step(step_id).component_index
                wrong = float(self._share[self.procedure.step_id(k, StepKind.INCORRECT)])
                if wrong >= 0.4 and state.status != "wrong":
                    found.append(_word("maybe_wrong", step=text[step_id]))
                if state.status not in ("done", "wrong") and self._share[step_id] >= _PROBABLE:
                    likely.append((float(self._share[step_id]), step_id))
        likely.sort(reverse=True)
        if len(likely) > 1 and likely[1][0] > 0.7 * likely[0][0]:
            found.append(_word("either", step=text[likely[0][1]], other=text[likely[1][1]]))
        elif likely:
            found.append(_word("probably", step=text[likely[0][1]], share=round(min(likely[0][0], 1.0), 2)))
        elif not found and (waiting := self.work.next_steps()):
            found.append(_word("waiting_for", step=text[waiting[0]]))
        return found


def _word(key: str, **args: Any) -> dict[str, Any]:
    return {"key": key, "args": args}

"""One recording in work: its document, every change ever made to it, and the label files that follow from it.

A change is first appended to `annotation.journal.jsonl` and forced onto the disk, then the label files are replaced,
each in one move. Whoever starts again after a crash finds the journal at least as new as the files, and makes them
anew. `annotation.json` says in a few words how far the recording is. All four lie beside the labels.

Label files that somebody else has changed meanwhile count: they are taken over as one more change, which can be undone.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from stormpsr.annotate.document import (
    FINISHED,
    LABELLED_UNTIL,
    Document,
    DrawnBox,
    Patch,
    States,
    draw_box,
    fill_between,
    last_box,
    move_change,
    patch_from_json,
    patch_to_json,
    problems_of,
    repeat_box,
    rows_without_repetition,
    set_component,
)
from stormpsr.data.annotated_frames import boxes_inside, read_boxes
from stormpsr.data.audit import Audit, audit_labels
from stormpsr.data.coco import COCO_FILE, Coco, CocoBox, CocoImage, state_categories
from stormpsr.data.labels import (
    STATES_FILE,
    STEPS_FILE,
    STEPS_WITH_ERRORS_FILE,
    frame_name,
    steps_from_states,
    write_states,
    write_steps,
)
from stormpsr.data.layouts import RecordingFolder
from stormpsr.data.recording import Recording, open_recording, read_labels
from stormpsr.data.sources import ImageFolder
from stormpsr.errors import InputError
from stormpsr.files import (
    append,
    check_own_file,
    holding,
    naming_full_disk,
    parse_json,
    read_bytes,
    read_json_object,
    write_json,
)
from stormpsr.procedure.model import Procedure

JOURNAL_FILE = "annotation.journal.jsonl"
STATUS_FILE = "annotation.json"
_UNDO, _REDO, _READ, _FINISH = "undo", "redo", "read", "finish"
Body = dict[str, Any]


class StaleError(InputError):
    """Somebody else has changed the recording meanwhile."""


def read_status(folder: Path) -> dict[str, Any]:
    """How far a recording is, by `annotation.json`; empty if nobody has begun."""
    path = folder / STATUS_FILE
    return read_json_object(path, "status of an annotation") if path.is_file() else {}


class Session:
    """A recording that can be changed. All methods may be called from any thread."""

    def __init__(self, folder: RecordingFolder, procedure: Procedure) -> None:
        self.folder, self.procedure = folder, procedure
        self.recording: Recording = open_recording(folder, procedure)
        self.numbers: Sequence[int] = self.recording.source.numbers()
        height, width = next(self.recording.images_at([self.numbers[0]])).shape[:2]
        self.width, self.height = int(width), int(height)
        self._lock = threading.RLock()
        self._is_alone = False
        self._journal = folder.path / JOURNAL_FILE
        self._style = _style_of(self.recording)
        variant = procedure.variant_of_recording(folder.name)
        self.initial = None if variant is None else variant.initial
        self._load()

    # ------------------------------------------------------------------ reading
    def _load(self) -> None:
        """The document as the journal says, and as label files say that somebody else has changed since."""
        self.revision = 0
        self._undo: list[Patch] = []
        self._redo: list[Patch] = []
        self._last_id: str | None = None
        self._boxes_are_ours = False
        self._size = 0
        for name in (JOURNAL_FILE, STATUS_FILE, STATES_FILE, STEPS_FILE, STEPS_WITH_ERRORS_FILE, COCO_FILE):
            check_own_file(self.folder.path / name)
        if self._journal.is_file():
            # on some shared disks only those who may write can keep others out
            with self._alone("ab" if os.access(self._journal, os.W_OK) else "rb"):
                self._read_journal()
        else:
            self.document = Document(self._first_states(), self._boxes_on_disk() or {})

    def _read_journal(self) -> None:
        states, steps = read_labels(self.folder, self.procedure, self.recording.n_frames)  # as they are by now
        self.recording = replace(self.recording, states=states, steps=steps)
        lines = self._whole_lines()
        if lines:
            self._reconcile(self._replay(lines))
        else:  # there was no room for the first change, or the power went before it was written
            self.document = Document(self._first_states(), self._boxes_on_disk() or {})

    @contextmanager
    def _alone(self, mode: Literal["rb", "ab"]) -> Iterator[None]:
        """No other program changes the recording, or looks at half a change, until the end of the block."""
        with self._lock:
            if self._is_alone:
                yield
                return
            with self._opened(mode) as file, holding(file):
                self._is_alone = True
                try:
                    yield
                finally:
                    self._is_alone = False

    def _opened(self, mode: Literal["rb", "ab"]) -> FileIO:
        try:
            with naming_full_disk(self._journal):
                return FileIO(self._journal, mode)
        except OSError as error:
            said = f"cannot be {'read' if mode == 'rb' else 'written'}: {(error.strerror or str(error)).lower()}"
            raise InputError(said, path=self._journal) from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Make a change to what this program knows, or learn that it is not the newest."""
        with self._alone("ab"):
            if self._journal.stat().st_size != self._size:
                self._load()
                raise StaleError("another program has changed this recording", cure="it was read again")
            yield

    def _first_states(self) -> States:
        if self.recording.states is not None:
            timeline = self.recording.states
            return rows_without_repetition(dict(zip(timeline.frames, timeline.states, strict=True)))
        return {0: self.initial or self.procedure.variant().initial}

    def _whole_lines(self) -> list[bytes]:
        """The lines of the journal."""
        content = read_bytes(self._journal)
        whole = content[: content.rfind(b"\n") + 1]  # a line that was being written when the power went is no line
        if len(whole) < len(content):
            with self._journal.open("r+b") as file:
                file.truncate(len(whole))
        self._size = len(whole)
        return whole.split(b"\n")[:-1]

    def _replay(self, lines: Sequence[bytes]) -> Document:
        """Go through the journal; returned is the document before its last line."""
        self.document = before = Document(self._first_states())
        for number, line in enumerate(lines, start=1):
            try:
                entry = parse_json(line)
                patch = patch_from_json(entry["patch"], self.procedure)
                if number == 1:
                    self.document = Document({}, {}, {})
                    self.document.apply(patch)
                    continue
                if number == len(lines):
                    before = Document(dict(self.document.states), dict(self.document.boxes), dict(self.document.marks))
                self._take(entry["did"], patch)
                self.revision, self._last_id = int(entry["revision"]), entry.get("id")
            except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
                raise self._no_change(number, error) from error
            except InputError as error:
                raise self._no_change(number, error.problem) from error
        return before

    def _no_change(self, line: int, why: object) -> InputError:
        cure = "delete this line and those after it, or the whole journal: the label files are kept"
        return InputError(f"this is no change of an annotation ({why})", path=self._journal, line=line, cure=cure)

    def _take(self, did: str, patch: Patch) -> None:
        """A change of the journal, with what it does to the ways back and forth."""
        inverse = self.document.apply(patch)
        self._boxes_are_ours |= "boxes" in patch
        if did == _UNDO:
            self._undo.pop()
            self._redo.append(inverse)
        elif did == _REDO:
            self._redo.pop()
            self._undo.append(inverse)
        else:
            self._undo.append(inverse)
            self._redo.clear()

    def _boxes_on_disk(self) -> dict[int, DrawnBox] | None:
        path = boxes_inside(self.folder.path)
        if path is None:
            return None
        found: dict[int, DrawnBox] = {}
        for labelled in read_boxes(path, self.procedure, self.width, self.height):
            found.setdefault(labelled.frame, DrawnBox.of(labelled.box.to_xywh()))
        return found

    def _reconcile(self, before: Document) -> None:
        """Files are as this program left them, a change behind after a crash, or by somebody else: then they count."""
        patch: Patch = {}
        if (self.folder.path / STATES_FILE).is_file():
            states = self._first_states()
            if states not in (self.document.states, before.states):
                old = self.document.states
                changed = {f: states.get(f) for f in {*old, *states} if old.get(f) != states.get(f)}
                patch["states"] = dict(sorted(changed.items()))
        boxes = self._boxes_on_disk()
        if boxes is not None and all(
            _sides(boxes) != _sides(self._written_boxes(document)) for document in (self.document, before)
        ):
            own = self._written_boxes(self.document)
            changed_boxes = {f: boxes.get(f) for f in {*own, *boxes} if _sides(own).get(f) != _sides(boxes).get(f)}
            patch["boxes"] = dict(sorted(changed_boxes.items()))
        if patch:
            self._append(_READ, patch)
        if read_status(self.folder.path).get("revision") != self.revision:  # it is written last
            self._write_files()

    # ------------------------------------------------------------------ writing
    def _append(self, did: str, patch: Patch, frame: int | None = None, change_id: str | None = None) -> None:
        """Onto the disk first, then into the document."""
        entry = {"revision": self.revision + 1, "at": _now(), "did": did, "frame": frame, "id": change_id}
        lines = [{**entry, "patch": patch_to_json(patch)}]
        if self._size == 0:
            start: Patch = {"states": dict(self.document.states), "boxes": dict(self.document.boxes), "marks": {}}
            lines.insert(0, {"revision": 0, "did": "start", "patch": patch_to_json(start)})
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines).encode()
        with self._opened("ab") as file, naming_full_disk(self._journal):
            append(file, text)
        self._size += len(text)
        self._take(did, patch)
        self.revision, self._last_id = self.revision + 1, change_id

    def _written_boxes(self, document: Document) -> dict[int, DrawnBox]:
        """The boxes that have a class: the detector's, of the labelled state of their frame."""
        timeline, known = document.timeline, self.procedure.state_class
        return {f: box for f, box in sorted(document.boxes.items()) if known(timeline.at(f)) is not None}

    def _write_files(self, patch: Patch | None = None) -> None:
        """The files that say what a patch has changed; all of them without one."""
        path, timeline = self.folder.path, self.document.timeline
        if patch is None or "states" in patch or not (path / STATES_FILE).is_file():
            write_states(path / STATES_FILE, timeline, self.procedure, **self._style)
            for name, with_errors in ((STEPS_FILE, False), (STEPS_WITH_ERRORS_FILE, True)):
                events = steps_from_states(timeline, self.procedure, with_errors=with_errors)
                write_steps(path / name, events, self.procedure, **self._style)
        has_boxes = self._boxes_are_ours or (path / COCO_FILE).is_file()
        if has_boxes and (patch is None or "states" in patch or "boxes" in patch):
            coco = Coco(categories=state_categories(self.procedure))
            for frame, box in self._written_boxes(self.document).items():
                state_class = self.procedure.state_class(timeline.at(frame))
                assert state_class is not None
                image = CocoImage(frame, frame_name(frame, **self._style), self.width, self.height)
                coco.images.append(image)
                coco.boxes.append(CocoBox(image, state_class, box.box))
            coco.write(path / COCO_FILE)
        write_json(path / STATUS_FILE, self.status())

    def status(self) -> dict[str, Any]:
        """How far the recording is."""
        with self._lock:
            open_problems = [p for p in self._problems() if not p["kept"]]
            return {
                "revision": self.revision,
                "labelled_until": self.document.labelled_until,
                "n_frames": self.recording.n_frames,
                "finished": self.document.finished,
                "problems": len(open_problems),
                "changes": len(self.document.states) - 1,
                "boxes": len(self.document.boxes),
            }

    # ------------------------------------------------------------------ for the page
    def _problems(self) -> list[dict[str, Any]]:
        marks = self.document.marks
        return [
            {"kind": p.kind, "frame": p.frame, "component": p.component, "needs": p.needs}
            | {"key": p.key, "kept": bool(marks.get(p.key))}
            for p in problems_of(self.document.states, self.procedure, self.initial)
        ]

    def to_json(self, *, with_boxes: bool = True) -> dict[str, Any]:
        with self._lock:
            document = self.document
            boxes = {str(frame): box.to_json() for frame, box in sorted(document.boxes.items())}
            return {
                "revision": self.revision,
                "states": [[frame, *document.states[frame]] for frame in sorted(document.states)],
                **({"boxes": boxes} if with_boxes else {}),
                "labelled_until": document.labelled_until,
                "finished": document.finished,
                "settled": {k.partition("/")[2]: v for k, v in document.marks.items() if k.startswith("settled/")},
                "problems": self._problems(),
                "can_undo": bool(self._undo),
                "can_redo": bool(self._redo),
            }

    # ------------------------------------------------------------------ changes
    def change(self, body: Body, proposals: Any = None) -> dict[str, Any]:
        """One change, as a page asks for it: `revision` is what the page has seen, `do` says what to do.

        A request that is sent again because its answer was lost is known by its `id`, and answered once more.
        """
        did, change_id = body.get("do"), body.get("id")
        if not isinstance(did, str) or (did not in _CHANGES and did not in (_UNDO, _REDO, _FINISH)):
            raise InputError(
                f"there is no change {did!r}", cure=f"do is one of: {', '.join(_CHANGES)}, undo, redo, finish"
            )
        if change_id is not None and not (
            isinstance(change_id, str) and len(change_id) <= 64 and change_id.isprintable()
        ):
            raise InputError("id is not a short text")
        with self._lock:
            seen = _whole(body, "revision", None)
            if change_id is not None and change_id == self._last_id and seen == self.revision - 1:
                return self.to_json()
            if seen != self.revision:
                cure = "look at what is new, then make your change again"
                raise StaleError("this recording was changed in another window", cure=cure)
            had_boxes, frame = self._boxes_are_ours, None
            if did == _FINISH:
                return self._finish(change_id)
            if did in (_UNDO, _REDO):
                stack = self._undo if did == _UNDO else self._redo
                if not stack:
                    raise InputError(f"there is nothing to {did}")
                patch = dict(stack[-1])
                frame = _frame_of(patch)
            else:
                frame = _whole(body, "frame", self.recording.n_frames - 1) if "frame" in body else None
                patch = _CHANGES[did](self, body, proposals)
                patch = {name: entries for name, entries in patch.items() if entries}
                if not patch:
                    return self.to_json(with_boxes=False)
                if self.document.finished and ("states" in patch or "boxes" in patch):
                    patch["marks"] = {**patch.get("marks", {}), FINISHED: None}
            with self._changing():
                self._append(did, patch, frame, change_id)
                self._write_files(patch)
            found = self.to_json(with_boxes="boxes" in patch or had_boxes != self._boxes_are_ours)
            return found if frame is None else {**found, "frame": frame}

    def _finish(self, change_id: str | None) -> dict[str, Any]:
        """Write the labels, audit them, and remember what was found."""
        with self._changing():
            return self._audited(change_id)

    def _audited(self, change_id: str | None) -> dict[str, Any]:
        self._write_files()
        audit: Audit = audit_labels(self.folder.path, self.procedure)
        findings = [
            {"severity": f.severity, "file": Path(f.path).name, "line": f.line, "text": f.text} for f in audit.findings
        ]
        finished = {"at": _now(), "errors": audit.n_errors, "warnings": len(findings) - audit.n_errors}
        marks = {FINISHED: finished, LABELLED_UNTIL: self.recording.n_frames}
        self._append(_FINISH, {"marks": marks}, None, change_id)
        self._write_files()
        return {**self.to_json(with_boxes=False), "findings": findings}

    # each of these is one entry of `_CHANGES`: what a page asks for, as a patch
    def _component(self, body: Body) -> int:
        return _whole(body, "component", self.procedure.n_components - 1)

    def _frame(self, body: Body, name: str = "frame") -> int:
        return _whole(body, name, self.recording.n_frames - 1)

    def _frame_with_image(self, body: Body) -> int:
        frame = self._frame(body)
        if frame not in self.numbers:
            raise InputError(f"frame {frame} has no image")
        return frame

    def _labelled(self, patch: Patch, frame: int) -> Patch:
        """Who labels in a frame has seen what comes before it."""
        if frame + 1 > self.document.labelled_until:
            patch["marks"] = {**patch.get("marks", {}), LABELLED_UNTIL: frame + 1}
        return patch

    def _set(self, body: Body, _: Any) -> Patch:
        value = body.get("value")
        if value is not None and value not in (-1, 0, 1):
            raise InputError(f"value is {value!r}", cure="1 is correct, 0 absent, -1 wrong")
        frame = self._frame(body)
        return self._labelled(set_component(self.document.states, self._component(body), frame, value), frame)

    def _move(self, body: Body, _: Any) -> Patch:
        return move_change(self.document.states, self._component(body), self._frame(body), self._frame(body, "to"))

    def _mark(self, body: Body, _: Any) -> Patch:
        return {"marks": {LABELLED_UNTIL: self._frame(body) + 1}}

    def _keep(self, body: Body, _: Any) -> Patch:
        """Keep odd transitions of a frame on purpose, or no longer."""
        frame = self._frame(body)
        here = [p for p in self._problems() if p["frame"] == frame]
        if not here:
            raise InputError("nothing is odd in this frame")
        keep = any(not p["kept"] for p in here)
        return {"marks": {p["key"]: True if keep else None for p in here}}

    def _box(self, body: Body, _: Any) -> Patch:
        sides = body.get("box")
        if not isinstance(sides, list) or len(sides) != 4 or not all(_is_number(side) for side in sides):
            raise InputError(f"box is {sides!r}"[:80], cure="it has four numbers: x, y, width, height in pixels")
        inside = DrawnBox.of(sides).box.inside(self.width, self.height)
        return draw_box(self.document.boxes, self.numbers, self._frame_with_image(body), DrawnBox.of(inside.to_xywh()))

    def _copy_box(self, body: Body, _: Any) -> Patch:
        frame = self._frame_with_image(body)
        box = last_box(self.document.boxes, frame)
        return draw_box(self.document.boxes, self.numbers, frame, DrawnBox.of(box.sides))

    def _repeat_box(self, body: Body, _: Any) -> Patch:
        return repeat_box(self.document.boxes, self.document.states, self.numbers, self._frame(body))

    def _fill(self, body: Body, _: Any) -> Patch:
        return fill_between(self.document.boxes, self.numbers, self._frame(body))

    def _delete_box(self, body: Body, _: Any) -> Patch:
        first = self._frame(body)
        last = self._frame(body, "to") if "to" in body else first
        return {"boxes": {frame: None for frame in self.document.boxes if first <= frame <= last}}

    def _accept(self, body: Body, proposals: Any) -> Patch:
        """A proposed step, in the frame that the person looks at."""
        found, frame = _proposed(proposals).step(body.get("proposal")), self._frame(body)
        patch = set_component(self.document.states, found.component, frame, found.value)
        return self._labelled({**patch, "marks": {f"settled/{found.id}": "accepted"}}, frame)

    def _reject(self, body: Body, proposals: Any) -> Patch:
        found = _proposed(proposals).step(body.get("proposal"))
        return {"marks": {f"settled/{found.id}": "rejected"}}

    def _accept_box(self, body: Body, proposals: Any) -> Patch:
        frame = self._frame_with_image(body)
        sides = _proposed(proposals).box(frame)
        box = DrawnBox.of(sides).box.inside(self.width, self.height)
        return draw_box(self.document.boxes, self.numbers, frame, DrawnBox.of(box.to_xywh()))

    def _accept_boxes(self, body: Body, proposals: Any) -> Patch:
        """All proposed boxes from a frame until the state changes that show the labelled state, where none is yet."""
        frame, states = self._frame(body), self.document.states
        end = min((other for other in states if other > frame), default=self.recording.n_frames)
        state_class = self.procedure.state_class(self.document.timeline.at(frame))
        patch: dict[int, DrawnBox] = {}
        for number, (*sides, _, seen) in sorted(_proposed(proposals).boxes.items()):
            open_ = number not in self.document.boxes and not self.document.marks.get(f"settled/box:{number}")
            if frame <= number < end and open_ and seen == state_class:
                patch[number] = DrawnBox.of(DrawnBox.of(sides).box.inside(self.width, self.height).to_xywh())
        if not patch:
            raise InputError("the model proposes no box of the labelled state from here to the next change")
        return {"boxes": patch}

    def _reject_box(self, body: Body, proposals: Any) -> Patch:
        frame = self._frame(body)
        _proposed(proposals).box(frame)
        return {"marks": {f"settled/box:{frame}": "rejected"}}


_CHANGES: dict[str, Callable[[Session, Body, Any], Patch]] = {
    "set": Session._set,
    "move": Session._move,
    "mark": Session._mark,
    "keep": Session._keep,
    "box": Session._box,
    "copy_box": Session._copy_box,
    "repeat_box": Session._repeat_box,
    "fill": Session._fill,
    "delete_box": Session._delete_box,
    "accept": Session._accept,
    "reject": Session._reject,
    "accept_box": Session._accept_box,
    "accept_boxes": Session._accept_boxes,
    "reject_box": Session._reject_box,
}


def _proposed(proposals: Any) -> Any:
    if proposals is None:
        raise InputError(
            "there are no proposals yet", cure="start with --model, or wait until it has seen the recording"
        )
    return proposals


def _sides(boxes: dict[int, DrawnBox]) -> dict[int, tuple[float, ...]]:
    return {frame: box.sides for frame, box in boxes.items()}


def _frame_of(patch: Patch) -> int | None:
    """Where a patch is to be seen."""
    frames = [*patch.get("states", ()), *patch.get("boxes", ())]
    return min(frames) if frames else None


def _style_of(recording: Recording) -> dict[str, Any]:
    """How labels name frames: as the images are called; as IndustReal's where there is a video."""
    if not isinstance(recording.source, ImageFolder):
        return {}
    first = recording.source.file(recording.source.numbers()[0])
    return {"digits": len(first.stem), "extension": first.suffix}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6


def _whole(body: Body, name: str, most: int | None) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (most is not None and value > most):
        cure = "give a whole number" if most is None else f"give a whole number from 0 to {most}"
        raise InputError(f"{name} is {str(value)[:40]!r}", cure=cure)
    return value


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

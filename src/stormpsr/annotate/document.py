"""What a person has said of one recording: states, boxes and marks, and how each key changes them.

A document has three sections, each a dictionary. A change is a patch of the same shape: what is written at which place,
None where something goes. Applying a patch returns its inverse, which undoes it; nothing else is needed to undo without
end, and a journal of patches can be read by programs that know nothing of keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from stormpsr.data.boxes import Box
from stormpsr.data.labels import StateTimeline
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, StateBits

States = dict[int, StateBits]  # frame -> the state from there on; frame 0 is always there, and no row repeats the last
Patch = dict[str, dict[Any, Any]]  # section -> place -> what is there now, None for nothing

LABELLED_UNTIL = "labelled_until"  # so many frames from the start are labelled
FINISHED = "finished"  # what the audit found when the recording was marked finished


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A box of a frame: drawn by a person (a key frame), or filled in between two of those."""

    x: float
    y: float
    width: float
    height: float
    is_key: bool = True

    @classmethod
    def of(cls, sides: Sequence[float], is_key: bool = True) -> DrawnBox:
        """From x, y, width and height in pixels, to the hundredth as COCO files are written."""
        x, y, width, height = (round(float(side), 2) for side in sides)
        return cls(x, y, width, height, is_key)

    @property
    def sides(self) -> tuple[float, float, float, float]:
        return self.x, self.y, self.width, self.height

    @property
    def box(self) -> Box:
        return Box.from_xywh(*self.sides)

    def to_json(self) -> list[Any]:
        return [*self.sides, int(self.is_key)]


@dataclass
class Document:
    """The sections. Use `apply` to change them."""

    states: States
    boxes: dict[int, DrawnBox] = field(default_factory=dict)
    marks: dict[str, Any] = field(default_factory=dict)

    def apply(self, patch: Patch) -> Patch:
        """Make a change; what is returned takes it back."""
        inverse: Patch = {}
        for name, entries in patch.items():
            section = getattr(self, name)
            inverse[name] = {place: section.get(place) for place in entries}
            for place, value in entries.items():
                if value is None:
                    section.pop(place, None)
                else:
                    section[place] = value
        return inverse

    @property
    def timeline(self) -> StateTimeline:
        frames = sorted(self.states)
        return StateTimeline(tuple(frames), tuple(self.states[frame] for frame in frames))

    @property
    def labelled_until(self) -> int:
        return int(self.marks.get(LABELLED_UNTIL, 0))

    @property
    def finished(self) -> dict[str, Any] | None:
        return self.marks.get(FINISHED)


# ---------------------------------------------------------------------- files of patches
def patch_to_json(patch: Patch) -> dict[str, dict[str, Any]]:
    def plain(value: Any) -> Any:
        return value.to_json() if isinstance(value, DrawnBox) else value

    return {name: {str(place): plain(value) for place, value in entries.items()} for name, entries in patch.items()}


def _box_from_json(value: Sequence[Any]) -> DrawnBox:
    *sides, is_key = value
    found = DrawnBox.of(sides, bool(is_key))
    if not (found.width > 0 and found.height > 0):
        raise ValueError(f"a box of {found.width} by {found.height} pixels")
    return found


def _mark_from_json(name: str, value: Any) -> Any:
    kind = {LABELLED_UNTIL: int, FINISHED: dict}.get(name)
    if kind is not None and type(value) is not kind:  # true is no number
        raise ValueError(f"{name} is {value!r}")
    return value


def patch_from_json(content: Mapping[str, Mapping[str, Any]], procedure: Procedure) -> Patch:
    """A patch as the journal has it, every value checked."""
    read: dict[str, Callable[[Any], Any]] = {
        "states": procedure.check_bits,
        "boxes": _box_from_json,
    }
    found: Patch = {}
    for name, entries in content.items():
        if name == "marks":
            found[name] = {k: None if value is None else _mark_from_json(k, value) for k, value in entries.items()}
        else:
            found[name] = {int(frame): None if value is None else read[name](value) for frame, value in entries.items()}
    return found


# ---------------------------------------------------------------------- states
def rows_without_repetition(rows: Mapping[int, StateBits]) -> States:
    """Rows that change something; the first one counts from frame 0 on."""
    found: States = {}
    last: StateBits | None = None
    for frame in sorted(rows):
        if rows[frame] != last:
            last = rows[frame]
            found[frame if found else 0] = last
    return found


def _patch_of_states(old: States, new: Mapping[int, StateBits]) -> Patch:
    rows = rows_without_repetition(new)
    changed = {frame: rows.get(frame) for frame in sorted({*old, *rows}) if old.get(frame) != rows.get(frame)}
    return {"states": changed} if changed else {}


def changes_of(states: States, component: int) -> list[tuple[int, int]]:
    """(frame, value) wherever a component changes, its initial value first."""
    found: list[tuple[int, int]] = []
    for frame in sorted(states):
        if not found or states[frame][component] != found[-1][1]:
            found.append((frame, states[frame][component]))
    return found


def value_at(states: States, component: int, frame: int) -> int:
    return [value for first, value in changes_of(states, component) if first <= frame][-1]


_NEXT = {0: 1, 1: -1, -1: 0}


def set_component(states: States, component: int, frame: int, value: int | None = None) -> Patch:
    """A component has a value from a frame on until it changes next; without a value, the next of the three."""
    changes = changes_of(states, component)
    if value is None:
        value = _NEXT[value_at(states, component, frame)]
    end = next((first for first, _ in changes if first > frame), None)
    return _paint(states, component, frame, end, value)


def move_change(states: States, component: int, frame: int, to: int) -> Patch:
    """A change of a component happens in another frame; it cannot pass the component's changes beside it."""
    changes = changes_of(states, component)
    place = next((i for i, (first, _) in enumerate(changes) if first == frame), 0)
    if place == 0:
        raise InputError(f"component {component} does not change in frame {frame}")
    before, after = changes[place - 1][1], changes[place][1]
    lowest = changes[place - 1][0] + 1
    to = max(to, lowest)
    if place + 1 < len(changes):
        to = min(to, changes[place + 1][0] - 1)
    return _paint(states, component, *((frame, to, before) if to > frame else (to, frame, after)))


def _paint(states: States, component: int, first: int, end: int | None, value: int) -> Patch:
    frames = sorted({*states, first, *(() if end is None else (end,))})
    known = sorted(states)
    rows = {frame: states[known[bisect_right(known, frame) - 1]] for frame in frames}
    for frame, bits in rows.items():
        if first <= frame and (end is None or frame < end):
            rows[frame] = (*bits[:component], value, *bits[component + 1 :])
    return _patch_of_states(states, rows)


# ---------------------------------------------------------------------- checks
@dataclass(frozen=True, slots=True)
class Problem:
    """A transition that the procedure does not allow, of a component in a frame."""

    kind: str  # "order": what it needs is not there; "turned_wrong": from correct to wrong; "initial": another start
    frame: int
    component: int
    needs: tuple[int, ...] = ()  # components, of which one should be there

    @property
    def key(self) -> str:
        """Under which a person keeps it on purpose."""
        return f"kept/{self.frame}/{self.kind}/{self.component}"


def problems_of(states: States, procedure: Procedure, initial: StateBits | None) -> Iterator[Problem]:
    """What is odd about the states. initial: of the variant that the recording follows, where one is known."""
    frames = sorted(states)
    if initial is not None:
        for k, (own, usual) in enumerate(zip(states[0], initial, strict=True)):
            if own != usual:
                yield Problem("initial", 0, k)
    unmet = _unmet(states[0], procedure)
    yield from (Problem("order", 0, k, needs) for k, needs in unmet.items())
    for before, frame in pairwise(frames):
        old, new = states[before], states[frame]
        for k, (was, now) in enumerate(zip(old, new, strict=True)):
            if was == 1 and now == -1:
                yield Problem("turned_wrong", frame, k)
        still, unmet = unmet, _unmet(new, procedure)
        # what was odd before is said once, where it began
        yield from (Problem("order", frame, k, needs) for k, needs in unmet.items() if k not in still)


def _unmet(bits: StateBits, procedure: Procedure) -> dict[int, tuple[int, ...]]:
    present = {k for k, bit in enumerate(bits) if bit != 0}
    found: dict[int, tuple[int, ...]] = {}
    for k in sorted(present):
        for choice in procedure.needs.choices[k]:
            if not present & set(choice):
                found.setdefault(k, choice)
    return found


# ---------------------------------------------------------------------- boxes
Boxes = Mapping[int, DrawnBox]


def _between(boxes: Boxes, numbers: Sequence[int], left: int, right: int) -> dict[int, DrawnBox]:
    """Boxes of all frames between two that have one, on the straight way from one to the other."""
    one, other = boxes[left].sides, boxes[right].sides
    inner = numbers[bisect_right(numbers, left) : bisect_left(numbers, right)]
    share_of = {frame: (frame - left) / (right - left) for frame in inner}
    return {
        frame: DrawnBox.of([a + (b - a) * share for a, b in zip(one, other, strict=True)], is_key=False)
        for frame, share in share_of.items()
    }


def draw_box(boxes: Boxes, numbers: Sequence[int], frame: int, box: DrawnBox) -> Patch:
    """A key frame gets its box; filled-in boxes beside it follow."""
    drawn = {**boxes, frame: box}
    patch = {frame: box}
    at = bisect_left(numbers, frame)
    for step in (-1, 1):
        place = at + step
        while 0 <= place < len(numbers) and (there := boxes.get(numbers[place])) is not None and not there.is_key:
            place += step
        end = numbers[place] if 0 <= place < len(numbers) else frame
        if abs(place - at) > 1 and end in boxes:
            patch |= _between(drawn, numbers, min(frame, end), max(frame, end))
    return {"boxes": patch}


def fill_between(boxes: Boxes, numbers: Sequence[int], frame: int) -> Patch:
    """Fill the frames between the key frames on both sides of a frame; at the last one, those before it."""
    keys = sorted(number for number, box in boxes.items() if box.is_key)
    right = bisect_right(keys, frame)
    right = min(right, len(keys) - 1)
    if right < 1:
        raise InputError("there is nothing to fill", cure="draw a box in two frames, then fill those between")
    return {"boxes": _between(boxes, numbers, keys[right - 1], keys[right])}


def last_box(boxes: Boxes, frame: int) -> DrawnBox:
    """The box to copy into a frame: of the last one before it."""
    before = [number for number in boxes if number < frame]
    if not before:
        raise InputError("there is no box before this frame", cure="draw one with the mouse")
    return boxes[max(before)]


def repeat_box(boxes: Boxes, states: States, numbers: Sequence[int], frame: int) -> Patch:
    """The box of a frame, as it is, in all that follow until the state changes or another box is there."""
    if frame not in boxes:
        raise InputError("there is no box in this frame", cure="draw one, or copy the last one here")
    end = min((other for other in states if other > frame), default=numbers[-1] + 1)
    patch: dict[int, DrawnBox] = {}
    for number in numbers[bisect_right(numbers, frame) : bisect_left(numbers, end)]:
        if number in boxes:
            break
        patch[number] = DrawnBox.of(boxes[frame].sides, is_key=False)
    if patch:  # the last one is a key frame, so that it can be moved and the others follow
        last = max(patch)
        patch[last] = DrawnBox.of(boxes[frame].sides)
    return {"boxes": patch}

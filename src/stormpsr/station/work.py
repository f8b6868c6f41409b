"""The unit in work as its records tell it: every step's state, and the state of every component.

Nothing here reads a clock or a disk. What happens becomes a record first, and `Work.apply` makes the state of it: so
the state after a restart, the report of a unit of last month and the live page come from the same lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from stormpsr.data.events import StepEvent
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure, Step, StepKind
from stormpsr.station.records import Entry, Record, utc_seconds

Status = Literal["open", "done", "wrong", "skipped", "removed"]
UnitStatus = Literal["running", "pass", "fail", "incomplete"]
_LEADS_TO = {StepKind.INSTALL: 1, StepKind.INCORRECT: -1, StepKind.REMOVE: 0}


@dataclass(frozen=True, slots=True)
class StepState:
    """How far a step of the work instruction is."""

    status: Status = "open"
    time: str | None = None  # when it came to this
    seconds: float | None = None  # since the step before, or since the unit began
    confidence: float | None = None
    by: str | None = None
    evidence: str | None = None  # name of an image


@dataclass(frozen=True, slots=True)
class Correction:
    """What an operator said, and what was there before."""

    record: int
    step_id: int
    component: int
    bit_before: int
    before: StepState


@dataclass
class Unit:
    """One thing that is worked on."""

    id: int
    serial: str | None
    variant: str
    started: str
    status: UnitStatus = "running"
    finished: str | None = None


@dataclass
class Work:
    """The unit in work, or the last one, by its records."""

    procedure: Procedure
    unit: Unit | None = None
    steps: dict[int, StepState] = field(default_factory=dict)  # of the expected steps, by id
    bits: list[int] = field(default_factory=list)  # per component: 1 correct, 0 absent, -1 wrong
    corrections: list[Correction] = field(default_factory=list)  # those that were not taken back, latest last
    progress: str = ""  # when a step was completed last, or the unit began

    @classmethod
    def of(cls, procedure: Procedure, records: Iterable[Record]) -> Work:
        work = cls(procedure)
        for record in records:
            work.apply(record)
        procedure.check_bits(work.bits or procedure.variant().initial)
        return work

    # ------------------------------------------------------------------ what is
    @property
    def is_running(self) -> bool:
        return self.unit is not None and self.unit.status == "running"

    @property
    def is_complete(self) -> bool:
        """Whether all expected steps are done."""
        return bool(self.steps) and all(state.status == "done" for state in self.steps.values())

    def count(self, status: Status) -> int:
        return sum(state.status == status for state in self.steps.values())

    def verdict(self) -> UnitStatus:
        """What the unit is if it is finished now."""
        if self.count("wrong") or -1 in self.bits:
            return "fail"
        return "pass" if self.is_complete else "incomplete"

    def next_steps(self) -> list[int]:
        """The steps that can come next by the procedure's order."""
        present = {k for k, bit in enumerate(self.bits) if bit}
        found = []
        for step_id, state in self.steps.items():
            step = self.procedure.step(step_id)
            k = step.component_index
            if state.status == "done":
                continue
            if step.installs:
                possible = self.bits[k] != 1 and self.procedure.needs.met(k, present)
            else:
                possible = k in present and not self.procedure.needs.carried_by(k, present - {k})
            if possible:
                found.append(step_id)
        return found

    def left_out(self) -> list[int]:
        """Open steps that a part which is in place needs."""
        present = {k for k, bit in enumerate(self.bits) if bit}
        found: set[int] = set()
        for k in present:
            for choice in self.procedure.needs.choices[k]:
                if not set(choice) & present:
                    found |= {self.procedure.step_id(other, StepKind.INSTALL) for other in choice}
        return [step_id for step_id, state in self.steps.items() if step_id in found and state.status == "open"]

    def seconds_since_progress(self, time: str) -> float:
        return max(utc_seconds(time) - utc_seconds(self.progress), 0.0)

    # ------------------------------------------------------------------ what is to be recorded
    def entry_of_event(
        self, event: StepEvent, time: str, image: dict[str, str] | None = None, by: str = "camera"
    ) -> Entry | None:
        """What to record of a recognised step; None if it says nothing new."""
        assert self.unit is not None
        step = self.procedure.step(event.step_id)
        if self._target(step, event.kind) is None:
            return None
        name = next(iter(image), None) if image else None
        data = {
            "event": event.kind,
            "step_id": event.step_id,
            "text": step.description,
            # evidence of some methods adds up over frames, and is no probability
            "confidence": round(event.confidence, 4)
            if event.confidence is not None and event.confidence <= 1
            else None,
            "seconds": round(self.seconds_since_progress(time), 3),
            "frame": event.frame,
            "by": by,
            "picture": name,
            "files": image or {},
        }
        return Entry("step", data, self.unit.id)

    def entry_of_correction(self, step_id: int, status: str, time: str, image: dict[str, str] | None = None) -> Entry:
        """What to record of an operator's word."""
        if not self.is_running or self.unit is None:
            raise InputError("no unit is in work", cure="start one first")
        if step_id not in self.steps:
            raise InputError(f"step {step_id} is not part of variant {self.unit.variant!r}")
        step, before = self.procedure.step(step_id), self.steps[step_id]
        bits = {"done": int(step.installs), "open": int(not step.installs), "wrong": -1}
        if status not in bits or (status == "wrong" and not step.installs):
            raise InputError(
                f"a step cannot be set to {status!r}", cure="say done or open; of an installation also wrong"
            )
        k = step.component_index
        data = {
            "step_id": step_id,
            "text": step.description,
            "from": before.status,
            "to": status,
            "component": k,
            "bit_before": self.bits[k],
            "bit": bits[status],
            "state": list(self.bits),
            "before": asdict(before),
            "seconds": round(self.seconds_since_progress(time), 3),
            "by": "operator",
            "picture": next(iter(image), None) if image else None,
            "files": image or {},
        }
        return Entry("correction", data, self.unit.id)

    def entry_of_undo(self) -> Entry:
        if not self.corrections or self.unit is None or not self.is_running:
            raise InputError("there is nothing to undo")
        last = self.corrections[-1]
        data = {
            "correction": last.record,
            "step_id": last.step_id,
            "text": self.procedure.step(last.step_id).description,
            "from": self.steps[last.step_id].status,
            "to": last.before.status,
            "component": last.component,
            "bit": last.bit_before,
            "by": "operator",
        }
        return Entry("undo", data, self.unit.id)

    def entries_of_finish(self, time: str, by: str) -> Iterator[Entry]:
        """What to record when the unit is finished: what was left out, and what became of it."""
        if not self.is_running or self.unit is None:
            raise InputError("no unit is in work", cure="start one first")
        missing = [step_id for step_id, state in self.steps.items() if state.status in ("open", "removed")]
        for step_id in missing:
            entry = self.entry_of_event(StepEvent(step_id, 0, kind="skipped"), time, by="station")
            if entry is not None:
                yield entry
        data = {
            "status": self.verdict(),
            "serial": self.unit.serial,
            "variant": self.unit.variant,
            "by": by,
            "started": self.unit.started,
            "seconds": round(utc_seconds(time) - utc_seconds(self.unit.started), 3),
            "done": self.count("done"),
            "total": len(self.steps),
            "wrong": self.count("wrong"),
            "skipped": self.count("skipped") + len(missing),
        }
        yield Entry("unit_finished", data, self.unit.id)

    # ------------------------------------------------------------------ what was recorded
    def apply(self, record: Record) -> None:
        """Go on to the state after a record. Records that do not change a unit are passed over."""
        data = record.data
        if record.kind == "unit_started":
            variant = self.procedure.variant(data["variant"])
            self.unit = Unit(int(record.unit or 0), data["serial"], variant.name, record.time)
            self.steps = dict.fromkeys(variant.expected, StepState())
            self.bits, self.corrections, self.progress = list(variant.initial), [], record.time
        elif record.kind == "unit_finished" and self.unit is not None:
            self.unit.status, self.unit.finished = data["status"], record.time
        elif record.kind == "step":
            self._apply_step(record)
        elif record.kind == "correction":
            k, step_id = data["component"], data["step_id"]
            if k != self.procedure.step(step_id).component_index:
                raise ValueError(f"step {step_id} is not about component {k}")
            before = StepState(**data["before"])
            self.corrections.append(Correction(record.id, step_id, k, data["bit_before"], before))
            self.bits[k] = data["bit"]
            self._set(step_id, data["to"], record, data)
        elif record.kind == "undo":
            last = {correction.record: correction for correction in self.corrections}[data["correction"]]
            self.corrections.remove(last)
            self.bits[last.component] = last.bit_before
            self.steps[last.step_id] = last.before

    def _apply_step(self, record: Record) -> None:
        event, step = record.data["event"], self.procedure.step(record.data["step_id"])
        target = self._target(step, event)
        if event != "skipped":
            self.bits[step.component_index] = _LEADS_TO[step.kind]
        if target is not None:
            self._set(*target, record, record.data)

    def _target(self, step: Step, event: str) -> tuple[int, Status] | None:
        """The step that an event is about and what it becomes; None if it changes nothing.

        A part that comes off undoes its installation, unless the removal itself is expected and was still to come.
        """
        k = step.component_index
        install, remove = (self.procedure.step_id(k, kind) for kind in (StepKind.INSTALL, StepKind.REMOVE))
        step_id = step.id
        status: Status = "done"
        if event == "skipped":
            status = "skipped"
        elif step.kind is StepKind.INCORRECT:
            step_id, status = install, "wrong"
        elif step.id not in self.steps or self.steps[step.id].status == "done":
            opposite = install if step.kind is StepKind.REMOVE else remove
            if opposite in self.steps and self.steps[opposite].status != "open":
                step_id, status = opposite, "removed"
        was = self.steps[step_id].status if step_id in self.steps else status
        if event == "skipped":
            return (step_id, status) if was in ("open", "removed") else None
        return (step_id, status) if was != status or self.bits[k] != _LEADS_TO[step.kind] else None

    def _set(self, step_id: int, status: Status, record: Record, data: dict[str, Any]) -> None:
        if step_id not in self.steps:
            return  # of a part that this variant does not touch
        if status == "open":
            self.steps[step_id] = StepState()
            return
        self.steps[step_id] = StepState(
            status, record.time, data.get("seconds"), data.get("confidence"), data["by"], data.get("picture")
        )
        if status == "done":
            self.progress = record.time

    # ------------------------------------------------------------------ for others
    def unit_json(self, time: str) -> dict[str, Any] | None:
        """The unit as plain data, as of a time."""
        if self.unit is None:
            return None
        seconds = utc_seconds(self.unit.finished or time) - utc_seconds(self.unit.started)
        return {
            **asdict(self.unit),
            "seconds": round(max(seconds, 0.0), 1),
            "done": self.count("done"),
            "total": len(self.steps),
            "wrong": self.count("wrong"),
            "skipped": self.count("skipped"),
        }

    def steps_json(self, pictures: Collection[int] = ()) -> list[dict[str, Any]]:
        """The work instruction in the procedure's order, as plain data. `pictures`: the steps that have one."""
        next_steps = set(self.next_steps()) if self.is_running else set()
        return [
            {
                "step_id": step_id,
                "number": number,
                "text": self.procedure.step(step_id).description,
                "component": self.procedure.components[self.procedure.step(step_id).component_index].name,
                "kind": self.procedure.step(step_id).kind.name.lower(),
                "picture": f"/api/steps/{step_id}/picture" if step_id in pictures else None,
                "share": 1.0 if state.status == "done" else 0.0,
                **{**asdict(state), "evidence": evidence_url(state.evidence)},
                "next": step_id in next_steps,
                "overdue": False,
                "usual_seconds": None,
            }
            for number, (step_id, state) in enumerate(self._in_order(), start=1)
        ]

    def _in_order(self) -> list[tuple[int, StepState]]:
        """Removals first, those that others sit on last; then installations as listed, after what they need."""
        depth = self.procedure.needs.depth
        steps = [self.procedure.step(step_id) for step_id in self.steps]
        removals = sorted((s for s in steps if not s.installs), key=lambda s: (-depth[s.component_index], s.id))
        left, placed = [step for step in steps if step.installs], list(removals)
        while left:
            to_come = {step.component_index for step in left}
            there = set(range(self.procedure.n_components)) - to_come
            free = [s for s in left if self.procedure.needs.met(s.component_index, there)]
            placed.append((free or left)[0])
            left.remove(placed[-1])
        return [(step.id, self.steps[step.id]) for step in placed]


def evidence_url(name: str | None) -> str | None:
    return None if name is None else f"/api/evidence/{name}"


def log_line(record: Record) -> dict[str, Any]:
    """A record as the page lists it."""
    data = record.data
    kind = {"step": data.get("event"), "undo": "correction"}.get(record.kind, record.kind)
    more = {"alarm": data.get("alarm")} if record.kind == "alarm" else {}
    if record.kind in ("correction", "undo"):
        more["to"] = data["to"]
    if record.kind == "unit_finished":
        more["result"] = data["status"]
    return {
        "id": record.id,
        "time": record.time,
        "kind": kind,
        "step_id": data.get("step_id"),
        "text": data["status"] if record.kind == "camera" else data.get("text") or data.get("serial"),
        "by": data.get("by", "station"),
        "picture": evidence_url(data.get("picture")),
        **more,
    }

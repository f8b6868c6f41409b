"""What a recogniser found in a whole recording: events as a list, a table, a file or an image, and their scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormpsr.data.events import StepEvent, completions
from stormpsr.data.labels import read_steps, write_steps
from stormpsr.errors import InputError, need_packages
from stormpsr.evaluation.metrics import Protocol, Scores, score
from stormpsr.evaluation.summary import RecordingResult
from stormpsr.files import replacing, write_json
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """The steps of one recording."""

    events: list[StepEvent]
    procedure: Procedure
    variant: str
    method: str
    fps: float
    n_frames: int
    source: str = ""

    def __len__(self) -> int:
        return len(self.events)

    def rows(self) -> list[dict[str, Any]]:
        """A row per event, as plain values."""
        steps = self.procedure.steps
        return [
            {
                "frame": event.frame,
                "time_seconds": event.frame / self.fps if event.time_seconds is None else event.time_seconds,
                "step_id": event.step_id,
                "step": steps[event.step_id].description,
                "component": self.procedure.components[steps[event.step_id].component_index].name,
                "kind": steps[event.step_id].kind.name.lower(),
                "event": event.kind,
                "confidence": event.confidence,
            }
            for event in self.events
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        about = {"source": self.source, "procedure": self.procedure.name, "variant": self.variant}
        return {**about, "method": self.method, "fps": self.fps, "n_frames": self.n_frames, "events": self.rows()}

    def to_dataframe(self) -> Any:
        """A pandas table with a row per event."""
        need_packages("a table of results", "pandas", "pandas")
        from pandas import DataFrame

        columns = ("frame", "time_seconds", "step_id", "step", "component", "kind", "event", "confidence")
        return DataFrame(self.rows(), columns=list(columns))

    def save(self, path: str | Path) -> Path:
        """Write the events: `.csv` in the field's format of labels, completions only, or `.json` with everything."""
        path = Path(path)
        if path.suffix.lower() == ".csv":
            write_steps(path, completions(self.events), self.procedure)
        elif path.suffix.lower() == ".json":
            write_json(path, self.to_dict())
        else:
            raise InputError("results are written as CSV or JSON", path=path, cure="end the name in .csv or .json")
        return path

    def score(self, labels: str | Path | Iterable[StepEvent], protocol: Protocol = "paper") -> Scores:
        """How good the events are; `labels` are events or a file of them (`PSR_labels.csv`)."""
        true, found = _events(labels, self.procedure), completions(self.events)
        return score(true, found, procedure=self.procedure, fps=self.fps, protocol=protocol)

    def plot(
        self, path: str | Path | None = None, labels: str | Path | Iterable[StepEvent] | None = None
    ) -> Figure | None:
        """A timeline: a row per step, a dot where it was recognised, and a bar where labels say it was completed.

        The figure is returned, or saved where a path is given.
        """
        need_packages("drawing", "plot", "matplotlib")
        from stormpsr.evaluation.plots import plot_timeline

        true = _events(labels, self.procedure) if labels is not None else []
        scores = score(true, completions(self.events), procedure=self.procedure, fps=self.fps)
        result = RecordingResult(self.source or self.procedure.name, scores)
        figure = plot_timeline(result, self.procedure, labelled=labels is not None)
        if path is None:
            return figure
        with replacing(path) as draft:
            figure.savefig(draft, dpi=130, format=Path(path).suffix[1:] or "png")
        return None


def _events(labels: str | Path | Iterable[StepEvent], procedure: Procedure) -> list[StepEvent]:
    return read_steps(labels, procedure) if isinstance(labels, str | Path) else list(labels)

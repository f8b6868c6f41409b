"""What every assembly state detector can do, whatever network is inside.

A detector looks at single images. It finds the assembly, names its state (a class of the procedure), and says how sure
it is that both are right. It should stay silent where the state cannot be read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from stormpsr.detection.calibration import Calibration
from stormpsr.detection.frames import FrameSet
from stormpsr.detection.training_settings import OnTraining, TrainingResult, TrainingSettings
from stormpsr.errors import InputError
from stormpsr.models.detector import DEFAULT_MIN_CONFIDENCE, Detection, Image
from stormpsr.procedure import Procedure

__all__ = ["StateDetector"]


class StateDetector(ABC):
    """Detects assembly states. Classes are the procedure's, in the procedure's order; background is never reported."""

    kind: ClassVar[str]  # how a saved folder and the command line call it
    procedure: Procedure
    calibration: Calibration
    metrics: dict[str, Any]  # whatever was measured, kept with the detector

    @abstractmethod
    def detect(
        self, images: Sequence[Image], *, min_confidence: float = DEFAULT_MIN_CONFIDENCE
    ) -> list[list[Detection]]:
        """The detections of each image, most confident first; an empty list where no state can be read."""

    @abstractmethod
    def train(
        self,
        train: FrameSet,
        val: FrameSet,
        settings: TrainingSettings,
        *,
        folder: Path | None = None,
        on_progress: OnTraining | None = None,
    ) -> TrainingResult:
        """Learn from frames, calibrate on validation frames, and save into the folder if one is given.

        With a folder, training that was stopped goes on from there; the same settings are required.
        """

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write everything that is needed to load the detector again into a folder."""

    def check_procedure(self, procedure: Procedure, path: str | Path | None = None) -> None:
        """Refuse a procedure whose classes or components are not those the detector was trained for."""
        ours = [(state.kind, state.bits) for state in self.procedure.states]
        theirs = [(state.kind, state.bits) for state in procedure.states]
        names = [[component.name for component in p.components] for p in (self.procedure, procedure)]
        if ours != theirs or names[0] != names[1]:
            raise InputError(
                f"the detector was trained for procedure {self.procedure.name!r}, whose states or components differ "
                f"from those of {procedure.name!r}",
                path=path,
                cure="train one for this procedure, or use that procedure",
            )

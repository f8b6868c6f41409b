"""Training runs beside each other that share decoded frames and embeddings."""

from __future__ import annotations

from dataclasses import dataclass

from stormpsr.training.stage_folder import StageFolder
from stormpsr.training.stages import Run, StageName


@dataclass(frozen=True)
class NamedRun(Run):
    """A run that keeps its stages in a folder of its own and shares everything else with the others."""

    name: str = ""

    def stage(self, name: StageName) -> StageFolder:
        return StageFolder(self.folder / self.name / name)

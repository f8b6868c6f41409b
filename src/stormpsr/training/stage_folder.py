"""Where a stage keeps its things, and what it was begun with: nobody goes on with what does not belong together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stormpsr.config import Config, dump_config, parse_config
from stormpsr.errors import InputError
from stormpsr.files import read_json_object, write_json

Settings = Config | Mapping[str, Any]  # a mapping of plain values, in sections or not
_MOST_SHOWN = 5


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of trained networks, by which a stage knows again what it began from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class StageFolder:
    """Where a stage keeps its things."""

    path: Path

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def last(self) -> Path:
        return self.path / "resume" / "last.ckpt"

    @property
    def is_finished(self) -> bool:
        return bool(self._about().get("finished"))

    @property
    def began_from(self) -> str | None:
        """Digest of the networks that the stage began from; None if it has not begun, or nobody wrote it down."""
        return self._about().get("began_from")

    def other_settings(self, settings: Settings) -> list[str]:
        """How the settings that the stage was begun with differ from these; settings that are new have defaults."""
        begun_with = self._about().get("config")
        if begun_with is None:
            return []
        if not isinstance(begun_with, str | dict):
            problem = f"'config' is {str(begun_with)[:40]}, which are no settings"
            raise InputError(problem, path=self.path / "stage.json", cure="delete the folder")
        try:
            if isinstance(begun_with, str):
                begun_with = parse_config(begun_with, where=str(self.path / "stage.json"))
        except InputError as error:
            problem = f"this stage was begun with settings that are not known any more: {error.problem}"
            raise InputError(problem, path=self.path, cure="choose another folder, or delete this one") from error
        before, now = _flat(begun_with), _flat(settings)
        shared = [name for name in before if name in now]  # others belong to another kind of model, which is named
        return [f"{name} was {before[name]} and is {now[name]}" for name in shared if before[name] != now[name]]

    def check(self, settings: Settings, *, resume: bool) -> None:
        """Refuse the folder if it was begun with other settings, or unasked a second time."""
        about = self._about()
        differences = self.other_settings(settings)
        if differences:
            cure = "choose another folder, or use the settings it was begun with"
            more = f", and {len(differences) - _MOST_SHOWN} more" if len(differences) > _MOST_SHOWN else ""
            problem = f"this stage was begun with other settings: {', '.join(differences[:_MOST_SHOWN])}{more}"
            raise InputError(problem, path=self.path, cure=cure)
        if about and not resume:
            problem = "this stage is finished" if about.get("finished") else "this stage was begun and not finished"
            raise InputError(problem, path=self.path, cure="add --resume, or choose another folder")

    def check_began_from(self, digest: str | None, before: str = "stage before") -> None:
        """Refuse the folder if it belongs to other networks than those of this digest (None: to be trained)."""
        if self.began_from is not None and self.began_from != digest:
            problem = f"this stage belongs to another {before} than there {'is' if digest else 'will be'} now"
            cure = f"delete the folder {self.path} to train it again, or choose another --out"
            raise InputError(problem, path=self.path, cure=cure)

    def begin(self, settings: Settings, *, resume: bool, began_from: str | None = None) -> None:
        """Claim the folder for these settings and networks, or refuse it."""
        self.check(settings, resume=resume)
        self.check_began_from(began_from)
        about = self._about()
        known = about.get("began_from") if about else began_from
        config = dump_config(settings) if isinstance(settings, Config) else dict(settings)
        self._write({"config": config, "began_from": known, "finished": False})

    def finish(self) -> None:
        self._write({**self._about(), "finished": True})

    def _about(self) -> dict[str, Any]:
        path = self.path / "stage.json"
        return read_json_object(path, "description of a stage", cure="delete the folder") if path.is_file() else {}

    def _write(self, about: dict[str, Any]) -> None:
        write_json(self.path / "stage.json", about, indent=1)


def _flat(settings: Settings, above: str = "") -> dict[str, Any]:
    """Settings of all sections in one table, as section.key."""
    values = settings.model_dump() if isinstance(settings, Config) else settings
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return found

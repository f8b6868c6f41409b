"""What the commands of `stormpsr detect` and `stormpsr boxes` make of their options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stormpsr.detection.detector import StateDetector
    from stormpsr.procedure import Procedure

__all__ = ["check_data", "given", "need_packages", "procedure_of", "settings_of"]


def need_packages(purpose: str, *names: str) -> None:
    """Say in one line what to install, before anything runs into a missing package."""
    from importlib.util import find_spec

    from stormpsr.errors import MissingExtraError

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingExtraError(purpose, "detect", ", ".join(missing))


def procedure_of(data: Path, given: str | None) -> Procedure:
    """The procedure that was asked for, or the one that lies in the data."""
    from stormpsr.errors import InputError
    from stormpsr.procedure import Procedure

    if given is not None:
        return Procedure.load(given)
    found = _procedure_file(data)
    if found is None:
        raise InputError("the data does not say which procedure it shows", path=data, cure="give --procedure")
    return Procedure.load(found)


def _procedure_file(data: Path) -> Path | None:
    """The first procedure that lies in the data."""
    from stormpsr.datasets import find_recordings

    own = [recording.path / "procedure.yaml" for recording in find_recordings(data)]
    return next((path for path in (data / "procedure.yaml", *own) if path.is_file()), None)


def check_data(detector: StateDetector, folder: Path, data: Path) -> None:
    """Refuse data that shows another procedure than the detector's, where the data says which."""
    from stormpsr.procedure import Procedure

    found = _procedure_file(data)
    if found is not None:
        detector.check_procedure(Procedure.load(found), folder)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """`name=value` pairs; values are numbers where they look like numbers."""
    import yaml

    from stormpsr.errors import InputError

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}", cure="write it like --set image_size=128")
        found[name.strip()] = yaml.safe_load(value)
    return found

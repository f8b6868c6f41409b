"""`stormpsr oracle`: the ceiling of any detection-only method."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpsr.cli.options import BoxesOption, DataProcedureOption, SplitOrAll, procedure_of
from stormpsr.cli.output import JsonFlag, counted, number, print_json, print_notes, print_table
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from stormpsr.data.labels import Note
    from stormpsr.evaluation.baselines import OracleRecording


_PROTOCOLS = ("paper", "industreal", "storm")
_SCORES = ("pos", "f1", "delay_seconds", "true_positives", "false_positives", "false_negatives")


def oracle_command(
    psr: Annotated[Path, typer.Option(help="Folder of recordings with PSR_labels.csv and PSR_labels_raw.csv.")],
    procedure: DataProcedureOption = None,
    boxes: BoxesOption = None,
    split: SplitOrAll = "test",
    threshold: Annotated[
        list[float] | None,
        typer.Option(min=0, help="Threshold of B2 and B3; may be repeated.", show_default="1, 4 and 8"),
    ] = None,
    confidence: Annotated[float, typer.Option(min=0, max=1, help="Confidence of each box.")] = 0.9,
    decay: Annotated[
        float, typer.Option(min=0, max=1, help="Factor by which confidence decays per frame without support.")
    ] = 0.75,
    protocol: Annotated[
        list[str] | None, typer.Option(help="paper, industreal or storm; may be repeated.", show_default="all")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Score a perfect detector.

    Runs the decoders on annotated boxes as if a perfect detector had found them. Boxes are annotated where a person
    could read the state of the whole object, so no method that waits for such views can do better.

    Example: stormpsr oracle --psr meccano_psr --boxes meccano_asd --procedure meccano
    """
    from stormpsr.data.visibility import wait_for_clear_view
    from stormpsr.evaluation.baselines import ClearViewBound

    misspelt = sorted(set(protocol or ()) - set(_PROTOCOLS))
    if misspelt:
        raise InputError(f"unknown protocol {misspelt[0]!r}", cure=f"choose from: {', '.join(_PROTOCOLS)}")
    loaded = procedure_of(psr, procedure)
    notes: list[Note] = []
    recordings, without_boxes = _read(psr, boxes, split, loaded, confidence, notes)
    rows = _rows(recordings, loaded, threshold or [1.0, 4.0, 8.0], protocol or list(_PROTOCOLS), decay)
    waits: list[int | None] = []
    for recording in recordings:
        views = [detection.frame for detection in recording.detections]
        waits += wait_for_clear_view([label.frame for label in recording.labels], views)
    bound = ClearViewBound.of(waits, loaded.fps)
    print_notes(notes)
    if as_json:
        names = [recording.name for recording in recordings]
        run = {"split": split, "recordings": names, "without_boxes": without_boxes}
        print_json({**run, "bound": asdict(bound), "rows": rows})
        return
    table = []
    for row in rows:
        delays = number(row["delay_seconds"], 1), number(row["delay_frames"], 0)
        about = row["decoder"], number(row["threshold"], 1), row["protocol"]
        table.append([*about, number(row["pos"]), number(row["f1"]), *delays])
    which = "all splits" if split == "all" else f"split {split!r}"
    title = f"A perfect detector on {counted(len(recordings), 'recording')} of {loaded.name!r}, {which}"
    columns = ["decoder", "threshold", "protocol", "POS", "F1", "tau (s)", "tau (frames)"]
    print_table(title, columns, table, right=(1, 3, 4, 5, 6))
    boxed = sum(recording.n_boxes for recording in recordings)
    unknown = sum(recording.n_boxes_without_class for recording in recordings)
    typer.echo(f"{boxed} boxes, {unknown} of them of states that the detector has no class for")
    never = bound.n_labels - bound.n_followed
    typer.echo(
        f"wait from a completion to the next box that has a class: mean {number(bound.mean_wait_seconds, 1)} s over "
        f"{bound.n_followed} of {bound.n_labels} completions" + (f"; {never} never followed by one" if never else "")
    )
    if without_boxes:
        typer.echo(f"left out, no boxes: {', '.join(without_boxes)}")


def _read(
    psr: Path, boxes: Path | None, split: str, procedure: Procedure, confidence: float, notes: list[Note]
) -> tuple[list[OracleRecording], list[str]]:
    from stormpsr.data.layouts import find_recordings
    from stormpsr.evaluation.baselines import read_oracle_recording

    recordings: list[OracleRecording] = []
    without_boxes: list[str] = []
    for folder in find_recordings(psr, None if split == "all" else split):
        found = read_oracle_recording(folder, boxes, procedure, confidence=confidence, on_note=notes.append)
        if found is None:
            without_boxes.append(folder.name)
        else:
            recordings.append(found)
    if not recordings:
        cure = "give --boxes, the folder with NAME_GT.csv" if boxes is None else "its files are called NAME_GT.csv"
        raise InputError(f"no boxes for any recording (split: {split})", path=boxes or psr, cure=cure)
    return recordings, without_boxes


def _rows(
    recordings: list[OracleRecording], procedure: Procedure, thresholds: list[float], protocols: list[Any], decay: float
) -> list[dict[str, Any]]:
    from stormpsr.evaluation.baselines import decode_recordings, score_decoded

    runs: list[tuple[str, Any, float | None]] = [("B1", "naive", None)]
    runs += [(name, method, t) for name, method in (("B2", "confidence"), ("B3", "expected")) for t in thresholds]
    rows: list[dict[str, Any]] = []
    for name, method, threshold in runs:
        events = decode_recordings(recordings, procedure, method, threshold=threshold or 0.0, decay=decay)
        for protocol in protocols:
            group = score_decoded(recordings, events, procedure, protocol=protocol).all
            about = {"decoder": f"{name} ({method})", "threshold": threshold, "protocol": protocol}
            delay = None if group.delay_seconds is None else group.delay_seconds * procedure.fps
            rows.append({**about, **{score: getattr(group, score) for score in _SCORES}, "delay_frames": delay})
    return rows

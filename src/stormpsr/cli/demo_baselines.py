"""`stormpsr demo --baselines`: the three published decoders on annotated boxes, or on a small example; no networks."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stormpsr.cli.output import number, print_json, print_table

if TYPE_CHECKING:
    from stormpsr.evaluation.baselines import DetectedRecording
    from stormpsr.procedure.model import Procedure


_THRESHOLD = 4.0  # accumulated confidence; the published default of 8 misses short views


def show_baselines(data: Path | None, out: Path, *, as_json: bool) -> None:
    """Decode, score and draw. `data` holds MECCANO's annotations; without it, a shipped example is taken."""

    from stormpsr.errors import MissingExtraError
    from stormpsr.evaluation.baselines import score_baseline
    from stormpsr.evaluation.plots import plot_summary
    from stormpsr.files import write_json
    from stormpsr.procedure.model import Procedure

    procedure = Procedure.load("industreal" if data is None else "meccano")
    recordings = _recordings(procedure, data)
    methods: dict[str, str] = {"B1 naive": "naive", "B2 confidence": "confidence", "B3 expected": "expected"}
    summaries = {
        name: score_baseline(recordings, procedure, method, threshold=_THRESHOLD) for name, method in methods.items()
    }
    write_json(out / "scores.json", {k: s.to_dict() for k, s in summaries.items()})
    written = [out / "scores.json"]
    try:
        plot_summary(summaries["B3 expected"], procedure, out / "timeline.png")
        written.append(out / "timeline.png")
    except MissingExtraError as error:
        typer.echo(f"no image: {error}", err=True)
    title = "A small invented example: three assemblies of a construction-set car"
    if data is not None:
        title = "A perfect detector on MECCANO's test recordings (annotated boxes as detections)"
    if as_json:
        rows = {name: {"pos": s.all.pos, "f1": s.all.f1, "tau": s.all.delay_seconds} for name, s in summaries.items()}
        print_json({"title": title, "scores": rows, "written": [str(path) for path in written]})
        return
    rows_text = [
        [
            name,
            number(summary.all.pos),
            number(summary.all.f1),
            number(summary.all.delay_seconds, 1),
            str(summary.all.true_positives),
            str(summary.all.false_positives),
            str(summary.all.false_negatives),
        ]
        for name, summary in summaries.items()
    ]
    columns = ["decoder", "POS", "F1", "tau (s)", "TP", "FP", "FN"]
    print_table(title, columns, rows_text, right=range(1, 7))
    typer.echo("POS: were the steps recognised in the order in which they were done?  F1: were they the right ones?")
    typer.echo("tau: how late? A detector has to wait for a clear view of the whole object.")
    for path in written:
        typer.echo(f"written: {path}")


def _recordings(procedure: Procedure, data: Path | None) -> list[DetectedRecording]:
    """Labels and detections: MECCANO's annotated boxes, or the shipped example."""
    from stormpsr.data.detection_csv import read_detections
    from stormpsr.data.labels import STATES_FILE, STEPS_FILE, read_states, read_steps
    from stormpsr.data.layouts import find_recordings
    from stormpsr.errors import InputError
    from stormpsr.evaluation.baselines import DetectedRecording, read_oracle_recording

    if data is not None:
        for name in ("meccano_psr", "meccano_asd"):
            if not (data / name).is_dir():
                cure = "--data is the folder that holds meccano_psr/ and meccano_asd/"
                raise InputError(f"there is no folder {name} in it", path=data, cure=cure)
        folders = find_recordings(data / "meccano_psr", "test")
        found = [read_oracle_recording(folder, data / "meccano_asd", procedure) for folder in folders]
        return [recording for recording in found if recording is not None]
    with resources.as_file(resources.files("stormpsr") / "examples" / "car") as root:
        recordings = []
        for folder in find_recordings(root / "recordings"):
            variant = procedure.variant_of_recording(folder.name)
            recordings.append(
                DetectedRecording(
                    name=folder.name,
                    variant=variant.name if variant else None,
                    labels=tuple(read_steps(folder.path / STEPS_FILE, procedure)),
                    timeline=read_states(folder.path / STATES_FILE, procedure),
                    detections=tuple(read_detections(root / "detections" / f"{folder.name}.csv", procedure)),
                )
            )
        return recordings

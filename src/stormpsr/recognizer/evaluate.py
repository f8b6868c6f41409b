"""All methods on labelled recordings: scores, and everything that a report needs.

Shape legend: G grid of every k-th frame, S steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stormpsr.cluster import Cluster
from stormpsr.data.dataset import Dataset
from stormpsr.data.events import StepEvent, completions
from stormpsr.data.recording import Recording
from stormpsr.decoding.methods import title_of
from stormpsr.decoding.predictions import PredictionDecoder, PredictionTable
from stormpsr.errors import InputError
from stormpsr.evaluation.metrics import Protocol
from stormpsr.evaluation.run_folder import (
    RUN_FILE,
    MethodInfo,
    RecordingRun,
    RunInfo,
    read_run,
    write_recording,
    write_run,
)
from stormpsr.evaluation.summary import RecordingResult, Summary, summarise
from stormpsr.recognizer.model_folder import RecognizerModel, add_metrics
from stormpsr.recognizer.offline import (
    VISIBLE_EVERY,
    LabelledPredictions,
    OnProgress,
    predict_and,
    read_views_of,
)

EVIDENCE_EVERY = 5  # frames


def evaluate_model(
    model: RecognizerModel,
    dataset: Dataset,
    *,
    cache: Path,
    out: Path | None = None,
    methods: Sequence[str] | None = None,
    protocol: Protocol = "paper",
    unexpected: str | None = None,
    title: str | None = None,
    cluster: Cluster | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Summary]:
    """The scores of each method; with `out`, a run folder is written, recording by recording.

    What the networks say is kept in the cache after every recording, so a run that was stopped goes on from there.
    The workers of a cluster run the networks, decode and score; files are written here.
    """
    chosen = tuple(dict.fromkeys(model.method_or_fallback(method) for method in methods or model.ready_methods))
    results: dict[str, list[RecordingResult]] = {method: [] for method in chosen}
    if out is not None:
        claim_run(out, model, dataset.root, dataset.split)
    then = partial(_evaluated, chosen, protocol, unexpected)
    with closing(predict_and(model, dataset, cache, then, cluster=cluster, on_progress=on_progress)) as evaluated:
        for recording, _, (run, scored_by_method) in evaluated:
            for method, result in scored_by_method.items():
                results[method].append(result)
            if out is not None:
                write_recording(out, replace(run, frames_path=_below(recording.source.path, dataset.root)))
    summaries = {method: summarise(found, model.procedure) for method, found in results.items()}
    if out is not None:
        info = RunInfo(
            title=title or f"{model.procedure.title or model.procedure.name}, {dataset.split or 'all'} recordings",
            model=str(model.path),
            data=str(dataset.root),
            split=dataset.split,
            protocol=protocol,
            methods=tuple(method_info(model, method, unexpected) for method in chosen),
            summary={method: summary.to_dict() for method, summary in summaries.items()},
            recordings=tuple(sorted({result.name for found in results.values() for result in found})),
            default_method=model.method_or_fallback(None),
        )
        write_run(out, info, model.procedure)
    return summaries


def _evaluated(
    methods: Sequence[str],
    protocol: Protocol,
    unexpected: str | None,
    model: RecognizerModel,
    recording: Recording,
    predictions: PredictionTable,
) -> tuple[RecordingRun, Mapping[str, RecordingResult]]:
    labelled = LabelledPredictions.of(recording, predictions, model.procedure)
    return evaluate_recording(model, labelled, methods, protocol=protocol, unexpected=unexpected)


def method_info(model: RecognizerModel, method: str, unexpected: str | None = None) -> MethodInfo:
    """A method as a run folder describes it."""
    settings = asdict(model.settings_of(method, unexpected))
    return MethodInfo(method, title_of(method), {name: own for name, own in settings.items() if name != "folder"})


def claim_run(out: Path, model: RecognizerModel, data: Path, split: str | None) -> None:
    """Refuse the folder of another run; the same one is made again."""
    if out.is_file():
        raise InputError("the output is a file", path=out, cure="give the path of a folder")
    if (out / RUN_FILE).is_file():
        theirs = read_run(out).info
        ours = (str(model.path), str(data), split)
        if (theirs.model, theirs.data, theirs.split) != ours:
            cure = "choose another folder, or delete this one"
            raise InputError(f"the folder holds a run of {theirs.model} on {theirs.data}", path=out, cure=cure)
        (out / RUN_FILE).unlink()  # it is written last: until then the run is unfinished


def evaluate_recording(
    model: RecognizerModel,
    labelled: LabelledPredictions,
    methods: Sequence[str],
    *,
    data: Path | None = None,
    protocol: Protocol = "paper",
    unexpected: str | None = None,
) -> tuple[RecordingRun, Mapping[str, RecordingResult]]:
    """One recording: what each method reports, how good that is, and the evidence for it."""
    recording, procedure, table = labelled.recording, model.procedure, labelled.predictions
    events: dict[str, tuple[StepEvent, ...]] = {}
    alarms: dict[str, tuple[StepEvent, ...]] = {}
    evidence: dict[str, NDArray[np.float16]] = {}
    results: dict[str, RecordingResult] = {}
    for method in methods:
        decoder = model.decoder(method, labelled.variant, unexpected)
        found, evidence[method] = decode_with_evidence(decoder, table, recording.n_frames)
        events[method] = tuple(completions(found))
        alarms[method] = tuple(event for event in found if event not in events[method])
        results[method] = labelled.result(found, procedure, protocol, alarming=decoder.decoder.gives_alarms)
    readable, visible_share = read_views_of(recording.path, recording.n_frames, procedure)
    run = RecordingRun(
        name=recording.name,
        variant=labelled.variant,
        fps=recording.fps,
        n_frames=recording.n_frames,
        has_errors=labelled.has_errors(procedure),
        frames_path=_below(recording.source.path, data),
        labels=labelled.labels,
        labels_with_errors=labelled.labels_with_errors(procedure),
        events=events,
        alarms=alarms,
        readable=readable,
        visible_share=visible_share,
        visible_stride=VISIBLE_EVERY,
        detection_frame_M=table.index_P[table.detection_row_M],
        detection_class_M=table.detection_class_M,
        detection_confidence_M=table.detection_confidence_M.astype(np.float16),
        change_frame_E=table.index_P[table.change_row_E],
        change_probability_EC=table.change_EC.astype(np.float16),
        evidence=evidence,
        evidence_stride=EVIDENCE_EVERY,
    )
    return run, results


def decode_with_evidence(
    decoder: PredictionDecoder, table: PredictionTable, n_frames: int
) -> tuple[list[StepEvent], NDArray[np.float16]]:
    """Events, and the greatest share of the needed evidence in every k frames, (G, S); 1 where a step is completed."""
    decoder.reset()
    events: list[StepEvent] = []
    share_GS = np.zeros((-(-n_frames // EVIDENCE_EVERY), len(decoder.decoder.procedure.steps)))
    for prediction in table:
        new = decoder.update(prediction)
        row_S = share_GS[min(prediction.index // EVIDENCE_EVERY, len(share_GS) - 1)]
        np.maximum(row_S, np.minimum(decoder.decoder.share, 1.0), out=row_S)
        row_S[[event.step_id for event in new]] = 1.0
        events += new
    events += decoder.finish()
    return events, share_GS.astype(np.float16)


def store_scores(model: RecognizerModel, summaries: Mapping[str, Summary], *, data: str, split: str) -> None:
    """Write what the methods reached on a split into the model's folder."""
    groups = {method: summary.all for method, summary in summaries.items()}
    reached = {m: {"pos": g.pos, "f1": g.f1, "delay_seconds": g.delay_seconds} for m, g in groups.items()}
    some = next(iter(summaries.values()))
    about = {"data": data, "protocol": some.protocol, "n_recordings": some.all.n_recordings}
    add_metrics(model.path, "evaluation", {split: {**about, **reached}})


def _below(path: Path, data: Path | None) -> str:
    """A path as it is seen from the data's folder, absolute if it lies elsewhere."""
    path = path.resolve()
    if data is not None and path.is_relative_to(data.resolve()):
        return path.relative_to(data.resolve()).as_posix()
    return str(path)

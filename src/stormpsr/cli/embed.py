"""`stormpsr embed`: embeddings of all frames, on disk and as an image."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from stormpsr.cli.options import PLOTS, ClusterOption, DeviceOption, check_output, cluster_of, need, same_threads
from stormpsr.cli.output import Bar, JsonFlag, answer
from stormpsr.errors import InputError

app = typer.Typer(help="Compute embeddings of frames and plot them.", no_args_is_help=True)

CheckpointArgument = Annotated[
    Path, typer.Argument(help="Folder of a checkpoint, for example runs/vehicle/encoder/best.")
]


@app.command("make")
def make_command(
    checkpoint: CheckpointArgument,
    data: Annotated[str, typer.Option(help="Folder of a data set or of one recording, or its address.")],
    out: Annotated[Path, typer.Option(help="Folder for the embeddings.")],
    split: Annotated[Literal["train", "val", "test", "all"], typer.Option(help="Which recordings to use.")] = "all",
    cache: Annotated[
        Path | None, typer.Option(help="Folder for decoded frames; training can share it.", show_default="in OUT")
    ] = None,
    precision: Annotated[Literal["float16", "float32"], typer.Option(help="Numerical precision on disk.")] = "float16",
    cluster: ClusterOption = None,
    device: DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Compute embeddings with a trained encoder.

    Writes OUT/SPLIT/NAME.rows and .json for each recording. An interrupted run resumes where it stopped. Embeddings of
    another encoder are never overwritten.

    Example: stormpsr embed make runs/vehicle/encoder/best --data data/vehicle --out embeddings/vehicle
    """
    need("embedding", "train")
    from stormpsr.data.dataset import Dataset
    from stormpsr.training.stages import embed_recordings, load_encoder

    encoder, procedure = load_encoder(checkpoint, device)
    load = partial(load_encoder, checkpoint.resolve(), device, same_threads(None))
    recordings = list(Dataset.open(data, None if split == "all" else split, procedure))
    with Bar() as bar:
        embeddings = embed_recordings(
            encoder,
            recordings,
            store_folder=out,
            cache_folder=cache or out / "cache",
            dtype=precision,
            cluster=cluster_of(cluster, load, checkpoint),
            on_progress=bar.named if cluster is None else bar.together("recordings", len(recordings)),
        )
    n_frames = sum(len(embedding_FD) for embedding_FD in embeddings)
    names = [recording.name for recording in recordings]
    said = f"{len(recordings)} recordings, {n_frames} frames embedded: {out}"
    answer(as_json, {"folder": str(out), "recordings": names, "frames": n_frames}, said)


@app.command("plot")
def plot_command(
    checkpoint: CheckpointArgument,
    recording: Annotated[Path, typer.Option(help="Folder of one recording.")],
    out: Annotated[Path, typer.Option(help="Image to write (.png, .svg or .pdf).")],
    every: Annotated[int, typer.Option(min=1, help="Use every Nth frame.")] = 5,
    seed: Annotated[int, typer.Option(help="Random seed of the projection.")] = 0,
    device: DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Plot the embeddings of one recording.

    Projected by t-SNE, coloured by state and by time.

    Example: stormpsr embed plot runs/vehicle/encoder/best --recording data/vehicle/recordings/test/01_assy_2_1
    --out embeddings.png
    """
    need("embedding", "train")
    import tempfile

    from stormpsr.data.layouts import RecordingFolder
    from stormpsr.data.recording import open_recording
    from stormpsr.evaluation.plots import plot_embeddings
    from stormpsr.models.checkpoint import device_of, load_checkpoint
    from stormpsr.training.stages import embed_recordings

    check_output(out, *PLOTS)
    if not recording.is_dir():
        raise InputError("there is no such recording", path=recording, cure="give the folder of one recording")
    loaded = load_checkpoint(checkpoint)
    opened = open_recording(RecordingFolder(recording.resolve().name, None, recording), loaded.procedure)
    if opened.states is None:
        raise InputError("the recording has no labels to colour it by", path=recording)
    with tempfile.TemporaryDirectory() as folder:
        (embedding_FD,) = embed_recordings(
            loaded.encoder().to(device_of(device)),
            [opened],
            store_folder=Path(folder),
            cache_folder=Path(folder) / "cache",
            dtype="float32",
        )
        plot_embeddings(
            embedding_FD[::every], opened.states_FC[::every], opened.fps / every, loaded.procedure, out, seed=seed
        )
    answer(as_json, {"written": str(out), "frames": len(embedding_FD[::every])}, f"written: {out}")

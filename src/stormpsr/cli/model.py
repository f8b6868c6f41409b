"""`stormpsr model`: what the networks look like, and how they become a recogniser."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli.options import ModelArgument, OverrideOption, SplitOrAll, Threads, load, need, open_data
from stormpsr.cli.output import JsonFlag, answer, print_json, print_notes, print_table
from stormpsr.errors import InputError
from stormpsr.procedure.model import Procedure

if TYPE_CHECKING:
    from stormpsr.config import Config


app = typer.Typer(help="Show networks and pack them into a model.", no_args_is_help=True)


@app.command("show")
def show_command(
    source: Annotated[str, typer.Argument(help="A preset, a YAML file of settings or the folder of a checkpoint.")],
    override: OverrideOption = None,
    components: Annotated[
        int | None, typer.Option(min=1, help="Number of components, if the settings name no procedure.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the size of networks.

    Shapes, parameters and multiply-adds of all stages (matrix products, convolutions and attention). Nothing is
    downloaded or trained.

    Example: stormpsr model show paper-industreal -o encoder.backbone=vit_small_patch14_dinov2.lvd142m
    """
    need("showing a model", "train")
    from stormpsr.models.stream import stage_sizes

    config, n_components = _settings_and_components(source, override or [], components)
    stages = stage_sizes(config, n_components)
    if as_json:
        rows = [asdict(stage) for stage in stages]
        print_json({"name": config.name, "components": n_components, "stages": rows})
        return
    print_table(
        f"{config.name}: {n_components} components, clips of {config.clips.n_window} frames out of "
        f"{config.clips.window_frames}, images of {config.encoder.image_size} pixels",
        ["stage", "what", "in", "out", "parameters", "multiply-adds", "per"],
        [
            [
                s.name,
                s.what,
                *map(_shape, (s.shape_in, s.shape_out)),
                *map(_large, (s.parameters, s.multiply_adds)),
                s.per,
            ]
            for s in stages
        ],
        right=(4, 5),
    )
    per_frame = sum(stage.multiply_adds for stage in stages if stage.per == "frame" and stage.in_use)
    typer.echo(
        f"in all {_large(sum(stage.parameters for stage in stages))} parameters; in use, a frame costs "
        f"{_large(per_frame)} multiply-adds and a prediction {_large(stages[-1].multiply_adds)} more"
    )


@app.command("pack")
def pack_command(
    out: Annotated[Path, typer.Option("--out", help="Folder for the model. An existing one keeps its settings.")],
    stream: Annotated[Path | None, typer.Option(help="Checkpoint of the spatio-temporal stream.")] = None,
    detector: Annotated[Path | None, typer.Option(help="Folder of a trained detector.")] = None,
    half: Annotated[bool, typer.Option("--half", help="Store weights in 16 bits: half the size.")] = False,
    temporal_stride: Annotated[
        int | None, typer.Option(min=1, help="Run the temporal model every N frames.", show_default="its window's")
    ] = None,
    detector_stride: Annotated[
        int | None, typer.Option(min=1, help="Run the detector every N frames.", show_default="1")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Pack networks into a model.

    A model is one folder that 'stormpsr run', 'tune' and 'evaluate' use. It needs at least one of the two streams.

    Example: stormpsr model pack --stream runs/vehicle/temporal/best --detector detectors/vehicle --out models/vehicle
    """
    need("packing a model", "detect")
    from stormpsr.recognizer.model_folder import load_model, pack_model

    folder = pack_model(
        out,
        stream=stream,
        detector=detector,
        half=half,
        temporal_stride=temporal_stride,
        detector_stride=detector_stride,
    )
    packed = load_model(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    name, streams = packed.procedure.name, list(packed.streams)
    print_notes(packed.notes)
    said = f"{name}: {' and '.join(streams)}, {size / 1e6:.1f} MB: {folder}"
    answer(as_json, {"folder": str(folder), "procedure": name, "streams": streams, "bytes": size}, said)


@app.command("gate")
def gate_command(
    model: ModelArgument,
    data: Annotated[Path, typer.Option("--data", "-d", help="Folder of recordings; labels are not needed.")],
    split: SplitOrAll = "val",
    keep: Annotated[float, typer.Option(min=0.5, max=1, help="Share of the detector's clear views to keep.")] = 0.99,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Let the detector look only where a clear view is likely.

    Learns from every other recording to tell by the encoder's embedding whether the detector will be sure, chooses on
    the others from what probability on it looks, and stores both in the model (gate.json and detector_gate). Compare
    scores before and after; detector_gate: 0 in recognizer.yaml undoes it.

    Example: stormpsr model gate models/mine --data data/mine
    """
    from stormpsr.recognizer.gate import fit_gate, store_gate

    loaded = load(model, None, None, threads, "cpu")
    fitted = fit_gate(loaded, list(open_data(data, split, loaded)), keep=keep)
    store_gate(loaded.path, fitted)
    shares = {"clear": fitted.clear_share, "open": fitted.open_share, "kept": fitted.kept_share}
    said = (
        f"of {fitted.n_looks} looks in recordings that the gate did not learn from, {fitted.clear_share:.1%} were "
        f"clear; it lets {fitted.open_share:.1%} through, and of the clear ones {fitted.kept_share:.1%}: {loaded.path}"
    )
    answer(as_json, {"folder": str(loaded.path), "least": fitted.least, "looks": fitted.n_looks, **shares}, said)


def _settings_and_components(source: str, overrides: list[str], given: int | None) -> tuple[Config, int]:
    from stormpsr.config import load_config

    folder = Path(source)
    if folder.is_dir():
        config = load_config(folder / "config.yaml", overrides)
        return config, given or Procedure.load(folder / "procedure.yaml").n_components
    config = load_config(source, overrides)
    if given is not None:
        return config, given
    if config.procedure is None:
        raise InputError(f"settings {config.name!r} name no procedure", cure="give --components N")
    return config, Procedure.load(config.procedure).n_components


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _large(count: int) -> str:
    """22050664 as 22.05 M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return str(count)

"""`stormpsr annotate`: the page in which a person labels recordings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpsr.cli import options
from stormpsr.cli.output import JsonFlag, answer
from stormpsr.errors import InputError

if TYPE_CHECKING:
    from stormpsr.annotate.proposals import Proposer

DEFAULT_PORT = 8770


def annotate_command(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder of recordings, with or without labels.")],
    procedure: options.DataProcedureOption = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Folder of a model, or a shipped one, that proposes steps and boxes."),
    ] = None,
    method: options.MethodOption = None,
    host: Annotated[str, typer.Option(help="Address to listen at. Any but this machine's own asks for a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any that is free.")] = DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(envvar="STORMPSR_TOKEN", help="Token that is asked for.", show_default="one is made if needed"),
    ] = None,
    cache: options.CacheOption = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of the model.", show_default="1")] = None,
    device: options.DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Open a page to label recordings: states and steps by keys, boxes by mouse, every frame by its number.

    Every change is saved at once, in the field's label files. With --model, a model proposes steps and boxes, and says
    where it is least sure. '?' on the page shows all keys. Ctrl-C stops it.

    Example: stormpsr annotate lamp-data --model models/lamp
    """
    options.need("the annotator", "annotate")
    from stormpsr.annotate.api import Annotator, annotator_app
    from stormpsr.web.security import TOKENS_FILE, access_for, where_to_open
    from stormpsr.web.server import make_server, serve

    chosen = options.procedure_of(data, procedure)
    proposer = None if model is None else _proposer(data, model, method, cache, threads or 1, device)
    if model is None and method is not None:
        raise InputError("--method without --model", cure="give the model that shall propose")
    folder = options.cache_folder(None).parent / "annotate"
    access, new_tokens = access_for(host, token, folder)
    annotator = Annotator(data, chosen, proposer=proposer)
    server = make_server(annotator_app(annotator, access), host, port)

    def tell(address: str) -> None:
        tokens = None if access.is_open else str(folder / TOKENS_FILE)
        lines = where_to_open("the annotator", address, access, new_tokens, folder, "to label")
        answer(as_json, {"address": address, "tokens": tokens}, *lines)
        sys.stdout.flush()

    serve(server, tell)


def _proposer(data: Path, model: str, method: str | None, cache: Path | None, threads: int, device: str) -> Proposer:
    from stormpsr.annotate.proposals import ModelProposer

    options.need("proposals of a model", "detect", "cv2", "PIL", "av")
    loaded = options.load(model, None, None, threads, device)
    options.open_data(data, None, loaded)  # refuses recordings of another procedure
    loaded.method_or_fallback(method)
    return ModelProposer(loaded, options.cache_folder(cache), method)

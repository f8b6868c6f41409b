"""`stormpsr annotate`: the page in which a person labels recordings."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpsr.cli import options
from stormpsr.cli.output import JsonFlag, print_json
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
    from stormpsr.web.security import access_for
    from stormpsr.web.server import make_server, serve

    chosen = options.procedure_of(data, procedure)
    proposer = None if model is None else _proposer(data, model, method, cache, threads or 1, device)
    if model is None and method is not None:
        raise InputError("--method without --model", cure="give the model that shall propose")
    folder = options.cache_folder(None).parent / "annotate"
    access, new_tokens = access_for(host, token, folder)
    annotator = Annotator(data, chosen, proposer=proposer)
    server = make_server(annotator_app(annotator, access), host, port)
    threading.Thread(target=_tell_where, args=(server, host, access, new_tokens, folder, as_json), daemon=True).start()
    serve(server)


def _proposer(data: Path, model: str, method: str | None, cache: Path | None, threads: int, device: str) -> Proposer:
    from stormpsr.annotate.proposals import ModelProposer

    options.need("proposals of a model", "detect", "cv2", "PIL", "av")
    loaded = options.load(model, None, None, threads, device)
    options.open_data(data, None, loaded)  # refuses recordings of another procedure
    loaded.method_or_fallback(method)
    return ModelProposer(loaded, options.cache_folder(cache), method)


def _tell_where(server: Any, host: str, access: Any, new_tokens: bool, folder: Path, as_json: bool) -> None:
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    address = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
    if as_json:
        print_json({"address": address, "tokens": None if access.is_open else str(folder / "tokens.json")})
        sys.stdout.flush()
    elif access.is_open:
        typer.echo(f"the annotator is at {address} (Ctrl-C stops it)")
    elif new_tokens:
        typer.echo(f"to label: {address}login?token={access.operator}")
        typer.echo(f"to look only: {address}login?token={access.viewer}")
        typer.echo(f"this is printed once; the tokens are in {folder / 'tokens.json'}")
    else:
        typer.echo(f"the annotator is at {address} (tokens in {folder / 'tokens.json'}; Ctrl-C stops it)")

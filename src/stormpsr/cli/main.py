"""Puts the commands together, and turns errors into one line with the cure."""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, cast

import typer

from stormpsr import __version__
from stormpsr.cli import (
    annotate,
    boxes,
    compare,
    data,
    decode,
    demo,
    detect,
    embed,
    evaluate,
    export,
    labels,
    learn,
    model,
    oracle,
    procedure,
    record,
    report,
    reproduce,
    run,
    score,
    station,
    synth,
    train,
    tune,
)
from stormpsr.cli.options import extra_of
from stormpsr.errors import InputError, MissingExtraError, StormPSRError

# Newer releases of typer carry their own copy of click, older ones import it: take the classes from typer either way.
_ClickException = cast("type[Exception]", typer.BadParameter.__mro__[2])

app = typer.Typer(
    name="stormpsr",
    help="Procedure step recognition: which steps of an assembly have been correctly completed, and when.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: half the time to answer, and paragraphs that wrap
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(procedure.app, name="procedure")
app.add_typer(labels.app, name="labels")
app.add_typer(model.app, name="model")
app.command("score")(score.score_command)
app.command("compare")(compare.compare_command)
app.command("decode")(decode.decode_command)
app.command("oracle")(oracle.oracle_command)
app.add_typer(synth.app, name="synth")
app.add_typer(data.app, name="data")
app.command("record")(record.record_command)
app.command("annotate")(annotate.annotate_command)
app.add_typer(boxes.app, name="boxes")
app.add_typer(detect.app, name="detect")
app.command("demo")(demo.demo_command)
app.command("train")(train.train_command)
app.command("learn")(learn.learn_command)
app.add_typer(embed.app, name="embed")
app.command("run")(run.run_command)
app.add_typer(station.app, name="station")
app.command("tune")(tune.tune_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("export")(export.export_command)
app.command("report")(report.report_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stormpsr {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback if there is an error.")] = False,
) -> None:
    """Root options. `--debug` is taken out of the arguments by `main`, so that it may stand anywhere."""


@cache
def _command() -> Callable[..., Any]:
    """The tree of commands, put together once."""
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 the command found something wrong, 2 bad input, 130 stopped."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    as_json = "--json" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a dash that the terminal cannot show must not stop the work
    try:
        code = _command()(arguments, prog_name="stormpsr", standalone_mode=False)
        sys.stdout.flush()
    except _ClickException as error:
        message: str = error.format_message()  # type: ignore[attr-defined]  # typer does not export the class
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(message)  # the help text is the answer
            return 0
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "stormpsr"
        message = message.replace("Value error, ", "").rstrip(".")
        link = "" if message.endswith("?") else ";"
        return _fail(error, f"{message}{link} see '{where} --help'", debug, as_json)
    except StormPSRError as error:
        return _fail(error, str(error), debug, as_json)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("stopped", err=True)
        return 130
    except BrokenPipeError:
        # the reader of our output went away: nothing to say, nobody to say it to, and nothing left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        return _fail(error, str(MissingExtraError("this command", extra, str(error.name))), debug, as_json)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(error, f"{place}{(error.strerror or str(error)).lower()}", debug, as_json)
    return code if isinstance(code, int) else 0


def _fail(error: Exception, text: str, debug: bool, as_json: bool) -> int:
    if debug:
        traceback.print_exception(error)
    line = " ".join(text.split())
    if as_json:
        where = {"path": error.path, "line": error.line} if isinstance(error, InputError) else {}
        typer.echo(json.dumps({"error": line, **where}), err=True)
    else:
        typer.echo(f"error: {line}", err=True)
    return 2

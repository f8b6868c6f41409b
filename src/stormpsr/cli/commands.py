"""Which commands there are."""

from __future__ import annotations

import typer

__all__ = ["mount"]


def mount(app: typer.Typer) -> None:
    """Hang every command into the tree."""
    from stormpsr.cli import (
        boxes,
        decode,
        demo,
        detect,
        embed,
        evaluate,
        labels,
        model,
        oracle,
        procedure,
        recognise,
        report,
        score,
        synth,
        train,
        tune,
    )

    app.add_typer(procedure.app, name="procedure")
    app.add_typer(labels.app, name="labels")
    app.add_typer(model.app, name="model")
    app.command("score")(score.score_command)
    app.command("decode")(decode.decode_command)
    app.command("oracle")(oracle.oracle_command)
    app.add_typer(synth.app, name="synth")
    app.add_typer(boxes.app, name="boxes")
    app.add_typer(detect.app, name="detect")
    app.command("demo")(demo.demo_command)
    app.command("train")(train.train_command)
    app.add_typer(embed.app, name="embed")
    app.command("run")(recognise.run_command)
    app.command("tune")(tune.tune_command)
    app.command("evaluate")(evaluate.evaluate_command)
    app.command("report")(report.report_command)

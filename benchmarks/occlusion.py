"""Scores against how much is hidden, or how hard images are, of every method of a model: a table and a plot.

    python benchmarks/occlusion.py MODEL 0=DATA 0.25=DATA 0.5=DATA 0.75=DATA 1=DATA [--split test] [--plot FILE.png]

Each DATA is a generated set that was drawn with `synth generate --occlusion` of that value, or `--difficulty` (`--dial
difficulty`). Protocol paper; intervals are of 95 % over recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from script import errors_in_one_line, make_parser, print_table
from stormpsr.data.dataset import Dataset
from stormpsr.decoding.methods import resolve_method, title_of
from stormpsr.errors import InputError
from stormpsr.evaluation.summary import GroupSummary
from stormpsr.recognizer.evaluate import evaluate_model
from stormpsr.recognizer.model_folder import load_model

Table = dict[str, dict[float, GroupSummary]]  # by method and occlusion


def sets_of(words: Sequence[str]) -> dict[float, Path]:
    """`0.25=DATA` each."""
    found: dict[float, Path] = {}
    for word in words:
        share, equals, folder = word.partition("=")
        try:
            found[float(share)] = Path(folder)
        except ValueError:
            equals = ""
        if not equals or not folder:
            raise InputError(f"{word!r} is not understood", cure="write how much is hidden and the folder: 0.25=DATA")
    return dict(sorted(found.items()))


def plot(path: Path, table: Table, dial: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    scores = {
        "POS": ("pos", "pos_interval"),
        "F1": ("f1", "f1_interval"),
        "tau (s)": ("delay_seconds", "delay_interval"),
    }
    for axes, (name, (value, interval)) in zip(figure.subplots(1, 3), scores.items(), strict=True):
        for method, groups in table.items():
            shown = {share: group for share, group in groups.items() if getattr(group, value) is not None}
            colour = resolve_method(method).colour
            axes.plot(
                list(shown), [getattr(g, value) for g in shown.values()], "o-", color=colour, label=title_of(method)
            )
            ends = [getattr(group, interval) for group in shown.values()]
            if all(end is not None for end in ends):
                axes.fill_between(list(shown), [e.low for e in ends], [e.high for e in ends], color=colour, alpha=0.1)
        axes.set(xlabel=f"--{dial}", title=name)
        axes.set_ylim(bottom=0, top=None if value == "delay_seconds" else 1.02)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(table), frameon=False)
    figure.savefig(path, dpi=140)


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("sets", nargs="+", metavar="SHARE=DATA")
    parser.add_argument("--split", default="test")
    parser.add_argument("--cache", type=Path, default=Path(".cache/predictions"))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--dial", choices=("occlusion", "difficulty"), default="occlusion", help="what sets differ in")
    options = parser.parse_args(words)
    table: Table = {}
    for share, data in sets_of(options.sets).items():
        model = load_model(options.model)
        for method, summary in evaluate_model(model, Dataset.open(data, options.split), cache=options.cache).items():
            table.setdefault(method, {})[share] = summary.all
    shares = list(next(iter(table.values())))
    rows = [
        [
            title_of(method),
            *(f"{g.pos:.3f} / {g.f1:.3f} / {g.delay_seconds or float('nan'):.1f}" for g in groups.values()),
        ]
        for method, groups in table.items()
    ]
    print_table(("POS / F1 / tau (s)", *(f"{share:g}" for share in shares)), rows)
    if options.plot:
        plot(options.plot, table, options.dial)


if __name__ == "__main__":
    with errors_in_one_line():
        main()

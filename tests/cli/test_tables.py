"""What the commands print as tables."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from stormpsr.cli.output import print_table


def printed(width: int, columns: list[str], rows: list[list[str]]) -> list[str]:
    screen = Console(file=StringIO(), width=width, color_system=None)
    print_table("", columns, rows, right=range(1, len(columns)), to=screen)
    return screen.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_a_column_per_method_fits_into_80_columns_with_every_digit() -> None:
    columns = ["", "Detection only", "Temporal only", "STORM-PSR", "Procedure filter"]
    lines = printed(80, columns, [["min detection confidence", *["0.65"] * 4], ["interval", *["0.740–0.861"] * 4]])
    assert max(map(len, lines)) <= 80
    assert sum(line.count("0.740–0.861") for line in lines) == 4


def test_titles_of_columns_stand_on_several_lines_where_there_is_no_room() -> None:
    columns, row = ["", "Procedure filter", "Recurrent belief"], ["F1", "0.740–0.861", "0.740–0.861"]
    narrow, wide = printed(36, columns, [row]), printed(80, columns, [row])
    assert max(map(len, narrow)) <= 36
    assert any(line.split() == ["Procedure", "Recurrent"] for line in narrow)
    assert any("Procedure filter" in line for line in wide)


def test_a_terminal_that_is_too_narrow_breaks_lines_and_cuts_no_number() -> None:
    lines = printed(20, ["", "A", "B"], [["x", "0.123456789", "0.987654321"]])
    assert any("0.123456789" in line and "0.987654321" in line for line in lines)

from __future__ import annotations

import io
from dataclasses import dataclass

from rota.cli.printing import Column, write_pairs, write_table
from rota.cli.terminal import Terminal


@dataclass(frozen=True)
class Row:
    id: str
    state: str = "failed"
    detail: str = ""


COLUMNS: tuple[Column[Row], ...] = (
    Column("ID", lambda row: row.id, is_whole=True),
    Column("STATE", lambda row: row.state, is_state=True),
    Column("DETAIL", lambda row: row.detail),
    Column("MORE", lambda row: "more", only_wide=True),
)


def terminal(*, width: int | None = None, colour: bool = False, plain: bool = False) -> Terminal:
    return Terminal(io.StringIO(), io.StringIO(), colour, plain, width)


def written(target: Terminal) -> list[str]:
    assert isinstance(target.out, io.StringIO)
    return target.out.getvalue().splitlines()


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    target = terminal()

    write_table(target, COLUMNS, [Row("表", detail="x"), Row("abc")])

    assert written(target) == ["ID   STATE   DETAIL", "表   failed  x", "abc  failed"]


def test_nothing_is_cut_where_there_is_no_terminal() -> None:
    target = terminal()

    write_table(target, COLUMNS, [Row("a", detail="x" * 500)])

    assert written(target)[1].endswith("x" * 500)


def test_terminal_cuts_the_widest_column_but_never_an_id() -> None:
    target = terminal(width=50)

    write_table(target, COLUMNS, [Row("r_" + "1" * 30, detail="y" * 40)])

    [_, line] = written(target)
    assert line.startswith("r_" + "1" * 30 + "  failed")
    assert line.endswith("…")


def test_cells_are_inert() -> None:
    target = terminal()

    write_table(target, COLUMNS, [Row("a", detail="\x1b[2Jgone\nsecond")])

    assert written(target)[1:] == ["a   failed  \\x1b[2Jgone\\nsecond"]


def test_states_are_coloured_only_where_colour_is_wanted() -> None:
    coloured, grey = terminal(colour=True), terminal()

    write_table(coloured, COLUMNS, [Row("a")])
    write_table(grey, COLUMNS, [Row("a")])

    assert "\x1b[31mfailed\x1b[0m" in written(coloured)[1]
    assert "\x1b" not in "".join(written(grey))


def test_wide_shows_more_columns() -> None:
    target = terminal()

    write_table(target, COLUMNS, [Row("a")], wide=True)

    assert written(target)[0].endswith("MORE")


def test_pairs_without_a_value_are_left_out() -> None:
    target = terminal()

    write_pairs(target, [("job", "tidy"), ("owner", ""), ("status", "active")])

    assert written(target) == ["job     tidy", "status  active"]


def test_plain_terminal_gets_marks_in_ascii() -> None:
    target = terminal(plain=True)

    target.write("✖ failed · a → b")

    assert written(target) == ["!! failed | a -> b"]

from __future__ import annotations

import io
from dataclasses import dataclass

from rota.cli.printing import Column, short_ids, write_pairs, write_table
from rota.cli.terminal import Terminal
from rota.domain.ids import is_cart_beginning, is_run_beginning


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


RUNS = [f"r_1k0ghsf35s{end}" for end in ("pcrm2222222222", "q2ym2222222222", "vd0622222222ab")]


def test_ids_are_cut_to_a_beginning_that_tells_them_apart() -> None:
    assert short_ids([RUNS[0]]) == ["r_1k0ghsf35spcrm"]  # a time of 11 digits and three more
    assert short_ids(RUNS) == [run[:16] for run in RUNS]
    assert short_ids(["c_40phs1e2q6mc", "–", "tidy"]) == ["c_40phs1", "–", "tidy"]


def test_what_is_printed_of_an_id_is_enough_for_the_server_to_look_for_it() -> None:
    assert all(map(is_run_beginning, short_ids(RUNS)))
    assert all(map(is_cart_beginning, short_ids(["c_40phs1e2q6mc"])))


def test_ids_that_begin_alike_keep_more() -> None:
    alike = ["r_1k0ghsf35spcrm2222222222", "r_1k0ghsf35spcrm2333333333"]

    assert short_ids(alike) == ["r_1k0ghsf35spcrm2222", "r_1k0ghsf35spcrm2333"]
    assert short_ids([alike[0], alike[0]]) == ["r_1k0ghsf35spcrm"] * 2
    assert short_ids(["c_40phs1e2q6mc", "c_40phs1e2q6md"]) == ["c_40phs1e2q6mc", "c_40phs1e2q6md"]


def test_whole_ids_are_for_the_wide_table() -> None:
    columns: tuple[Column[Row], ...] = (Column("ID", lambda row: row.id, is_id=True),)
    table, wide = terminal(), terminal()

    write_table(table, columns, [Row(RUNS[0])])
    write_table(wide, columns, [Row(RUNS[0])], wide=True)

    assert written(table)[1] == RUNS[0][:16]
    assert written(wide)[1] == RUNS[0]


def test_column_that_can_say_less_does_before_another_is_cut() -> None:
    columns: tuple[Column[Row], ...] = (
        Column("WHEN", lambda _: "in 5 h 12 m · 03:00:00 CET", narrower=[lambda _: "in 5 h 12 m"]),
        Column("DETAIL", lambda row: row.detail),
    )
    narrow, room = terminal(width=40), terminal(width=60)

    for target in (narrow, room):
        write_table(target, columns, [Row("", detail="step 1: the disk is full")])

    assert written(narrow)[1] == "in 5 h 12 m  step 1: the disk is full"
    assert written(room)[1] == "in 5 h 12 m · 03:00:00 CET  step 1: the disk is full"


NOTED: tuple[Column[Row], ...] = (
    Column("ID", lambda row: row.id),
    Column("STATE", lambda row: row.state, is_state=True),
    Column("TOOK", lambda _: "14 m 02 s", is_spare=True),
    Column("DETAIL", lambda row: row.detail, is_note=True),
)


def test_note_that_has_no_room_goes_under_its_line() -> None:
    target = terminal(width=50)

    write_table(target, NOTED, [Row("a", detail="full"), Row("b", detail="the disk is full " * 2)])

    assert written(target) == [
        "ID  STATE   TOOK       DETAIL",
        "a   failed  14 m 02 s  full",
        "b   failed  14 m 02 s",
        "    the disk is full the disk is full",
    ]


def test_long_note_is_cut_after_a_few_lines() -> None:
    target = terminal(width=40)

    write_table(target, NOTED, [Row("a", detail="the disk is full " * 20)])

    [_, _, *note] = written(target)
    assert len(note) == 3
    assert note[-1].endswith("…")
    assert max(map(len, note)) <= 40


def test_name_stays_whole_and_a_spare_column_goes() -> None:
    target = terminal(width=50)

    write_table(target, NOTED, [Row("n" * 40, detail="disk full"), Row("b", detail="–")])

    assert written(target) == [
        f"{'ID'.ljust(40)}  STATE",
        f"{'n' * 40}  failed",
        "    disk full",
        f"{'b'.ljust(40)}  failed",
    ]


def test_wide_table_cuts_nothing_on_a_terminal() -> None:
    target = terminal(width=50)

    write_table(target, NOTED, [Row("n" * 40, detail="the disk is full " * 5)], wide=True)

    [_, line] = written(target)
    assert line == f"{'n' * 40}  failed  14 m 02 s  {'the disk is full ' * 5}".rstrip()

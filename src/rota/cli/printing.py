"""Output in the chosen format: tables, pages, JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeAlias, TypeVar

from rota.api.calendars import CalendarChange
from rota.api.limits import DeclarationChange
from rota.cli.options import Display, Format
from rota.cli.references import Answered, Listing
from rota.cli.terminal import Exit, Terminal, cut, inert, inert_json, width_of

T = TypeVar("T")

_GAP = "  "
_NARROWEST = 12
_MOST_STEPS = 2  # of columns that can say less
_NOTE_INDENT = "    "
_MOST_NOTE_LINES = 3
_NOTHING = "–"
_ID = re.compile(r"[rc]_[0-9a-z]{12,}", re.ASCII)
_SHORTEST = {"r": 16, "c": 8}  # r_, a time of 11 digits and 3 more; those of carts are random
_SPARE = 3  # characters after the beginning that two listed ids share


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """Column of a table."""

    heading: str
    text: Callable[[T], str]
    is_state: bool = False
    is_whole: bool = False  # never shortened: people copy it
    is_id: bool = False  # only as much of ids as tells them apart, but with `-o wide` all
    only_wide: bool = False  # only with `-o wide`
    narrower: Sequence[Callable[[T], str]] = ()  # shorter and shorter, where lines do not fit
    is_note: bool = False  # goes under the line where that has no room; one column of a table
    is_spare: bool = False  # left out where nothing else makes lines fit, the last one first


_Table: TypeAlias = list[tuple[Column[T], list[str]]]  # columns with their texts, headings first


def write_table(
    terminal: Terminal, columns: Sequence[Column[T]], items: Iterable[T], *, wide: bool = False
) -> None:
    """Print a heading, then a line per item. Only a terminal's width shortens, unless `wide`."""
    listed = list(items)
    shown = [column for column in columns if wide or not column.only_wide]
    table = [(column, _texts(column, listed, wide=wide)) for column in shown]
    notes = [""] * len(listed)
    if terminal.width is not None and not wide:
        table, notes = _arranged(table, listed, terminal.width)
    widths = [_widest(texts) for _, texts in table]
    if terminal.width is not None and not wide:
        are_whole = [column.is_whole or column.is_id for column, _ in table]
        widths = _fitted(widths, are_whole, terminal.width - len(_GAP) * (len(table) - 1))
    painters = [_painter(terminal, column) for column, _ in table]
    heading, *rows = zip(*(texts for _, texts in table), strict=True)
    terminal.write(terminal.colour(_line(heading, widths), "bold"))
    for row, note in zip(rows, notes, strict=True):
        terminal.write(_line(row, widths, painters))
        for line in _note_lines(note, terminal.width):
            terminal.write(line)


def _texts(column: Column[T], items: Sequence[T], *, wide: bool) -> list[str]:
    """Return the cells of a column, its heading first."""
    cells = [inert(column.text(item)) for item in items]
    return [column.heading, *(short_ids(cells) if column.is_id and not wide else cells)]


def _arranged(table: _Table[T], items: Sequence[T], width: int) -> tuple[_Table[T], list[str]]:
    """Give up what matters least until lines fit: long forms, notes in the line, spare columns.

    Return what is left, and for each item the note that goes under its line, or "".
    """
    for step in range(_MOST_STEPS):
        if _excess(table, width) > 0:
            table = [_narrowed(column, texts, items, step) for column, texts in table]
    table, notes = _with_notes_below(table, width)
    notes = notes or [""] * len(items)
    while _excess(table, width) > 0 and any(column.is_spare for column, _ in table):
        last = max(index for index, (column, _) in enumerate(table) if column.is_spare)
        table = [*table[:last], *table[last + 1 :]]
    return table, notes


def _excess(table: _Table[T], width: int) -> int:
    """Return how many cells the lines are too long; not positive if they fit."""
    return sum(_widest(texts) + len(_GAP) for _, texts in table) - len(_GAP) - width


def _narrowed(
    column: Column[T], texts: list[str], items: Sequence[T], step: int
) -> tuple[Column[T], list[str]]:
    """Replace texts by shorter ones in a column that has such."""
    if step >= len(column.narrower):
        return column, texts
    return column, [column.heading, *(inert(column.narrower[step](item)) for item in items)]


def _with_notes_below(table: _Table[T], width: int) -> tuple[_Table[T], list[str]]:
    """Move notes that are too long under their lines, or all if the line has no room for any."""
    excess = _excess(table, width)
    index = next((index for index, (column, _) in enumerate(table) if column.is_note), None)
    if excess <= 0 or index is None:
        return table, []
    column, (heading, *texts) = table[index]
    room = _widest([heading, *texts]) - excess
    if room < _NARROWEST:
        return [*table[:index], *table[index + 1 :]], [_without_dash(text) for text in texts]
    below = [text if width_of(text) > room else "" for text in texts]
    beside = ["" if note else text for text, note in zip(texts, below, strict=True)]
    return [*table[:index], (column, [heading, *beside]), *table[index + 1 :]], below


def _without_dash(text: str) -> str:
    return "" if text == _NOTHING else text


def _note_lines(note: str, width: int | None) -> list[str]:
    """Wrap a note that goes under its line; past a few lines it is cut."""
    if not note or width is None:
        return []
    room = max(width - len(_NOTE_INDENT), _NARROWEST)
    # The wrapper counts characters, of which some take two cells.
    lines = textwrap.wrap(note, room if width_of(note) == len(note) else room // 2)
    if len(lines) > _MOST_NOTE_LINES:
        rest = " ".join(lines[_MOST_NOTE_LINES - 1 :])
        lines = [*lines[: _MOST_NOTE_LINES - 1], cut(rest, room)]
    return [f"{_NOTE_INDENT}{line}" for line in lines]


def _widest(cells: Sequence[str]) -> int:
    return max(map(width_of, cells))


def short_ids(texts: Sequence[str]) -> list[str]:
    """Cut ids to a prefix that is unique, which the server accepts for the whole.

    There are more than those listed, so some characters are added to what would suffice here. Runs'
    ids begin with a time: cut inside it, one would soon be a prefix of a later run's id too.
    """
    ids = sorted({text for text in texts if _ID.fullmatch(text)})
    alike = max((_common(*pair) for pair in pairwise(ids)), default=0)
    return [
        text[: max(_SHORTEST[text[0]], alike + _SPARE)] if _ID.fullmatch(text) else text
        for text in texts
    ]


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (mine, its) in pairs if mine != its), min(len(one), len(other)))


def write_pairs(terminal: Terminal, pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values of one thing, those without a value left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        terminal.write(f"{terminal.colour(name.ljust(width), 'dim')}{_GAP}{inert(value)}")


def _painter(terminal: Terminal, column: Column[T]) -> Callable[[str], str]:
    return terminal.state if column.is_state else str


def _line(
    cells: Sequence[str], widths: Sequence[int], painters: Sequence[Callable[[str], str]] = ()
) -> str:
    texts = [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    pads = [" " * (width - width_of(text)) for text, width in zip(texts, widths, strict=True)]
    if painters:
        texts = [paint(text) for paint, text in zip(painters, texts, strict=True)]
    return _GAP.join(text + pad for text, pad in zip(texts, pads, strict=True)).rstrip()


def _fitted(widths: Sequence[int], are_whole: Sequence[bool], room: int) -> list[int]:
    """Cut widths to the room, the widest first; narrow and whole columns are never cut."""
    fitted = list(widths)
    cuttable = [index for index, is_whole in enumerate(are_whole) if not is_whole]
    while sum(fitted) > room:
        widest = max(cuttable, key=fitted.__getitem__, default=None)
        if widest is None or fitted[widest] <= _NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


@dataclass(frozen=True, slots=True)
class ListView(Generic[T]):
    """Layout of a kind of list."""

    columns: Sequence[Column[T]]
    name: Callable[[T], str]
    empty: str  # what to say, and to type, where there is nothing


def print_list(display: Display, listing: Listing[T], view: ListView[T]) -> None:
    terminal = display.terminal()
    match display.format:
        case Format.TABLE | Format.WIDE:
            _print_table(display, terminal, listing, view)
        case Format.JSONL:
            for item in listing.data:
                terminal.write(_json(item))
        case Format.NAME:
            for item in listing.items:
                terminal.write(inert(view.name(item)))
        case Format.JSON | Format.YAML:
            print_data(display, {"items": listing.data, "next_cursor": listing.next_cursor})


def print_one(
    display: Display,
    answered: Answered[T],
    *,
    name: Callable[[T], str],
    page: Callable[[Terminal, T], None],
) -> None:
    """Print one thing; `page` writes it for people."""
    match display.format:
        case Format.TABLE | Format.WIDE:
            page(display.terminal(), answered.value)
        case Format.NAME:
            display.terminal().write(inert(name(answered.value)))
        case Format.JSON | Format.JSONL | Format.YAML:
            print_data(display, answered.data)


def print_data(display: Display, data: object) -> None:
    """Print any JSON-able data, as YAML only where that was asked for."""
    terminal = display.terminal()
    if display.format is Format.YAML:
        import yaml  # only those who ask for it wait for it

        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        terminal.write(text.removesuffix("\n"))
    else:
        terminal.write(_json(data, indent=None if display.format is Format.JSONL else 2))


def _json(data: object, indent: int | None = None) -> str:
    return inert_json(json.dumps(data, indent=indent, ensure_ascii=False))


def _print_table(
    display: Display, terminal: Terminal, listing: Listing[T], view: ListView[T]
) -> None:
    if not listing.items:
        terminal.tell(view.empty)
        return
    write_table(terminal, view.columns, listing.items, wide=display.format is Format.WIDE)
    if listing.next_cursor is not None:
        terminal.tell(f"the first {len(listing.items):,}; more with --limit")


_VERBS = {
    ("new", True): "created",
    ("changed", True): "changed",
    ("new", False): "would create",
    ("changed", False): "would change",
}


def exit_of_change(change: CalendarChange | DeclarationChange) -> Exit:
    """Return 20 for a plan that would change something."""
    is_planned = not change.applied and change.change != "unchanged"
    return Exit.CHANGES if is_planned else Exit.DONE


def write_change(terminal: Terminal, what: str, change: CalendarChange | DeclarationChange) -> None:
    """Print a change; `what` names the thing that was saved: `calendar weekends`."""
    verb = _VERBS.get((change.change, change.applied))
    if verb is None:
        terminal.tell(inert(f"{what} is unchanged"))
        return
    terminal.tell(inert(f"{verb} {what}: {change.words}"))
    for line in change.differences:
        terminal.tell(inert(f"  {line}"))

"""Files of items, read line by line in bounded memory, whatever the file's size.

JSON (one item a line, or a list of them) or a CSV table with a column `key`, perhaps `order`, and
one for each input. Faults are told with their line, many at a time.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

from rota.domain.carts.definition import MAX_ITEMS, CartItem, CartTemplate, ItemsFile
from rota.domain.errors import Invalid, Problem, did_you_mean, quoted
from rota.domain.jobfile.cart_fields import ITEM
from rota.domain.jobfile.carts import build_item, fit_inputs
from rota.domain.jobfile.kinds import INVALID
from rota.domain.jobfile.sections import VARIABLE
from rota.domain.jobfile.text import At, Report
from rota.domain.spec import JobSpec

MAX_REPORTED = 100


class Faults:
    """Faults found so far; those past `MAX_REPORTED` are only counted."""

    def __init__(self) -> None:
        self._reported: list[Problem] = []
        self._left_out = 0

    def add(self, line: int, message: str, hint: str = "") -> None:
        if len(self._reported) < MAX_REPORTED:
            self._reported.append(Problem(message, line=line, hint=hint))
        else:
            self._left_out += 1

    def stop(self, line: int, message: str, hint: str = "") -> NoReturn:
        """Stop reading: raise `Invalid` with everything found, and this as the last of it."""
        last = Problem(message, line=line, hint=hint)
        raise _refusal([*self._shown(), last], self._count() + 1)

    def raise_found(self) -> None:
        if self._reported:
            raise _refusal(self._shown(), self._count())

    def _count(self) -> int:
        return len(self._reported) + self._left_out

    def _shown(self) -> list[Problem]:
        more = [Problem(f"and {self._left_out:,} more")] if self._left_out else []
        return [*self._reported, *more]


def _refusal(problems: list[Problem], count: int) -> Invalid:
    errors = "1 error" if count == 1 else f"{count:,} errors"
    return Invalid(f"the file of items has {errors}", problems)


# JSON's strings end in their line, so lines can be cut into tokens one by one.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]')
_FORMS = "write one item per line, or a list of items: [{…}, {…}]"


def read_json(
    lines: Iterable[str], faults: Faults, max_length: int
) -> Iterator[tuple[int, object]]:
    """Yield the line and the value of each item; `max_length` is that of its text."""
    for number, text in _texts(lines, faults, max_length):
        try:
            value = json.loads(text, object_pairs_hook=_mapping)
        except (ValueError, RecursionError) as error:
            faults.add(number, f"not valid JSON: {_reason(error)}", _FORMS)
        else:
            yield number, value


def _texts(lines: Iterable[str], faults: Faults, max_length: int) -> Iterator[tuple[int, str]]:
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, first = next(numbered, (0, ""))
    opening = first.lstrip()
    if opening.startswith("["):
        inside = chain([(number, opening[1:])], numbered)
        return _ListCutter(faults, max_length).cut(inside)
    return chain([(number, first)] if first else [], numbered)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"key {quoted(name)} is there twice")
        found[name] = value
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


class _ListCutter:
    """Splitter of a JSON list into the texts of its elements."""

    def __init__(self, faults: Faults, max_length: int) -> None:
        self._faults = faults
        self._max_length = max_length
        self._pieces: list[str] = []  # of the element being read
        self._length = 0  # of these
        self._begin = 0  # the line of the first of them
        self._depth = 0  # 0: in the list itself
        self._elements = 0
        self._is_closed = False

    def cut(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        number = 0
        for number, line in lines:
            yield from self._cut_line(number, line)
        if not self._is_closed:
            self._faults.stop(number, 'the list is not closed by a "]"')

    def _cut_line(self, number: int, line: str) -> Iterator[tuple[int, str]]:
        position = 0
        for token in _TOKEN.finditer(line):
            if self._is_end(token[0]):
                self._keep(number, line[position : token.start()])
                position = token.end()
                yield from self._element(number, token[0])
        self._keep(number, line[position:])

    def _is_end(self, token: str) -> bool:
        """Return whether the token ends an element; track how deep inside of it the next one is."""
        if self._depth == 0 and token in (",", "]"):
            return True
        if token in ("[", "{"):
            self._depth += 1
        elif token in ("]", "}") and self._depth:
            self._depth -= 1
        return False

    def _keep(self, number: int, piece: str) -> None:
        if not self._pieces:
            piece = piece.lstrip()
            self._begin = number
        if not piece:
            return
        if self._is_closed:
            self._faults.stop(number, "something follows the end of the list", _FORMS)
        self._length += len(piece)
        if self._length > self._max_length:
            self._faults.stop(
                self._begin, f"the item is longer than {self._max_length:,} characters"
            )
        self._pieces.append(piece)

    def _element(self, number: int, end: str) -> Iterator[tuple[int, str]]:
        if self._is_closed:
            self._faults.stop(number, "something follows the end of the list", _FORMS)
        self._is_closed = end == "]"
        is_empty_list = self._is_closed and not self._elements
        self._elements += 1
        if self._pieces:
            yield self._begin, "".join(self._pieces)
        elif not is_empty_list:
            self._faults.add(number, "there is no item between two commas, or after the last one")
        self._pieces, self._length = [], 0


_OWN = ("key", "order")
_NEEDS = "needs."  # a column of a label that the item's worker must have: needs.worker
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_HEADER = "the first line names the columns, such as key,order,host"
_SEPARATORS = {";": "semicolons", "\t": "tabs"}


@dataclass(frozen=True, slots=True)
class Row:
    line: int  # where it begins
    cells: Sequence[str]


def read_table(
    lines: Iterable[str], job: JobSpec | None, faults: Faults
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the item of each row, in the job file's vocabulary.

    An empty cell counts as not given. `job` is the one whose inputs the columns are, if known.
    """
    rows = _rows(csv.reader(lines, strict=True, skipinitialspace=True), faults)
    header = next(rows, None)
    if header is None:
        return
    columns = _columns(header, job, faults)
    for row in rows:
        if len(row.cells) == len(columns):
            yield row.line, _item(columns, row.cells)
        else:
            message = f"the line has {len(row.cells)} cells, but the header {len(columns)}"
            faults.add(row.line, message, "put a cell that has a comma in it in quotes")


def _rows(reader: Any, faults: Faults) -> Iterator[Row]:
    """Yield the rows that have something in them."""
    while True:
        begin = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            _refuse(error, begin, reader.line_num, faults)
            continue
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield Row(begin, cells)


def _refuse(error: csv.Error, begin: int, end: int, faults: Faults) -> None:
    is_open = end > begin or str(error).startswith("unexpected end")
    if is_open:  # nobody knows where the next row begins
        hint = 'close it, and write a quote inside of quotes twice: ""'
        faults.stop(begin, "a quote is opened in this line, but not closed properly", hint)
    faults.add(begin, f"not valid CSV: {error}", 'write a quote inside of quotes twice: ""')


def _columns(header: Row, job: JobSpec | None, faults: Faults) -> list[str]:
    names = [cell.strip() for cell in header.cells]
    if "key" not in names:
        _refuse_separator(header, faults)
        found = next((name for name in names if name.lower() == "key"), None)
        hint = f"write {quoted(found)} in small letters" if found else _HEADER
        faults.stop(header.line, 'there is no column "key"', hint)
    for name, times in Counter(names).items():
        if not name:
            faults.add(header.line, "a column has no name", _HEADER)
        elif times > 1:
            faults.add(header.line, f"there are {times} columns {quoted(name)}")
        elif name not in _OWN and not name.startswith(_NEEDS):
            _check_input(name, header.line, job, faults)
    faults.raise_found()
    return names


def _refuse_separator(header: Row, faults: Faults) -> None:
    for separator, words in _SEPARATORS.items():
        if any(separator in cell for cell in header.cells):
            hint = "separate them by commas: key,order,host"
            faults.stop(header.line, f"the columns are separated by {words}", hint)


def _check_input(name: str, line: int, job: JobSpec | None, faults: Faults) -> None:
    if job is not None and name not in job.inputs:
        hint = did_you_mean(name, [*_OWN, *job.inputs])
        faults.add(line, f"job {job.name} has no input {quoted(name)}", hint)
    elif not re.fullmatch(VARIABLE.pattern, name):
        faults.add(line, f"column {quoted(name)} must be {VARIABLE.words}", _HEADER)


def _item(columns: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    given = {name: cell for name, cell in zip(columns, cells, strict=True) if cell.strip()}
    item: dict[str, Any] = {name: given.pop(name).strip() for name in _OWN if name in given}
    if _INTEGER.fullmatch(item.get("order", "")):
        item["order"] = int(item["order"])
    labels = [name for name in given if name.startswith(_NEEDS)]
    needs = {name.removeprefix(_NEEDS): given.pop(name).strip() for name in labels}
    return item | ({"with": given} if given else {}) | ({"needs": needs} if needs else {})


MAX_LINE = 1_000_000  # characters
MAX_TEXT = 64_000_000


@dataclass(frozen=True, slots=True)
class Demands:
    """Demands of a cart on the items in its file."""

    job: str  # of the items that name none; "": each must name one
    order_is_written: bool  # the cart's own, which assigns the numbers
    specs: Mapping[str, JobSpec]  # by name; inputs of other jobs are not compared

    @classmethod
    def of(cls, template: CartTemplate, specs: Mapping[str, JobSpec]) -> Demands:
        return cls(template.job, template.order_is_written, specs)


def read_items(lines: Iterable[str], file: ItemsFile, demands: Demands) -> Iterator[CartItem]:
    """Yield the items of a file, as they are read.

    `Invalid` comes after the last line and has every bad one, or at once when a limit is passed:
    what was yielded before is worth nothing then. `lines` must themselves be cut, if need be, to
    little more than `MAX_LINE`.
    """
    faults = Faults()
    within = _within_limits(lines, faults)
    check = _Check(demands, faults)
    job = demands.specs.get(demands.job)
    entries: Iterable[tuple[int, object]] = (
        read_table(within, job, faults) if file.is_csv else read_json(within, faults, MAX_LINE)
    )
    for line, value in entries:
        if (item := check.item(line, value)) is not None:
            yield item
    faults.raise_found()
    if not check.count:
        faults.stop(1, "there are no items", "a cart needs at least one")


def _within_limits(lines: Iterable[str], faults: Faults) -> Iterator[str]:
    size = 0
    for number, line in enumerate(lines, 1):
        size += len(line)
        if len(line) > MAX_LINE:
            hint = "write one item per line"
            faults.stop(number, f"the line is longer than {MAX_LINE:,} characters", hint)
        if size > MAX_TEXT:
            hint = "split it into several carts"
            faults.stop(number, f"the file is longer than {MAX_TEXT:,} characters", hint)
        yield line.removeprefix("\ufeff") if number == 1 else line


class _Check:
    """Check of entries that become items: finds what they must not repeat or contradict."""

    def __init__(self, demands: Demands, faults: Faults) -> None:
        self.count = 0  # of entries, right or wrong
        self._demands = demands
        self._faults = faults
        self._lines: dict[str, int] = {}  # of each key
        self._first: tuple[int, bool] | None = None  # its line, and whether it has a number

    def item(self, line: int, value: object) -> CartItem | None:
        """Return the item, or None after reporting what is wrong with it."""
        self.count += 1
        if self.count > MAX_ITEMS:
            hint = "split them into several carts"
            self._faults.stop(line, f"there are more than {MAX_ITEMS:,} items", hint)
        report = Report()
        item = self._valid(value, At(report, ("item",)))
        if item is not None:
            self._note_key(line, item.key)
        try:
            report.raise_errors("the item")
        except Invalid as error:
            for problem in error.problems:
                self._faults.add(line, problem.message, problem.hint)
            return None
        if item is not None:
            self._note_order(line, is_numbered=item.order is not None)
        return item

    def _valid(self, value: object, at: At) -> CartItem | None:
        checked = ITEM.check(value, at)
        if not isinstance(checked, dict) or "key" not in checked:
            return None
        item = build_item(checked)
        job = item.job or self._demands.job
        if not job:
            at.refuse('the item has no "job", and neither has the cart')
        spec = self._demands.specs.get(job)
        if spec is None or INVALID in item.inputs.values():
            return item
        return fit_inputs(item, spec, at.child("with"))

    def _note_key(self, line: int, key: str) -> None:
        if key in self._lines:
            self._faults.add(line, f"key {quoted(key)} is already in line {self._lines[key]}")
        self._lines.setdefault(key, line)

    def _note_order(self, line: int, *, is_numbered: bool) -> None:
        if is_numbered and self._demands.order_is_written:
            message = "the cart's order assigns the numbers, but items have some"
            hint = 'leave out either the "order" of the cart or those of its items'
            self._faults.stop(line, message, hint)
        self._first = self._first or (line, is_numbered)
        first, was_numbered = self._first
        if was_numbered != is_numbered:
            message = f"the item has {'an' if is_numbered else 'no'} order, unlike line {first}"
            self._faults.add(line, message, "give every item a number, or none")

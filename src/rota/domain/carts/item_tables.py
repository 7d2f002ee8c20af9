"""Items in a CSV table: a column `key`, perhaps `order`, and one for each input."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.carts.item_faults import Faults
from rota.domain.jobfile.vocabulary import VARIABLE
from rota.domain.jobfile.wording import did_you_mean
from rota.domain.schedule.quoting import quoted
from rota.domain.spec import JobSpec

_OWN = ("key", "order")
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
    """The line and the item of each row, in the job file's vocabulary.

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
    """The rows that have something in them."""
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
        elif name not in _OWN:
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
    return item | ({"with": given} if given else {})

"""Files of items, read line by line: the memory used does not depend on the file's size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rota.domain.carts.definition import MAX_ITEMS
from rota.domain.carts.item_faults import Faults
from rota.domain.carts.item_json import read_json
from rota.domain.carts.item_tables import read_table
from rota.domain.carts.template import CartItem, CartTemplate, ItemsFile
from rota.domain.errors import Invalid
from rota.domain.jobfile.cart_fields import ITEM
from rota.domain.jobfile.carts import build_item, fitted
from rota.domain.jobfile.kinds import INVALID
from rota.domain.jobfile.report import At, Report
from rota.domain.schedule.quoting import quoted
from rota.domain.spec import JobSpec

MAX_LINE = 1_000_000  # characters
MAX_TEXT = 64_000_000


@dataclass(frozen=True, slots=True)
class Demands:
    """What a cart demands of the items in its file."""

    job: str  # of the items that name none; "": each must name one
    order_is_written: bool  # the cart's own, which assigns the numbers
    specs: Mapping[str, JobSpec]  # by name; inputs of other jobs are not compared

    @classmethod
    def of(cls, template: CartTemplate, specs: Mapping[str, JobSpec]) -> Demands:
        return cls(template.job, template.order_is_written, specs)


def read_items(lines: Iterable[str], file: ItemsFile, demands: Demands) -> Iterator[CartItem]:
    """The items of a file, as they are read.

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
    """Turns entries into items, and remembers what they must not repeat or contradict."""

    def __init__(self, demands: Demands, faults: Faults) -> None:
        self.count = 0  # of entries, right or wrong
        self._demands = demands
        self._faults = faults
        self._lines: dict[str, int] = {}  # of each key
        self._first: tuple[int, bool] | None = None  # its line, and whether it has a number

    def item(self, line: int, value: object) -> CartItem | None:
        """The item, or None after reporting what is wrong with it."""
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
        return fitted(item, spec, at.child("with"))

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

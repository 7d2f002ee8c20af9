"""Items of a cart that is handed in, checked one by one as they come, by the job file's rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass, field

from rota.domain.carts.definition import CartItem
from rota.domain.carts.intake import MAX_PROBLEMS
from rota.domain.carts.items import MAX_LINE
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile.cart_fields import ITEM
from rota.domain.jobfile.carts import build_item
from rota.domain.jobfile.report import At, Report
from rota.server.gateway.strictness import parse_json

Line = tuple[int, bytes]  # its number from 1, and its text
_BATCH = 500  # lines that are checked together


@dataclass(slots=True)
class ItemCheck:
    """Whether entries are items; what is wrong with them is told at the end, all of it."""

    count: int  # how many were announced
    problems: list[Problem] = field(default_factory=list)
    _seen: int = 0
    _bad: int = 0

    def items(self, entries: Iterable[object]) -> list[CartItem]:
        """Those that are items."""
        return [item for entry in entries if (item := self._item(entry)) is not None]

    def items_in(self, lines: Iterable[Line]) -> list[CartItem]:
        """The same for lines of JSON."""
        return [item for line in lines if (item := self._item_in(*line)) is not None]

    def finish(self) -> None:
        """`Invalid` with everything that is wrong."""
        if self._bad:
            raise Invalid(f"{self._bad:,} of {self._seen:,} items cannot be read", self.problems)

    def _item_in(self, line: int, text: bytes) -> CartItem | None:
        try:
            return self._item(parse_json(text), line)
        except (ValueError, RecursionError) as error:
            self._number()
            self._refuse([Problem(f"not valid JSON: {why_unreadable(error)}", line=line)])
            return None

    def _item(self, entry: object, line: int | None = None) -> CartItem | None:
        number = self._number()
        report = Report()
        checked = ITEM.check(entry, At(report, ("items", number)))
        try:
            report.raise_errors("the item")
        except Invalid as error:
            key = checked.get("key") if isinstance(checked, dict) else None
            place = f"items[{number}] ({key})" if key else f"items[{number}]"
            self._refuse(
                Problem(fault.message, place, line, hint=fault.hint) for fault in error.problems
            )
            return None
        assert isinstance(checked, dict), "whatever is no mapping is an error"
        return build_item(checked)

    def _number(self) -> int:
        """The place of the next entry; `Invalid` at once if it is one too many."""
        number, self._seen = self._seen, self._seen + 1
        if number >= self.count:
            raise Invalid(f"{self.count:,} items were announced, and more came")
        return number

    def _refuse(self, problems: Iterable[Problem]) -> None:
        self._bad += 1
        self.problems += list(problems)[: MAX_PROBLEMS - len(self.problems)]


async def items_of(lines: AsyncIterator[Line], count: int) -> AsyncGenerator[CartItem, None]:
    """The items in lines of JSON; `Invalid` after the last one has every bad one."""
    check = ItemCheck(count)
    async for batch in _batches(lines):
        # Thousands of them take a while, and leases are renewed on this loop.
        items = await asyncio.to_thread(check.items_in, batch)
        if not check.problems:
            for item in items:
                yield item
    check.finish()


async def _batches(lines: AsyncIterator[Line]) -> AsyncIterator[list[Line]]:
    batch: list[Line] = []
    async for line in lines:
        batch.append(line)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def numbered_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[Line]:
    """The lines of a body as it comes, without blank ones; none is kept that is too long."""
    number, begun = 1, bytearray()
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun += first
        _refuse_long(number, begun)
        for following in others:
            if begun.strip():
                yield number, bytes(begun)
            number, begun = number + 1, bytearray(following)
            _refuse_long(number, begun)
    if begun.strip():
        yield number, bytes(begun)


def _refuse_long(number: int, line: bytearray) -> None:
    if len(line) > MAX_LINE:
        problem = Problem(f"the line is longer than {MAX_LINE:,} bytes", line=number)
        raise Invalid("a line is too long", [problem], hint="send one item a line")


def why_unreadable(error: Exception) -> str:
    """What is wrong with a text that is no JSON."""
    match error:
        case json.JSONDecodeError():
            return error.msg
        case UnicodeError():
            return "it is not UTF-8"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error)

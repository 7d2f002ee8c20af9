"""Submitted carts: one JSON document, or a header followed by its items line by line.

Items are parsed block by block as they arrive, by the job file's rules, where large job files are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from rota.domain.carts.definition import MAX_ITEMS, CartItem
from rota.domain.carts.intake import MAX_PROBLEMS
from rota.domain.carts.items import MAX_LINE
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM
from rota.operations.carts import stream_items
from rota.server.gateway.middleware import media_type_in
from rota.server.gateway.parsers import (
    NOT_HERE,
    Header,
    ReadItems,
    SentTemplate,
    parse_cart,
    parse_header,
    parse_items,
)
from rota.server.gateway.parsing import ParsingPool
from rota.server.gateway.routing import JSON, refuse_gone

T = TypeVar("T")
Block = tuple[int, bytes]  # number of its first line, and its text
NDJSON = "application/x-ndjson"
_BLOCK = 64 * 1024  # bytes of lines that are parsed together


@dataclass(frozen=True, slots=True)
class Submission:
    """Submitted cart; its items are read while they are stored."""

    header: Header
    items: AsyncGenerator[CartItem, None]


async def parsed_body(request: Request, function: Callable[..., T], **options: Any) -> T:
    """Return what a function of `parsers` makes of a request's body.

    A caller's large bodies are read one after another, so that they are not in memory together.
    """
    pool: ParsingPool = request.app.state.parsing
    if _is_small(request, pool.limits.in_place):
        return await pool.parse(function, await request.body(), **options)

    async with pool.turn(request.state.caller.name):
        body = await request.body()
        return await pool.parse(
            function, body, refuse_gone=partial(refuse_gone, request), **options
        )


def _is_small(request: Request, most: int) -> bool:
    """Return whether a body is small by what its sender says, which the server holds it to."""
    length = request.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= most


@asynccontextmanager
async def reading_submission(request: Request) -> AsyncIterator[Submission | SentTemplate]:
    """Read the submission of a request; raise `Invalid` with every problem found so far.

    While a cart comes line by line, it is its caller's turn: their next large one waits.
    """
    media_type = media_type_in(request.headers.get("content-type", ""))
    if media_type == JSON:
        yield await _whole(request)
    elif media_type == NDJSON:
        pool: ParsingPool = request.app.state.parsing
        async with AsyncExitStack() as stack:
            if not _is_small(request, pool.limits.in_place):
                await stack.enter_async_context(pool.turn(request.state.caller.name))
            yield await _streamed(request, pool)
    else:
        raise Invalid(
            "a cart is JSON, or lines of JSON",
            code="unsupported_media_type",
            hint=f"send Content-Type: {JSON} or {NDJSON}",
        )


async def _whole(request: Request) -> Submission | SentTemplate:
    sent = await parsed_body(request, parse_cart)
    if isinstance(sent, SentTemplate):
        return sent
    items = sent.template.items
    assert isinstance(items, tuple), "they are part of the document"
    header = Header(replace(sent.template, items=()), len(items), sent.starts_at)
    return Submission(header, stream_items(items))


async def _streamed(request: Request, pool: ParsingPool) -> Submission:
    blocks = Blocks(request.stream())
    line, text = await blocks.first_line()
    header = await pool.parse(parse_header, text, line=line)
    return Submission(header, _items_of(blocks, header.count, pool))


async def _items_of(
    blocks: Blocks, count: int, pool: ParsingPool
) -> AsyncGenerator[CartItem, None]:
    intake = ItemIntake(pool, count)
    async with aclosing(_ahead(_parsed(blocks, intake))) as parsed:
        async for items in parsed:
            for item in items:
                yield item
    intake.finish()


async def _parsed(blocks: Blocks, intake: ItemIntake) -> AsyncIterator[Sequence[CartItem]]:
    async for line, block in blocks.others():
        yield await intake.take(parse_items, block, line=line)


async def _ahead(source: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield what comes from a source that is asked for the next one meanwhile.

    A block is parsed by a child while the items of the one before it are stored.
    """
    coming = asyncio.ensure_future(_next(source))
    try:
        while found := await coming:
            coming = asyncio.ensure_future(_next(source))
            yield found[0]
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _next(source: AsyncIterator[T]) -> tuple[T] | None:
    async for found in source:
        return (found,)
    return None


class ItemIntake:
    """Parses the items of a cart part by part; what is wrong with any is told after the last."""

    def __init__(self, pool: ParsingPool, count: int) -> None:
        self._pool = pool
        self._count = count  # how many were announced
        self._seen = 0
        self._bad = 0
        self._problems: list[Problem] = []

    async def take(
        self, parser: Callable[..., ReadItems], body: bytes, **options: Any
    ) -> Sequence[CartItem]:
        """Return the items of a part; none, once anything is wrong."""
        read = await self._pool.parse(
            parser,
            body,
            is_begun=self._seen > 0,
            seen=self._seen,
            count=self._count,
            **options,
        )
        self._seen += read.seen
        self._bad += read.bad
        self._problems += read.problems[: MAX_PROBLEMS - len(self._problems)]
        return () if self._bad else read.items

    def finish(self) -> None:
        """Raise `Invalid` with every problem found, if any."""
        if self._bad:
            raise Invalid(f"{self._bad:,} of {self._seen:,} items cannot be read", self._problems)


class Blocks:
    """Lines of a body as they arrive, in blocks that begin and end with a line.

    Only a block and a piece of the body are kept. Lines are numbered from 1, the blank ones, too.
    """

    def __init__(self, pieces: AsyncIterator[bytes], size: int = _BLOCK) -> None:
        self._pieces = pieces
        self._size = size
        self._line = 1  # number of the first that is kept
        self._kept = bytearray()

    async def first_line(self) -> Block:
        """Return the first line that is not blank, or an empty one if all are."""
        while True:
            end = self._end_of_line(0)
            if end and self._kept[:end].strip():
                return self._taken(end)
            if end:
                self._taken(end)
            elif not await self._more():
                return self._taken(len(self._kept))

    async def others(self) -> AsyncIterator[Block]:
        """Yield the lines behind it, in blocks of about the size, or of one longer line."""
        while True:
            while len(self._kept) > self._size and (end := self._end()):
                yield self._taken(end)
            if not await self._more():
                break
        if self._kept.strip():
            yield self._taken(len(self._kept))

    def _end(self) -> int:
        """Return where the next block ends; 0: its only line is not there as a whole."""
        return self._kept.rfind(b"\n", 0, self._size) + 1 or self._end_of_line(self._size)

    def _end_of_line(self, start: int) -> int:
        """Return the end of the first line, which does not end before `start`; 0: not there yet."""
        found = self._kept.find(b"\n", start)
        if (len(self._kept) if found < 0 else found) > MAX_LINE:
            problem = Problem(f"the line is longer than {MAX_LINE:,} bytes", line=self._line)
            raise Invalid("a line is too long", [problem], hint="send one item a line")
        return found + 1

    async def _more(self) -> bool:
        """Wait for another piece; False: there is none."""
        piece = await anext(self._pieces, None)
        if piece is None:
            return False
        self._kept += piece
        return True

    def _taken(self, end: int) -> Block:
        block, line = bytes(self._kept[:end]), self._line
        del self._kept[:end]
        self._line += block.count(b"\n")
        return line, block


# What OpenAPI says of a cart that is handed in: the job file's own fields, and a few more.
_DEFINITIONS = {f"#/$defs/{part.title}": part for part in (BETWEEN, FAILURES, ITEM)}
_STARTS_AT = {
    "type": "string",
    "format": "date-time",
    "description": "When it begins; at once, unless given.",
}
_HEADER_EXAMPLE = {
    "name": "upgrade-pg16",
    "job": "upgrade-db",
    "order": "groups",
    "group_size": [1, 5, "10%"],
    "max_parallel": 20,
    "failures": {"allow": "2%"},
    "between": {"wait": "5m", "approve": "admin"},
}
_ITEM_EXAMPLES = [{"key": f"db-00{n}", "with": {"host": f"db-00{n}"}} for n in (1, 2)]
_LINES = """\
{"name": "upgrade-pg16", "job": "upgrade-db", "count": 2}
{"key": "db-001", "with": {"host": "db-001"}}
{"key": "db-002", "with": {"host": "db-002"}}
"""


def _inlined(schema: Any) -> Any:
    """Return the schema with the sections of a cart inlined where it refers to them."""
    if isinstance(schema, list):
        return [_inlined(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if section := _DEFINITIONS.get(str(schema.get("$ref"))):
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        return _inlined(section.definition()) | rest
    return {name: _inlined(value) for name, value in schema.items()}


def _cart() -> dict[str, Any]:
    rows = [row for row in CART.available if row.name not in NOT_HERE]
    fields = {row.name: row.schema() for row in rows}
    return {
        "type": "object",
        "title": "a cart",
        "properties": _inlined(fields) | {"starts_at": _STARTS_AT},
        "required": [*(row.name for row in rows if row.required), "items"],
        "additionalProperties": False,
    }


_TEMPLATE = {
    "type": "object",
    "title": "a cart that was applied",
    "properties": {
        "template": {"type": "string", "description": "Its name."},
        "with": {"type": "object", "description": "Inputs for every item."},
        "starts_at": _STARTS_AT,
    },
    "required": ["template"],
    "additionalProperties": False,
}

CART_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A cart by the fields of a job file's `carts`. As lines of JSON, the first "
        f"has all but the items and says their `count`; then follow up to {MAX_ITEMS:,}, one a "
        "line, each of at most 1 MB.",
        "content": {
            JSON: {
                "schema": {"anyOf": [_cart(), _TEMPLATE]},
                "examples": {
                    "cart": {"value": {**_HEADER_EXAMPLE, "items": _ITEM_EXAMPLES}},
                    "template": {"value": {"template": "upgrade-pg16"}},
                },
            },
            NDJSON: {"schema": {"type": "string"}, "example": _LINES},
        },
    }
}

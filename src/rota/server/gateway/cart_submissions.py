"""Submitted carts: one JSON document, or a header followed by its items line by line.

Items are checked one by one as they arrive, by the job file's rules.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from rota.domain.carts.definition import MAX_ITEMS, CartItem, CartTemplate
from rota.domain.carts.intake import MAX_PROBLEMS
from rota.domain.carts.items import MAX_LINE
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import read_cart
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM
from rota.domain.jobfile.carts import build_item
from rota.domain.jobfile.text import At, Report
from rota.domain.schedule.expressions import read_absolute
from rota.operations.carts import stream_items
from rota.server.gateway.middleware import media_type_in
from rota.server.gateway.parameters import NAME
from rota.server.gateway.parsing import ParsingPool, parse_json, why_unreadable
from rota.server.gateway.routing import JSON

T = TypeVar("T")
Line = tuple[int, bytes]  # its number from 1, and its text
NDJSON = "application/x-ndjson"

# What a job file has and a request has not, with what to do instead.
NOT_HERE = {
    "items_from": "send the items themselves",
    "schedule": "send starts_at, or apply the cart as part of a job file",
    "timezone": "send starts_at with an offset",
}
_TO_COME = "items.jsonl"  # a header is read as that of a cart whose items are elsewhere
_MAX_TIME = 100
_BATCH = 500  # lines that are checked together


@dataclass(frozen=True, slots=True)
class Header:
    """Cart without its items, and the other fields of the request."""

    template: CartTemplate
    count: int  # how many items there will be
    starts_at: datetime | None  # None: at once


@dataclass(frozen=True, slots=True)
class Submission:
    """Submitted cart; its items are read while they are stored."""

    header: Header
    items: AsyncGenerator[CartItem, None]


@dataclass(frozen=True, slots=True)
class SentTemplate:
    """Name of an applied cart that is to be submitted."""

    name: str
    inputs: Mapping[str, Any]  # of every item
    starts_at: datetime | None  # None: at once


async def parsed_body(request: Request, function: Callable[..., T], **options: Any) -> T:
    """Return what a function of `parsing` makes of a request's body.

    A caller's large bodies are read one after another, so that they are not in memory together.
    """
    pool: ParsingPool = request.app.state.parsing
    if _is_small(request, pool.limits.in_place):
        return await pool.parse(function, await request.body(), **options)

    async def refuse_gone() -> None:
        if await request.is_disconnected():
            raise ClientDisconnect

    async with pool.turn(request.state.caller.name):
        body = await request.body()
        return await pool.parse(function, body, refuse_gone=refuse_gone, **options)


def _is_small(request: Request, most: int) -> bool:
    """Return whether a body is small by what its sender says, which the server holds it to."""
    length = request.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= most


async def read_submission(request: Request) -> Submission | SentTemplate:
    """Read the submission of a request; raise `Invalid` with every problem found so far."""
    media_type = media_type_in(request.headers.get("content-type", ""))
    if media_type == NDJSON:
        return await _streamed(request)
    if media_type == JSON:
        return await _whole(request)
    raise Invalid(
        "a cart is JSON, or lines of JSON",
        code="unsupported_media_type",
        hint=f"send Content-Type: {JSON} or {NDJSON}",
    )


async def _streamed(request: Request) -> Submission:
    lines = numbered_lines(request.stream())
    first = await anext(lines, None)
    number, text = first or (1, b"")
    header = read_header(_parsed(text, line=number))
    return Submission(header, items_of(lines, header.count))


async def _whole(request: Request) -> Submission | SentTemplate:
    sent = await parsed_body(request, parse_cart)
    if isinstance(sent, SentTemplate):
        return sent
    template, starts_at = sent
    assert isinstance(template.items, tuple), "they are part of the document"
    header = Header(replace(template, items=()), len(template.items), starts_at)
    return Submission(header, stream_items(template.items))


def parse_cart(body: bytes) -> SentTemplate | tuple[CartTemplate, datetime | None]:
    """Parse a cart that is sent as one document, with when it begins."""
    document = _parsed(body)
    return _sent_template(document) if "template" in document else _read_whole(document)


def _parsed(text: bytes, line: int | None = None) -> Mapping[str, Any]:
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        problem = Problem(f"not valid JSON: {why_unreadable(error)}", line=line)
        raise Invalid("the cart cannot be read", [problem], code="malformed") from error
    if not isinstance(document, dict):
        problem = Problem("a cart is a JSON object", line=line)
        raise Invalid("the cart cannot be read", [problem])
    return document


def _sent_template(document: Mapping[str, Any]) -> SentTemplate:
    fields = dict(document)
    problems: list[Problem] = []
    starts_at = _starts_at(fields, problems)
    name, inputs = fields.pop("template"), fields.pop("with", None) or {}
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        problems.append(Problem("template must be the name of a cart", "template"))
    if not isinstance(inputs, dict):
        problems.append(Problem("with must be an object of inputs", "with"))
    problems += [Problem(f'"{key}" is not for templates', key) for key in fields]
    if problems:
        raise _refusal(problems)
    return SentTemplate(name, inputs, starts_at)


def read_header(document: Mapping[str, Any]) -> Header:
    """Read the header of a cart whose `count` items follow it."""
    fields = dict(document)
    problems = list(_strays(fields))
    if fields.pop("items", None) is not None:
        problems.append(Problem("items come after the header, one a line", "items"))
    count = fields.pop("count", None)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_ITEMS:
        message = f"count must be the number of items that follow, from 1 to {MAX_ITEMS:,}"
        problems.append(Problem(message, "count"))
    starts_at = _starts_at(fields, problems)
    template = _template(fields | {"items_from": _TO_COME}, problems)
    return Header(replace(template, items=()), int(count or 0), starts_at)


def _read_whole(document: Mapping[str, Any]) -> tuple[CartTemplate, datetime | None]:
    fields = dict(document)
    problems = list(_strays(fields))
    if fields.get("items") is None:
        problems.append(Problem("the cart has no items", "items", hint="give it at least one"))
        fields |= {"items_from": _TO_COME}
    starts_at = _starts_at(fields, problems)
    return _template(fields, problems), starts_at


def _strays(fields: dict[str, Any]) -> Iterator[Problem]:
    """Remove fields that only a job file has, and yield a problem for each."""
    for name, hint in NOT_HERE.items():
        if fields.pop(name, None) is not None:
            yield Problem(f'"{name}" is for job files', name, hint=hint)


def _starts_at(fields: dict[str, Any], problems: list[Problem]) -> datetime | None:
    written = fields.pop("starts_at", None)
    if written is None:
        return None
    if not isinstance(written, str) or len(written) > _MAX_TIME:
        problems.append(Problem("starts_at must be a time with its offset", "starts_at"))
        return None
    try:
        return read_absolute(written)
    except ValueError as error:
        problems.append(Problem(str(error), "starts_at"))
        return None


def _template(fields: Mapping[str, Any], problems: list[Problem]) -> CartTemplate:
    """Read the template of a cart; raise `Invalid` with these problems and all others."""
    try:
        template = read_cart(fields)
    except Invalid as error:
        raise _refusal([*problems, *error.problems]) from error
    if problems:
        raise _refusal(problems)
    return template


def _refusal(problems: list[Problem]) -> Invalid:
    count = "1 error" if len(problems) == 1 else f"{len(problems):,} errors"
    return Invalid(f"the cart has {count}", problems[:MAX_PROBLEMS])


@dataclass(slots=True)
class ItemCheck:
    """Checks entries to be items, and collects all problems until the end."""

    count: int  # how many were announced
    problems: list[Problem] = field(default_factory=list)
    _seen: int = 0
    _bad: int = 0

    def items(self, entries: Iterable[object]) -> list[CartItem]:
        """Return the entries that are valid items."""
        return [item for entry in entries if (item := self._item(entry)) is not None]

    def items_in(self, lines: Iterable[Line]) -> list[CartItem]:
        """Return the valid items among lines of JSON."""
        return [item for line in lines if (item := self._item_in(*line)) is not None]

    def finish(self) -> None:
        """Raise `Invalid` with every problem found, if any."""
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
        """Return the number of the next entry; raise `Invalid` at once if it is one too many."""
        number, self._seen = self._seen, self._seen + 1
        if number >= self.count:
            raise Invalid(f"{self.count:,} items were announced, and more came")
        return number

    def _refuse(self, problems: Iterable[Problem]) -> None:
        self._bad += 1
        self.problems += list(problems)[: MAX_PROBLEMS - len(self.problems)]


async def items_of(lines: AsyncIterator[Line], count: int) -> AsyncGenerator[CartItem, None]:
    """Yield the items in lines of JSON; after the last, raise `Invalid` with every bad one."""
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
    """Yield the non-blank lines of a body as they arrive; a line that is too long is not kept."""
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

"""Carts as they are handed in: one JSON document, or a header and then its items line by line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from starlette.requests import Request

from rota.domain.carts.definition import MAX_ITEMS, CartItem, CartTemplate
from rota.domain.carts.intake import MAX_PROBLEMS
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import read_cart
from rota.domain.schedule.expressions import read_absolute
from rota.operations.carts import each
from rota.server.gateway.cart_items import items_of, numbered_lines, why_unreadable
from rota.server.gateway.limits import media_type_in
from rota.server.gateway.strictness import parse_json
from rota.server.gateway.wiring import NAME

JSON = "application/json"
NDJSON = "application/x-ndjson"

# What a job file has and a request has not, with what to do instead.
NOT_HERE = {
    "items_from": "send the items themselves",
    "schedule": "send starts_at, or apply the cart as part of a job file",
    "timezone": "send starts_at with an offset",
}
_TO_COME = "items.jsonl"  # a header is read as that of a cart whose items are elsewhere
_MAX_TIME = 100


@dataclass(frozen=True, slots=True)
class Header:
    """A cart without its items, and what a request says besides."""

    template: CartTemplate
    count: int  # how many items there will be
    starts_at: datetime | None  # None: at once


@dataclass(frozen=True, slots=True)
class Submission:
    """A cart that is handed in; its items are read while they are stored."""

    header: Header
    items: AsyncGenerator[CartItem, None]


@dataclass(frozen=True, slots=True)
class SentTemplate:
    """The name of a cart that was applied, to be submitted."""

    name: str
    inputs: Mapping[str, Any]  # of every item
    starts_at: datetime | None  # None: at once


async def read_submission(request: Request) -> Submission | SentTemplate:
    """What a request hands in; `Invalid` has all that is wrong as far as it was read."""
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
    # A big document takes seconds to read, and leases are renewed on this loop.
    document = await asyncio.to_thread(_parsed, await request.body())
    if "template" in document:
        return _sent_template(document)
    template, starts_at = await asyncio.to_thread(_read_whole, document)
    assert isinstance(template.items, tuple), "they are part of the document"
    header = Header(replace(template, items=()), len(template.items), starts_at)
    return Submission(header, each(template.items))


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
    """A cart whose items come after it, `count` of them."""
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
    """Take out what only a job file has."""
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
    """The template of a cart; `Invalid` with these problems and all others."""
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

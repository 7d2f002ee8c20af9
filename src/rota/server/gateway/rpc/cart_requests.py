"""What callers ask of carts, read by the job file's rules: `Invalid` names what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration

from rota.contracts import carts_pb2 as pb
from rota.domain.carts.definition import CartItem
from rota.domain.carts.states import ItemState
from rota.domain.errors import Invalid
from rota.domain.quantities import format_duration
from rota.operations.cart_changes import SELECTED, CartChange, ItemChange
from rota.operations.carts import CartRequest
from rota.ports.carts import Selection
from rota.server.gateway.cart_intake import read_header
from rota.server.gateway.cart_items import ItemCheck
from rota.server.gateway.rpc import requests

_SELECTED = {
    pb.RETRY_SELECTION_UNSPECIFIED: "failed",
    pb.RETRY_SELECTION_FAILED: "failed",
    pb.RETRY_SELECTION_FAILED_AND_SKIPPED: "failed+skipped",
    pb.RETRY_SELECTION_ALL: "all",
}
_MAX_CAUSE = 1_000
Parts = AsyncIterator[pb.SubmitCartRequest]


async def submission(
    parts: Parts, max_bytes: int
) -> tuple[CartRequest, AsyncGenerator[CartItem, None]]:
    """The cart of a stream, and its items while they come."""
    first = await anext(parts, None)
    if first is None or first.WhichOneof("part") != "header":
        raise requests.malformed("the first message has to be the header")
    header = read_header(_header(first.header))
    request = CartRequest(
        template=header.template,
        count=header.count,
        project=requests.project_of(first.header.project),
        starts_at=header.starts_at,
        idempotency_key=requests.idempotency_key(first.header.idempotency_key),
    )
    return request, _items(parts, header.count, max_bytes)


async def _items(parts: Parts, count: int, max_bytes: int) -> AsyncGenerator[CartItem, None]:
    check = ItemCheck(count)
    size = 0
    async for part in parts:
        if part.WhichOneof("part") != "items":
            raise requests.malformed("items have to follow the header")
        size += part.ByteSize()
        if size > max_bytes:
            raise Invalid(f"the items have more than {max_bytes:,} bytes", code="too_large")
        # Thousands of them take a while, and leases are renewed on this loop.
        items = await asyncio.to_thread(check.items, map(_entry, part.items.items))
        if not check.problems:
            for item in items:
                yield item
    check.finish()


def _header(header: pb.CartHeader) -> dict[str, Any]:
    """The header as a job file would have it."""
    document = {
        "name": header.name,
        "job": header.job,
        "order": header.order,
        "group_size": [_quantity(size) for size in header.group_size],
        "max_parallel": header.max_parallel if header.HasField("max_parallel") else None,
        "failures": _failures(header.failures),
        "between": _between(header.between),
        "calendars": list(header.calendars),
        "rollback": header.rollback,
        "priority": header.priority if header.HasField("priority") else None,
        "description": header.description,
        "labels": dict(header.labels),
    }
    if header.HasField("starts_at"):
        starts_at = requests.instant_of(header.starts_at, "starts_at")
        document["starts_at"] = starts_at.isoformat()
    return _written(document) | {"count": header.count}


def _entry(item: pb.CartItem) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "key": item.key,
        "with": requests.inputs_of(item.inputs_json),
        "job": item.job,
    }
    if item.HasField("order"):
        entry["order"] = item.order
    return _written(entry)


def _failures(failures: pb.CartFailures) -> dict[str, Any]:
    document = {
        "allow": _quantity(failures.allow),
        "of": failures.of,
        "then": failures.then,
        "strict": failures.strict if failures.HasField("strict") else None,
    }
    return _written(document)


def _between(between: pb.CartBetween) -> dict[str, Any]:
    document = {"check": between.check, "approve": between.approve}
    if between.HasField("wait"):
        document["wait"] = _span(between.wait)
    return _written(document)


def _span(message: Duration) -> str:
    try:
        span: timedelta = message.ToTimedelta()
    except (ValueError, OverflowError) as error:
        raise requests.malformed(f"between.wait: {error}") from error
    if span < timedelta(0):
        raise requests.malformed("between.wait: must not be negative")
    return format_duration(span)


def _quantity(text: str) -> int | str | None:
    """A number of items, or a share as written; None: nothing is."""
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        return int(text)
    return text or None


def _written(fields: dict[str, Any]) -> dict[str, Any]:
    """What was said: a message has no other way to leave something out."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def selection_of(request: pb.RetryCartRequest) -> Selection:
    """Which items run once more."""
    word = _SELECTED.get(request.select)
    if word is None:
        raise requests.malformed("select: FAILED, FAILED_AND_SKIPPED or ALL is needed")
    return Selection(
        states=SELECTED[word],
        from_wave=request.from_wave or None,
        keys=keys_of(request.keys) or None,
        cause=cause_of(request.cause),
    )


def change_of(request: pb.EditCartRequest) -> CartChange:
    """What is to be different."""
    return CartChange(
        max_parallel=request.max_parallel or None,
        failures=_failures(request.failures),
        between=_between(request.between),
        items=[_item_change(item) for item in request.items],
    )


def _item_change(item: pb.ItemChange) -> ItemChange:
    [key] = keys_of([item.key])
    return ItemChange(
        key=key,
        order=item.order if item.HasField("order") else None,
        inputs=requests.inputs_of(item.inputs_json) if item.inputs_json else None,
        skip=item.skip,
    )


def allowance_of(text: str) -> int | str | None:
    """How many may fail, as the job file has it; None: it is left out."""
    return _quantity(text)


def keys_of(keys: Iterable[str]) -> list[str]:
    return [requests.reference(key, "key") for key in keys]


def cause_of(cause: str) -> str | None:
    """None: any."""
    if len(cause) > _MAX_CAUSE or "\0" in cause:
        raise requests.malformed("cause: that of a failure group is needed")
    return cause or None


def states_of(states: Iterable[pb.ItemState]) -> list[str]:
    """The states by their names."""
    known = {pb.ItemState.Value(f"ITEM_STATE_{state}"): state for state in ItemState}
    try:
        return [known[state] for state in states]
    except KeyError as error:
        raise requests.malformed("states: there is no such state of an item") from error

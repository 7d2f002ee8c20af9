"""Questions to the server, answered both for people (typed) and for programs (as they came)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rota.sdk.answers import Page
from rota.sdk.client import Client
from rota.sdk.exchange import Call, read

T = TypeVar("T")

_LARGEST_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    value: T
    data: Any  # the JSON document, fields unknown to this version included


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The beginning of a list."""

    items: list[T]
    data: list[Any]  # the JSON document of each item
    next_cursor: str | None  # None: there is no more


def ask(client: Client, call: Call[T]) -> Answered[T]:
    reply = client.exchange(call)
    value = read(call, reply)
    return Answered(value, json.loads(reply.body or b"null"))


def ask_list(client: Client, call: Call[Page[T]], *, limit: int) -> Listing[T]:
    """At most `limit` items, over as many pages as that takes."""
    items: list[T] = []
    data: list[Any] = []
    cursor: str | None = None
    while True:
        size = min(limit - len(items), _LARGEST_PAGE)
        page = ask(client, call.with_query(limit=size, cursor=cursor))
        items += page.value.items
        data += page.data["items"]
        cursor = page.value.next_cursor
        if cursor is None or len(items) >= limit:
            return Listing(items, data, cursor)


def ask_all(client: Client, call: Call[Page[T]]) -> Listing[T]:
    """A list that the server gives in one piece."""
    page = ask(client, call)
    return Listing(list(page.value.items), page.data["items"], page.value.next_cursor)

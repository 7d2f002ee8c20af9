"""Requests with a caller's key: the same key and body get the first answer again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.errors import Conflict
from rota.ports.records import Idempotency
from rota.store.rows import from_json, to_json
from rota.store.script import Script, query


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and what it is answered if it is the first of its key."""

    idempotency: Idempotency
    answer: object


def first_answer(now: int, idempotency: Idempotency | None, answer: object) -> Script[Any]:
    """What the caller's key was answered before. None: nothing, so `answer` is remembered for it.

    Whoever comes with the same key at the same time waits here for the other's end.
    """
    if idempotency is None:
        return None
    [found] = yield from first_answers(now, [Asked(idempotency, answer)])
    if isinstance(found, Conflict):
        raise found
    return found


def first_answers(now: int, requests: Sequence[Asked]) -> Script[list[Any]]:
    """The same for several requests, of which any may be refused: that is its answer then."""
    first: dict[str, Asked] = {}
    for asked in requests:
        first.setdefault(asked.idempotency.key, asked)
    new = yield from _keep(now, first.values())
    known = {key: (first[key].idempotency.digest, first[key].answer) for key in new}
    if len(new) < len(first):
        for row in (yield query("find_answers", keys=sorted(first.keys() - new))):
            known[row["key"]] = (row["digest"], from_json(row["answer"]))
    return [
        None if key in new and asked is first[key] else _again(asked, *known[key])
        for asked in requests
        for key in [asked.idempotency.key]
    ]


def _keep(now: int, requests: Collection[Asked]) -> Script[set[str]]:
    """Remember the answers of those that are the first of their keys, which are returned."""
    answers = [
        {
            "key": asked.idempotency.key,
            "digest": asked.idempotency.digest,
            "answer": to_json(asked.answer),
        }
        for asked in requests
    ]
    rows = yield query("keep_answers", answers=to_json(answers), now=now)
    return {row["key"] for row in rows}


def _again(asked: Asked, digest: str, answer: object) -> object:
    if asked.idempotency.digest == digest:
        return answer
    return Conflict(
        "this Idempotency-Key was used before with another request",
        code="idempotency_key_reused",
        hint="use a new key for a new request",
    )

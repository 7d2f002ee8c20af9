"""Filters and pages of lists.

Terms are separated by spaces and must all hold; quotes keep a value with spaces together, as in
`since:"today 14:00"`. `state` takes several values, separated by commas; upper and lower case
are the same.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import Query

from rota.api.answers import Answer, Page
from rota.domain.access import INSTALLATION, ProjectSet, Role, Verb
from rota.domain.carts.facts import FINAL_CART_STATES, CartState
from rota.domain.errors import Invalid, Problem, did_you_mean, listed, quoted
from rota.domain.ids import BackfillId, CartId, instant, micros
from rota.domain.run import Trigger
from rota.domain.schedule.expressions import Reading, read_instant
from rota.domain.schedule.sources import LAST_MICROS
from rota.domain.states import FINAL_STATES, RunState
from rota.operations.tokens import Caller

Term = tuple[str, str]  # key and value
ACTIVE_STATES = frozenset(RunState) - FINAL_STATES
ACTIVE_CART_STATES = frozenset(CartState) - FINAL_CART_STATES
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+|\S""")  # quotes keep spaces together
_QUOTES = re.compile(r"""["']""")

Filter = TypeVar("Filter")
State = TypeVar("State", bound=StrEnum)
Readers = Mapping[str, Callable[[Filter, str, Reading], Filter]]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions for runs."""

    states: frozenset[RunState] | None = None  # None: any; empty: no run can match
    job_like: str | None = None  # with `*` wildcards
    trigger: Trigger | None = None
    backfill: BackfillId | None = None
    cart: CartId | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class CartFilter:
    """Conditions for carts."""

    states: frozenset[CartState] | None = None  # None: any; empty: no cart can match
    name_like: str | None = None  # with `*` wildcards


def parse_filter(where: str, terms: Iterable[Term], reading: Reading) -> RunFilter:
    """Parse a filter text together with single terms; raise `Invalid` with every problem."""
    return _parsed(RunFilter(), _READERS, where, terms, reading)


def parse_cart_filter(where: str, terms: Iterable[Term], reading: Reading) -> CartFilter:
    """Parse a filter of carts; raise `Invalid` with every problem."""
    return _parsed(CartFilter(), _CART_READERS, where, terms, reading)


def _parsed(
    wanted: Filter, readers: Readers[Filter], where: str, terms: Iterable[Term], reading: Reading
) -> Filter:
    problems: list[Problem] = []
    for key, value in [*_terms(where, problems), *terms]:
        try:
            wanted = readers[key](wanted, value, reading)
        except KeyError:
            message = f"unknown filter {quoted(key)}"
            problems.append(Problem(message, "where", hint=did_you_mean(key, readers)))
        except ValueError as error:
            problems.append(Problem(f"{key}: {error}", "where"))
    if problems:
        raise Invalid(
            "the filter cannot be read",
            problems,
            code="bad_filter",
            hint=f"keys are {', '.join(readers)}, as in state:failed",
        )
    return wanted


def _terms(where: str, problems: list[Problem]) -> Iterator[Term]:
    for word in _WORD.findall(where):
        key, colon, value = word.partition(":")
        if colon and value:
            yield key.lower(), _QUOTES.sub("", value)
        else:
            problems.append(Problem(f"{quoted(word)} is not of the form key:value", "where"))


def _state(wanted: RunFilter, value: str, _: Reading) -> RunFilter:
    return _among(wanted, states_named(value, RunState))


def states_named(value: str, kind: type[State]) -> frozenset[State]:
    """Parse states like `failed,timed_out`; raise ValueError naming an unknown one."""
    names = value.lower().split(",")
    known = {state.lower(): state for state in kind}
    for name in names:
        if name not in known:
            raise ValueError(f"{quoted(name)} is not a state: {_nearest(name, known)}")
    return frozenset(known[name] for name in names)


def _nearest(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, known) or f"write {listed(known)}"


def _active(wanted: RunFilter, value: str, _: Reading) -> RunFilter:
    return _among(wanted, ACTIVE_STATES if _is_true(value) else FINAL_STATES)


def _is_true(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError(f"true or false, not {quoted(value)}")
    return value.lower() == "true"


def _among(wanted: RunFilter, states: frozenset[RunState]) -> RunFilter:
    return replace(wanted, states=states if wanted.states is None else wanted.states & states)


def _job(wanted: RunFilter, value: str, _: Reading) -> RunFilter:
    if wanted.job_like not in {None, value}:
        raise ValueError("is there twice")
    return replace(wanted, job_like=value)


def _trigger(wanted: RunFilter, value: str, _: Reading) -> RunFilter:
    trigger = value.lower()
    if trigger not in list(Trigger):
        raise ValueError(f"{quoted(value)} is not one of {listed(Trigger)}")
    return replace(wanted, trigger=Trigger(trigger))


def _backfill(wanted: RunFilter, value: str, _: Reading) -> RunFilter:
    if wanted.backfill not in {None, value}:
        raise ValueError("is there twice")
    return replace(wanted, backfill=BackfillId(value))


def _cart(wanted: RunFilter, value: str, _: Reading) -> RunFilter:
    if wanted.cart not in {None, value}:
        raise ValueError("is there twice")
    return replace(wanted, cart=CartId(value))


def _since(wanted: RunFilter, value: str, reading: Reading) -> RunFilter:
    return replace(wanted, since=read_instant(value, reading))


def _until(wanted: RunFilter, value: str, reading: Reading) -> RunFilter:
    return replace(wanted, until=read_instant(value, reading))


def _cart_state(wanted: CartFilter, value: str, _: Reading) -> CartFilter:
    return _among_carts(wanted, states_named(value, CartState))


def _active_carts(wanted: CartFilter, value: str, _: Reading) -> CartFilter:
    states = ACTIVE_CART_STATES if _is_true(value) else FINAL_CART_STATES
    return _among_carts(wanted, states)


def _among_carts(wanted: CartFilter, states: frozenset[CartState]) -> CartFilter:
    return replace(wanted, states=states if wanted.states is None else wanted.states & states)


def _name(wanted: CartFilter, value: str, _: Reading) -> CartFilter:
    if wanted.name_like not in {None, value}:
        raise ValueError("is there twice")
    return replace(wanted, name_like=value)


_READERS: Readers[RunFilter] = {
    "state": _state,
    "job": _job,
    "trigger": _trigger,
    "backfill": _backfill,
    "cart": _cart,
    "since": _since,
    "until": _until,
    "active": _active,
}
_CART_READERS: Readers[CartFilter] = {
    "state": _cart_state,
    "name": _name,
    "active": _active_carts,
}


T = TypeVar("T")
A = TypeVar("A", bound=Answer)
Position = TypeVar("Position", str, int)

ME = "me"  # how callers call themselves
MAX_LIMIT = 1_000
MAX_INTEGER = 2**63 - 1  # what every store can compare
_MAX_CURSOR = 1_000
_MICROS = re.compile(r"[0-9]{1,20}")

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="how many at most")]
CreatedBy = Annotated[
    str | None,
    Query(
        pattern=r"^[^\x00-\x1f\x7f]{1,200}$",
        description="only what is yours (`me`), or for admins anybody's by handle",
    ),
]
Cursor = Annotated[
    str | None, Query(max_length=_MAX_CURSOR, description="`next_cursor` of the part before")
]


def creator_meant(caller: Caller, project: ProjectSet, created_by: str | None) -> str | None:
    """Return whose things a list is about; None: everybody's.

    Only admins of the project ask for others, and in several projects those of the installation.
    """
    if not created_by:
        return None
    if created_by in (ME, caller.name):
        return caller.name
    caller.require(Role.ADMIN, project if isinstance(project, str) else INSTALLATION, Verb.READ)
    return created_by


def encode_cursor(kind: str, position: str | int) -> str:
    """Encode a cursor for one kind of list; no other kind accepts it."""
    text = json.dumps([kind, position], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None, default: Position) -> Position:
    """Decode the position where the list continues; return `default` without a cursor."""
    if cursor is None:
        return default
    try:
        data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        given, position = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        given, position = None, None
    if given == kind and type(position) is type(default) and _is_usable(position):
        return position
    raise bad_cursor()


def encode_age(kind: str, created_at: datetime, ident: str) -> str:
    """Encode the cursor of a list that is in order of age."""
    return encode_cursor(kind, f"{micros(created_at)} {ident}")


def decode_age(kind: str, cursor: str | None) -> tuple[datetime, str] | None:
    """Return creation time and id of the previous page's last entry; None: the first page."""
    if cursor is None:
        return None
    at, _, ident = decode_cursor(kind, cursor, "").partition(" ")
    if not _MICROS.fullmatch(at) or int(at) > LAST_MICROS:
        raise bad_cursor()
    return instant(int(at)), ident


def bad_cursor() -> Invalid:
    return Invalid(
        "this cursor does not belong to this list",
        code="bad_cursor",
        hint="use `next_cursor` as it came, or leave it out to begin anew",
    )


def _is_usable(position: str | int) -> bool:
    if isinstance(position, int):
        return 0 <= position <= MAX_INTEGER
    return position.isprintable()  # lone surrogates are not


def page(
    found: Sequence[T], limit: int, answer: Callable[[T], A], cursor: Callable[[T], str]
) -> Page[A]:
    """Build a page; `found` has one entry more than fits if there are more pages."""
    part = found[:limit]
    next_cursor = cursor(part[-1]) if len(found) > limit else None
    return Page(items=tuple(map(answer, part)), next_cursor=next_cursor)

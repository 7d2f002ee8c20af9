"""The filter grammar of lists: `state:failed job:nightly-* since:6h`.

Terms are separated by spaces and must all hold; quotes keep a value with spaces together, as in
`since:"today 14:00"`. `state` takes several values, separated by commas; letters of either case
mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from rota.domain.carts.states import FINAL_CART_STATES, CartState
from rota.domain.errors import Invalid, Problem
from rota.domain.ids import BackfillId, CartId
from rota.domain.run import Trigger
from rota.domain.schedule.expressions import Reading, read_instant
from rota.domain.states import FINAL_STATES, RunState
from rota.domain.wording import did_you_mean, listed, quoted

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
    """Which runs are wanted."""

    states: frozenset[RunState] | None = None  # None: any; empty: no run can match
    job_like: str | None = None  # with `*` wildcards
    trigger: Trigger | None = None
    backfill: BackfillId | None = None
    cart: CartId | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class CartFilter:
    """Which carts are wanted."""

    states: frozenset[CartState] | None = None  # None: any; empty: no cart can match
    name_like: str | None = None  # with `*` wildcards


def parse_filter(where: str, terms: Iterable[Term], reading: Reading) -> RunFilter:
    """The filter that a text and single terms make together; `Invalid` names all that is wrong."""
    return _parsed(RunFilter(), _READERS, where, terms, reading)


def parse_cart_filter(where: str, terms: Iterable[Term], reading: Reading) -> CartFilter:
    """The filter of carts, likewise."""
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
    """The states of a list like `failed,timed_out`; a ValueError says which is none."""
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

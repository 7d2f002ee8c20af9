"""The filter grammar of every list of runs: `state:failed job:nightly-* since:6h`.

Terms are separated by spaces and must all hold. `state` takes several values, separated by
commas; letters of either case mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rota.domain.durations import parse_duration
from rota.domain.errors import Invalid, Problem
from rota.domain.ids import BackfillId
from rota.domain.jobfile.wording import did_you_mean, listed
from rota.domain.run import Trigger
from rota.domain.schedule.quoting import quoted
from rota.domain.schedule.written_times import read_instant
from rota.domain.states import FINAL_STATES, RunState

Term = tuple[str, str]  # key and value
ACTIVE_STATES = frozenset(RunState) - FINAL_STATES
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)  # a day of room for every offset


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are wanted."""

    states: frozenset[RunState] | None = None  # None: any; empty: no run can match
    job_like: str | None = None  # with `*` wildcards
    trigger: Trigger | None = None
    backfill: BackfillId | None = None
    since: datetime | None = None
    until: datetime | None = None


def parse_filter(where: str, terms: Iterable[Term], now: datetime) -> RunFilter:
    """The filter that a text and single terms make together; `Invalid` names all that is wrong."""
    wanted = RunFilter()
    problems: list[Problem] = []
    for key, value in [*_terms(where, problems), *terms]:
        try:
            wanted = _READERS[key](wanted, value, now)
        except KeyError:
            message = f"unknown filter {quoted(key)}"
            problems.append(Problem(message, "where", hint=did_you_mean(key, _READERS)))
        except ValueError as error:
            problems.append(Problem(f"{key}: {error}", "where"))
    if problems:
        raise Invalid(
            "the filter cannot be read",
            problems,
            code="bad_filter",
            hint=f"keys are {', '.join(_READERS)}, as in state:failed since:6h",
        )
    return wanted


def _terms(where: str, problems: list[Problem]) -> Iterator[Term]:
    for word in where.split():
        key, colon, value = word.partition(":")
        if colon and value:
            yield key.lower(), value
        else:
            problems.append(Problem(f"{quoted(word)} is not of the form key:value", "where"))


def _state(wanted: RunFilter, value: str, _: datetime) -> RunFilter:
    names = value.lower().split(",")
    known = {state.lower(): state for state in RunState}
    for name in names:
        if name not in known:
            raise ValueError(f"{quoted(name)} is not a state: {_nearest(name, known)}")
    return _among(wanted, frozenset(known[name] for name in names))


def _nearest(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, known) or f"write {listed(known)}"


def _active(wanted: RunFilter, value: str, _: datetime) -> RunFilter:
    match value.lower():
        case "true":
            return _among(wanted, ACTIVE_STATES)
        case "false":
            return _among(wanted, FINAL_STATES)
        case _:
            raise ValueError(f"true or false, not {quoted(value)}")


def _among(wanted: RunFilter, states: frozenset[RunState]) -> RunFilter:
    return replace(wanted, states=states if wanted.states is None else wanted.states & states)


def _job(wanted: RunFilter, value: str, _: datetime) -> RunFilter:
    if wanted.job_like not in {None, value}:
        raise ValueError("is there twice")
    return replace(wanted, job_like=value)


def _trigger(wanted: RunFilter, value: str, _: datetime) -> RunFilter:
    trigger = value.lower()
    if trigger not in list(Trigger):
        raise ValueError(f"{quoted(value)} is not one of {listed(Trigger)}")
    return replace(wanted, trigger=Trigger(trigger))


def _backfill(wanted: RunFilter, value: str, _: datetime) -> RunFilter:
    if wanted.backfill not in {None, value}:
        raise ValueError("is there twice")
    return replace(wanted, backfill=BackfillId(value))


def _since(wanted: RunFilter, value: str, now: datetime) -> RunFilter:
    return replace(wanted, since=_instant(value, now))


def _until(wanted: RunFilter, value: str, now: datetime) -> RunFilter:
    return replace(wanted, until=_instant(value, now))


def _instant(value: str, now: datetime) -> datetime:
    """A time with its offset, or how long ago."""
    if "-" not in value and ":" not in value:
        return now - min(parse_duration(value), now - _EARLIEST)
    return read_instant(value, None)


_READERS: Mapping[str, Callable[[RunFilter, str, datetime], RunFilter]] = {
    "state": _state,
    "job": _job,
    "trigger": _trigger,
    "backfill": _backfill,
    "since": _since,
    "until": _until,
    "active": _active,
}

"""Looks at a few jobs or runs, of many callers at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rota.domain.job import Job
from rota.domain.run import Run
from rota.ports.records import JobQuery, RunQuery
from rota.store.script import Script
from rota.store.scripts import reading

Found = TypeVar("Found")
Id = TypeVar("Id", bound=str)


def jobs_by_id(queries: Sequence[JobQuery]) -> Script[list[list[Job]]]:
    """What each of these finds by id; all in one project."""
    wanted = [each.ids or () for each in queries]
    found = yield from reading.jobs(replace(queries[0], ids=_all(wanted)))
    return _of_each({job.id: job for job in found}, wanted)


def jobs_by_name(queries: Sequence[JobQuery]) -> Script[list[list[Job]]]:
    """What each of these finds by name; all in one project."""
    wanted = [each.names or () for each in queries]
    found = yield from reading.jobs(replace(queries[0], names=_all(wanted)))
    return _of_each({job.name: job for job in found}, wanted)


def runs_by_id(queries: Sequence[RunQuery]) -> Script[list[list[Run]]]:
    """What each of these finds by id; all in one project."""
    wanted = [each.ids or () for each in queries]
    found = yield from reading.runs(replace(queries[0], ids=_all(wanted)))
    return _of_each({run.id: run for run in found}, wanted)


def served_pools(callers: Sequence[None]) -> Script[list[frozenset[str]]]:
    """The pools that have workers, for all who ask."""
    return [(yield from reading.served_pools())] * len(callers)


def _all(wanted: Iterable[Iterable[Id]]) -> list[Id]:
    return sorted({each for some in wanted for each in some})


def _of_each(found: Mapping[str, Found], wanted: Iterable[Iterable[str]]) -> list[list[Found]]:
    """To each what it wants, in the order in which all was found."""
    places = {key: place for place, key in enumerate(found)}
    inside = [sorted(set(some) & places.keys(), key=places.__getitem__) for some in wanted]
    return [[found[key] for key in some] for some in inside]

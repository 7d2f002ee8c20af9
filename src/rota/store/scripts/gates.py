"""Holding the gates of jobs: whoever holds one is alone in looking at what counts there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import groupby
from typing import TypeAlias

from rota.store.script import LookAgain, Script, lock, query
from rota.store.scripts.gatekeeper import job_rules

HoldGates: TypeAlias = Callable[[Collection[str]], Script[set[str]]]


def hold_gates(jobs: Collection[str]) -> Script[set[str]]:
    """Until the transaction ends; all at once, for the order of locks."""
    if jobs:
        yield lock("gates", ids=sorted(jobs))
    return set(jobs)


def hold_when_read(jobs: Collection[str]) -> Script[set[str]]:
    """The same, for who goes on to read where their schedules stand: that locks them."""
    yield from ()
    return set(jobs)


def hold_free_gates(jobs: Collection[str]) -> Script[set[str]]:
    """Those of the gates that nobody else holds, which are returned."""
    if not jobs:
        return set()
    return {row["job_id"] for row in (yield query("free_gates", ids=sorted(jobs)))}


def hold_gates_of(runs: Collection[str], jobs: Collection[str] = ()) -> Script[set[str]]:
    """The gates at which these runs count, and those of `jobs`. Most runs count at none."""
    gates = set(jobs)
    if runs:
        gates |= {row["job_id"] for row in (yield query("gates_of_runs", ids=runs))}
    return (yield from hold_gates(gates))


def hold_gates_of_jobs(runs: Collection[str]) -> Script[set[str]]:
    """The gates of the jobs of these runs, whether they count there or not."""
    rows = yield query("jobs_of_runs", ids=runs)
    return (yield from hold_gates({row["job_id"] for row in rows}))


def hold_gates_to_submit(jobs: Collection[str]) -> Script[None]:
    """Where a job lets any number of runs go, those who submit do not wait for one another.

    A pause waits for them in either case.
    """
    limited = yield from _limited(jobs)
    for is_limited, group in groupby(sorted(jobs), limited.__contains__):
        yield lock("gates" if is_limited else "open_gates", ids=list(group))
    if not (yield from _limited(jobs)) <= limited:
        raise LookAgain("a job got a limit meanwhile")


def _limited(jobs: Collection[str]) -> Script[set[str]]:
    rows = yield query("job_gates", ids=jobs)
    return {row["id"] for row in rows if job_rules(row).max_concurrency is not None}

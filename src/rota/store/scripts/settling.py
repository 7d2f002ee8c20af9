"""What follows from the end of attempts: charges, durations, tallies, events, released runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from rota.domain.lateness import bound_of
from rota.domain.order import cost_of
from rota.domain.states import FINAL_STATES, RunState, is_final
from rota.store.script import LookAgain, Many, Script, query
from rota.store.scripts.following_jobs import leave_ends
from rota.store.scripts.lines import pool_of
from rota.store.scripts.releasing import release_jobs
from rota.store.tx import Tx

_MEMORY = 0.2  # weight of the newest duration in a job's moving average


class Ended(NamedTuple):
    """An attempt that has ended. A tuple, as thousands are made in one transaction."""

    run: str
    attempt: int
    job_id: str
    job: str
    chain: str
    capacity: float  # fraction of the pool it was charged for
    expected: float  # seconds
    claimed_at: int
    started_at: int | None
    ended_at: int
    state: str  # of the run now
    cause: str
    delay: int | None  # microseconds from release to first start; None: no start, or a backfill
    gate: str | None  # the job at whose gate the run counts
    cart: str | None
    keys: str | None  # shared ones that it held

    @property
    def seconds(self) -> float:
        return (self.ended_at - (self.started_at or self.claimed_at)) / 1e6


def settle(tx: Tx, ends: Sequence[Ended], gates: Collection[str], *, actor: str) -> Script[None]:
    """Correct what ended attempts were charged, learn from them, and wake who waited for them.

    `gates` are the jobs whose gates the transaction holds: those that may have to let others go.
    """
    if not ends:
        return
    if not {end.gate for end in ends} <= {None, *gates}:
        raise LookAgain("a job got a limit before its run was locked")
    tx.effects.keys |= any(end.keys for end in ends)
    _correct_charges(tx, ends)
    _count_delays(tx, ends)
    yield from _learn_durations(ends)
    groups: dict[tuple[str, str], list[Ended]] = defaultdict(list)
    for end in ends:
        groups[end.state, end.cause].append(end)
    for (state, cause), group in groups.items():
        yield _tell(tx, RunState(state), cause, group, actor)
        if is_final(RunState(state)):
            tx.effects.ends.update((end.job, state) for end in group)
            tx.effects.carts |= any(end.cart for end in group)
    tx.effects.times |= any(state == RunState.SCHEDULED for state, _ in groups)
    yield from _wake_jobs(tx, ends)
    yield from release_jobs(tx, gates)


def _wake_jobs(tx: Tx, ends: Sequence[Ended]) -> Script[None]:
    """Schedules that count from the end of a run, and jobs that follow others."""
    awaited = yield query("awaited_jobs", ids={end.job_id for end in ends})
    tx.effects.times |= any(row["waits"] for row in awaited)
    followed = {row["job_id"] for row in awaited if row["is_followed"]}
    if followed:
        runs = [e.run for e in ends if e.job_id in followed and e.state == RunState.COMPLETED]
        yield from leave_ends(tx, runs)


def _correct_charges(tx: Tx, ends: Sequence[Ended]) -> None:
    """What was charged was expected; the truth acts on what still waits."""
    for end in ends:
        charged = cost_of(end.expected, end.capacity)
        tx.effects.lines.charge(end.chain, cost_of(end.seconds, end.capacity) - charged)


def _learn_durations(ends: Sequence[Ended]) -> Script[None]:
    durations: dict[str, list[float]] = defaultdict(list)
    for end in ends:
        if end.state == RunState.COMPLETED:
            durations[end.job_id].append(end.seconds)
    if not durations:
        return
    rows = yield query("expected_durations", ids=durations)
    updates = []
    for row in rows:
        seconds, old = durations[row["id"]], row["expected_seconds"]
        mean = sum(seconds) / len(seconds)
        keep = (1 - _MEMORY) ** len(seconds)
        updates.append((mean if old is None else old * keep + mean * (1 - keep), row["id"]))
    yield Many("set_expected_seconds", updates, exactly=False)  # a job may be busy changing


def _count_delays(tx: Tx, ends: Sequence[Ended]) -> None:
    """Each run counts once, at its end."""
    for end in ends:
        if end.delay is not None and end.state in FINAL_STATES:
            delay = end.delay / 1e6
            tx.effects.delays[pool_of(end.chain), bound_of(delay)].append(delay)


def _tell(tx: Tx, state: RunState, cause: str, group: Sequence[Ended], actor: str) -> Many:
    return tx.record(
        "run.finished" if is_final(state) else f"run.{state.lower()}",
        [end.run for end in group],
        actor=actor,
        state=state,
        cause=cause,
        attempts=[end.attempt for end in group],
    )

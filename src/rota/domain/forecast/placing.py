"""Runs of the time ahead, placed on the workers by the code that schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from math import inf

from rota.domain.forecast.ahead import JOB_GATE, WORKER_GATE, RunAhead, Setting, Successors
from rota.domain.forecast.at_once import all_start_at_once
from rota.domain.forecast.plain_pools import Contended, PlainPools
from rota.domain.resources import SLOTS, UNIT
from rota.domain.shared_keys import Key
from rota.domain.simulation.model import Observer, SimRun
from rota.domain.simulation.world import World

MOST_DECIDED = 50_000  # runs of which a forecast finds out who goes first
_OF_A_JOB = "job:"  # how the simulation calls the limit of a job


@dataclass(frozen=True, slots=True)
class Program:
    """All that is to be placed."""

    going: Sequence[RunAhead]  # what workers have already; their start is known
    coming: Sequence[RunAhead]  # in order of their time
    # What comes because of others, as it is before anything has started; None: nothing does.
    successors: Callable[[], Successors] | None = None
    links: Collection[tuple[str, str]] = ()  # pools in one of which runs come because of the other
    # What goes on at workers that take no more, or for which nobody answers: it is no load, but
    # keeps its keys and its job's limit.
    outside: Sequence[RunAhead] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    runs: Sequence[RunAhead]  # with what came because of others; in no order
    is_cut: bool = False  # so many wait for one another that only the next ones were looked at


def place(program: Program, setting: Setting, until: float) -> Placed:
    """Find when each run starts."""
    known = chain(_all(program), program.outside)
    contested = {run.job.pool for run in known if not run.job.is_plain}
    while True:
        together = _grown(contested, program.links)
        successors = _Recorded(program.successors()) if program.successors else None
        try:
            _place_plain(program, setting, until, successors, together)
        except Contended as error:
            contested.add(error.pool)
            _forget(program)
            continue
        is_cut = _decide(program, setting, until, successors, together)
        more = [*successors.made, *successors.left()] if successors else ()
        return Placed([*_all(program), *more], is_cut)


class _Recorded:
    """Keeps what comes because of others."""

    def __init__(self, successors: Successors) -> None:
        self._successors = successors
        self.made: list[RunAhead] = []

    def follow(self, run: RunAhead) -> Sequence[RunAhead]:
        made = self._successors.follow(run)
        self.made += made
        return made

    def left(self) -> Sequence[RunAhead]:
        return self._successors.left()


def _all(program: Program) -> Iterable[RunAhead]:
    yield from program.going
    yield from program.coming


def _forget(program: Program) -> None:
    for run in program.coming:
        run.start_at, run.waits_for = inf, ""


def _grown(pools: Collection[str], links: Collection[tuple[str, str]]) -> set[str]:
    """With those whose runs depend on one of them."""
    grown = set(pools)
    while more := {pool for link in links if grown.intersection(link) for pool in link} - grown:
        grown |= more
    return grown


def _place_plain(
    program: Program,
    setting: Setting,
    until: float,
    successors: Successors | None,
    contested: Collection[str],
) -> None:
    slots: Counter[str] = Counter()
    for worker in setting.workers:
        slots[worker.pool] += worker.capacity.get(SLOTS, 0) // UNIT
    going, outside, coming = (
        [run for run in runs if run.job.pool not in contested] if contested else runs
        for runs in (program.going, program.outside, program.coming)
    )
    if not (outside or successors) and all_start_at_once(slots, going, coming):
        for run in takewhile(lambda run: run.ready_at <= until, coming):
            run.start_at = run.ready_at
        return
    pools = PlainPools(slots, successors)
    for run in going:
        pools.go_on(run)
    for run in outside:
        pools.go_on_outside(run)
    pools.run(coming, until)


def _decide(
    program: Program,
    setting: Setting,
    until: float,
    successors: Successors | None,
    contested: Collection[str],
) -> bool:
    """Let the simulated world decide; returns whether there was too much of it."""
    if not contested:
        return False
    world = World(setting.workers, setting.rules, setting.weights, levels=setting.levels)
    watcher = _Watcher(world, successors)
    going = [run for run in (*program.going, *program.outside) if run.job.pool in contested]
    coming = [run for run in program.coming if run.job.pool in contested]
    for run in going:
        watcher.go_on(run)
    until = coming[MOST_DECIDED].ready_at if len(coming) > MOST_DECIDED else until
    world.simulate(map(watcher.known, coming[:MOST_DECIDED]), until, watcher)
    return len(coming) > MOST_DECIDED


class _Watcher(Observer):
    """Writes down what happens in the world, and lets come what follows from it."""

    def __init__(self, world: World, successors: Successors | None) -> None:
        self._world = world
        self._successors = successors
        self._runs: dict[str, RunAhead] = {}

    def known(self, run: RunAhead) -> SimRun:
        name = str(len(self._runs))
        self._runs[name] = run
        job = run.job
        return SimRun(
            id=name,
            job=job.id,
            arrives_at=run.arrives_at,
            seconds=run.seconds,
            pool=job.pool,
            priority=job.priority,
            share=job.share,
            shape=job.shape,
            timeout=job.timeout,
            expected=job.durations.usual,
            demands=job.demands,
            group=job.group,
            limit=job.limit,
            created_at=run.created_at,
        )

    def go_on(self, run: RunAhead) -> None:
        self._world.preload_running(self.known(run), run.worker, run.start_at)
        self._follow(run)

    def on_blocked(self, run: SimRun, key: Key, at: float, eligible_at: float | None) -> None:
        found = self._runs[run.id]
        if key.startswith(_OF_A_JOB):
            key = JOB_GATE
        elif key.startswith(f"{WORKER_GATE}:"):
            key = WORKER_GATE
        found.waits_for = found.waits_for or key

    def on_start(self, run: SimRun, worker: str, at: float) -> None:
        found = self._runs[run.id]
        found.start_at = at
        if at > found.ready_at:
            found.waits_for = found.waits_for or WORKER_GATE
        self._follow(found)

    def _follow(self, run: RunAhead) -> None:
        if self._successors is None or run.end_at == inf:
            return
        for follower in self._successors.follow(run):
            self._world.come_later(self.known(follower))

"""Placement of coming runs on workers: when each starts, decided by the code that schedules.

`place` tries the cheapest way that is exact, as most of the time nothing waits. If every run finds
a slot at its time, it starts then (`all_start_at_once`). In pools where any worker will do and at
most one chain waits, runs go by age (`PlainPools`): the simulated world would find the same, many
times slower. Where chains compete, `PlainPools` raises `Contended`, and `_decide` simulates that
pool together with all pools whose runs depend on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count, islice, takewhile
from math import inf
from operator import le

from rota.domain.forecast.ahead import (
    JOB_GATE,
    WORKER_GATE,
    JobAhead,
    RunAhead,
    Setting,
    Successors,
)
from rota.domain.keys import Key
from rota.domain.resources import SLOTS, UNIT
from rota.domain.simulation.model import Observer, SimRun
from rota.domain.simulation.world import World


def all_start_at_once(
    slots: Mapping[str, int], going: Iterable[RunAhead], coming: Iterable[RunAhead]
) -> bool:
    """Return whether every run finds a slot at its time, and room in the limit of its job.

    Any slot of a pool will do for each of them.
    """
    bounds = _Bounds(slots)
    for run in going:
        bounds.enter(run, run.start_at)
    for run in coming:
        bounds.enter(run, run.ready_at)
    return bounds.are_enough


@dataclass(slots=True)
class _Bound:
    """Bound on concurrent runs, with when each comes and goes."""

    most: int
    comes: list[float] = field(default_factory=list)
    goes: list[float] = field(default_factory=list)

    @property
    def is_enough(self) -> bool:
        """Return whether the bound is never exceeded."""
        self.comes.sort()
        self.goes.sort()
        return all(map(le, self.goes, islice(self.comes, self.most, None)))


class _Bounds:
    """Bounds of all pools (slots) and jobs (limits)."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._slots = slots
        self._pools: dict[str, _Bound] = {}
        self._groups: dict[str, _Bound] = {}
        self._of_jobs: dict[JobAhead, tuple[_Bound, ...]] = {}

    @property
    def are_enough(self) -> bool:
        return all(bound.is_enough for bound in chain(self._pools.values(), self._groups.values()))

    def enter(self, run: RunAhead, at: float) -> None:
        bounds = self._of_jobs.get(run.job)
        if bounds is None:
            bounds = self._of_jobs[run.job] = tuple(self._bounds(run.job))
        end = at + run.seconds
        for bound in bounds:
            bound.comes.append(at)
            bound.goes.append(end)

    def _bounds(self, job: JobAhead) -> Iterator[_Bound]:
        yield self._pools.setdefault(job.pool, _Bound(self._slots.get(job.pool, 0)))
        if job.limit is not None:
            group = self._groups.setdefault(job.group, _Bound(job.limit))
            group.most = min(group.most, job.limit)
            yield group


_DROP, _END, _OUTSIDE_END, _ARRIVAL = range(4)  # at one instant, what is too late goes first


class Contended(Exception):
    """Signal that runs of several chains wait for one pool."""

    def __init__(self, pool: str) -> None:
        super().__init__(pool)
        self.pool = pool


class PlainPools:
    """Placement in pools where runs start as soon as a slot is free."""

    def __init__(self, slots: Mapping[str, int], successors: Successors | None) -> None:
        self._free = defaultdict(int, slots)
        self._successors = successors
        self._queues: dict[str, list[tuple[int, RunAhead]]] = defaultdict(list)  # by age
        self._going: dict[str, int] = defaultdict(int)  # by group
        self._held_back: dict[str, deque[tuple[int, RunAhead]]] = defaultdict(deque)  # by group
        self._events: list[tuple[float, int, int, RunAhead]] = []
        self._numbers = count()
        self._queued: set[RunAhead] = set()  # of those that may be dropped

    def go_on(self, run: RunAhead) -> None:
        """Add a run that a worker has already."""
        self._free[run.job.pool] -= 1
        if run.job.limit is not None:
            self._going[run.job.group] += 1
        self._begin(run, run.start_at)

    def go_on_outside(self, run: RunAhead) -> None:
        """Add a run at a worker whose slots are none of these."""
        if run.job.limit is not None:
            self._going[run.job.group] += 1
        self._begin(run, run.start_at, _OUTSIDE_END)

    def run(self, runs: Iterable[RunAhead], until: float) -> None:
        """Place all runs, given in order of their time. `Contended`: it cannot be done here."""
        events = self._events
        for run in runs:
            at = run.ready_at
            if at > until:
                break
            if events and events[0][0] <= at:
                self._pass_time(at)
            self._arrive(run, at)
        self._pass_time(until)

    def _pass_time(self, until: float) -> None:
        events = self._events
        while events and events[0][0] <= until:
            at, kind, _, run = heappop(events)
            if kind == _ARRIVAL:
                self._arrive(run, at)
                continue
            if kind == _DROP:
                self._drop(run, at)
                continue
            self._let_next_go(run.job, at)  # first: it may be older than what is in the queue
            if kind == _END:
                self._free_slot(run.job.pool, at)

    def _arrive(self, run: RunAhead, at: float) -> None:
        if run.drop_at > at:
            self._let_in(next(self._numbers), run, at)

    def _let_in(self, age: int, run: RunAhead, at: float) -> None:
        job = run.job
        if job.limit is not None:
            if self._going[job.group] >= job.limit:
                run.waits_for = run.waits_for or JOB_GATE
                self._held_back[job.group].append((age, run))
                self._drop_later(run)
                return
            self._going[job.group] += 1
        if self._free[job.pool] > 0:
            self._free[job.pool] -= 1
            self._begin(run, at)
        else:
            self._queue(age, run)

    def _queue(self, age: int, run: RunAhead) -> None:
        job, queue = run.job, self._queues[run.job.pool]
        if self._next(queue):
            first = queue[0][1].job
            if (first.priority, first.share) != (job.priority, job.share):
                raise Contended(job.pool)
        run.waits_for = run.waits_for or WORKER_GATE
        heappush(queue, (age, run))
        if run.drop_at < inf:
            self._queued.add(run)
            self._drop_later(run)

    def _next(self, queue: list[tuple[int, RunAhead]]) -> bool:
        """Return whether a run waits in a queue, whose first is not dropped then."""
        while queue and queue[0][1].drop_at < inf and queue[0][1] not in self._queued:
            heappop(queue)
        return bool(queue)

    def _drop_later(self, run: RunAhead) -> None:
        if run.drop_at < inf:
            heappush(self._events, (run.drop_at, _DROP, next(self._numbers), run))

    def _drop(self, run: RunAhead, at: float) -> None:
        """Miss a run that still waits; one that its job holds back is passed over later."""
        if run in self._queued:
            self._queued.discard(run)
            self._let_next_go(run.job, at)

    def _begin(self, run: RunAhead, at: float, ends: int = _END) -> None:
        run.start_at = at
        heappush(self._events, (at + run.seconds, ends, next(self._numbers), run))
        if self._successors is not None and run.seconds < inf:
            for follower in self._successors.follow(run):
                event = follower.arrives_at, _ARRIVAL, next(self._numbers), follower
                heappush(self._events, event)

    def _free_slot(self, pool: str, at: float) -> None:
        queue = self._queues[pool]
        if self._next(queue):
            run = heappop(queue)[1]
            self._queued.discard(run)
            self._begin(run, at)
        else:
            self._free[pool] += 1

    def _let_next_go(self, job: JobAhead, at: float) -> None:
        if job.limit is not None:
            self._going[job.group] -= 1
            held_back = self._held_back[job.group]
            while held_back and held_back[0][1].drop_at <= at:
                held_back.popleft()
            if held_back:
                self._let_in(*held_back.popleft(), at)


MOST_DECIDED = 50_000  # runs of which a forecast finds out who goes first
_OF_A_JOB = "job:"  # how the simulation calls the limit of a job


@dataclass(frozen=True, slots=True)
class Program:
    """Program of a forecast: all runs that are to be placed."""

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
        together = _with_dependents(contested, program.links)
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
    """Recorder of runs that come because of others."""

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


def _with_dependents(pools: Collection[str], links: Collection[tuple[str, str]]) -> set[str]:
    """Add the pools whose runs depend on one of them."""
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
    """Simulate the contended pools; return whether there was too much to simulate."""
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
    """Observer that records starts, and adds the runs that follow from them."""

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
            drop_at=run.drop_at,
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

    def on_drop(self, run: SimRun, at: float) -> None:
        found = self._runs[run.id]
        found.waits_for = found.waits_for or WORKER_GATE

    def _follow(self, run: RunAhead) -> None:
        if self._successors is None or run.end_at == inf:
            return
        for follower in self._successors.follow(run):
            self._world.come_later(self.known(follower))

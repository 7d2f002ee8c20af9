"""Pools in which there is nothing to decide: any worker will do, and one line waits at most.

Inside a line runs go by age. So this finds exactly what the simulated world would, many times
faster; where two lines wait for one pool it gives up, as then somebody has to say who goes first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from math import inf

from rota.domain.forecast.ahead import JOB_GATE, WORKER_GATE, JobAhead, RunAhead, Successors

_END, _OUTSIDE_END, _ARRIVAL = range(3)  # at one instant, what ends goes first


class Contended(Exception):
    """Runs of several lines wait for one pool."""

    def __init__(self, pool: str) -> None:
        super().__init__(pool)
        self.pool = pool


class PlainPools:
    """Lets runs start as soon as their pool has a slot free."""

    def __init__(self, slots: Mapping[str, int], successors: Successors | None) -> None:
        self._free = defaultdict(int, slots)
        self._successors = successors
        self._queues: dict[str, list[tuple[int, RunAhead]]] = defaultdict(list)  # by age
        self._going: dict[str, int] = defaultdict(int)  # by group
        self._held_back: dict[str, deque[tuple[int, RunAhead]]] = defaultdict(deque)  # by group
        self._events: list[tuple[float, int, int, RunAhead]] = []
        self._numbers = count()

    def go_on(self, run: RunAhead) -> None:
        """A run that a worker has already."""
        self._free[run.job.pool] -= 1
        if run.job.limit is not None:
            self._going[run.job.group] += 1
        self._begin(run, run.start_at)

    def go_on_outside(self, run: RunAhead) -> None:
        """The same of a worker whose slots are none of these."""
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
            self._let_next_go(run.job, at)  # first: it may be older than what is in the queue
            if kind == _END:
                self._free_slot(run.job.pool, at)

    def _arrive(self, run: RunAhead, at: float) -> None:
        self._let_in(next(self._numbers), run, at)

    def _let_in(self, age: int, run: RunAhead, at: float) -> None:
        job = run.job
        if job.limit is not None:
            if self._going[job.group] >= job.limit:
                run.waits_for = run.waits_for or JOB_GATE
                self._held_back[job.group].append((age, run))
                return
            self._going[job.group] += 1
        if self._free[job.pool] > 0:
            self._free[job.pool] -= 1
            self._begin(run, at)
        else:
            self._queue(age, run)

    def _queue(self, age: int, run: RunAhead) -> None:
        job, queue = run.job, self._queues[run.job.pool]
        if queue:
            line = queue[0][1].job
            if (line.priority, line.share) != (job.priority, job.share):
                raise Contended(job.pool)
        run.waits_for = run.waits_for or WORKER_GATE
        heappush(queue, (age, run))

    def _begin(self, run: RunAhead, at: float, ends: int = _END) -> None:
        run.start_at = at
        heappush(self._events, (at + run.seconds, ends, next(self._numbers), run))
        if self._successors is not None and run.seconds < inf:
            for follower in self._successors.follow(run):
                event = follower.arrives_at, _ARRIVAL, next(self._numbers), follower
                heappush(self._events, event)

    def _free_slot(self, pool: str, at: float) -> None:
        if queue := self._queues[pool]:
            self._begin(heappop(queue)[1], at)
        else:
            self._free[pool] += 1

    def _let_next_go(self, job: JobAhead, at: float) -> None:
        if job.limit is not None:
            self._going[job.group] -= 1
            if held_back := self._held_back[job.group]:
                self._let_in(*held_back.popleft(), at)

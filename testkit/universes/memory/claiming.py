"""Giving queued runs to a worker: order of service, placement, shared keys."""

from __future__ import annotations

from dataclasses import dataclass

from rota.domain.order import DEFAULT_EXPECTED_SECONDS, cost_of, entitled
from rota.domain.placement import Held, Placement, Reservation, Verdict
from rota.domain.resources import dominant_share
from rota.domain.shape import demand_of
from rota.domain.states import LEASED_STATES, RunEvent, RunState
from testkit.universes.memory.gating import Book
from testkit.universes.memory.rows import StoredRun, StoredSession


@dataclass(slots=True)
class Reserved:
    """The one worker of the pool that keeps room for a large run."""

    session: StoredSession
    run: StoredRun

    @property
    def is_current(self) -> bool:
        return self.session.alive and self.run.state is RunState.QUEUED

    @property
    def reservation(self) -> Reservation:
        return Reservation(self.run.seq, self.run.takes(self.session.capacity))


class Claims:
    """Through one store; the reservation is all that it remembers."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._reserved: Reserved | None = None

    def take(self, session: StoredSession, slots: int, now: int) -> list[StoredRun]:
        """Up to so many runs, each as a new attempt."""
        if self._reserved is not None and not self._reserved.is_current:
            self._reserved = None
        placement = self._placement(session, now)
        taken: list[StoredRun] = []
        for run in self._in_order():
            if len(taken) == slots:
                break
            if short := self._book.shortage(run, now, claims=True):
                self._book.block(run, short.key)
            elif self._is_placed(run, session, placement, now):
                self._claim(run, session, now)
                taken.append(run)
        return taken

    def _placement(self, session: StoredSession, now: int) -> Placement:
        held = [
            Held(run.takes(session.capacity), run.latest_end)
            for run in self._book.live.values()
            if run.session == session.id and run.state in LEASED_STATES
        ]
        reserved = self._reserved
        is_here = reserved is not None and reserved.session is session
        return Placement(
            session.capacity, now, held, reserved.reservation if reserved and is_here else None
        )

    def _in_order(self) -> list[StoredRun]:
        """Queued runs by the place of their lines, as each is served one after another."""
        lines: dict[str, list[StoredRun]] = {}
        for run in self._book.in_state(RunState.QUEUED):
            lines.setdefault(run.line, []).append(run)
        heads = [runs[0].as_chain(self._book.tags[line]) for line, runs in lines.items()]
        placed = [
            (chain.place + number * DEFAULT_EXPECTED_SECONDS / chain.weight, chain.id, run.seq, run)
            for chain in entitled(heads)
            for number, run in enumerate(lines[chain.id])
        ]
        return [run for *_, run in sorted(placed, key=lambda each: each[:3])]

    def _is_placed(
        self, run: StoredRun, session: StoredSession, placement: Placement, now: int
    ) -> bool:
        timeout = run.known.rules.timeout
        latest_end = now + timeout.total_seconds() * 1e6 if timeout else float("inf")
        demand = run.takes(session.capacity)
        verdict = placement.offer(run.seq, demand, latest_end, latest_end)
        if verdict is Verdict.NO_ROOM and self._reserved is None:
            placement.reserve(run.seq, demand)
            self._reserved = Reserved(session, run)
        return verdict is Verdict.TAKEN

    def _claim(self, run: StoredRun, session: StoredSession, now: int) -> None:
        self._book.take_tokens(run, now)
        run.move(RunEvent.CLAIMED)
        run.attempt += 1
        run.session, run.claimed_at = session.id, now
        share = dominant_share(demand_of(run.known.shape).resources, session.capacity)
        self._book.tags[run.line] += cost_of(DEFAULT_EXPECTED_SECONDS, share)

"""Runs that wait for a person, and those that follow others, on the store in memory."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.errors import Conflict
from rota.domain.gates import held, hold_key
from rota.domain.ids import RunId, following_run_id, instant
from rota.domain.order import share_key
from rota.domain.run import Trigger
from rota.domain.states import WAITING_STATES, RunState
from testkit.universes.catalogue import PROJECT, KnownJob, followers
from testkit.universes.memory.gating import Book
from testkit.universes.memory.rows import StoredRun
from testkit.universes.timeline import TrueTime


class MemoryWaiting:
    """The verbs of `rota.ports.store.WaitingStore` that a universe needs."""

    def __init__(self, book: Book, clock: TrueTime) -> None:
        self._book = book
        self._clock = clock

    async def hold_run(self, run: RunId, *, actor: str) -> None:
        found = self._book.runs[run]
        if found.state not in WAITING_STATES:
            raise Conflict(f"run {run} does not wait any more", code="run_not_waiting")
        self._book.block(found, held(run, actor).blocked_on)
        self._book.release_waiting(found.known, self._clock.now())

    async def let_go(self, run: RunId, *, actor: str) -> None:
        found = self._book.runs[run]
        if found.state is not RunState.BLOCKED or found.blocked_on != hold_key(run):
            raise Conflict(f"nobody holds run {run}", code="run_not_held")
        self._book.let_go(found, self._clock.now())

    # --- those that follow

    def ends(self) -> list[StoredRun]:
        """Completed runs that others follow, as far as nobody has answered them."""
        return list(self._book.ends.values())

    def follow(self, ends: Sequence[StoredRun]) -> int:
        """Answer these, each once; others may have done so since they were seen."""
        for end in ends:
            for job in followers(end.job):
                self._answer(end, job)
            self._book.ends.pop(end.id, None)
        return len(ends)

    def _answer(self, end: StoredRun, job: KnownJob) -> None:
        run = following_run_id(job.id, end.id)
        if self._is_new(run):
            share = share_key(PROJECT, "scheduler")
            new = StoredRun(run, job, Trigger.AFTER, instant(end.ended_at), share, follows=end.id)
            self._book.insert(new, self._clock.now())

    def _is_new(self, run: RunId) -> bool:
        return run not in self._book.runs

"""What is due soon, in memory."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from rota.domain.firing import FiringRules
from rota.domain.ids import JobId
from rota.ports.records import DueSchedule


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A schedule that is due soon, with the answer prepared."""

    due: DueSchedule
    rules: FiringRules
    after: datetime | None  # the due time after this one

    @property
    def job_id(self) -> JobId:
        return self.due.job_id


class Agenda:
    """Schedules that are due soon, one entry a job, by due time.

    A look at the store takes a while and firing goes on meanwhile. What was taken since the look
    began is newer than what the look has read, and wins; the rest is replaced by what was read.
    """

    def __init__(self) -> None:
        self._entries: dict[JobId, Upcoming] = {}
        self._order: list[tuple[datetime, JobId]] = []  # a heap; may name what is not there now
        self._taken: set[JobId] = set()  # and not settled yet
        self._moved: set[JobId] = set()  # taken before the look ended
        self._read: set[JobId] = set()  # by the look that is under way

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next_at(self) -> datetime | None:
        """When the next entry is due; None: there is none."""
        while self._order:
            next_at, job = self._order[0]
            if self._is_current(next_at, job):
                return next_at
            heapq.heappop(self._order)
        return None

    def take_due(self, now: datetime, limit: int, shards: Collection[int]) -> list[Upcoming]:
        """Entries to fire now, to be settled afterwards. Those of other shards are forgotten."""
        batch: list[Upcoming] = []
        while len(batch) < limit and (next_at := self.next_at) is not None and next_at <= now:
            _, job = heapq.heappop(self._order)
            entry = self._entries.pop(job)
            if entry.due.shard in shards:
                batch.append(entry)
        self._taken.update(entry.job_id for entry in batch)
        self._moved.update(entry.job_id for entry in batch)
        return batch

    def settle(self, taken: Iterable[Upcoming], following: Iterable[Upcoming]) -> None:
        """These were fired; some of them are due again soon."""
        self._taken.difference_update(entry.job_id for entry in taken)
        for entry in following:
            self._put(entry)

    def begin_look(self) -> None:
        """The store is read from here on."""
        self._moved = set(self._taken)
        self._read = set()

    def has(self, due: DueSchedule, rules: FiringRules) -> bool:
        """Whether an offer would change nothing; it then counts as read."""
        if due.job_id in self._moved:
            return True
        known = self._entries.get(due.job_id)
        if known is None or known.due != due or known.rules is not rules:
            return False
        self._read.add(due.job_id)
        return True

    def offer(self, entry: Upcoming) -> None:
        """An entry as the store has it."""
        if entry.job_id not in self._moved:
            self._read.add(entry.job_id)
            self._put(entry)

    def end_look(self) -> None:
        """All was offered: what was neither read nor moved meanwhile is not due soon any more."""
        for job in self._entries.keys() - self._read - self._moved:
            del self._entries[job]

    def _put(self, entry: Upcoming) -> None:
        before = self._entries.get(entry.job_id)
        self._entries[entry.job_id] = entry
        if before is None or before.due.next_at != entry.due.next_at:
            heapq.heappush(self._order, (entry.due.next_at, entry.job_id))

    def _is_current(self, next_at: datetime, job: JobId) -> bool:
        entry = self._entries.get(job)
        return entry is not None and entry.due.next_at == next_at

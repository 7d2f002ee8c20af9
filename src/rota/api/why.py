"""Explanation why a run waits."""

from __future__ import annotations

from rota.api.answers import UNSENT, Answer, Instant
from rota.api.runs import Reason, RunState


class Holder(Answer, frozen=True, kw_only=True):
    """A run that has what another one waits for."""

    run: str
    job: str = ""
    ends_at: Instant | None = None  # by how long such runs take; None: nobody knows


class Obstacle(Reason, frozen=True, kw_only=True):
    """A gate that a run stands at, as it is now."""

    holders: tuple[Holder, ...] = ()  # the oldest first; not all of them where there are many
    before: int | None = None  # runs that wait for the same and go first; None: not counted
    waiting: int | None = None  # all that wait for it; None: not counted
    next_at: Instant | None = None  # the next due time of the job that it waits for


class Reserved(Answer, frozen=True, kw_only=True):
    """A worker that is kept free for a run that fits nowhere now."""

    run: str  # "": of a project that you have no role in
    worker: str = ""
    until: Instant = UNSENT  # it is prolonged while that run is the first of those


class OrderOfService(Answer, frozen=True, kw_only=True):
    """A run's turn among all that wait for the same pool; of a blocked one, if it were queued."""

    position: int = 0  # runs that go first
    of_higher_priority: int = 0  # of these
    of_own_line: int = 0  # of the same priority and share
    of_other_shares: int = 0  # all others
    latest_turn: int = 0  # it goes with one of so many starts of the pool, whatever comes
    share: str = ""
    tag: float = 0.0  # F of its line, in pool-seconds
    virtual_time: float = 0.0  # V: the least F of the lines of its priority
    cost: float = 0.0  # what its start adds to F, before weights
    boost: float = 0.0  # the head start by its priority
    weight: float = 1.0  # as it counts among the lines that have runs
    entitled: float = 1.0  # the part of the pool that its share may have
    used: float = 0.0  # the part that its live attempts have
    reservation: Reserved | None = None  # of its pool


class NotReason(Answer, frozen=True, kw_only=True):
    """Something that might be thought to hold a run, and does not."""

    name: str
    message: str = ""


class Why(Answer, frozen=True, kw_only=True):
    """Where a run stands and what would move it on."""

    run: str = ""
    job: str = ""
    state: RunState
    summary: str = ""
    reasons: tuple[Obstacle, ...] = ()  # in the order of the gates
    passed: tuple[str, ...] = ()  # gates that it has behind it, in their order
    position: int | None = None  # queued runs that go first; None: it is not queued
    order: OrderOfService | None = None  # None: it does not wait
    not_reasons: tuple[NotReason, ...] = ()
    since: Instant | None = None
    starts_at: Instant | None = None  # by the forecast; None: unknown

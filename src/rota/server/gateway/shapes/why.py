"""Why a run waits."""

from __future__ import annotations

from datetime import datetime

from rota.domain.states import RunState
from rota.operations.why import Explanation, Obstacle
from rota.server.gateway.shapes.models import Answer
from rota.server.gateway.shapes.run import ReasonShape


class HolderShape(Answer):
    """A run that has what another one waits for."""

    run: str
    job: str
    ends_at: datetime | None  # by how long such runs take; None: nobody knows


class ObstacleShape(ReasonShape):
    """A gate that a run stands at, as it is now."""

    holders: list[HolderShape]  # the oldest first; not all of them where there are many
    before: int | None  # runs that wait for the same and go first; None: not counted
    waiting: int | None  # all that wait for it; None: not counted
    next_at: datetime | None  # the next due time of the job that it waits for

    @classmethod
    def of(cls, obstacle: Obstacle) -> ObstacleShape:
        return cls(
            **ReasonShape.model_validate(obstacle.reason).model_dump(),
            holders=[HolderShape.model_validate(holder) for holder in obstacle.holders],
            before=obstacle.before,
            waiting=obstacle.waiting,
            next_at=obstacle.next_at,
        )


class ReservedShape(Answer):
    """A worker that is kept free for a run that fits nowhere now."""

    run: str
    worker: str
    until: datetime  # it is prolonged while that run is the first of those


class OrderShape(Answer):
    """A run's turn among all that wait for the same pool; of a blocked one, if it were queued."""

    position: int  # runs that go first
    of_higher_priority: int  # of these
    of_own_line: int  # of the same priority and share
    of_other_shares: int  # all others
    latest_turn: int  # it goes with one of so many starts of the pool, whatever comes
    share: str
    tag: float  # F of its line, in pool-seconds
    virtual_time: float  # V: the least F of the lines of its priority
    cost: float  # what its start adds to F, before weights
    boost: float  # the head start by its priority
    weight: float  # as it counts among the lines that have runs
    entitled: float  # the part of the pool that its share may have
    used: float  # the part that its live attempts have
    reservation: ReservedShape | None  # of its pool


class NotReasonShape(Answer):
    """What might be thought to hold a run, and does not."""

    name: str
    message: str


class WhyShape(Answer):
    """Where a run stands and what would move it on."""

    run: str
    job: str
    state: RunState
    summary: str
    reasons: list[ObstacleShape]  # in the order of the gates
    passed: list[str]  # gates that it has behind it, in their order
    position: int | None  # queued runs that go first; None: it is not queued
    order: OrderShape | None  # None: it does not wait
    not_reasons: list[NotReasonShape]
    since: datetime | None
    starts_at: datetime | None  # by the forecast; None: unknown

    @classmethod
    def of(cls, explanation: Explanation) -> WhyShape:
        run, order = explanation.run, explanation.order
        is_queued = run.state is RunState.QUEUED
        return cls(
            run=run.id,
            job=run.job,
            state=run.state,
            summary=explanation.summary,
            reasons=[ObstacleShape.of(obstacle) for obstacle in explanation.obstacles],
            passed=list(explanation.passed),
            position=order.position if order and is_queued else None,
            order=OrderShape.model_validate(order) if order else None,
            not_reasons=[NotReasonShape.model_validate(each) for each in explanation.not_reasons],
            since=explanation.since,
            starts_at=explanation.starts_at,
        )

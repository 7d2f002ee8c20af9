"""Backfills: what was asked for, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from rota.domain.backfill import (
    DEFAULT_MAX_PARALLEL,
    MOST_PARALLEL,
    Backfill,
    BackfillPlan,
    Only,
    SkipCause,
    Skipped,
)
from rota.server.gateway.instants import TimeText
from rota.server.gateway.shapes.models import Answer, Body


class BackfillBody(Body):
    """A range of due times, both ends included."""

    since: TimeText = Field(alias="from")
    until: TimeText | None = Field(None, alias="to")  # None: up to now
    only: Only | None = None  # None: all due times of the range
    max_parallel: int = Field(DEFAULT_MAX_PARALLEL, ge=1, le=MOST_PARALLEL)


class SkippedShape(Answer):
    """Due times of the range that are left out for the same cause."""

    cause: SkipCause
    count: int
    first: datetime
    last: datetime


class BackfillShape(Answer):
    """What a backfill does, or would do; its runs are those of the filter `backfill:ID`."""

    id: str | None  # None: this is a plan
    runs: int
    first: datetime | None  # due times of its runs; None: it has none
    last: datetime | None
    skipped: list[SkippedShape]

    @classmethod
    def of(cls, backfill: Backfill) -> BackfillShape:
        return cls(
            id=backfill.id,
            runs=backfill.runs,
            first=backfill.first,
            last=backfill.last,
            skipped=_skipped(backfill.skipped),
        )

    @classmethod
    def of_plan(cls, plan: BackfillPlan) -> BackfillShape:
        return cls(
            id=None,
            runs=len(plan.repeats),
            first=plan.first,
            last=plan.last,
            skipped=_skipped(plan.skipped),
        )


def _skipped(groups: Iterable[Skipped]) -> list[SkippedShape]:
    return [SkippedShape.model_validate(group) for group in groups]

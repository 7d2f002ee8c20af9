"""Due times of the past: their answers, and backfills that run them."""

from __future__ import annotations

from typing import Annotated

from rota.api.answers import Answer, Instant, one_of

SkipCause = Annotated[
    str, one_of("Why a due time of the range is left out.", "active", "completed", "not_failed")
]


class LedgerEntry(Answer, frozen=True, kw_only=True):
    """The answer to one due time, or to a stretch of them."""

    first: Instant
    last: Instant
    count: int = 1
    state: str = ""
    cause: str = ""
    run: str | None = None  # None: a stretch without runs
    backfilled_by: tuple[str, ...] = ()  # the newest runs that made up for it, newest first


class SkippedDueTimes(Answer, frozen=True, kw_only=True):
    """Due times of the range that are left out for the same cause."""

    cause: SkipCause
    count: int = 0
    first: Instant
    last: Instant


class Backfill(Answer, frozen=True, kw_only=True):
    """Backfill as it is made, or would be; its runs are those of the filter `backfill:ID`."""

    id: str | None = None  # None: this is a plan
    runs: int = 0
    first: Instant | None = None  # due times of its runs; None: it has none
    last: Instant | None = None
    skipped: tuple[SkippedDueTimes, ...] = ()

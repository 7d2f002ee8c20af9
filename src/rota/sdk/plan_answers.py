"""What the server answers to a job file: what applying it does, or would do."""

from __future__ import annotations

from datetime import datetime

from rota.sdk.answers import Answer, Problem


class Change(Answer, frozen=True, kw_only=True):
    """What applying a file does to one job."""

    name: str
    change: str
    job_id: str | None = None
    schedule: str | None = None  # in words
    next_at: datetime | None = None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class PlannedCalendar(Answer, frozen=True, kw_only=True):
    """What applying a file does to one calendar."""

    name: str
    change: str
    words: str = ""
    differences: tuple[str, ...] = ()


class PlannedDeclaration(Answer, frozen=True, kw_only=True):
    """What applying a file does to one limit or resource."""

    name: str
    change: str
    words: str = ""
    differences: tuple[str, ...] = ()


class PlannedCart(Answer, frozen=True, kw_only=True):
    """What applying a file does to one of its carts; it is not started."""

    name: str
    change: str
    words: str = ""
    next_at: datetime | None = None  # when it starts by itself
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Plan(Answer, frozen=True, kw_only=True):
    changes: tuple[Change, ...] = ()
    calendars: tuple[PlannedCalendar, ...] = ()
    limits: tuple[PlannedDeclaration, ...] = ()
    resources: tuple[PlannedDeclaration, ...] = ()
    carts: tuple[PlannedCart, ...] = ()
    warnings: tuple[Problem, ...] = ()
    etag: str = ""
    applied: bool = False


class Validation(Answer, frozen=True, kw_only=True):
    valid: bool = True
    warnings: tuple[Problem, ...] = ()


class SubmittedJob(Answer, frozen=True, kw_only=True):
    id: str
    name: str = ""
    run: str | None = None  # None: the job has a schedule, which will make its runs


class Submission(Answer, frozen=True, kw_only=True):
    job_ids: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    jobs: tuple[SubmittedJob, ...] = ()

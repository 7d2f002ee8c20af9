"""Effect of applying a job file, done or planned."""

from __future__ import annotations

from rota.api.answers import Answer, ChangeWord, Instant, Problem


class Change(Answer, frozen=True, kw_only=True):
    """One job of a plan."""

    name: str
    change: ChangeWord
    job_id: str | None = None  # None: it would be created
    schedule: str = ""  # in words; "" on demand
    next_at: Instant | None = None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class PlannedCalendar(Answer, frozen=True, kw_only=True):
    """One calendar of a plan."""

    name: str
    change: ChangeWord
    words: str = ""
    differences: tuple[str, ...] = ()


class PlannedDeclaration(Answer, frozen=True, kw_only=True):
    """One limit or resource of a plan."""

    name: str
    change: ChangeWord
    words: str = ""
    differences: tuple[str, ...] = ()


class PlannedCart(Answer, frozen=True, kw_only=True):
    """One cart of a plan; applying it starts nothing."""

    name: str
    change: ChangeWord
    words: str = ""
    next_at: Instant | None = None  # when it starts by itself; None: on demand only
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Plan(Answer, frozen=True, kw_only=True):
    changes: tuple[Change, ...] = ()
    calendars: tuple[PlannedCalendar, ...] = ()
    limits: tuple[PlannedDeclaration, ...] = ()
    resources: tuple[PlannedDeclaration, ...] = ()
    carts: tuple[PlannedCart, ...] = ()
    warnings: tuple[Problem, ...] = ()
    etag: str = ""  # of everything the plan looked at: give it as If-Match to apply exactly this
    applied: bool = False


class Validation(Answer, frozen=True, kw_only=True):
    valid: bool = True
    warnings: tuple[Problem, ...] = ()


class SubmittedJob(Answer, frozen=True, kw_only=True):
    id: str
    name: str = ""
    run: str | None = None  # None: its schedule will make its runs, or it is disabled


class Submission(Answer, frozen=True, kw_only=True):
    job_ids: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    jobs: tuple[SubmittedJob, ...] = ()

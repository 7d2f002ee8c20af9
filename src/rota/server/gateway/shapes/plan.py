"""What handing in a job file does, or would do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rota.operations.definitions import Plan
from rota.operations.differences import Change
from rota.operations.submissions import SubmittedJob
from rota.server.gateway.shapes.models import Answer
from rota.server.gateway.shapes.problem import Fault


class ChangeShape(Answer):
    """One job of a plan."""

    name: str
    change: Change
    job_id: str | None  # None: it would be created
    schedule: str  # in words; "" on demand
    next_at: datetime | None
    differences: list[str]
    notes: list[str]


class PlannedCalendarShape(Answer):
    """One calendar of a plan."""

    name: str
    change: Change
    words: str
    differences: list[str]


class PlannedDeclarationShape(Answer):
    """One limit or resource of a plan."""

    name: str
    change: Change
    words: str
    differences: list[str]


class PlannedCartShape(Answer):
    """One cart of a plan; applying it starts nothing."""

    name: str
    change: Change
    words: str
    next_at: datetime | None  # when it starts by itself; None: on demand only
    differences: list[str]
    notes: list[str]


class PlanShape(Answer):
    changes: list[ChangeShape]
    calendars: list[PlannedCalendarShape]
    limits: list[PlannedDeclarationShape]
    resources: list[PlannedDeclarationShape]
    carts: list[PlannedCartShape]
    warnings: list[Fault]
    etag: str  # of everything the plan looked at: give it as If-Match to apply exactly this
    applied: bool

    @classmethod
    def of(cls, plan: Plan, *, applied: bool) -> PlanShape:
        return cls(
            changes=[ChangeShape.model_validate(change) for change in plan.changes],
            calendars=[PlannedCalendarShape.model_validate(it) for it in plan.calendars],
            limits=[PlannedDeclarationShape.model_validate(it) for it in plan.limits],
            resources=[PlannedDeclarationShape.model_validate(it) for it in plan.resources],
            carts=[PlannedCartShape.model_validate(cart) for cart in plan.carts],
            warnings=[Fault.model_validate(warning) for warning in plan.warnings],
            etag=plan.etag,
            applied=applied,
        )


class ValidationShape(Answer):
    valid: bool
    warnings: list[Fault]


class SubmittedJobShape(Answer):
    id: str
    name: str
    run: str | None  # None: its schedule will make its runs, or it is disabled


class SubmissionShape(Answer):
    job_ids: list[str]
    runs: list[str]
    jobs: list[SubmittedJobShape]

    @classmethod
    def of(cls, jobs: Sequence[SubmittedJob]) -> SubmissionShape:
        return cls(
            job_ids=[job.id for job in jobs],
            runs=[job.run for job in jobs if job.run is not None],
            jobs=[SubmittedJobShape.model_validate(job) for job in jobs],
        )

"""Runs and their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from rota.domain.run import Attempt, AttemptResult, LateResult, OutputState, Run, Trigger
from rota.domain.spec import GREATEST_PRIORITY, LEAST_PRIORITY, Delivery
from rota.domain.states import RunState
from rota.operations.why import in_short
from rota.server.gateway.instants import TimeText
from rota.server.gateway.shapes.models import Answer, Body

MAX_BATCH = 10_000

Priority = Annotated[int, Field(ge=LEAST_PRIORITY, le=GREATEST_PRIORITY)]


class ReasonShape(Answer):
    """One gate that holds a run."""

    gate: str
    message: str
    key: str
    eligible_at: datetime | None  # when it opens by itself; None: unknown or by an event
    action: str  # what a person can do about it


class RunShape(Answer):
    """One execution of a job, as it stands."""

    id: str
    project: str
    job_id: str
    job: str
    job_version: int
    trigger: Trigger
    state: RunState
    due_at: datetime
    created_at: datetime
    created_by: str
    priority: int
    pool: str
    delivery: Delivery
    attempt: int  # number of the latest attempt; 0 before the first
    max_attempts: int
    failures: int
    losses: int
    is_alone: bool  # it lost so many workers that nothing else may go beside it
    cause: str
    message: str
    reasons: list[ReasonShape]
    waiting: str | None  # what holds it, in a sentence
    eligible_at: datetime | None
    queued_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    first_started_at: datetime | None
    ended_at: datetime | None
    duration_seconds: float | None  # of the latest attempt; None until it has ended
    lateness_seconds: float | None
    is_late: bool | None  # missed `start_within`; None: no objective, or not judged yet
    worker: str
    cancel_requested_at: datetime | None
    cancel_requested_by: str
    exit_code: int | None
    signal: int | None
    inputs: dict[str, Any] | None
    outputs: Any
    progress: dict[str, Any] | None
    retry_of: str | None
    follows: str | None  # the run whose completion it answers
    backfill: str | None  # None: it is of no backfill
    cart: str | None  # None: it is of no cart
    item: str | None  # its key in that cart; None: of no cart, or the check of one
    deadline_at: datetime | None
    url: str  # of its page, relative to this server

    @classmethod
    def of(cls, run: Run) -> RunShape:
        return cls(**_fields(run))


class StepShape(Answer):
    name: str
    result: str
    exit_code: int | None
    signal: int | None
    seconds: float
    tries: int


class OutputSummaryShape(Answer):
    state: OutputState
    bytes: int
    lines: int
    truncated: bool


class AttemptShape(Answer):
    """One try of a run."""

    number: int
    worker: str
    result: AttemptResult | None  # None: still going
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    duration_seconds: float | None
    exit_code: int | None
    signal: int | None
    message: str
    steps: list[StepShape]
    cpu_seconds: float
    max_memory_bytes: int
    output: OutputSummaryShape

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptShape:
        return cls(
            number=attempt.number,
            worker=attempt.worker,
            result=attempt.result,
            claimed_at=attempt.claimed_at,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            duration_seconds=_seconds(attempt.started_at, attempt.ended_at),
            exit_code=attempt.exit_code,
            signal=attempt.signal,
            message=attempt.message,
            steps=[StepShape.model_validate(step) for step in attempt.steps],
            cpu_seconds=attempt.usage.cpu_seconds,
            max_memory_bytes=attempt.usage.max_memory_bytes,
            output=OutputSummaryShape.model_validate(attempt.output),
        )


class LateResultShape(Answer):
    """A report that came after its lease had ended: refused, and kept aside."""

    attempt: int
    session: str
    received_at: datetime
    result: str
    message: str


class RunDetail(RunShape):
    """A run with its attempts."""

    attempts: list[AttemptShape]
    late_results: list[LateResultShape]

    @classmethod
    def with_attempts(
        cls, run: Run, attempts: Sequence[Attempt], late: Sequence[LateResult]
    ) -> RunDetail:
        return cls(
            **_fields(run),
            attempts=[AttemptShape.of(attempt) for attempt in attempts],
            late_results=[LateResultShape.model_validate(result) for result in late],
        )


class TriggerBody(Body):
    """How a run is asked for."""

    inputs: dict[str, Any] = Field(default_factory=dict)
    at: TimeText | None = None  # not before; None: now
    priority: Priority | None = None  # None: the job's


class BatchBody(Body):
    """One run for each set of inputs."""

    inputs: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_BATCH)


class BatchShape(Answer):
    runs: list[str]


class PriorityBody(Body):
    priority: Priority  # 9 goes first


class ResolveBody(Body):
    """What became of an UNKNOWN run."""

    outcome: Literal["completed", "failed", "retry"] = Field(alias="as")


def _fields(run: Run) -> dict[str, Any]:
    """The fields of a run under the same names, without what concerns only the store."""
    fields = {name: getattr(run, name) for name in _SAME}
    return fields | {
        "reasons": [ReasonShape.model_validate(reason) for reason in run.reasons],
        "waiting": in_short(run),
        "duration_seconds": _seconds(run.started_at, run.ended_at),
        "inputs": None if run.inputs is None else dict(run.inputs),
        "progress": None if run.progress is None else dict(run.progress),
        "url": f"/runs/{run.id}",
    }


_SAME = tuple(name for name in Run.__slots__ if name in RunShape.model_fields)


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()

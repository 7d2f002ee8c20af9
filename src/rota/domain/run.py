"""Run, its attempts, what a worker reports about them, and which outputs a run may have.

A run carries its latest attempt: most have only one, and a row for each would double the writes
of a claim and of an end. Earlier attempts are kept beside it.

A job may hand in any JSON as its outputs. They pass through stores, messages and clients of other
languages, and what one of these can parse and the next cannot would fail the last one, far from the
cause. `why_not_portable` finds such values in the worker, and again where the server takes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from rota.domain.ids import BackfillId, CartId, JobId, RunId, SessionId
from rota.domain.spec import Delivery
from rota.domain.states import RunState


class Trigger(StrEnum):
    """Reason why a run exists."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    RETRY = "retry"
    BACKFILL = "backfill"
    CART = "cart"
    AFTER = "after"  # a run of a job that it follows has completed
    PROBE = "probe"  # it asks how another run ended, which is UNKNOWN


class AttemptResult(StrEnum):
    """Result of one attempt. A failure of the work is a value, not an exception."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    INTERRUPTED = "INTERRUPTED"  # its worker stopped or gave it back: nobody's fault
    LOST = "LOST"  # its worker vanished


class OutputState(StrEnum):
    """Location of the bytes an attempt printed."""

    NONE = "none"  # it printed nothing
    INLINE = "inline"  # small: kept beside the attempt
    PENDING = "pending"  # the rest of it is still on the worker, which goes on sending
    STORED = "stored"  # in the blob store, complete
    TORN = "torn"  # the worker vanished: what had arrived is kept, the rest is gone


@dataclass(frozen=True, slots=True)
class Reason:
    """One gate that holds a run, for programs (`gate`, `key`) and people (`message`)."""

    gate: str  # one of `domain.gates.Gate`; of another release perhaps one that is unknown here
    message: str
    key: str = ""  # what frees it, e.g. "job:j_…"
    eligible_at: datetime | None = None  # when it opens by itself; None: unknown or by an event
    action: str = ""  # what a person can do about it


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of an attempt."""

    name: str
    result: str  # completed, failed, timed_out, cancelled, skipped, lost; running: it goes on
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    tries: int = 1
    cpu_seconds: float = 0.0  # of all tries together
    max_memory_bytes: int = 0  # of the try that took most
    cause: str = ""  # what made it end so, if anything special did
    started_at: datetime | None = None  # None: it did not begin, or nobody knows when
    first_line: int = 0  # how many lines of output the attempt had then
    lines: int = 0  # and how many came until it ended

    @property
    def is_running(self) -> bool:
        return self.result == "running"


@dataclass(frozen=True, slots=True)
class Note:
    """How an attempt stands that goes on, as its worker told last."""

    run: RunId
    attempt: int
    at: datetime
    first_step: int = 0  # number of the first one of `steps`
    steps: tuple[StepReport, ...] = ()  # the latest that have begun, in their order
    output_lines: int = 0  # printed so far
    output_bytes: int = 0
    last_line: str = ""  # the last whole one, or its beginning

    @property
    def current(self) -> int | None:
        """Return the number of the step that began last of those that go on; None: none does."""
        running = [number for number, step in enumerate(self.steps) if step.is_running]
        return self.first_step + running[-1] if running else None

    def step(self, number: int) -> StepReport:
        return self.steps[number - self.first_step]


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that an attempt used, all its steps together."""

    cpu_seconds: float = 0.0
    max_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """Summary of what an attempt printed, without the bytes."""

    state: OutputState = OutputState.NONE
    bytes: int = 0
    lines: int = 0
    truncated: bool = False  # the job's `log_limit` cut it


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a run, by one worker, under one lease."""

    run: RunId
    number: int  # the fence: grows by one each time
    session: SessionId
    worker: str
    result: AttemptResult | None  # None: still going
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    steps: tuple[StepReport, ...] = ()
    usage: Usage = Usage()
    output: OutputSummary = OutputSummary()


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a job, as it stands."""

    id: RunId
    seq: int  # order of creation in this store
    project: str
    job_id: JobId
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
    attempt: int  # number of the latest attempt: how often it was claimed; 0 before the first
    max_attempts: int
    failures: int
    losses: int
    is_alone: bool = False  # it lost so many workers that nothing else may go beside it
    cause: str = ""  # why it ended or was skipped: exit_code, signal, lost, poison, overlap, …
    message: str = ""
    reasons: tuple[Reason, ...] = ()  # what holds it while BLOCKED
    eligible_at: datetime | None = None
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None  # of the latest attempt
    first_started_at: datetime | None = None  # lateness counts from here
    ended_at: datetime | None = None
    lateness_seconds: float | None = None  # first start − release time; None before it started
    session: SessionId | None = None
    worker: str = ""
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str = ""
    exit_code: int | None = None
    signal: int | None = None
    inputs: Mapping[str, Any] | None = None
    outputs: Any = None  # JSON the job wrote to $ROTA_OUTPUT, or a function's result
    progress: Mapping[str, Any] | None = None
    handle: Any = None  # JSON that names its work in another system; None: nothing does
    retry_of: RunId | None = None
    follows: RunId | None = None  # the run whose completion it answers
    commit: str = ""  # that its code was fetched at; "": not yet, or it is not from git
    backfill: BackfillId | None = None  # None: it is of no backfill
    cart: CartId | None = None  # None: it is of no cart
    item: str | None = None  # its key in that cart; None: it is of no cart, or the check of one
    deadline_at: datetime | None = None
    is_late: bool | None = None  # missed `start_within`; None: no objective, or not judged yet


@dataclass(frozen=True, slots=True)
class LateResult:
    """A report that came after its lease had ended: refused, and kept aside."""

    run: RunId
    attempt: int
    session: SessionId
    received_at: datetime
    result: str
    message: str


MAX_OUTPUTS = 1024 * 1024  # bytes of JSON
MAX_DEPTH = 32
_LARGEST = 2**63 - 1
_SMALLEST = -(2**63)


def why_not_portable(value: object) -> str:
    """Return what is wrong with a JSON value; "" if nothing is."""
    layer: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for item in layer:
            if complaint := _scalar_complaint(item):
                return complaint
            if isinstance(item, Mapping):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        if not below:
            return ""
        layer = below
    return f"it is nested deeper than {MAX_DEPTH} levels"


def _scalar_complaint(value: object) -> str:
    if isinstance(value, int) and not _SMALLEST <= value <= _LARGEST:
        return "a whole number in it does not fit 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number in it is not finite"
    if isinstance(value, str) and not _is_text(value):
        return "a text in it has half a character (a lone surrogate)"
    return ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

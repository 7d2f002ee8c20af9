"""Runs and their attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from rota.api.answers import UNSENT, Answer, Instant, one_of

FINAL_STATES = frozenset({"COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"})
WAITING_STATES = frozenset({"SCHEDULED", "BLOCKED", "QUEUED"})  # no worker has it

RunState = Annotated[
    str,
    one_of(
        "Where a run stands.",
        "SCHEDULED",
        "BLOCKED",
        "QUEUED",
        "CLAIMED",
        "PROCESSING",
        "UNKNOWN",
        "COMPLETED",
        "FAILED",
        "TIMED_OUT",
        "CANCELLED",
        "SKIPPED",
        "MISSED",
    ),
]
Trigger = Annotated[
    str,
    one_of(
        "Why a run exists.", "schedule", "manual", "retry", "backfill", "cart", "after", "probe"
    ),
]
Delivery = Annotated[
    str,
    one_of(
        "What a lost worker means: try again, or stop and ask.", "at_least_once", "at_most_once"
    ),
]
AttemptResult = Annotated[
    str,
    one_of(
        "How one attempt ended.",
        "COMPLETED",
        "FAILED",
        "TIMED_OUT",
        "CANCELLED",
        "INTERRUPTED",
        "LOST",
    ),
]
IsolationWord = Annotated[
    str, one_of("The wall between a run and its worker.", "process", "sandbox", "container")
]
NetworkWord = Annotated[str, one_of("The network that a run sees.", "none", "outbound", "host")]
StepResult = Annotated[
    str,
    one_of(
        "How one step ended, or that it goes on.",
        "completed",
        "failed",
        "timed_out",
        "cancelled",
        "skipped",
        "lost",
        "running",
    ),
]
OutputState = Annotated[
    str,
    one_of(
        "Where the bytes an attempt printed are.", "none", "inline", "pending", "stored", "torn"
    ),
]


class Reason(Answer, frozen=True, kw_only=True):
    """One gate that holds a run."""

    gate: str
    message: str = ""
    key: str = ""
    eligible_at: Instant | None = None  # when it opens by itself; None: unknown or by an event
    action: str = ""  # what a person can do about it


class Progress(Answer, frozen=True, kw_only=True):
    """How far a run says that it is."""

    done: float = 0.0
    total: float | None = None  # None: it did not say
    message: str = ""


class Note(Answer, frozen=True, kw_only=True):
    """How the attempt of a run stands that goes on, as its worker told last."""

    at: Instant = UNSENT
    step: str = ""  # the one that goes on; "": none does, as far as is known
    step_number: int | None = None  # from 0
    step_started_at: Instant | None = None
    output_lines: int = 0  # printed so far
    output_bytes: int = 0
    last_line: str = ""


class Run(Answer, frozen=True, kw_only=True):
    """One execution of a job, as it stands."""

    id: str
    project: str = "default"
    job_id: str = ""
    job: str = ""
    job_version: int = 0
    trigger: Trigger = ""
    state: RunState
    due_at: Instant = UNSENT
    created_at: Instant = UNSENT
    created_by: str = ""
    priority: int = 5
    pool: str = ""
    delivery: Delivery = ""
    attempt: int = 0  # number of the latest attempt: how often it was claimed; 0 before the first
    max_attempts: int = 1
    failures: int = 0
    losses: int = 0
    is_alone: bool = False  # it lost so many workers that nothing else may go beside it
    cause: str = ""
    message: str = ""
    reasons: tuple[Reason, ...] = ()
    waiting: str | None = None  # what holds it, in a sentence; None: nothing does
    eligible_at: Instant | None = None  # not before; None: at any time
    queued_at: Instant | None = None
    claimed_at: Instant | None = None
    started_at: Instant | None = None  # of the latest attempt; None: it has not started
    first_started_at: Instant | None = None
    ended_at: Instant | None = None
    duration_seconds: float | None = None  # of the latest attempt; None until it has ended
    lateness_seconds: float | None = None  # from due to first start; None: it has not started
    is_late: bool | None = None  # missed `start_within`; None: no objective, or not judged yet
    worker: str = ""
    cancel_requested_at: Instant | None = None  # None: nobody asked it to stop
    cancel_requested_by: str = ""
    exit_code: int | None = None
    signal: int | None = None
    inputs: Mapping[str, Any] | None = None
    outputs: Any = None
    progress: Progress | None = None  # None: it said nothing
    handle: Any = None  # what names its work in another system; None: there is none
    note: Note | None = None  # None: no worker has it, or it has told nothing yet
    retry_of: str | None = None  # id of a run; None: it is no retry by hand
    follows: str | None = None  # the run whose end it answers
    commit: str = ""  # that its code was fetched at; "": not yet, or it is not from git
    backfill: str | None = None  # None: it is of no backfill
    cart: str | None = None  # None: it is of no cart
    item: str | None = None  # its key in that cart; None: of no cart, or the check of one
    deadline_at: Instant | None = None  # None: it may start however late
    url: str = ""  # of its page; a path below the server's address, unless `public_url` is set

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more happens by itself: final, or a question for a person."""
        return self.is_final or self.state == "UNKNOWN"


class Step(Answer, frozen=True, kw_only=True):
    name: str
    title: str = ""  # for people, in any script; "": its name is
    result: StepResult = ""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    tries: int = 1
    cpu_seconds: float = 0.0  # of all tries together
    max_memory_bytes: int = 0  # of the try that took most
    cause: str = ""  # what made it end so, if anything special did
    started_at: Instant | None = None  # None: it did not begin, or nobody knows when
    first_line: int = 0  # how many lines of output the attempt had then
    lines: int = 0  # and how many came until it ended

    @property
    def is_running(self) -> bool:
        return self.result == "running"

    @property
    def shown(self) -> str:
        """Return what people are shown as its name."""
        return self.title or self.name


class OutputSummary(Answer, frozen=True, kw_only=True):
    state: OutputState = "none"
    bytes: int = 0
    lines: int = 0
    truncated: bool = False


class Attempt(Answer, frozen=True, kw_only=True):
    """One try of a run."""

    number: int
    worker: str = ""
    result: AttemptResult | None = None  # None: still going
    claimed_at: Instant = UNSENT
    started_at: Instant | None = None
    ended_at: Instant | None = None
    duration_seconds: float | None = None  # None until it has ended
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    steps: tuple[Step, ...] = ()
    cpu_seconds: float = 0.0
    max_memory_bytes: int = 0
    output: OutputSummary = OutputSummary()


class LateResult(Answer, frozen=True, kw_only=True):
    """A report that came after its lease had ended: refused, and kept aside."""

    attempt: int
    session: str = ""
    received_at: Instant = UNSENT
    result: str = ""
    message: str = ""


class Reported(Answer, frozen=True, kw_only=True):
    """A report that was accepted; the same report again has the same answer."""

    run: str
    attempt: int
    number: int | None = None  # None: it was not counted
    state: str  # as it was reported: processing, completed, failed or cancelled


class Announcement(Answer, frozen=True, kw_only=True):
    """Something that another system was told of an attempt, or is to be told."""

    what: str  # announce or cancel
    tries: int = 0
    error: str = ""  # why the last try was in vain; "": it was not
    sent_at: Instant | None = None  # when it was answered; None: it was not
    next_at: Instant | None = None  # when it is tried again; None: it is not


class External(Answer, frozen=True, kw_only=True):
    """How the latest attempt stands, if another system does it."""

    report_due_at: Instant | None = None  # None: it has ended
    ends_at: Instant = UNSENT  # by its timeout
    number: int = 0  # of the last report that was accepted; 0: none was, or they are not counted
    told: tuple[Announcement, ...] = ()


class LinkedRun(Answer, frozen=True, kw_only=True):
    """A run that another one follows, or that follows it."""

    id: str
    job: str = ""
    state: RunState


class Probe(Answer, frozen=True, kw_only=True):
    """A run that asks, or asked, how another one ended that is UNKNOWN."""

    id: str
    attempt: int  # of the run that it asks about
    state: RunState
    answer: str | None = None  # completed, failed or retry; None: none, or not yet
    tries: int = 0


class RunDetail(Run, frozen=True, kw_only=True):
    """A run with its attempts."""

    attempts: tuple[Attempt, ...] = ()
    late_results: tuple[LateResult, ...] = ()
    external: External | None = None  # None: no other system does it
    after: LinkedRun | None = None  # the run that it follows; None: none, or it is not kept
    followed_by: tuple[LinkedRun, ...] = ()  # of jobs that follow its job now, the first ones
    probes: tuple[Probe, ...] = ()  # that asked how it ended, the latest last
    awaits_probe: bool = False  # whether the latest one is to tell how it ended
    probe_of: str | None = None  # the run that it asks about; None: it is no probe
    title: str = ""  # of its job; "": it has none
    # Of its job, in the version that it runs; steps may differ.
    isolation: IsolationWord = ""
    network: NetworkWord = ""
    run_as: str = ""  # user of the worker's machine; "": none is asked for
    limits: Mapping[str, Any] = {}  # as the job file writes them
    image: str = ""  # of a container

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more happens by itself: a probe may still end a doubt."""
        return super().is_settled and not self.awaits_probe


class StepNews(Answer, frozen=True, kw_only=True):
    """A step that began or ended while its run is watched."""

    attempt: int
    number: int  # from 0
    step: Step


class ProgressNews(Answer, frozen=True, kw_only=True):
    """How far a watched run is."""

    attempt: int
    progress: Progress


class TimeNews(Answer, frozen=True, kw_only=True):
    """The time by the server's clock: once a second, while something is watched."""

    at: Instant


class PlannedRun(Answer, frozen=True, kw_only=True):
    """A run that a trigger would make."""

    job: str
    inputs: Mapping[str, Any] | None = None  # with the job's defaults; None: it takes none
    at: Instant | None = None  # not before; None: at once
    priority: int = 5


class Batch(Answer, frozen=True, kw_only=True):
    runs: tuple[str, ...]  # their ids

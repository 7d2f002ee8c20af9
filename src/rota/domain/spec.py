"""Spec: a job's definition, validated: what to run, when, and under which rules.

Instances come from `rota.domain.jobfile` only; whoever holds a `JobSpec` may trust every field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

DEFAULT_PROJECT = "default"
DEFAULT_POOL = "default"
EXTERNAL_POOL = "_external"  # of jobs that other systems do: no worker can be in it, as no name
LEAST_PRIORITY, GREATEST_PRIORITY = 0, 9
PRIORITIES = range(LEAST_PRIORITY, GREATEST_PRIORITY + 1)
DEFAULT_PRIORITY = 5
DEFAULT_GRACE = timedelta(seconds=10)
DEFAULT_LOG_LIMIT = 100 * 1024 * 1024
DEFAULT_MAX_LOSSES = 3
DEFAULT_PROBE_TIMEOUT = timedelta(minutes=1)
DEFAULT_ARTIFACT_BYTES = 100 * 1024 * 1024
DEFAULT_ARTIFACT_KEEP = timedelta(days=30)
RESERVED_ENV = "ROTA_"  # variables of a job that begin so are set by Rota alone


class JobType(StrEnum):
    """Types that Rota brings; others are names of plug-in types."""

    SHELL = "shell"
    PYTHON = "python"
    CONTAINER = "container"  # exactly the jobs whose isolation is that
    HTTP = "http"  # another system does the work: it is asked by HTTP, and looked after
    EXTERNAL = "external"  # another system does the work: it is told, and reports


TYPE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def is_plugin_type(kind: str) -> bool:
    """Return whether a type of jobs is none that Rota brings."""
    return bool(kind) and kind not in list(JobType)


class Isolation(StrEnum):
    """Wall between a run and its worker, from the lowest."""

    PROCESS = "process"
    SANDBOX = "sandbox"
    CONTAINER = "container"


class Network(StrEnum):
    """Network that a run sees."""

    NONE = "none"
    OUTBOUND = "outbound"  # public addresses only
    HOST = "host"  # the worker's own


class PullPolicy(StrEnum):
    ALWAYS = "always"
    IF_MISSING = "if_missing"
    NEVER = "never"


class Delivery(StrEnum):
    """Reaction to a lost worker: try again, or stop and ask."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Overlap(StrEnum):
    """Rule for a scheduled run while another of its job is active."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_PREVIOUS = "cancel_previous"
    ALLOW = "allow"


class MisfirePolicy(StrEnum):
    """Policy on which of the due times that passed while nothing could fire still run."""

    NONE = "none"
    LAST = "last"
    FIRST = "first"
    ALL = "all"


class Backoff(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class StepCondition(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    ALWAYS = "always"


class IntervalFrom(StrEnum):
    SCHEDULE = "schedule"
    COMPLETION = "completion"


class Gap(StrEnum):
    """A local time that does not exist because clocks went forward."""

    RUN_AFTER = "run_after"
    SKIP = "skip"


class Fold(StrEnum):
    """A local time that exists twice because clocks went back."""

    FIRST = "first"
    BOTH = "both"


class Late(StrEnum):
    """Rule for a run that missed its `start_within`."""

    RUN = "run"
    DROP = "drop"


class OutputKept(StrEnum):
    """Place where the output of attempts is kept."""

    AUTO = "auto"  # a few kilobytes in the store, more in the blob store
    BLOBS = "blobs"  # all of it in the blob store


class InputType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    FILE = "file"  # a value is {"file": name, "digest": "sha256:…", "size": bytes}
    CHOICE = "choice"  # one of a few texts


class When(StrEnum):
    """End of a run that another job follows."""

    COMPLETED = "completed"
    FAILED = "failed"  # timed out, too
    ENDED = "ended"  # either, or cancelled


@dataclass(frozen=True, slots=True)
class Dst:
    gap: Gap = Gap.RUN_AFTER
    fold: Fold = Fold.FIRST


@dataclass(frozen=True, slots=True)
class Misfire:
    policy: MisfirePolicy = MisfirePolicy.LAST
    within: timedelta | None = timedelta(days=1)  # older due times are MISSED; None: no limit
    max: int = 100  # at most this many runs are caught up
    one_off_within: timedelta | None = None  # the same for times written one by one (ISO)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Schedule of a job, as written; `rota.domain.schedule` turns it into due times."""

    expressions: tuple[str, ...]  # cron, interval, @shortcut or ISO time; due when any of them is
    timezone: str = "UTC"  # IANA name
    dst: Dst = Dst()
    run_once: bool = False  # the first due time only, then the job is finished
    starts: datetime | None = None  # no due time before it
    ends: datetime | None = None  # no due time after it
    jitter: timedelta = timedelta(0)  # release is shifted by a stable hash of (job, due) below it
    spread: timedelta = timedelta(0)  # release is shifted by a stable hash of the job below it
    interval_from: IntervalFrom = IntervalFrom.SCHEDULE
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap.QUEUE_ONE
    start_within: timedelta | None = None  # lateness objective; None: no objective
    late: Late = Late.RUN
    calendars: tuple[str, ...] = ()  # names of those in whose windows it does not run


@dataclass(frozen=True, slots=True)
class Retry:
    attempts: int = 1  # in total, the first included
    backoff: Backoff = Backoff.FIXED
    delay: timedelta = timedelta(0)
    max_delay: timedelta = timedelta(minutes=5)
    jitter: float = 0.0  # share of the delay, 0–1, drawn at random and added
    when: frozenset[str] = frozenset({"failed", "timed_out"})
    exit_codes: frozenset[int] | None = None  # retry a failure only with one of these; None: any


@dataclass(frozen=True, slots=True)
class Probe:
    """Command that tells how a run ended whose worker vanished; it may run any number of times."""

    run: str | tuple[str, ...]  # as of a step
    shell: str = "sh"
    timeout: timedelta = DEFAULT_PROBE_TIMEOUT  # of one try
    attempts: int = 10  # tries without an answer, until a person must decide
    delay: timedelta = timedelta(seconds=5)  # before the first try; doubled from try to try
    max_delay: timedelta = timedelta(minutes=5)

    @property
    def retry(self) -> Retry:
        """Return how tries that gave no answer are repeated."""
        return Retry(self.attempts, Backoff.EXPONENTIAL, self.delay, self.max_delay)


def without_reserved(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a job may set itself: reserved ones are Rota's alone."""
    return {name: value for name, value in env.items() if not name.startswith(RESERVED_ENV)}


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Most that a run may take of its machine; None: no limit."""

    cpu: int | None = None  # thousandths of a core
    memory: int | None = None  # bytes, swap included
    processes: int | None = None
    open_files: int | None = None  # of each process
    disk: int | None = None  # bytes in its folder and /tmp: measured, soft

    def over(self, lower: RunLimits) -> RunLimits:
        """Return these limits, and those of `lower` where these have none."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return RunLimits(
            **{k: getattr(lower, k) if value is None else value for k, value in own.items()}
        )


NO_LIMITS = RunLimits()


@dataclass(frozen=True, slots=True)
class Mount:
    """Folder of the worker's machine that a container sees."""

    source: str  # absolute, below one of the worker's roots
    target: str  # absolute, in the container
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """Container of a run; with `isolation: container` only."""

    image: str  # name[:tag] or name@sha256:…
    pull: PullPolicy = PullPolicy.IF_MISSING
    registry: str = ""  # name of a login in the worker's settings; "": none
    mounts: tuple[Mount, ...] = ()
    command: tuple[str, ...] = ()  # instead of steps; with neither, what the image itself runs
    user: str = ""  # name or number, perhaps `user:group`; "": 65534


class HttpMethod(StrEnum):
    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class HttpState(StrEnum):
    """How the work stands of which another system has answered."""

    COMPLETED = "completed"
    FAILED = "failed"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class HttpValue:
    """Value that is known when a request is sent: one of these, with `prefix` before it."""

    text: str = ""  # as it was written, if nothing else is given
    input: str = ""  # name of an input of the job
    answer: str = ""  # JSON pointer into the answer to `submit`
    header: str = ""  # header of that answer
    run: str = ""  # id, job, project, due_at or attempt
    secret: str = ""  # name of a value in the worker's settings
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class HttpCall:
    """Request of a job of type `http`."""

    url: HttpValue
    method: HttpMethod = HttpMethod.GET
    path: tuple[HttpValue, ...] = ()  # segments that follow the URL's path, each encoded
    query: Mapping[str, HttpValue] = field(default_factory=dict)
    headers: Mapping[str, HttpValue] = field(default_factory=dict)
    body: Any = None  # JSON in which {input: NAME} and its like are replaced; text: sent as it is
    timeout: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class HttpResult:
    """Rule for reading how the work stands from an answer. Pointers lead into its JSON."""

    completed: tuple[str, ...] = ("2xx",)  # status codes
    running: tuple[str, ...] = ()
    pointer: str = ""  # to a value that decides where the status says completed; "": nothing does
    values: Mapping[str, HttpState] = field(default_factory=dict)  # what that value means
    otherwise: HttpState = HttpState.FAILED  # any other value
    message: str = ""  # pointer to why it failed
    progress: str = ""  # pointer to a number from 0 to 100
    outputs: Mapping[str, str] = field(default_factory=dict)  # output → pointer


@dataclass(frozen=True, slots=True)
class Http:
    """Calls of a job of type `http`."""

    submit: HttpCall
    result: HttpResult = HttpResult()
    status: HttpCall | None = None  # asked again and again; None: the answer to `submit` is final
    every: timedelta = timedelta(seconds=10)  # between two looks, unless the answer says more
    patience: timedelta = timedelta(minutes=5)  # how long `status` may give no answer of use
    cancel: HttpCall | None = None  # None: what was submitted cannot be stopped


@dataclass(frozen=True, slots=True)
class External:
    """Calls of a job of type `external`, whose end another system reports."""

    announce: HttpCall | None = None  # None: it looks for runs itself
    cancel: HttpCall | None = None  # None: nobody tells it of a cancel
    heartbeat: timedelta | None = None  # longest silence between reports; None: the timeout


@dataclass(frozen=True, slots=True)
class Git:
    """Git repository that the code of a job is fetched from."""

    url: str
    ref: str = ""  # branch, tag or commit; "" = what the repository's HEAD names
    submodules: bool = False
    credential: str = ""  # name of a login in the worker's settings; "" = none


@dataclass(frozen=True, slots=True)
class Upload:
    """Uploaded file that is the code of a job."""

    digest: str  # `sha256:` and the digits
    name: str = ""  # decides how it is used, see `domain.files.is_archive`; "": its first bytes do
    size: int = 0  # bytes; 0: not told


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Files of a step that are kept."""

    paths: tuple[str, ...]  # patterns, below the work folder
    keep: timedelta = DEFAULT_ARTIFACT_KEEP  # from the end of the step
    limit: int = DEFAULT_ARTIFACT_BYTES  # of all files of the step together


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    run: str | tuple[str, ...]  # a script for `shell`, or an argument list that needs no shell
    shell: str = "sh"
    interpreter: tuple[str, ...] = ()  # argument list the script file is appended to; beats `shell`
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: timedelta | None = None  # None: only the job's timeout bounds it
    retry: Retry = Retry()
    continue_on_error: bool = False
    condition: StepCondition = StepCondition.SUCCESS
    title: str = ""  # for people; "": its name is
    folder: str = ""  # to run in, below the work folder; "": the work folder itself
    # `None` is the job's. Steps of a container stay in it: they have none of these.
    isolation: Isolation | None = None
    network: Network | None = None
    run_as: str | None = None
    limits: RunLimits | None = None  # a limit that it does not give is the job's
    artifacts: Artifacts | None = None  # None: nothing is kept


@dataclass(frozen=True, slots=True)
class Input:
    type: InputType = InputType.STRING
    default: str | int | float | bool | None = None  # None: the input must be given
    help: str = ""
    options: tuple[str, ...] = ()  # of a choice, one of which the value is
    pattern: str = ""  # that the whole text must match; "": any text


@dataclass(frozen=True, slots=True)
class Follow:
    """One job that is followed."""

    job: str  # its name, of the same project
    when: When = When.COMPLETED
    gives: Mapping[str, str] = field(default_factory=dict)  # `with`: what each input is given

    @property
    def is_plain(self) -> bool:
        """Return whether it is what a bare name means."""
        return self.when is When.COMPLETED and not self.gives


@dataclass(frozen=True, slots=True)
class After:
    """Jobs whose runs this one follows."""

    follows: tuple[Follow, ...] = ()  # each job once
    within: timedelta | None = None  # how long a due run waits for them; None: for ever

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(follow.job for follow in self.follows)


@dataclass(frozen=True, slots=True)
class JobSpec:
    name: str
    project: str = DEFAULT_PROJECT
    type: str = JobType.SHELL  # a `JobType`, or the name of a plug-in type
    title: str = ""  # for people, in any script; "": its name is
    description: str = ""
    owner: str = ""
    runbook: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True

    schedule: Schedule | None = None  # None: on demand only
    max_concurrency: int | None = None  # None: unlimited, but for the overlap rule

    steps: tuple[Step, ...] = ()  # type shell
    function: str = ""  # type python: the name it was registered under
    # `source`: at most one of these three; none of them = a fresh, empty folder.
    path: str = ""  # the folder on the worker to run in; "" = a fresh one
    git: Git | None = None
    upload: Upload | None = None
    isolation: Isolation = Isolation.PROCESS
    network: Network = Network.HOST  # the only one that `process` has
    run_as: str = ""  # user of the worker's machine; "" = whom the worker takes for this wall
    limits: RunLimits = NO_LIMITS
    container: Container | None = None  # exactly where the isolation is that
    http: Http | None = None  # exactly where the type is that
    external: External | None = None  # exactly where the type is that
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of a plug-in type; JSON
    env: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)

    priority: int = DEFAULT_PRIORITY  # 0–9, 9 goes first
    share: str = ""  # fair-share key; "" = the project, and the user in it
    pool: str = DEFAULT_POOL
    needs: Mapping[str, str] = field(default_factory=dict)  # labels the worker must have
    expect: timedelta | None = None  # expected duration until history knows better
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths; worker's and named
    rate_limits: Mapping[str, int] = field(default_factory=dict)  # tokens, of named limits
    exclusive_by: tuple[str, ...] = ()  # no two runs with equal values of these inputs at once
    after: After = After()

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    timeout: timedelta | None = None  # per attempt, from its start
    deadline: timedelta | None = None  # for the run, from due
    grace: timedelta = DEFAULT_GRACE  # between TERM and KILL
    retry: Retry = Retry()
    max_losses: int = DEFAULT_MAX_LOSSES  # worker losses a run survives
    probe: Probe | None = None  # only of at_most_once; None: a person decides what is UNKNOWN
    stalled_after: timedelta | None = None  # an attempt silent for so long is stopped; None: never
    lease: timedelta | None = None  # the shortest lease a worker for it may have; None: any
    log_limit: int = DEFAULT_LOG_LIMIT  # bytes of output kept per attempt
    output: OutputKept = OutputKept.AUTO


def run_limits(spec: JobSpec, step: Step | None = None) -> RunLimits:
    """Return the limits that a job gives, or a step of it: its worker must offer them."""
    if step is None or step.limits is None:
        return spec.limits
    return step.limits.over(spec.limits)


def booked_limits(spec: JobSpec) -> RunLimits:
    """Return what a job books, as limits: they count where it gives none and its worker can."""
    cpu, memory = (spec.resources.get(name) for name in ("cpu", "memory"))
    return RunLimits(cpu=cpu or None, memory=memory // 1000 if memory else None)

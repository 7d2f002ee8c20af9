"""Job as the store keeps it, and the digest of its rules that every batch decision reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rota.domain.external import calls_of
from rota.domain.http import secrets_of
from rota.domain.ids import JobId
from rota.domain.resources import UNIT
from rota.domain.run import Trigger
from rota.domain.spec import (
    DEFAULT_MAX_LOSSES,
    DEFAULT_POOL,
    DEFAULT_PRIORITY,
    Delivery,
    Follow,
    Input,
    JobSpec,
    JobType,
    Late,
    Overlap,
    Retry,
)
from rota.domain.states import Cause
from rota.domain.walls import Walls, walls_of


@dataclass(frozen=True, slots=True)
class RunRules:
    """Rules of one job version for gates, order and retry; immutable, so freely cached."""

    name: str
    project: str
    pool: str = DEFAULT_POOL
    priority: int = DEFAULT_PRIORITY
    share: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    function: str = ""  # only a worker that registered it can run the job; "" = any worker
    overlap: Overlap = Overlap.QUEUE_ONE
    max_concurrency: int | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    retry: Retry = Retry()
    max_losses: int = DEFAULT_MAX_LOSSES
    deadline: timedelta | None = None
    start_within: timedelta | None = None
    late: Late = Late.RUN
    expect: timedelta | None = None
    timeout: timedelta | None = None  # of an attempt
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths, of the worker
    uses: Mapping[str, int] = field(default_factory=dict)  # units, of named global resources
    rate_limits: Mapping[str, int] = field(default_factory=dict)  # tokens, of named limits
    exclusive_by: tuple[str, ...] = ()  # inputs
    # What such an input is where a run is given none, as by a schedule.
    exclusive_defaults: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    after: tuple[str, ...] = ()  # names of jobs of the project
    follows: tuple[Follow, ...] = ()  # of `after`, those that are more than a name
    handed: Mapping[str, Input] = field(default_factory=dict)  # inputs that these give values
    after_within: timedelta | None = None
    is_scheduled: bool = False  # it has due times: those wait for the jobs in `after`
    log_limit: int | None = None  # bytes; None: an earlier release wrote these rules
    walls: Walls | None = None  # None: plain processes
    kind: str = ""  # its type, where neither function nor walls tell
    heartbeat: timedelta | None = None  # longest silence of another system; None: the timeout
    tells: tuple[str, ...] = ()  # what another system is told of, see `domain.external.Notice`
    secrets: tuple[str, ...] = ()  # values that the worker must have for it
    lease: timedelta | None = None  # the shortest that its worker may have; None: any
    probe: Retry | None = None  # how its probe is repeated; None: it has none

    def follow(self, upstream: str) -> Follow:
        """Return how it follows a job of `after`."""
        return next((each for each in self.follows if each.job == upstream), Follow(upstream))

    def drops_late(self, trigger: Trigger) -> bool:
        """Return whether a run that is too late is dropped: never one that a person asked for."""
        return self.late is Late.DROP and trigger is Trigger.SCHEDULE


_TOLD_BY_OTHERS = (JobType.SHELL, JobType.PYTHON, JobType.CONTAINER)


def rules_of(spec: JobSpec, shared: Collection[str] = ()) -> RunRules:
    """Derive the rules of a spec. `shared` are the project's named resources."""
    schedule = spec.schedule
    return RunRules(
        name=spec.name,
        project=spec.project,
        pool=spec.pool,
        priority=spec.priority,
        share=spec.share,
        needs=spec.needs,
        function=spec.function,
        overlap=schedule.overlap if schedule else Overlap.QUEUE_ONE,
        max_concurrency=spec.max_concurrency,
        delivery=spec.delivery,
        retry=spec.retry,
        max_losses=spec.max_losses,
        deadline=spec.deadline,
        start_within=schedule.start_within if schedule else None,
        late=schedule.late if schedule else Late.RUN,
        expect=spec.expect,
        timeout=spec.timeout,
        resources={k: v for k, v in spec.resources.items() if k not in shared},
        uses={k: v // UNIT for k, v in spec.resources.items() if k in shared},
        rate_limits=spec.rate_limits,
        exclusive_by=spec.exclusive_by,
        exclusive_defaults=_defaults(spec, spec.exclusive_by),
        after=spec.after.jobs,
        follows=tuple(follow for follow in spec.after.follows if not follow.is_plain),
        handed=_handed(spec),
        after_within=spec.after.within,
        is_scheduled=schedule is not None,
        log_limit=spec.log_limit,
        walls=walls_of(spec),
        kind="" if spec.type in _TOLD_BY_OTHERS else spec.type,
        heartbeat=spec.external.heartbeat if spec.external else None,
        tells=tuple(name for name, _ in calls_of(spec.external)) if spec.external else (),
        secrets=secrets_of(spec.http) if spec.http else (),
        lease=spec.lease,
        probe=spec.probe.retry if spec.probe else None,
    )


def _handed(spec: JobSpec) -> dict[str, Input]:
    names = {name for follow in spec.after.follows for name in follow.gives}
    return {name: each for name, each in spec.inputs.items() if name in names}


def _defaults(spec: JobSpec, names: Collection[str]) -> dict[str, str | int | float | bool]:
    inputs = {name: spec.inputs[name] for name in names if name in spec.inputs}
    return {name: each.default for name, each in inputs.items() if each.default is not None}


@dataclass(frozen=True, slots=True)
class Job:
    """A named, versioned definition with where its schedule stands."""

    id: JobId
    project: str
    name: str
    version: int
    document: Mapping[str, Any]  # the job in the job file's own vocabulary
    digest: str  # of the document: the ETag
    set_name: str
    created_by: str
    created_at: datetime
    updated_at: datetime
    enabled: bool
    paused: bool
    paused_by: str
    paused_until: datetime | None  # when the pause ends by itself; None: never
    finished_at: datetime | None  # a `run_once` job that has fired
    schedule_version: int
    next_at: datetime | None  # next due time; None: none to come, or held by pause or disable
    held_from: datetime | None  # the due time at which pause or disable caught the schedule
    anchor: datetime  # intervals count from here
    waits: bool  # its next due time depends on the end of its latest run
    answered_to: datetime  # the latest due time that has its answer, perhaps one to come; or 1970
    expected_seconds: float | None  # moving average of its runs; None before the first
    last_state: str | None = None  # of the newest run, also of one that waits; None: there is none
    last_ended_at: datetime | None = None
    stuck_since: datetime | None = None  # since when runs wait in vain; None: they do not
    deleted_at: datetime | None = None  # None: it is in service

    @property
    def cursor(self) -> datetime | None:
        """First due time that has no answer yet; None: none to come, or not known yet."""
        return self.next_at or self.held_from

    @property
    def is_held(self) -> bool:
        """Return whether somebody keeps its schedule from firing."""
        return self.paused or not self.enabled

    @property
    def hold_cause(self) -> str:
        """Cause of its hold; "" if it is not held."""
        if self.paused:
            return Cause.PAUSED
        return "" if self.enabled else Cause.DISABLED

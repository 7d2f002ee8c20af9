"""An app's jobs without a server: functions run in the test itself, and time moves when told.

    with inline(app, now="2026-03-28T02:30", tz="Europe/Berlin") as t:
        t.advance("1d")
        assert t.submitted("nightly_backup") == 1
        assert t.runs[-1].state == "COMPLETED"

Due times, inputs and retries follow the rules of the real server. Runs take no time, so nothing
overlaps or times out; gates, calendars, priorities and workers are not there. Work that an executor
class of the app looks after takes the time that it says; what a look raises is a failure at once.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

from rota.domain.jobfile import parse_inputs, read_job
from rota.domain.quantities import parse_duration
from rota.domain.retry import Ending, attempt_ended
from rota.domain.run import AttemptResult
from rota.domain.schedule import Timetable
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import JobSpec
from rota.domain.states import FINAL_STATES, RunState
from rota.operations.specs import timetable
from rota.sdk.answers import Batch, LogLine, LogWindow, Progress, Run, RunDetail
from rota.sdk.app import App
from rota.sdk.context import Context, Identity, StepReport
from rota.sdk.errors import NotFound
from rota.sdk.exchange import to_plain
from rota.sdk.executors import Hosted, RemoteRun, Status
from rota.sdk.functions import JobFunction


@dataclass(slots=True, eq=False)
class InlineRun:
    """A run, as it stands. Hears the context of its function."""

    id: str
    job: str
    due_at: datetime
    inputs: Mapping[str, Any]
    state: RunState = RunState.SCHEDULED
    eligible_at: datetime | None = None  # when it is run; None once it has ended
    attempt: int = 0
    failures: int = 0
    output: Any = None  # what the function returned
    message: str = ""
    cause: str = ""
    printed: str = ""  # all that its attempts printed
    steps: list[StepReport] = field(default_factory=list)  # of the latest attempt
    last_progress: tuple[float, float | None, str] | None = None
    is_cancelled: bool = False
    handle: Any = None  # what names its work elsewhere; None: it was not submitted

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    def progress(self, done: float, total: float | None, message: str) -> None:
        self.last_progress = (done, total, message)

    def log(self, text: str) -> None:
        sys.stdout.write(text)  # which is captured while the function runs

    def step_began(self, number: int, name: str) -> None:
        self.steps.append(StepReport(name, "running", 0.0))

    def step_ended(self, number: int, report: StepReport, outer: int | None) -> None:
        self.steps[number] = report

    def answer(self) -> RunDetail:
        """As the server would show it."""
        progress = self.last_progress
        return RunDetail(
            id=self.id,
            job=self.job,
            state=self.state,
            due_at=self.due_at,
            attempt=self.attempt,
            failures=self.failures,
            inputs=self.inputs,
            outputs=self.output,
            message=self.message,
            cause=self.cause,
            progress=progress
            and Progress(done=progress[0], total=progress[1], message=progress[2]),
        )

    def lines(self) -> tuple[LogLine, ...]:
        return tuple(
            LogLine(n=number, text=text) for number, text in enumerate(self.printed.splitlines())
        )


def execute(run: InlineRun, job: JobFunction[..., Any, Any], spec: JobSpec, now: datetime) -> None:
    """One attempt, and what follows from its end by the job's rules."""
    run.attempt += 1
    run.state = RunState.PROCESSING
    run.steps.clear()
    _end(run, _attempt(run, job, spec), spec, now)


def look_after(run: InlineRun, hosted: Hosted, spec: JobSpec, now: datetime) -> None:
    """Submit the work of a run, or look at it once; the next look is `every` seconds later."""
    if run.state is not RunState.PROCESSING:
        run.attempt += 1
        run.state = RunState.PROCESSING
    captured = StringIO()
    try:
        with redirect_stdout(captured), redirect_stderr(captured):
            status = _asked(run, hosted, spec)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the edge of the class)
        status = Status("failed", traceback.format_exception_only(error)[-1].strip())
        captured.write("".join(traceback.format_exception(error)))
    run.printed += captured.getvalue()
    if status.state == "processing":
        if status.progress is not None:
            run.progress(status.progress, status.total, status.message)
        run.eligible_at = now + timedelta(seconds=hosted.described().every)
        return
    is_done = status.state == "completed"
    run.handle, run.output, run.message = None, to_plain(status.output), status.message
    _end(run, AttemptResult.COMPLETED if is_done else AttemptResult.FAILED, spec, now)


def _asked(run: InlineRun, hosted: Hosted, spec: JobSpec) -> Status:
    instance = hosted.instance()
    if run.handle is None:
        told = RemoteRun(
            run.id, run.job, spec.project, run.attempt, run.due_at, run.inputs, spec.parameters
        )
        begun = _returned(instance.submit(told))
        if isinstance(begun, Status):
            return begun
        run.handle = to_plain(begun)
        return Status("processing")
    status = _returned(instance.status(run.handle))
    return status if isinstance(status, Status) else Status(status)


def _returned(value: Any) -> Any:
    return _awaited(value) if asyncio.iscoroutine(value) else value


def _end(run: InlineRun, result: AttemptResult, spec: JobSpec, now: datetime) -> None:
    ending = Ending(RunState.PROCESSING, result, now, failures=run.failures)
    verdict = attempt_ended(ending, spec.retry, spec.max_losses, 0.0)
    run.state, run.cause, run.eligible_at = verdict.state, verdict.cause, verdict.eligible_at
    run.failures += result is AttemptResult.FAILED


def _attempt(run: InlineRun, job: JobFunction[..., Any, Any], spec: JobSpec) -> AttemptResult:
    captured = StringIO()
    try:
        with redirect_stdout(captured), redirect_stderr(captured):
            run.output = to_plain(_call(run, job, spec))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the edge of the function)
        run.message = traceback.format_exception_only(error)[-1].strip()
        captured.write("".join(traceback.format_exception(error)))
        return AttemptResult.FAILED
    finally:
        run.printed += captured.getvalue()
    return AttemptResult.COMPLETED


def _call(run: InlineRun, job: JobFunction[..., Any, Any], spec: JobSpec) -> Any:
    arguments = job.parameters.unpack(run.inputs)
    identity = Identity(run.id, run.job, run.attempt, run.due_at, spec.project, run.inputs)
    context = [Context(identity, run)] if job.parameters.takes_context else []
    value = job.fn(*context, **arguments)
    return _awaited(value) if job.is_async else value


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The coroutine's result, also where the test itself runs on an event loop."""
    outcome: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]


Inputs = Mapping[str, object]

_BEGINNING = "2026-01-01T00:00"


@contextmanager
def inline(app: App, now: datetime | str = _BEGINNING, tz: str = "UTC") -> Iterator[Inline]:
    """Run the app's jobs here. `now` is a time of the zone `tz` unless it has an offset."""
    world = Inline(app, _instant(now, tz))
    with app.submitting_to(world, _Awaited(world)):
        yield world


@dataclass(slots=True, eq=False)
class _Job:
    does: JobFunction[..., Any, Any] | Hosted
    spec: JobSpec
    timetable: Timetable | None
    next_at: datetime | None

    def call_off(self, run: InlineRun) -> None:
        """Tell what does the work of a cancelled run to stop."""
        if not isinstance(self.does, Hosted) or run.handle is None:
            return
        if cancel := getattr(self.does.instance(), "cancel", None):
            _returned(cancel(run.handle))

    def act(self, run: InlineRun, now: datetime) -> None:
        """Let a run go on that is ready."""
        run.eligible_at = None
        if isinstance(self.does, Hosted):
            look_after(run, self.does, self.spec, now)
        else:
            execute(run, self.does, self.spec, now)


class Inline:
    """A small world of one app. To the app's jobs it is the client they submit to."""

    def __init__(self, app: App, now: datetime) -> None:
        self.runs: list[InlineRun] = []  # in the order of their making
        self._waiting: list[InlineRun] = []  # for their time, in the order of their making
        self._now = now
        self._jobs = {
            name: _job(job, read_job(job.document()), now) for name, job in app.jobs.items()
        }
        for name, defined in app.defined.items():
            hosted = app.executors.get(defined.kind)
            if hosted is not None:  # else a plug-in does it
                self._jobs[name] = _job(hosted, read_job(defined.document()), now)
        self._by_key: dict[tuple[str, str], InlineRun] = {}

    def now(self) -> datetime:
        return self._now

    def advance(self, duration: timedelta | str) -> None:
        """Move time on, running on the way whatever becomes due."""
        length = parse_duration(duration) if isinstance(duration, str) else duration
        end = self._now + length
        while (moment := self._next_moment()) is not None and moment <= end:
            self._now = moment
            for job in self._jobs.values():
                if job.next_at == moment:
                    self._fire(job, moment)
            self._run_what_is_ready()
        self._now = end

    def submitted(self, job: str) -> int:
        """How many runs of a job there were, by schedule or by `submit`."""
        return sum(run.job == job for run in self.runs)

    def trigger(
        self,
        job: str,
        inputs: Inputs | None = None,
        *,
        at: datetime | str | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> Run:
        if job not in self._jobs:
            raise NotFound(f"the app has no job {job}")
        known = self._by_key.get((job, key)) if key else None
        if known is not None:
            return known.answer()
        due_at = self._now if at is None else _instant(at, "UTC")
        run = self._add(self._jobs[job], due_at, inputs or {})
        if key:
            self._by_key[job, key] = run
        self._run_what_is_ready()
        return run.answer()

    def trigger_many(self, job: str, inputs: Sequence[Inputs], *, key: str | None = None) -> Batch:
        keys = [f"{key}/{number}" if key else None for number in range(len(inputs))]
        runs = [self.trigger(job, each, key=own) for each, own in zip(inputs, keys, strict=True)]
        return Batch(runs=tuple(run.id for run in runs))

    def wait(self, run: str, timeout_seconds: float | None = None) -> RunDetail:
        """A run that has ended; only `advance` can bring another to its end."""
        found = self._find(run)
        if not found.is_final:
            raise TimeoutError(f"run {run} is {found.state} until {found.eligible_at}")
        return found.answer()

    def cancel_run(self, run: str) -> Run:
        found = self._find(run)
        if found in self._waiting:
            self._waiting.remove(found)
            self._jobs[found.job].call_off(found)
            found.state, found.eligible_at = RunState.CANCELLED, None
        else:
            found.is_cancelled = True
        return found.answer()

    def follow_log(self, run: str) -> Iterator[LogWindow | Run]:
        found = self._find(run)
        yield LogWindow(run=run, attempt=found.attempt, lines=found.lines(), complete=True)
        yield found.answer()

    def address_of(self, run: str) -> str:
        return f"inline:/runs/{run}"

    def _next_moment(self) -> datetime | None:
        due = (job.next_at for job in self._jobs.values())
        eligible = (run.eligible_at for run in self._waiting)
        return min((time for time in (*due, *eligible) if time is not None), default=None)

    def _fire(self, job: _Job, due_at: datetime) -> None:
        assert job.timetable is not None
        self._add(job, due_at, {})
        # A run ends at the very instant of its start, so its completion is its due time.
        follow = job.timetable.after_completion if job.timetable.after_previous else None
        after = follow(due_at) if follow else job.timetable.next_after(due_at)
        job.next_at = None if job.timetable.run_once else after

    def _add(self, job: _Job, due_at: datetime, inputs: Inputs) -> InlineRun:
        checked = parse_inputs(job.spec, inputs)
        number = len(self.runs) + 1
        run = InlineRun(f"r_{number}", job.spec.name, due_at, checked, eligible_at=due_at)
        self.runs.append(run)
        self._waiting.append(run)
        return run

    def _run_what_is_ready(self) -> None:
        while ready := [run for run in self._waiting if self._is_ready(run)]:
            run = ready[0]
            self._waiting.remove(run)
            job = self._jobs[run.job]
            job.act(run, self._now)
            if not run.is_final:
                self._waiting.append(run)

    def _is_ready(self, run: InlineRun) -> bool:
        return run.eligible_at is not None and run.eligible_at <= self._now

    def _find(self, run: str) -> InlineRun:
        for each in self.runs:
            if each.id == run:
                return each
        raise NotFound(f"there is no run {run}")


class _Awaited:
    """The same world for `asubmit`."""

    def __init__(self, world: Inline) -> None:
        self._world = world
        self.now = world.now
        self.address_of = world.address_of

    async def trigger(
        self,
        job: str,
        inputs: Inputs | None = None,
        *,
        at: datetime | str | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> Run:
        return self._world.trigger(job, inputs, at=at, priority=priority, key=key)

    async def wait(self, run: str, timeout_seconds: float | None = None) -> RunDetail:
        return self._world.wait(run)

    async def cancel_run(self, run: str) -> Run:
        return self._world.cancel_run(run)

    async def follow_log(self, run: str) -> AsyncIterator[LogWindow | Run]:
        for part in self._world.follow_log(run):
            yield part


def _job(does: JobFunction[..., Any, Any] | Hosted, spec: JobSpec, now: datetime) -> _Job:
    if spec.schedule is None or not spec.enabled:
        return _Job(does, spec, None, None)
    table = timetable(spec, now)
    return _Job(does, spec, table, table.next_after(now) if table else None)


def _instant(time: datetime | str, zone: str) -> datetime:
    instant = datetime.fromisoformat(time) if isinstance(time, str) else time
    return load_zone(zone).instant(instant) if instant.tzinfo is None else instant

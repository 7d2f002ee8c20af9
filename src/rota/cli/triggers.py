"""Triggering of runs of a job: now, later, or for due times of the past."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rota.cli import times
from rota.cli.failures import counted
from rota.cli.files import as_inputs
from rota.cli.job_views import range_words, span
from rota.cli.options import Duration, Instant, Priority, Remote, Writing, take_time
from rota.cli.printing import print_one
from rota.cli.references import Answered, ask, page_address
from rota.cli.terminal import MANY, CommandFailed, Exit, Terminal, inert
from rota.cli.watching import watch
from rota.sdk.answers import Backfill, Run, SkippedDueTimes
from rota.sdk.client import Client


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Request:
    """Options of a trigger: inputs, time, and whether to wait."""

    input: Annotated[
        tuple[str, ...],
        Parameter(
            name=["--input", "-i"],
            metavar="NAME=VALUE",
            help="An input of the job; repeatable. One that is a file: NAME=@FILE.",
        ),
    ] = ()
    at: Annotated[
        Instant | None, Parameter(help="Not before this time; one that has passed means now.")
    ] = None
    priority: Priority | None = None
    key: Annotated[
        str | None,
        Parameter(metavar="KEY", help="Idempotency key: the same key again gives the same run."),
    ] = None
    watch: Annotated[bool, Parameter(name=["--watch", "-w"], help="Follow the run to its end.")] = (
        False
    )
    timeout: Annotated[
        Duration | None, Parameter(help="With --watch: stop watching after this time (30s, 5m).")
    ] = None


NOW = Request()


def request_run(job: str, request: Request, writing: Writing) -> Exit:
    """Trigger a run and, where asked, watch it."""
    given = dict(_pair(text) for text in request.input)
    is_now = request.at is None or request.at.lower() == "now"
    start = take_time(None if is_now else request.at, ahead=True)
    with writing.connect() as client:
        inputs = as_inputs(client, job, given)
        if writing.dry_run:
            client.plan_run(job, inputs, at=start.sent, priority=request.priority)
            found = client.get_job(job)
            when = _planned_start(start.at, times.now()) if start.at else ""
            writing.rehearse(f"would trigger job {found.name} ({found.status}){when}")
        call = Client.trigger(
            job, inputs, at=start.sent, priority=request.priority, key=request.key
        )
        triggered = ask(client, call)
        if start.at:
            writing.terminal().tell(_start(triggered.value, start.at, times.now()))
        if request.watch:
            return watch(client, triggered.value.id, writing, timeout=request.timeout)
    page = partial(_write_triggered, server=client.server.url)
    print_one(writing, triggered, name=lambda run: run.id, page=page)
    return Exit.DONE


def _planned_start(at: datetime, present: datetime) -> str:
    if at <= present:
        return f"; {times.absolute(at)} has passed: it would start now"
    return f" to start {times.moment(at, present)}"


def _start(run: Run, at: datetime, present: datetime) -> str:
    """Return when the run starts that was asked for at a time."""
    if _starts_at_once(run):
        passed = f"{times.absolute(at)} has passed: the run starts now"
        return f"{passed} · rota run cancel {run.id}"
    return f"due {times.moment(run.due_at, present)}"


def _starts_at_once(run: Run) -> bool:
    """Return whether the requested time had passed: the server then takes its own instead."""
    return run.due_at == run.created_at


def _write_triggered(terminal: Terminal, run: Run, server: str) -> None:
    waits_for = f": {inert(run.waiting)}" if run.state == "BLOCKED" and run.waiting else ""
    terminal.write(f"run {run.id} {run.state.lower()}{waits_for}")
    actions = [inert(reason.action) for reason in run.reasons if reason.action]
    terminal.tell(" · ".join([*actions, f"rota run watch {run.id}", page_address(server, run.url)]))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandFailed(
            f'--input "{text}" is not NAME=VALUE', code=Exit.USAGE, hint="--input target=orders"
        )
    return name, value


_CAUSES = {"active": "still going", "completed": "completed", "not_failed": "did not fail"}


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Range:
    """Range of due times, and how to run them."""

    from_: Annotated[
        Instant,
        Parameter(name="--from", help="The first due time, or a time before it (3d, 2026-11-01)."),
    ]
    to: Annotated[
        Instant | None, Parameter(help="The last due time, or a time after it. Default: now.")
    ] = None
    only: Annotated[
        Literal["missing", "failed"] | None,
        Parameter(help="Only due times that no run completed, or that failed."),
    ] = None
    max_parallel: Annotated[
        int | None,
        Parameter(
            metavar="N", validator=Number(gte=1), help="How many runs at a time. Default: 1."
        ),
    ] = None
    key: Annotated[
        str | None,
        Parameter(metavar="KEY", help="Idempotency key: the same key again does nothing new."),
    ] = None
    plan: Annotated[
        bool,
        Parameter(
            name=["--plan", "--dry-run"],
            help="Only show what would run; exit code 20 if something would.",
        ),
    ] = False
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")] = False


def request_backfill(job: str, wanted: Range, remote: Remote) -> Exit:
    """Plan a backfill and, unless only the plan was wanted, start it."""
    first, last = take_time(wanted.from_, ahead=False), take_time(wanted.to, ahead=False)
    to_now = "" if last.at else " to now"
    remote.terminal().tell(f"due times {range_words(first.at, last.at)}{to_now}")
    wanted = replace(wanted, from_=first.sent or "", to=last.sent)
    with remote.connect() as client:
        planned = _ask(client, job, wanted, plan=True)
        if wanted.plan:
            _print(remote, planned, job)
            return Exit.CHANGES if planned.value.runs else Exit.DONE
        if planned.value.runs > MANY:
            question = f"start {planned.value.runs:,} runs of {inert(job)}?"
            otherwise = "look with --plan, then add --yes"
            remote.terminal().confirm(question, yes=wanted.yes, otherwise=otherwise)
        started = _ask(client, job, wanted)
    _print(remote, started, job)
    return Exit.DONE


def _ask(client: Client, job: str, wanted: Range, *, plan: bool = False) -> Answered[Backfill]:
    call = Client.backfill_job(
        job,
        wanted.from_,
        wanted.to,
        only=wanted.only,
        max_parallel=wanted.max_parallel,
        plan=plan,
        key=wanted.key,
    )
    return ask(client, call)


def _print(remote: Remote, answered: Answered[Backfill], job: str) -> None:
    page = partial(_write, job=job)
    print_one(remote, answered, name=lambda backfill: backfill.id or job, page=page)


def _write(terminal: Terminal, backfill: Backfill, job: str) -> None:
    verb = "would run" if backfill.id is None else f"backfill {backfill.id}:"
    terminal.write(f"{verb} {_runs(backfill)} of {inert(job)}")
    for group in backfill.skipped:
        terminal.write(f"  left out: {_left_out(group)}")
    if backfill.id is not None and backfill.runs:
        terminal.tell(f"rota run list --where backfill:{backfill.id}")


def _runs(backfill: Backfill) -> str:
    if backfill.first is None or backfill.last is None:
        return "nothing"
    return f"{counted(backfill.runs, 'due time')} ({span(backfill.first, backfill.last)})"


def _left_out(group: SkippedDueTimes) -> str:
    cause = inert(_CAUSES.get(group.cause, group.cause))
    return f"{group.count:,} {cause} ({span(group.first, group.last)})"

"""Triggering of runs of a job: now, later, or for due times of the past."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rota.cli.failures import counted
from rota.cli.job_views import span
from rota.cli.options import Duration, Instant, Remote, WholeNumber, Writing
from rota.cli.printing import print_one
from rota.cli.references import Answered, ask
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
            name=["--input", "-i"], metavar="NAME=VALUE", help="An input of the job; repeatable."
        ),
    ] = ()
    at: Annotated[
        Instant | None, Parameter(help="Not before this time; one that has passed means now.")
    ] = None
    priority: Annotated[WholeNumber | None, Parameter(help="0 to 9; 9 goes first.")] = None
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
    inputs = dict(_pair(text) for text in request.input)
    call = Client.trigger(job, inputs, at=request.at, priority=request.priority, key=request.key)
    with writing.connect() as client:
        if writing.dry_run:
            found = client.get_job(job)
            would = f"would trigger job {found.name} ({found.status})"
            writing.rehearse(would, changes=found.enabled)
        triggered = ask(client, call)
        at = request.at or "now"
        if at.lower() != "now" and _starts_at_once(triggered.value):
            passed = f"{inert(at)} has passed: the run starts now"
            writing.terminal().tell(f"{passed} · rota run cancel {triggered.value.id}")
        if request.watch:
            return watch(client, triggered.value.id, writing, timeout=request.timeout)
    page = partial(_write_triggered, server=client.server.url)
    print_one(writing, triggered, name=lambda run: run.id, page=page)
    return Exit.DONE


def _starts_at_once(run: Run) -> bool:
    """Return whether the requested time had passed: the server then takes its own instead."""
    return run.due_at == run.created_at


def _write_triggered(terminal: Terminal, run: Run, server: str) -> None:
    waits_for = f": {inert(run.waiting)}" if run.state == "BLOCKED" and run.waiting else ""
    terminal.write(f"run {run.id} {run.state.lower()}{waits_for}")
    actions = [inert(reason.action) for reason in run.reasons if reason.action]
    terminal.tell(" · ".join([*actions, f"rota run watch {run.id}", f"{server}{run.url}"]))


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

"""Asking for a run of a job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from cyclopts import Parameter

from rota.cli.asking import ask
from rota.cli.durations import Duration
from rota.cli.exits import CommandFailed, Exit
from rota.cli.inert import inert
from rota.cli.instants import Instant
from rota.cli.options import Writing
from rota.cli.printing import print_one
from rota.cli.terminal import Terminal
from rota.cli.watching import watch
from rota.cli.whole_numbers import WholeNumber
from rota.sdk import calls
from rota.sdk.answers import Run


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and whether to stay for it."""

    input: Annotated[
        tuple[str, ...],
        Parameter(
            name=["--input", "-i"], metavar="NAME=VALUE", help="An input of the job; repeatable."
        ),
    ] = ()
    at: Annotated[Instant | None, Parameter(help="Not now but at this time.")] = None
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
    call = calls.trigger(job, inputs, at=request.at, priority=request.priority, key=request.key)
    with writing.connect() as client:
        if writing.dry_run:
            found = client.get_job(job)
            writing.terminal().tell(f"would trigger job {inert(found.name)} ({found.status})")
            return Exit.DONE
        triggered = ask(client, call)
        if request.watch:
            return watch(client, triggered.value.id, writing, timeout=request.timeout)
    page = partial(_write_triggered, server=client.server.url)
    print_one(writing, triggered, name=lambda run: run.id, page=page)
    return Exit.DONE


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

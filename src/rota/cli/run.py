"""`rota run`: see, watch and steer runs."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from rota.cli import run_steering, times
from rota.cli.asking import ask, ask_list
from rota.cli.durations import Duration
from rota.cli.exits import Exit
from rota.cli.logs import logs
from rota.cli.options import DESTROYING, REMOTE, WRITING, Destroying, Limit, Remote, Writing
from rota.cli.printing import print_list, print_one
from rota.cli.references import (
    ActiveRunReferences,
    LatestRunReference,
    RunReference,
    active_run,
    run_id,
    run_or_latest,
)
from rota.cli.run_views import RUNS, write_run
from rota.cli.terminal import MANY
from rota.cli.watching import watch as watch_run
from rota.cli.why_views import write_why
from rota.sdk import calls

app = App(name="run", help="List, show, watch, cancel, retry … runs.")
app.command(logs)

Where = Annotated[
    str | None, Parameter(help="A filter, such as 'state:failed job:nightly-* since:6h'.")
]


@app.command(name="list")
def list_(
    *,
    where: Where = None,
    active: Annotated[bool, Parameter(help="Only runs that are not over.")] = False,
    state: Annotated[str | None, Parameter(help="Only runs in this state.")] = None,
    job: Annotated[
        str | None, Parameter(help="Only runs of this job; * stands for any text.")
    ] = None,
    limit: Limit = 20,
    remote: Remote = REMOTE,
) -> None:
    """List runs, newest first."""
    with remote.connect() as client:
        call = calls.list_runs(where=where, active=active or None, state=state, job=job)
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, RUNS)


def ps(*, where: Where = None, limit: Limit = 100, remote: Remote = REMOTE) -> None:
    """List the runs that are not over."""
    list_(where=where, active=True, limit=limit, remote=remote)


@app.command
def show(run: LatestRunReference, /, *, remote: Remote = REMOTE) -> None:
    """Show a run: state, times, attempts and steps."""
    with remote.connect() as client:
        found = ask(client, calls.get_run(run_or_latest(client, run)))
    print_one(
        remote,
        found,
        name=lambda run: run.id,
        page=lambda terminal, run: write_run(terminal, run, times.now()),
    )


@app.command
def watch(
    run: LatestRunReference,
    /,
    *,
    timeout: Annotated[
        Duration | None, Parameter(help="Stop watching after this time (30s, 5m).")
    ] = None,
    remote: Remote = REMOTE,
) -> Exit:
    """Follow a run to its end; the exit code says how it ended."""
    with remote.connect() as client:
        return watch_run(client, run_or_latest(client, run), remote, timeout=timeout)


@app.command
def why(run: LatestRunReference, /, *, remote: Remote = REMOTE) -> None:
    """Explain why a run is where it is, and what would move it on."""
    with remote.connect() as client:
        found = run_or_latest(client, run)
        explained = ask(client, calls.explain(found))
    print_one(
        remote,
        explained,
        name=lambda _: found,
        page=lambda terminal, why: write_why(terminal, why, times.now()),
    )


@app.command
def cancel(runs: ActiveRunReferences, /, *, destroying: Destroying = DESTROYING) -> None:
    """Cancel runs; what is running is asked to stop, then killed after its grace."""
    terminal = destroying.terminal()
    with destroying.connect() as client:
        ids = [active_run(client, run) for run in runs]
        if destroying.dry_run:
            for each in ids:
                terminal.tell(f"would cancel {each}, {client.get_run(each).state.lower()} now")
            return
        if len(ids) > MANY:
            question = f"cancel {len(ids):,} runs?"
            terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
        for each in ids:
            cancelled = ask(client, calls.cancel_run(each))
            print_one(
                destroying,
                cancelled,
                name=lambda run: run.id,
                page=lambda terminal, run: terminal.tell(
                    f"cancelling {run.id}, {run.state.lower()} now"
                ),
            )


@app.command
def retry(
    run: RunReference,
    /,
    *,
    watch: Annotated[bool, Parameter(name=["--watch", "-w"], help="Follow the new run.")] = False,
    timeout: Annotated[
        Duration | None, Parameter(help="With --watch: stop watching after this time (30s, 5m).")
    ] = None,
    writing: Writing = WRITING,
) -> Exit:
    """Run it again: a new run with the same inputs."""
    terminal = writing.terminal()
    with writing.connect() as client:
        old = run_id(client, run)
        if writing.dry_run:
            terminal.tell(f"would retry {old}, {client.get_run(old).state.lower()} now")
            return Exit.DONE
        new = ask(client, calls.retry_run(old))
        if watch:
            return watch_run(client, new.value.id, writing, timeout=timeout)
    print_one(
        writing,
        new,
        name=lambda run: run.id,
        page=lambda terminal, run: terminal.write(f"run {run.id} {run.state.lower()}"),
    )
    return Exit.DONE


@app.command
def resolve(
    run: RunReference,
    /,
    *,
    as_: Annotated[
        Literal["completed", "failed", "retry"], Parameter(name="--as", help="What happened to it.")
    ],
    writing: Writing = WRITING,
) -> None:
    """Say how an unknown run ended, or that it shall be tried again."""
    with writing.connect() as client:
        found = run_id(client, run)
        if writing.dry_run:
            state = client.get_run(found).state.lower()
            writing.terminal().tell(f"would resolve {found} as {as_}; it is {state} now")
            return
        resolved = ask(client, calls.resolve_run(found, as_))
    print_one(
        writing,
        resolved,
        name=lambda run: run.id,
        page=lambda terminal, run: terminal.tell(f"{run.id} is {run.state.lower()} now"),
    )


for _verb in run_steering.VERBS:
    app.command(_verb)

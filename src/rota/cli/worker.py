"""`rota worker`: start a worker; list, show and drain them; tokens for them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from rota.cli.asking import Answered, ask_all
from rota.cli.draining import held_by, is_drained, wait_until_empty
from rota.cli.exits import CommandFailed, Exit
from rota.cli.inert import inert
from rota.cli.options import REMOTE, WRITING, Remote, Writing
from rota.cli.printing import print_list, print_one
from rota.cli.whole_numbers import WholeNumber
from rota.cli.worker_token import app as token_app
from rota.cli.worker_views import WORKERS, write_worker
from rota.sdk import calls

app = App(name="worker", help="Start a worker; list and drain them.")
app.command(token_app)

Name = Annotated[str, Parameter(help="Name of a worker.")]


@app.default
def start(
    *,
    server: Annotated[
        str | None,
        Parameter(
            metavar="HOST:PORT,…",
            help="The servers it serves, any of them. Default: that of this data folder.",
        ),
    ] = None,
    name: Annotated[str | None, Parameter(help="Name of the worker. Default: the host's.")] = None,
    pool: Annotated[str | None, Parameter(help="Pool it serves.")] = None,
    slots: Annotated[WholeNumber | None, Parameter(help="Attempts it runs at once.")] = None,
    label: Annotated[
        tuple[str, ...], Parameter(metavar="KEY=VALUE", help="A label of it; repeatable.")
    ] = (),
    resources: Annotated[
        str | None,
        Parameter(
            metavar="NAME=AMOUNT,…",
            help="What it offers, as cpu=4,memory=8GiB. Default: cores and memory it may use.",
        ),
    ] = None,
    app: Annotated[
        str | None, Parameter(metavar="MODULE:APP", help="App whose Python functions it serves.")
    ] = None,
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error.")] = None,
) -> None:
    """Start a worker; Ctrl-C lets its runs finish, then ends.

    For servers elsewhere it needs a token of its own, from `rota worker token create`, in
    ROTA_WORKER_TOKEN or in the file that ROTA_WORKER_TOKEN_FILE names.
    """
    # Listing workers must not wait for all that running one needs.
    from rota.cli.local_errors import told_as_failures
    from rota.cli.local_settings import load_settings
    from rota.runtime import worker

    settings = load_settings(
        server=server,
        worker_name=name,
        pool=pool,
        slots=slots,
        labels=",".join(label) or None,
        resources=resources,
        app=app,
        log_level=log_level,
    )
    with told_as_failures():
        worker.main(settings)


@app.command(name="list")
def list_(
    *,
    all_: Annotated[bool, Parameter(name="--all", help="Past sessions too.")] = False,
    remote: Remote = REMOTE,
) -> None:
    """List the workers that are alive."""
    with remote.connect() as client:
        listing = ask_all(client, calls.list_workers(all=all_))
    print_list(remote, listing, WORKERS)


@app.command
def show(worker: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a worker: what it offers, what is in use of it, and whom it talks to."""
    with remote.connect() as client:
        listing = ask_all(client, calls.list_workers(all=True))
    presences = zip(listing.items, listing.data, strict=True)
    found = next((each for each in presences if worker in (each[0].worker, each[0].id)), None)
    if found is None:
        hint = "rota worker list --all shows them"
        raise CommandFailed(f"no worker is named {worker}", code=Exit.NOT_FOUND, hint=hint)
    print_one(remote, Answered(*found), name=lambda shown: shown.worker, page=write_worker)


@app.command
def drain(
    worker: Name,
    /,
    *,
    off: Annotated[bool, Parameter(help="Let it have work again (= worker resume).")] = False,
    wait: Annotated[bool, Parameter(help="Until it holds nothing any more.")] = False,
    writing: Writing = WRITING,
) -> None:
    """Let a worker finish what it holds and take nothing new, also after a restart."""
    if off:
        resume(worker, writing=writing)
        return
    terminal = writing.terminal()
    if writing.dry_run:
        terminal.tell(f"would drain worker {inert(worker)}")
        return
    with writing.connect() as client:
        held = held_by(client.drain_worker(worker).items, worker)
        terminal.tell(f"draining worker {inert(worker)}, which holds {held}")
        if wait:
            wait_until_empty(client, worker)
            terminal.tell(f"worker {inert(worker)} holds nothing")


@app.command
def resume(worker: Name, /, *, writing: Writing = WRITING) -> None:
    """Let a drained worker have work again."""
    terminal = writing.terminal()
    if writing.dry_run:
        terminal.tell(f"would resume worker {inert(worker)}")
        return
    with writing.connect() as client:
        was_drained = is_drained(client.list_workers(all=True).items, worker)
        client.resume_worker(worker)
    name = inert(worker)
    terminal.tell(f"resumed worker {name}" if was_drained else f"worker {name} was not drained")

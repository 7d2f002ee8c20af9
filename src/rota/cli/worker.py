"""`rota worker`: start a worker, or list them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from rota.cli import times
from rota.cli.asking import ask_all
from rota.cli.options import REMOTE, Remote
from rota.cli.printing import ListView, print_list
from rota.cli.table import Column
from rota.sdk import calls
from rota.sdk.answers import Worker

app = App(name="worker", help="Start a worker, or list them.")

WORKERS: ListView[Worker] = ListView(
    columns=(
        Column("WORKER", lambda worker: worker.worker or worker.id),
        Column("STATE", lambda worker: worker.state),
        Column("POOL", lambda worker: worker.pool),
        Column("RUNNING", lambda worker: f"{worker.running or 0} of {worker.slots}"),
        Column("SINCE", lambda worker: times.moment(worker.registered_at, times.now())),
        Column("LABELS", lambda worker: ",".join(f"{k}={v}" for k, v in worker.labels.items())),
        Column("ID", lambda worker: worker.id, only_wide=True),
        Column("VERSION", lambda worker: worker.version, only_wide=True),
        Column("GUARD", lambda worker: worker.guard_mode, only_wide=True),
        Column("FUNCTIONS", lambda worker: ",".join(worker.functions), only_wide=True),
    ),
    name=lambda worker: worker.worker or worker.id,
    empty="no workers; start one with: rota worker",
)


@app.default
def start(
    *,
    name: Annotated[str | None, Parameter(help="Name of the worker. Default: the host's.")] = None,
    pool: Annotated[str | None, Parameter(help="Pool it serves.")] = None,
    slots: Annotated[int | None, Parameter(help="Attempts it runs at once.")] = None,
    label: Annotated[
        tuple[str, ...], Parameter(metavar="KEY=VALUE", help="A label of it; repeatable.")
    ] = (),
    app: Annotated[
        str | None, Parameter(metavar="MODULE:APP", help="App whose Python functions it serves.")
    ] = None,
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error.")] = None,
) -> None:
    """Start a worker for the server of this data folder; Ctrl-C lets its runs finish, then ends."""
    # Listing workers must not wait for all that running one needs.
    from rota.cli.local_errors import told_as_failures
    from rota.cli.local_settings import load_settings
    from rota.runtime import worker

    settings = load_settings(
        worker_name=name,
        pool=pool,
        slots=slots,
        labels=",".join(label) or None,
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

"""`rota worker token`: what workers show when they dial in."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from rota.cli import times
from rota.cli.asking import ask_all
from rota.cli.durations import Duration
from rota.cli.inert import inert
from rota.cli.options import DESTROYING, REMOTE, Destroying, Format, Remote
from rota.cli.printing import ListView, print_data, print_list
from rota.cli.table import Column
from rota.cli.token import state_of
from rota.sdk import calls
from rota.sdk.answers import WorkerToken

app = App(name="token", help="Create, list and revoke the tokens of workers.")

TOKENS: ListView[WorkerToken] = ListView(
    columns=(
        Column("ID", lambda token: token.id, is_whole=True),
        Column("WORKER", lambda token: token.name),
        Column("POOL", lambda token: token.pool or "any"),
        Column("STATE", state_of),
        Column("EXPIRES", lambda token: times.moment(token.expires_at, times.now())),
        Column("LAST USED", lambda token: times.moment(token.last_used_at, times.now())),
        Column("CREATED BY", lambda token: token.created_by, only_wide=True),
        Column(
            "CREATED", lambda token: times.moment(token.created_at, times.now()), only_wide=True
        ),
    ),
    name=lambda token: token.id,
    empty="no worker tokens; make one with: rota worker token create NAME",
)


@app.command
def create(
    worker: Annotated[str, Parameter(help="Name of the worker that will show it.")],
    /,
    *,
    pool: Annotated[str | None, Parameter(help="The only pool it may serve. Default: any.")] = None,
    expires_in: Annotated[
        Duration | None, Parameter(help="How long it is valid (90d). Default: until revoked.")
    ] = None,
    remote: Remote = REMOTE,
) -> None:
    """Make a token for a worker; its secret is shown this once.

    Asks the server that --url or ROTA_URL names. Without one it writes to the store of the
    settings, whether or not a server runs.
    """
    from rota.cli.local_tokens import create_worker_token

    token = create_worker_token(worker, pool, expires_in, remote)
    if remote.format in (Format.TABLE, Format.WIDE, Format.NAME):
        terminal = remote.terminal()
        terminal.tell(f"token {token['id']} for worker {inert(worker)}; shown this once:")
        terminal.write(str(token["secret"]))
    else:
        print_data(remote, token)


@app.command(name="list")
def list_(*, remote: Remote = REMOTE) -> None:
    """List the tokens of workers; their secrets are not kept."""
    with remote.connect() as client:
        listing = ask_all(client, calls.list_worker_tokens())
    print_list(remote, listing, TOKENS)


@app.command
def revoke(
    token: Annotated[str, Parameter(help="Id of a worker's token.")],
    /,
    *,
    destroying: Destroying = DESTROYING,
) -> None:
    """Make a token worthless; a worker connected with it is sent away at its next beat."""
    terminal = destroying.terminal()
    if destroying.dry_run:
        terminal.tell(f"would revoke worker token {inert(token)}")
        return
    question = f"revoke worker token {inert(token)}?"
    terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
    with destroying.connect() as client:
        client.revoke_worker_token(token)
    terminal.tell(f"revoked worker token {inert(token)}")

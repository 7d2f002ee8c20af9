"""`rota worker token`: what workers show when they dial in."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from rota.cli import times
from rota.cli.asking import ask_all
from rota.cli.durations import Duration
from rota.cli.inert import inert
from rota.cli.options import DESTROYING, REMOTE, Destroying, Remote
from rota.cli.printing import ListView, print_list
from rota.cli.table import Column
from rota.cli.token import revoke_asked, show_once, state_of
from rota.sdk import token_calls
from rota.sdk.token_answers import WorkerToken

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
    show_once(remote, token, f"worker {inert(worker)}")


@app.command(name="list")
def list_(*, remote: Remote = REMOTE) -> None:
    """List the tokens of workers; their secrets are not kept."""
    with remote.connect() as client:
        listing = ask_all(client, token_calls.list_worker_tokens())
    print_list(remote, listing, TOKENS)


@app.command
def revoke(
    token: Annotated[str, Parameter(help="Id of a worker's token.")],
    /,
    *,
    destroying: Destroying = DESTROYING,
) -> None:
    """Make a token worthless; a worker connected with it is sent away at its next beat."""
    revoke_asked(
        destroying,
        f"worker token {inert(token)}",
        lambda client: client.revoke_worker_token(token),
    )

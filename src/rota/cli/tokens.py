"""`rota token`: who else may call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from rota.api.tokens import Token, WorkerToken
from rota.cli import times
from rota.cli.failures import errors_as_failures
from rota.cli.options import DESTROYING, REMOTE, Destroying, Duration, Format, Remote
from rota.cli.printing import Column, ListView, print_data, print_list
from rota.cli.references import ask, ask_all
from rota.cli.setup import load_settings
from rota.cli.terminal import CommandFailed, Exit, inert
from rota.runtime import config, machine
from rota.runtime.settings import Settings, shown
from rota.sdk.client import Client
from rota.sdk.exchange import Call


def create_token(
    name: str, role: str, lifetime: timedelta | None, remote: Remote
) -> dict[str, Any]:
    """Create a token; return it as the API shows it, secret included."""
    settings = load_settings(url=remote.url)
    if settings.url:
        return _asked(remote, Client.create_token(name, role, expires_in=_text(lifetime)))
    _refuse_new_store(settings)
    with errors_as_failures():
        token, secret = machine.create(settings, name, role, lifetime)
    _tell_store(settings, remote)
    return {"id": token, "name": name, "role": role, "secret": secret}


def create_worker_token(
    name: str, pool: str | None, lifetime: timedelta | None, remote: Remote
) -> dict[str, Any]:
    """Create a worker's token; return it as the API shows it, secret included."""
    settings = load_settings(url=remote.url)
    if settings.url:
        call = Client.create_worker_token(name, pool=pool, expires_in=_text(lifetime))
        return _asked(remote, call)
    _refuse_new_store(settings)
    with errors_as_failures():
        token, secret = machine.create_for_worker(settings, name, pool, lifetime)
    _tell_store(settings, remote)
    return {"id": token, "name": name, "pool": pool, "secret": secret}


def _refuse_new_store(settings: Settings) -> None:
    """Refuse to make a store that nobody named: no server knows the tokens in it."""
    if settings.store or settings.store_path.exists() or config.is_set("home"):
        return
    hint = (
        "go to the folder that the server was started in, name its data with ROTA_HOME or"
        " ROTA_STORE, or ask a server that runs with --url"
    )
    message = f"there is no store in {settings.home.absolute()}"
    raise CommandFailed(message, code=Exit.NOT_FOUND, hint=hint)


def _tell_store(settings: Settings, remote: Remote) -> None:
    store = shown("store", settings.store) or str(settings.store_path)
    remote.terminal().tell(inert(f"no server was asked; written to the store {store}"))


def _asked(remote: Remote, call: Call[Any]) -> dict[str, Any]:
    with remote.connect() as client:
        data: dict[str, Any] = ask(client, call).data
        return data


def _text(lifetime: timedelta | None) -> str | None:
    return None if lifetime is None else f"{lifetime.total_seconds():f}s"


if TYPE_CHECKING:
    from rota.sdk.client import Client

app = App(name="token", help="Create, list and revoke API tokens.")

Role = Literal["viewer", "operator", "editor", "admin"]


def state_of(token: Token | WorkerToken) -> str:
    """Return valid, expired or revoked."""
    if token.revoked_at is not None:
        return "revoked"
    is_over = token.expires_at is not None and token.expires_at <= times.now()
    return "expired" if is_over else "valid"


TOKENS: ListView[Token] = ListView(
    columns=(
        Column("ID", lambda token: token.id, is_whole=True),
        Column("NAME", lambda token: token.name),
        Column("ROLE", lambda token: token.role),
        Column("STATE", state_of),
        Column("EXPIRES", lambda token: times.moment(token.expires_at, times.now())),
        Column("LAST USED", lambda token: times.moment(token.last_used_at, times.now())),
        Column("CREATED BY", lambda token: token.created_by, only_wide=True),
        Column(
            "CREATED", lambda token: times.moment(token.created_at, times.now()), only_wide=True
        ),
    ),
    name=lambda token: token.id,
    empty="no tokens",
)


@app.command
def create(
    *,
    name: Annotated[str, Parameter(metavar="NAME", help="What it is for.")],
    role: Annotated[Role, Parameter(help="What it may do.")],
    expires_in: Annotated[
        Duration | None, Parameter(help="How long it is valid (90d). Default: until revoked.")
    ] = None,
    remote: Remote = REMOTE,
) -> None:
    """Make a token; its secret is shown this once.

    Asks the server that --url or ROTA_URL names. Without one it writes to the store of the
    settings, whether or not a server runs: that is how the first token comes to be. It makes a
    new store only where ROTA_HOME or ROTA_STORE says.
    """

    token = create_token(name, role, expires_in, remote)
    show_once(remote, token, f"{inert(name)}, role {role}")


@app.command(name="list")
def list_(*, remote: Remote = REMOTE) -> None:
    """List tokens; their secrets are not kept."""
    with remote.connect() as client:
        listing = ask_all(client, Client.list_tokens())
    print_list(remote, listing, TOKENS)


@app.command
def revoke(
    token: Annotated[str, Parameter(help="Id of a token.")],
    /,
    *,
    destroying: Destroying = DESTROYING,
) -> None:
    """Make a token worthless at once."""
    revoke_asked(destroying, "token", token, lambda client: client.revoke_token(token))


def show_once(remote: Remote, token: Mapping[str, object], whose: str) -> None:
    """Print a new token; for people its secret is on a line of its own, so that it can be piped."""
    if remote.format in (Format.TABLE, Format.WIDE, Format.NAME):
        terminal = remote.terminal()
        terminal.tell(f"token {token['id']} for {whose}; shown this once:")
        terminal.write(str(token["secret"]))
    else:
        print_data(remote, token)


def revoke_asked(
    destroying: Destroying, noun: str, token: str, revoke: Callable[[Client], object]
) -> None:
    """Revoke a token once somebody has confirmed."""
    what = f"{noun} {inert(token)}"
    terminal = destroying.terminal()
    if destroying.dry_run:
        with destroying.connect() as client:
            _refuse_invalid(client, token)
        destroying.rehearse(f"would revoke {what}")
    terminal.confirm(f"revoke {what}?", yes=destroying.yes, otherwise="add --yes to do it")
    with destroying.connect() as client:
        revoke(client)
    terminal.tell(f"revoked {what}")


def _refuse_invalid(client: Client, token: str) -> None:
    """Refuse a token that the server would refuse; it looks for one of either kind."""
    known: list[Token | WorkerToken] = [*client.list_tokens().items]
    known += client.list_worker_tokens().items
    if not any(each.id == token and each.revoked_at is None for each in known):
        raise CommandFailed(f"no valid token {token!r}", code=Exit.NOT_FOUND)

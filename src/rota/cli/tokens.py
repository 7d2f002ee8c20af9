"""`rota token`: who else may call; `rota whoami`: who calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import App, Parameter

from rota.api.answers import Page
from rota.api.tokens import Caller, JoinToken, Token, WorkerToken
from rota.cli import times
from rota.cli.failures import errors_as_failures
from rota.cli.options import DESTROYING, REMOTE, AtMost, Destroying, Duration, Format, Remote
from rota.cli.printing import Column, ListView, print_data, print_list, print_one
from rota.cli.references import ask, ask_list
from rota.cli.setup import load_settings
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.runtime import config, machine
from rota.runtime.settings import Settings, shown
from rota.sdk.client import Client
from rota.sdk.errors import Denied
from rota.sdk.exchange import Call

_DEFAULT_PROJECT = "default"
_MOST = 1_000  # tokens in one answer
_INSTALLATION = "*"  # how a role in all projects is written

T = TypeVar("T", Token, WorkerToken, JoinToken)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Use of a token, as somebody asked for it: project, verbs, role."""

    installation: bool = False  # else for one project
    verbs: tuple[str, ...] | None = None  # None: what its role allows
    lifetime: timedelta | None = None  # None: until it is revoked


def create_token(name: str, role: str, wanted: Wanted, remote: Remote) -> dict[str, Any]:
    """Create a token; return it as the API shows it, secret included."""
    settings = load_settings(url=remote.url)
    if settings.url:
        call = Client.create_token(
            name,
            role,
            installation=wanted.installation,
            verbs=wanted.verbs,
            expires_in=_text(wanted.lifetime),
        )
        return _asked(remote, call)
    _refuse_new_store(settings)
    project = None if wanted.installation else remote.project or _DEFAULT_PROJECT
    with errors_as_failures():
        token, secret = machine.create(
            settings,
            name,
            role,
            project=project,
            verbs=wanted.verbs,
            lifetime=wanted.lifetime,
        )
    _tell_store(settings, remote)
    return {
        "id": token,
        "name": name,
        "role": role,
        "project": project,
        "verbs": wanted.verbs,
        "secret": secret,
    }


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


def create_join_token(
    pool: str | None, uses: int, lifetime: timedelta, remote: Remote
) -> dict[str, Any]:
    """Create a token by which workers join; return it as the API shows it, secret included."""
    settings = load_settings(url=remote.url)
    if settings.url:
        call = Client.create_join_token(pool=pool, uses=uses, expires_in=_text(lifetime))
        return _asked(remote, call)
    _refuse_new_store(settings)
    with errors_as_failures():
        token, secret = machine.create_join_token(settings, pool, uses, lifetime)
    _tell_store(settings, remote)
    return {"id": token, "pool": pool, "uses": uses, "secret": secret}


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
Verb = Literal[
    "read", "trigger", "cancel", "apply", "resolve", "upload", "secrets", "metrics"
]  # those of `rota.domain.access`


def state_of(token: Token | WorkerToken | JoinToken) -> str:
    """Return valid, expired or revoked."""
    if token.revoked_at is not None:
        return "revoked"
    is_over = token.expires_at is not None and token.expires_at <= times.now()
    return "expired" if is_over else "valid"


def scope_of(project: str | None) -> str:
    """Return where a token counts."""
    return project or _INSTALLATION


def verbs_in_words(verbs: Sequence[str] | None) -> str:
    return "" if verbs is None else ", ".join(verbs)


TOKENS: ListView[Token] = ListView(
    columns=(
        Column("ID", lambda token: token.id, is_whole=True),
        Column("NAME", lambda token: token.name),
        Column("PROJECT", lambda token: scope_of(token.project)),
        Column("ROLE", lambda token: token.role),
        Column("VERBS", lambda token: verbs_in_words(token.verbs), only_wide=True),
        Column("STATE", state_of),
        Column("EXPIRES", lambda token: times.moment(token.expires_at, times.now())),
        Column("LAST USED", lambda token: times.moment(token.last_used_at, times.now())),
        Column("SECRET", lambda token: f"{token.shown}…" if token.shown else "", only_wide=True),
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
    name: Annotated[str, Parameter(metavar="NAME", help="What it is for.")],
    *,
    role: Annotated[Role, Parameter(help="The most that it may do.")],
    installation: Annotated[
        bool,
        Parameter(
            negative="",
            help="For all projects and the installation. Default: for the project only.",
        ),
    ] = False,
    verb: Annotated[
        tuple[Verb, ...],
        Parameter(negative="", help="Narrow it to this; repeatable."),
    ] = (),
    expires_in: Annotated[
        Duration | None, Parameter(help="How long it is valid (90d). Default: until revoked.")
    ] = None,
    remote: Remote = REMOTE,
) -> None:
    """Make a token for a program; its secret is shown this once.

    It acts in the name of a service of that NAME, which is made with it; a second token of that
    name replaces the first once you revoke that one. Nobody can make one that may do more than
    they may themselves.

    Asks the server that --url or ROTA_URL names. Without one it writes to the store of the
    settings, whether or not a server runs: that is how the first token comes to be. It makes a
    new store only where ROTA_HOME or ROTA_STORE says.
    """

    if installation and remote.project is not None:
        raise CommandFailed("give either --project or --installation", code=Exit.USAGE)
    wanted = Wanted(installation, verb or None, expires_in)
    token = create_token(name, role, wanted, remote)
    where = "in all projects" if installation else f"in {remote.project or _DEFAULT_PROJECT}"
    show_once(remote, token, f"{inert(name)}, role {role} {inert(where)}")


@app.command(name="list")
def list_(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List tokens, newest first; their secrets are not kept."""
    with remote.connect() as client:
        listing = ask_list(client, Client.list_tokens(), limit=limit)
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
    """Refuse a token that the server would refuse; it looks for one of any kind."""
    if _is_among(client, Client.list_tokens(limit=_MOST), token):
        return
    with suppress(Denied):  # an admin of a project has nothing to do with workers
        if _is_among(client, Client.list_worker_tokens(limit=_MOST), token):
            return
        if _is_among(client, Client.list_join_tokens(limit=_MOST), token):
            return
    raise CommandFailed(f"no valid token {token!r}", code=Exit.NOT_FOUND)


def _is_among(client: Client, listed: Call[Page[T]], token: str) -> bool:
    found = client.each(listed)
    return any(each.id == token and each.revoked_at is None for each in found)


def whoami(*, remote: Remote = REMOTE) -> None:
    """Show whom the server takes you for, and what you may do."""
    with remote.connect() as client:
        answered = ask(client, Client.whoami())
    print_one(remote, answered, name=lambda caller: caller.name, page=_print_caller)


def _print_caller(terminal: Terminal, caller: Caller) -> None:
    terminal.write(f"{inert(caller.name)}, {inert(caller.kind)}")
    for scope, role in caller.roles.items():
        where = "all projects and the installation" if scope == _INSTALLATION else scope
        terminal.write(f"  {inert(role)} in {inert(where)}")
    if not caller.roles:
        terminal.write("  no role anywhere")
    if caller.project is not None:
        terminal.write(f"This token is for the project {inert(caller.project)} only.")
    if caller.verbs is not None:
        terminal.write(f"This token may do nothing but {inert(verbs_in_words(caller.verbs))}.")
    ends = times.moment(caller.expires_at, times.now())
    terminal.write(
        f"It is valid until {ends}." if caller.expires_at else "It is valid until revoked."
    )

"""`rota worker`: start a worker; list, show and drain them; tokens for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from cyclopts import App, Parameter

from rota.api.tokens import JoinToken, WorkerToken
from rota.api.workers import Offer, Worker
from rota.cli import times
from rota.cli.options import (
    DESTROYING,
    REMOTE,
    WRITING,
    AtMost,
    Destroying,
    Duration,
    Remote,
    WholeNumber,
    Writing,
)
from rota.cli.printing import Column, ListView, print_list, print_one, write_pairs, write_table
from rota.cli.references import Answered, ask_all, ask_list
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.cli.tokens import revoke_asked, show_once, state_of
from rota.sdk.client import Client

token_app = App(name="token", help="Create, list and revoke the tokens of workers.")

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


@token_app.command
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
    settings, whether or not a server runs, and makes a new one only where ROTA_HOME or ROTA_STORE
    says.
    """
    from rota.cli.tokens import create_worker_token

    token = create_worker_token(worker, pool, expires_in, remote)
    show_once(remote, token, f"worker {inert(worker)}")


@token_app.command(name="list")
def list_tokens(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List the tokens of workers, newest first; their secrets are not kept."""
    with remote.connect() as client:
        listing = ask_list(client, Client.list_worker_tokens(), limit=limit)
    print_list(remote, listing, TOKENS)


@token_app.command
def revoke(
    token: Annotated[str, Parameter(help="Id of a worker's token.")],
    /,
    *,
    destroying: Destroying = DESTROYING,
) -> None:
    """Make a token worthless: its worker gets nothing more at once, and is sent away."""
    revoke_asked(
        destroying, "worker token", token, lambda client: client.revoke_worker_token(token)
    )


join_app = App(name="join-token", help="Create, list and revoke what workers join with.")

JOIN_TOKENS: ListView[JoinToken] = ListView(
    columns=(
        Column("ID", lambda token: token.id, is_whole=True),
        Column("POOL", lambda token: token.pool or "any"),
        Column("STATE", lambda token: state_of(token) if token.uses_left else "used up"),
        Column("USES LEFT", lambda token: str(token.uses_left)),
        Column("EXPIRES", lambda token: times.moment(token.expires_at, times.now())),
        Column("LAST USED", lambda token: times.moment(token.last_used_at, times.now())),
        Column("CREATED BY", lambda token: token.created_by, only_wide=True),
        Column(
            "CREATED", lambda token: times.moment(token.created_at, times.now()), only_wide=True
        ),
    ),
    name=lambda token: token.id,
    empty="no join tokens; make one with: rota worker join-token create",
)


@join_app.command(name="create")
def create_join(
    *,
    pool: Annotated[
        str | None, Parameter(help="The only pool whose workers may join. Default: any.")
    ] = None,
    uses: Annotated[WholeNumber, Parameter(help="How many workers may join with it.")] = 1,
    expires_in: Annotated[
        Duration | None,
        Parameter(name=("--expires-in", "--expires"), help="How long it is valid. Default: 1h."),
    ] = None,
    remote: Remote = REMOTE,
) -> None:
    """Make a token by which workers join; its secret is shown this once.

    A worker that is started with it gets a credential of its own, and renews that by itself.
    Without --url or ROTA_URL it writes to the store, as `rota worker token create` does.
    """
    from rota.cli.tokens import create_join_token

    token = create_join_token(pool, uses, expires_in or timedelta(hours=1), remote)
    show_once(remote, token, f"{uses} workers" if uses > 1 else "one worker")


@join_app.command(name="list")
def list_join(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List join tokens, newest first; their secrets are not kept."""
    with remote.connect() as client:
        listing = ask_list(client, Client.list_join_tokens(), limit=limit)
    print_list(remote, listing, JOIN_TOKENS)


@join_app.command(name="revoke")
def revoke_join(
    token: Annotated[str, Parameter(help="Id of a join token.")],
    /,
    *,
    destroying: Destroying = DESTROYING,
) -> None:
    """Make a join token worthless; workers that have joined with it stay."""
    revoke_asked(destroying, "join token", token, lambda client: client.revoke_join_token(token))


def _running(worker: Worker) -> str:
    in_http = int(worker.used.get("http_slots", "0"))  # these take no slot
    return f"{(worker.running or 0) - in_http} of {worker.slots}"


def _in_use(worker: Worker) -> str:
    """Format `cpu 1/4 memory 2GiB/8GiB`."""
    return " ".join(f"{name} {_used(worker, name)}/{all_}" for name, all_ in _offered(worker))


def _offered(worker: Worker) -> list[tuple[str, str]]:
    return list(worker.resources.items())


def _used(worker: Worker, name: str) -> str:
    return worker.used.get(name, "0")


def _labels(worker: Worker) -> str:
    return ",".join(f"{key}={value}" for key, value in worker.labels.items())


def _credential(worker: Worker) -> str:
    """Format until when a worker may connect; empty: it needs nothing for that."""
    if worker.credential is None:
        return ""
    until = worker.credential_expires_at
    ends = "until it is revoked" if until is None else f"until {times.stamp(until, times.now())}"
    return f"{worker.credential}, {ends}"


def _credential_end(worker: Worker) -> str:
    if worker.credential is None:
        return "–"
    return times.moment(worker.credential_expires_at, times.now())


WORKERS: ListView[Worker] = ListView(
    columns=(
        Column("WORKER", lambda worker: worker.worker or worker.id),
        Column("STATE", lambda worker: worker.state),
        Column("POOL", lambda worker: worker.pool),
        Column("RUNNING", _running),
        Column("IN USE", _in_use),
        Column(
            "SINCE",
            lambda worker: times.moment(worker.registered_at, times.now()),
            narrower=[lambda worker: times.distance(worker.registered_at, times.now())],
        ),
        Column("LABELS", _labels),
        Column("ID", lambda worker: worker.id, only_wide=True),
        Column("VERSION", lambda worker: worker.version, only_wide=True),
        Column("SERVER", lambda worker: worker.server, only_wide=True),
        Column("GUARD", lambda worker: worker.guard_mode, only_wide=True),
        Column("FUNCTIONS", lambda worker: ",".join(worker.functions), only_wide=True),
        Column("CREDENTIAL ENDS", _credential_end, only_wide=True),
    ),
    name=lambda worker: worker.worker or worker.id,
    empty="no workers; start one with: rota worker",
)


def _answer(offer: Offer) -> str:
    """Return whether a worker has it; of a folder, what containers may do there."""
    if offer.reason:
        return f"no: {offer.reason}"
    if offer.kind != "mount":
        return "yes"
    return "yes, to write, and as a whole" if offer.name.endswith(":rw") else "yes, to read"


OFFERS: tuple[Column[Offer], ...] = (
    Column("OFFERS", lambda offer: offer.kind),
    Column("NAME", lambda offer: offer.name),
    Column("", _answer),
)


_KINDS = ("type", "wall", "network", "limit", "run_as", "registry", "mount")


def _place(offer: Offer) -> int:
    """Return the place of an offer's kind on the page."""
    return _KINDS.index(offer.kind) if offer.kind in _KINDS else len(_KINDS)


def write_worker(terminal: Terminal, worker: Worker) -> None:
    """Print a worker on one page."""
    write_pairs(
        terminal,
        [
            ("worker", f"{worker.worker} ({worker.id}, version {worker.version})"),
            ("state", worker.state),
            ("trouble", worker.trouble),
            ("pool", worker.pool),
            ("running", _running(worker)),
            *((name, f"{_used(worker, name)} of {all_} in use") for name, all_ in _offered(worker)),
            ("labels", _labels(worker)),
            ("functions", ", ".join(worker.functions)),
            ("since", times.moment(worker.registered_at, times.now())),
            ("lease", worker.lease),
            ("credential", _credential(worker)),
            ("server", worker.server),
            ("guard", worker.guard_mode),
        ],
    )
    # The lease has a line of its own.
    if offers := [each for each in worker.offers if each.kind != "lease"]:
        terminal.write("")
        write_table(terminal, OFFERS, sorted(offers, key=_place))


_LOOK_AGAIN_SECONDS = 0.5


def held_by(presences: Iterable[Worker], worker: str) -> int:
    """Count the attempts that a worker holds, in all its sessions."""
    return sum(each.running for each in presences if each.worker == worker)


def is_drained(presences: Iterable[Worker], worker: str) -> bool:
    """Return whether somebody has drained the worker."""
    return any(each.draining for each in presences if each.worker == worker)


def wait_until_empty(client: Client, worker: str) -> None:
    while held_by(client.list_workers().items, worker):
        threading.Event().wait(_LOOK_AGAIN_SECONDS)


app = App(name="worker", help="Start a worker; list and drain them.")
app.command(token_app)
app.command(join_app)

Name = Annotated[str, Parameter(help="Name of a worker.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Starting:
    """Options of a worker that starts; what is not given is as the settings say."""

    server: Annotated[
        str | None,
        Parameter(
            metavar="HOST:PORT,…",
            help="The servers it serves, any of them. Default: that of this data folder.",
        ),
    ] = None
    name: Annotated[str | None, Parameter(help="Name of the worker. Default: the host's.")] = None
    pool: Annotated[str | None, Parameter(help="Pool it serves.")] = None
    slots: Annotated[WholeNumber | None, Parameter(help="Attempts it runs at once.")] = None
    label: Annotated[
        tuple[str, ...], Parameter(metavar="KEY=VALUE", help="A label of it; repeatable.")
    ] = ()
    resources: Annotated[
        str | None,
        Parameter(
            metavar="NAME=AMOUNT,…",
            help="What it offers, as cpu=4,memory=8GiB. Default: cores and memory it may use.",
        ),
    ] = None
    lease: Annotated[
        str | None,
        Parameter(
            metavar="DURATION",
            help="How long its runs survive without a server, and are waited for if it vanishes."
            " Default: what its server says.",
        ),
    ] = None
    app: Annotated[
        str | None, Parameter(metavar="MODULE:APP", help="App whose Python functions it serves.")
    ] = None
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error.")] = None
    join_token: Annotated[
        str | None,
        Parameter(help="What it joins with at its first start; better in ROTA_JOIN_TOKEN."),
    ] = None
    replace: Annotated[
        bool, Parameter(negative=(), help="Join anew, in place of the worker of this name.")
    ] = False


AS_SET = Starting()


@app.default
def start(*, given: Starting = AS_SET) -> None:
    """Start a worker; Ctrl-C lets its runs finish, then ends.

    For servers elsewhere it joins with a token of `rota worker join-token create`, in
    ROTA_JOIN_TOKEN or in the file that ROTA_JOIN_TOKEN_FILE names: it gets a credential of its own,
    keeps it in its data folder and renews it. Or it is given a token of `rota worker token create`,
    in ROTA_WORKER_TOKEN or ROTA_WORKER_TOKEN_FILE.
    """
    # Listing workers must not wait for all that running one needs.
    from rota.cli.failures import errors_as_failures
    from rota.cli.setup import load_settings
    from rota.runtime import worker

    settings = load_settings(
        server=given.server,
        worker_name=given.name,
        pool=given.pool,
        slots=given.slots,
        labels=",".join(given.label) or None,
        resources=given.resources,
        worker_lease=given.lease,
        app=given.app,
        log_level=given.log_level,
        join_token=given.join_token,
    )
    if given.replace and not settings.join_token:
        hint = "set ROTA_JOIN_TOKEN to what `rota worker join-token create` shows"
        raise CommandFailed("--replace needs a join token", code=Exit.USAGE, hint=hint)
    with errors_as_failures():
        worker.main(settings, replaces=given.replace)


@app.command(name="list")
def list_(
    *,
    all_: Annotated[bool, Parameter(name="--all", help="Past sessions too.")] = False,
    remote: Remote = REMOTE,
) -> None:
    """List the workers that are alive."""
    with remote.connect() as client:
        listing = ask_all(client, Client.list_workers(all=all_))
    print_list(remote, listing, WORKERS)


@app.command
def show(worker: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a worker: what it offers, what is in use of it, and whom it talks to."""
    with remote.connect() as client:
        listing = ask_all(client, Client.list_workers(all=True))
    presences = zip(listing.items, listing.data, strict=True)
    found = next((each for each in presences if worker in (each[0].worker, each[0].id)), None)
    if found is None:
        raise _no_such(worker)
    print_one(remote, Answered(*found), name=lambda shown: shown.worker, page=write_worker)


def _no_such(worker: str) -> CommandFailed:
    hint = "rota worker list --all shows the names"
    return CommandFailed(f"no worker is named {worker}", code=Exit.NOT_FOUND, hint=hint)


def _is_drained_now(client: Client, worker: str) -> bool:
    """Return whether it is drained; refuse a worker that the server would refuse."""
    presences = [each for each in client.list_workers(all=True).items if each.worker == worker]
    if not presences:
        raise _no_such(worker)
    return is_drained(presences, worker)


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
    with writing.connect() as client:
        if writing.dry_run:
            if _is_drained_now(client, worker):
                nothing = f"nothing to do: worker {worker} is drained already"
                writing.rehearse(nothing, changes=False)
            writing.rehearse(f"would drain worker {worker}")
        held = held_by(client.drain_worker(worker).items, worker)
        terminal.tell(f"draining worker {inert(worker)}, which holds {held}")
        if wait:
            wait_until_empty(client, worker)
            terminal.tell(f"worker {inert(worker)} holds nothing")


@app.command(name="revoke")
def revoke_worker(worker: Name, /, *, destroying: Destroying = DESTROYING) -> None:
    """Revoke all credentials of a worker: it gets nothing more, and ends with all it runs.

    Its runs are given to others once its lease has ended.
    """
    what = f"the credentials of worker {inert(worker)}"
    terminal = destroying.terminal()
    if destroying.dry_run:
        with destroying.connect() as client:
            held = [each for each in client.list_worker_tokens().items if each.name == worker]
        if not any(each.revoked_at is None for each in held):
            message = f"no worker named {inert(worker)} has a valid credential"
            hint = "rota worker token list shows whose there are"
            raise CommandFailed(message, code=Exit.NOT_FOUND, hint=hint)
        destroying.rehearse(f"would revoke {what}")
    terminal.confirm(f"revoke {what}?", yes=destroying.yes, otherwise="add --yes to do it")
    with destroying.connect() as client:
        client.revoke_worker(worker)
    terminal.tell(f"revoked {what}")


@app.command
def resume(worker: Name, /, *, writing: Writing = WRITING) -> None:
    """Let a drained worker have work again."""
    terminal = writing.terminal()
    with writing.connect() as client:
        if writing.dry_run:
            if not _is_drained_now(client, worker):
                nothing = f"nothing to do: worker {worker} was not drained"
                writing.rehearse(nothing, changes=False)
            writing.rehearse(f"would resume worker {worker}")
        was_drained = is_drained(client.list_workers(all=True).items, worker)
        client.resume_worker(worker)
    name = inert(worker)
    terminal.tell(f"resumed worker {name}" if was_drained else f"worker {name} was not drained")

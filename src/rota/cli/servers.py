"""`rota server`: one of the servers of a cluster, or how they all stand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from rota.api.projects import Defaults
from rota.api.workers import Cluster, PoolQueue, Server, Shard
from rota.cli import times
from rota.cli.options import REMOTE, WRITING, Display, Format, Remote, Writing
from rota.cli.printing import Column, ListView, print_list, print_one, write_pairs, write_table
from rota.cli.references import ask, ask_all
from rota.cli.terminal import Exit, Terminal
from rota.sdk.client import Client

SHARDS: ListView[Shard] = ListView(
    columns=(
        Column("SHARD", lambda shard: str(shard.number)),
        Column("OWNER", lambda shard: shard.owner or "nobody", is_whole=True),
        Column("EPOCH", lambda shard: str(shard.epoch)),
        Column("TAKEN", lambda shard: times.moment(shard.taken_at, times.now())),
    ),
    name=lambda shard: str(shard.number),
    empty="no shards",
)


_ALL_ROLES = {"gateway", "scheduler", "dispatcher"}


def write_cluster(
    terminal: Terminal, cluster: Cluster, epochs: Mapping[str, int], *, wide: bool = False
) -> None:
    """Print the servers, then how far behind they are."""
    columns: tuple[Column[Server], ...] = (
        Column("SERVER", lambda server: server.name),
        Column("STATE", lambda server: server.state),
        Column("ROLES", lambda server: ",".join(server.roles), narrower=[_short_roles]),
        Column("ZONE", lambda server: server.zone or "–", is_spare=True),
        Column("VERSION", lambda server: server.version),
        Column("LEASE LEFT", lambda server: times.length(server.lease_left_seconds)),
        Column("SHARDS", lambda server: str(server.shards)),
        Column("EPOCH", lambda server: str(epochs.get(server.id, "–")), is_spare=True),
        Column("URL", lambda server: server.url, is_whole=True),
        Column("ID", lambda server: server.id, is_spare=True),
    )
    pairs = [
        ("overdue", _overdue(cluster)),
        ("queued", " · ".join(_waiting(queue, cluster) for queue in cluster.queues) or "none"),
    ]
    if cluster.servers:
        write_table(terminal, columns, cluster.servers, wide=wide)
        terminal.write("")
        pairs.insert(0, ("shards", f"{cluster.shards_owned} of {cluster.shards} have an owner"))
    write_pairs(terminal, pairs)


def _short_roles(server: Server) -> str:
    return "all" if set(server.roles) >= _ALL_ROLES else ",".join(server.roles)


def highest_epochs(shards: tuple[Shard, ...]) -> Mapping[str, int]:
    """Return by server the highest epoch of its shards."""
    epochs: dict[str, int] = {}
    for shard in shards:
        if shard.owner is not None:
            epochs[shard.owner] = max(shard.epoch, epochs.get(shard.owner, 0))
    return epochs


def _overdue(cluster: Cluster) -> str:
    if cluster.oldest_due_at is None:
        return "nothing"
    since = times.length(cluster.overdue_seconds)
    return f"the oldest schedule since {since} ({times.absolute(cluster.oldest_due_at)})"


def _waiting(queue: PoolQueue, cluster: Cluster) -> str:
    if queue.oldest_queued_at is None:
        return f"{queue.pool} {queue.queued}"
    age = (cluster.now - queue.oldest_queued_at).total_seconds()
    return f"{queue.pool} {queue.queued} (the oldest for {times.length(age)})"


if TYPE_CHECKING:
    from rota.runtime.server import Running
    from rota.runtime.settings import Settings

app = App(name="server", help="Start one of the servers of a cluster, or show how they stand.")


@app.default
def start(
    *,
    roles: Annotated[
        str | None,
        Parameter(metavar="ROLE,…", help="gateway, scheduler, dispatcher. Default: all."),
    ] = None,
    listen: Annotated[
        str | None, Parameter(metavar="HOST:PORT", help="Where REST listens.")
    ] = None,
    grpc_listen: Annotated[
        str | None, Parameter(metavar="HOST:PORT", help="Where gRPC listens.")
    ] = None,
    name: Annotated[str | None, Parameter(help="Name of the server. Default: the host's.")] = None,
    zone: Annotated[str | None, Parameter(help="Where it stands.")] = None,
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error.")] = None,
) -> Exit:
    """Start a server in the foreground, without a worker; Ctrl-C hands its work to the others.

    Store, queue and blobs are those of ROTA_STORE, ROTA_QUEUE and ROTA_BLOBS. On SQLite there can
    be one server; on PostgreSQL any number, all equal.
    """
    # Asking how servers stand must not wait for all that running one needs.
    from rota.cli.failures import errors_as_failures
    from rota.cli.setup import load_settings
    from rota.runtime.server import run_server

    settings = load_settings(
        roles=roles,
        listen=listen,
        grpc_listen=grpc_listen,
        server_name=name,
        zone=zone,
        log_level=log_level,
    )
    with errors_as_failures():
        run_server(settings, lambda running: _greet(settings, running))
    return Exit.DONE


def _greet(settings: Settings, running: Running) -> None:
    from rota import __version__
    from rota.runtime.settings import without_secrets

    terminal = Display().terminal()
    store = without_secrets(settings.store) if settings.store else f"SQLite in {settings.home}"
    grpc = f" · gRPC {running.grpc_listen}" if running.grpc_listen else ""
    terminal.show(f"rota {__version__} · {running.url}{grpc} · {store}")
    terminal.show(f"roles: {', '.join(settings.roles)}")
    terminal.show(words_of_default(running.walls.isolation, running.walls.network))
    terminal.show("Tokens, with the same settings: rota token create · rota worker token create")


def words_of_default(isolation: str, network: str, rota: str = "rota") -> str:
    """Say how jobs run that name no isolation; `rota` is how a shell calls the program."""
    change = f"another: {rota} server defaults"
    if isolation == "process":
        return f"jobs that name no isolation run as plain processes of the worker ({change})"
    return f"jobs that name no isolation run in a {isolation}, network {network} ({change})"


@app.command
def defaults(
    *,
    isolation: Annotated[
        Literal["process", "sandbox"] | None,
        Parameter(help="The wall of jobs that name none, from their next apply on."),
    ] = None,
    network: Annotated[
        Literal["none", "outbound", "host"] | None,
        Parameter(help="The network of jobs behind a wall that name none."),
    ] = None,
    writing: Writing = WRITING,
) -> None:
    """Show how jobs run that name no isolation or network, or change it.

    What is there already stays as it is: it counts when jobs are applied.
    """
    with writing.connect() as client:
        if isolation is None and network is None:
            found = ask(client, Client.get_defaults())
        elif writing.dry_run:
            present = client.get_defaults()
            named = {"isolation": isolation, "network": network}
            wanted = {name: value for name, value in named.items() if value}
            words = ", ".join(f"{name} {value}" for name, value in wanted.items())
            changes = any(getattr(present, name) != value for name, value in wanted.items())
            what = f"would make {words} the default" if changes else f"{words} is the default"
            writing.rehearse(what, changes=changes)
        else:
            found = ask(client, Client.change_defaults(isolation=isolation, network=network))
    print_one(writing, found, name=lambda shown: shown.isolation, page=write_defaults)


def write_defaults(terminal: Terminal, shown: Defaults) -> None:
    """Print the defaults of the installation."""
    processes = "may run" if shown.has_shared_process else "may not run"
    pairs = [
        ("isolation", shown.isolation),
        ("network", f"{shown.network} (behind a wall)"),
        ("shared pools", f"plain processes {processes} in pools of several projects"),
    ]
    write_pairs(terminal, pairs)


@app.command
def status(
    *,
    shards: Annotated[bool, Parameter(help="Every shard with its owner and epoch.")] = False,
    remote: Remote = REMOTE,
) -> None:
    """Show the servers, who fires what, and how far behind they are."""
    with remote.connect() as client:
        if shards:
            print_list(remote, ask_all(client, Client.list_shards()), SHARDS)
            return
        found = ask(client, Client.get_cluster())
        # Members of projects are told of no servers, and may not ask for their shards.
        epochs = highest_epochs(client.list_shards().items) if found.value.servers else {}
    page = partial(write_cluster, epochs=epochs, wide=remote.format is Format.WIDE)
    print_one(
        remote,
        found,
        name=lambda cluster: "\n".join(server.name for server in cluster.servers),
        page=page,
    )

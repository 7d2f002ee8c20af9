"""How servers and shards look."""

from __future__ import annotations

from collections.abc import Mapping

from rota.cli import times
from rota.cli.printing import ListView
from rota.cli.table import Column, write_pairs, write_table
from rota.cli.terminal import Terminal
from rota.sdk.cluster_answers import Cluster, PoolQueue, Server, Shard

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


def write_cluster(terminal: Terminal, cluster: Cluster, epochs: Mapping[str, int]) -> None:
    """Servers, then how far behind they are."""
    columns: tuple[Column[Server], ...] = (
        Column("SERVER", lambda server: server.name),
        Column("STATE", lambda server: server.state),
        Column("ROLES", lambda server: ",".join(server.roles)),
        Column("ZONE", lambda server: server.zone or "–"),
        Column("VERSION", lambda server: server.version),
        Column("LEASE LEFT", lambda server: times.length(server.lease_left_seconds)),
        Column("SHARDS", lambda server: str(server.shards)),
        Column("EPOCH", lambda server: str(epochs.get(server.id, "–"))),
        Column("URL", lambda server: server.url, is_whole=True),
        Column("ID", lambda server: server.id),
    )
    write_table(terminal, columns, cluster.servers)
    terminal.write("")
    write_pairs(
        terminal,
        [
            ("shards", f"{cluster.shards_owned} of {cluster.shards} have an owner"),
            ("overdue", _overdue(cluster)),
            ("queued", " · ".join(_waiting(queue, cluster) for queue in cluster.queues) or "none"),
        ],
    )


def highest_epochs(shards: tuple[Shard, ...]) -> Mapping[str, int]:
    """By server: the epoch of its shard that changed hands most often."""
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

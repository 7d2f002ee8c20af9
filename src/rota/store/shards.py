"""Servers coming and going, and the shards that each one keeps time for.

Renewing waits for no lock: every write is conditional on what it changes, and the epoch of a shard
fences an owner that has not noticed yet.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from rota.domain.ids import ServerId, instant
from rota.domain.shards import Server, Shard, rebalance
from rota.ports.records import NewServer, OwnedShards, Ownership
from rota.store.rows import server_from, shard_from, to_json
from rota.store.script import Script, query
from rota.store.tx import Tx

_MICROSECOND = timedelta(microseconds=1)
_REMEMBERED = timedelta(days=1) // _MICROSECOND  # how long a server that is over is still listed


def join(tx: Tx, server: NewServer) -> Script[None]:
    """A server arrives; if it is provably alone, those before it are over."""
    yield query("forget_servers", before=tx.now - _REMEMBERED)
    if server.is_alone:
        yield query("end_other_servers", id=server.id, now=tx.now)
    lease = server.lease // _MICROSECOND
    yield query(
        "insert_server",
        id=server.id,
        name=server.name,
        url=server.url,
        roles=to_json(server.roles),
        zone=server.zone,
        version=server.version,
        lease=lease,
        now=tx.now,
        expires_at=tx.now + lease,
    )
    tx.record("server.joined", [server.id], actor=server.name)


def keep(tx: Tx, server: ServerId, *, stopping: bool) -> Script[OwnedShards]:
    """Renew the lease, take what falls to this server, give up what falls to others."""
    renewed = yield query("renew_server", id=server, now=tx.now, stopping=int(stopping))
    if not renewed:
        return OwnedShards(alive=False, now=instant(tx.now))
    # After the renewal: the rebalancing must count this server among the live ones.
    servers = [server_from(row) for row in (yield query("live_servers", now=tx.now))]
    known = yield from shards()
    move = rebalance(server, servers, known, instant(tx.now))
    given = yield from _give(server, move.give)
    owned = {s.number: s.epoch for s in known if s.owner == server and s.number not in given}
    owned |= yield from _take(tx, server, move.take, _ended_owners(known, servers))
    return OwnedShards(True, instant(tx.now), owned, tuple(servers), given)


def _give(me: ServerId, numbers: Collection[int]) -> Script[tuple[int, ...]]:
    """Those that could be given; the rest stay."""
    if not numbers:
        return ()
    rows = yield query("give_shards", server=me, numbers=numbers)
    return tuple(sorted(row["number"] for row in rows))


def _take(
    tx: Tx, me: ServerId, numbers: Collection[int], ended: Collection[ServerId]
) -> Script[dict[int, int]]:
    if not numbers:
        return {}
    rows = yield query("take_shards", server=me, numbers=numbers, ended=ended, now=tx.now)
    taken = {row["number"]: row["epoch"] for row in rows}
    if taken:
        tx.record("shards.taken", [me], actor=me, shards=sorted(taken))
    return taken


def _ended_owners(known: Collection[Shard], live: Collection[Server]) -> list[ServerId]:
    owners = {shard.owner for shard in known if shard.owner is not None}
    return sorted(owners - {server.id for server in live})


def leave(tx: Tx, server: ServerId) -> Script[None]:
    """A server says goodbye."""
    yield query("give_all_shards", server=server)
    if (yield query("end_server", id=server, now=tx.now)):
        tx.record("server.left", [server], actor=server)


def lost(ownership: Ownership, numbers: Collection[int]) -> Script[frozenset[int]]:
    """Which of these shards are not the caller's, or not in the epoch that it thinks.

    Whoever wants to take the others over waits until this transaction is durable.
    """
    rows = yield query("owned_shards", numbers=numbers, server=ownership.server)
    epochs = {row["number"]: row["epoch"] for row in rows}
    return frozenset(
        number for number in numbers if epochs.get(number) != ownership.epochs.get(number, 0)
    )


def servers() -> Script[list[Server]]:
    rows = yield query("select_servers")
    return [server_from(row) for row in rows]


def shards() -> Script[list[Shard]]:
    rows = yield query("select_shards")
    return [shard_from(row) for row in rows]

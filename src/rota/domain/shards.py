"""Assignment of shards to servers: every server computes the same answer by itself."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from rota.domain.ids import SHARD_COUNT, ServerId

SCHEDULER = "scheduler"  # the role that takes part
LEADING_SHARD = 0  # its owner has the duties of time that are not divided
_RANKS = struct.Struct(f">{SHARD_COUNT}Q")


@dataclass(frozen=True, slots=True)
class Server:
    """Life of a server process, present while its lease lasts."""

    id: ServerId
    name: str
    url: str
    roles: tuple[str, ...]
    zone: str  # "": none
    version: str
    lease: timedelta
    started_at: datetime
    expires_at: datetime
    stopping: bool

    def is_live(self, now: datetime) -> bool:
        return now < self.expires_at

    def may_own(self, now: datetime) -> bool:
        """Return whether shards are assigned to it."""
        return self.is_live(now) and not self.stopping and SCHEDULER in self.roles


@dataclass(frozen=True, slots=True)
class Shard:
    """Part of all jobs, by hash of their ids."""

    number: int
    owner: ServerId | None  # None: nobody, or given up
    epoch: int  # how often it was taken: the fence of its owner
    taken_at: datetime | None  # None: never


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Shards that a server takes and gives up, by their numbers."""

    take: tuple[int, ...] = ()
    give: tuple[int, ...] = ()


def assignment(servers: Collection[ServerId]) -> Mapping[int, ServerId]:
    """Assign each shard to the server that ranks highest for it (rendezvous hashing).

    When a server comes or goes, only shards that it gets or had change hands. The shares differ
    as chance has it: of n servers none has more than the even share e plus 5·√e.
    """
    return _assignment(tuple(sorted(servers))) if servers else {}


@lru_cache(maxsize=16)  # servers rarely come and go, and each asks at every renewal
def _assignment(servers: tuple[ServerId, ...]) -> Mapping[int, ServerId]:
    ranked = [(server, _ranks(server)) for server in servers]
    return {
        number: max(ranked, key=lambda entry: entry[1][number])[0] for number in range(SHARD_COUNT)
    }


@lru_cache(maxsize=256)
def _ranks(server: ServerId) -> tuple[int, ...]:
    """Return the rank of a server for each shard."""
    return _RANKS.unpack(hashlib.shake_128(server.encode()).digest(_RANKS.size))


def rebalance(
    me: ServerId, servers: Iterable[Server], shards: Iterable[Shard], now: datetime
) -> Rebalance:
    """Take shards assigned to me that nobody owns; give up those assigned to others.

    A shard is never taken from a live owner: that one gives it up first. A server that is stopping
    is assigned nothing, and so gives up all.
    """
    known = {server.id: server for server in servers}
    wanted = assignment([id_ for id_, server in known.items() if server.may_own(now)])
    take, give = [], []
    for shard in shards:
        if shard.owner == me:
            if wanted.get(shard.number) != me:
                give.append(shard.number)
        elif wanted.get(shard.number) == me and is_free(shard, known, now):
            take.append(shard.number)
    return Rebalance(tuple(take), tuple(give))


def is_free(shard: Shard, servers: Mapping[ServerId, Server], now: datetime) -> bool:
    """Return whether nobody owns it: it was given up, or its owner is over."""
    owner = None if shard.owner is None else servers.get(shard.owner)
    return owner is None or not owner.is_live(now)

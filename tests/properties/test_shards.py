"""Which server keeps time for which shard, whoever comes, stops and dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.ids import SHARD_COUNT, ServerId
from rota.domain.shards import Rebalance, Server, Shard, assignment, rebalance
from testkit.clock import START

IDS = st.integers(0, 10**18).map(lambda number: ServerId(f"s_{number:x}"))
SERVERS = st.sets(IDS, min_size=1, max_size=12)
LEASE = timedelta(seconds=5)
LETTERS = "abcdef"


@given(SERVERS)
def test_every_shard_is_assigned_to_one_of_the_servers(servers: set[ServerId]) -> None:
    assigned = assignment(servers)

    assert assigned.keys() == set(range(SHARD_COUNT))
    assert set(assigned.values()) <= servers


@given(SERVERS)
def test_all_servers_compute_the_same(servers: set[ServerId]) -> None:
    assert assignment(sorted(servers)) == assignment(sorted(servers, reverse=True))


@given(SERVERS, IDS)
def test_a_server_that_comes_or_goes_moves_only_its_own_shards(
    servers: set[ServerId], other: ServerId
) -> None:
    without, with_it = assignment(servers - {other}), assignment(servers | {other})

    moved = {number for number, owner in with_it.items() if without.get(number) != owner}
    assert moved == {number for number, owner in with_it.items() if owner == other}


@given(SERVERS)
def test_no_server_has_much_more_than_its_share(servers: set[ServerId]) -> None:
    even = SHARD_COUNT / len(servers)

    assert max(Counter(assignment(servers).values()).values()) <= even + 5 * sqrt(even)


def test_without_servers_nothing_is_assigned() -> None:
    assert assignment([]) == {}


def server(name: str, **fields: Any) -> Server:
    known = Server(
        id=ServerId(name),
        name=name,
        url="",
        roles=("scheduler",),
        zone="",
        version="",
        lease=LEASE,
        started_at=START,
        expires_at=START + LEASE,
        stopping=False,
    )
    return replace(known, **fields)


def all_of(owner: str | None) -> list[Shard]:
    known = None if owner is None else ServerId(owner)
    return [Shard(number, known, 1, START) for number in range(SHARD_COUNT)]


def decide(me: str, servers: list[Server], owner: str | None) -> Rebalance:
    return rebalance(ServerId(me), servers, all_of(owner), START)


EVERY = tuple(range(SHARD_COUNT))


@pytest.mark.parametrize(
    ("others", "owner", "expected"),
    [
        ([], None, Rebalance(take=EVERY)),
        ([], "dead", Rebalance(take=EVERY)),
        ([server("dead", expires_at=START)], "dead", Rebalance(take=EVERY)),
        ([], "me", Rebalance()),
        ([server("idle", roles=("gateway",))], None, Rebalance(take=EVERY)),
        ([server("live", stopping=True)], "live", Rebalance()),
    ],
)
def test_a_shard_is_taken_only_from_nobody_or_the_dead(
    others: list[Server], owner: str | None, expected: Rebalance
) -> None:
    assert decide("me", [server("me"), *others], owner) == expected


def test_a_stopping_server_gives_all_even_if_nobody_can_take_it() -> None:
    assert decide("me", [server("me", stopping=True)], "me") == Rebalance(give=EVERY)


def test_an_owner_gives_away_what_others_are_assigned() -> None:
    servers = [server("me"), server("new")]
    mine = assignment([ServerId("me"), ServerId("new")])

    given_up = decide("me", servers, "me").give

    assert set(given_up) == {number for number, owner in mine.items() if owner == "new"}
    assert decide("new", servers, "me") == Rebalance()


@dataclass
class Cluster:
    """Servers that decide one after the other, in any order, on what the store says."""

    live: set[str]
    stopping: set[str]
    shards: list[Shard]

    def act(self, name: str) -> None:
        if name not in self.live:
            return
        servers = [server(known, stopping=known in self.stopping) for known in self.live]
        decided = rebalance(ServerId(name), servers, self.shards, START)
        for number in decided.give:
            assert self.shards[number].owner == name
            self.shards[number] = replace(self.shards[number], owner=None)
        for number in decided.take:
            assert self.shards[number].owner not in self.live
            self.shards[number] = replace(
                self.shards[number], owner=ServerId(name), epoch=self.shards[number].epoch + 1
            )


@given(
    st.lists(
        st.tuples(st.sampled_from(LETTERS), st.sampled_from(["join", "die", "stop", "act", "act"]))
    )
)
def test_whatever_happened_two_rounds_give_each_shard_to_the_server_that_it_falls_to(
    history: list[tuple[str, str]],
) -> None:
    cluster = Cluster(set(), set(), all_of(None))
    for name, what in [*history, ("a", "join")]:
        match what:
            case "join":
                cluster.live.add(name)
                cluster.stopping.discard(name)
            case "die":
                cluster.live.discard(name)
            case "stop":
                cluster.stopping.add(name)
            case _:
                cluster.act(name)

    for name in sorted(cluster.live) * 2:
        cluster.act(name)

    wanted = assignment([ServerId(name) for name in cluster.live - cluster.stopping])
    assert {shard.number: shard.owner for shard in cluster.shards} == wanted

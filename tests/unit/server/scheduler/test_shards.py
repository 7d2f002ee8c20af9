"""A server's lease and shards, with other servers on the same store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import SHARD_COUNT, ServerId
from rota.ports.queue import SHARDS
from rota.ports.records import OwnedShards
from rota.server.scheduler.shards import HeldShards, ShardKeeper
from testkit.builders import SERVER, new_server
from testkit.clock import FakeClock
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=6)
AT_ONCE = timedelta(0)


@dataclass
class Node:
    keeper: ShardKeeper
    held: HeldShards

    @property
    def count(self) -> int:
        return len(self.held.epochs)


@pytest.fixture(autouse=True)
async def nobody_else(timeline: Timeline) -> None:
    await timeline.store.leave_cluster(SERVER)


def node(timeline: Timeline, name: str = "s_one", **fields: Any) -> Node:
    clock = FakeClock(timeline.ticker)
    server = new_server(name, lease=LEASE, **fields)
    held = HeldShards(server.id, clock)
    return Node(ShardKeeper(timeline.engine, clock, server, held), held)


async def test_a_lone_server_holds_all_shards_and_leads(timeline: Timeline) -> None:
    one = node(timeline)
    assert (one.count, one.held.is_leading) == (0, False)

    assert await one.keeper.run_once() == SHARD_COUNT

    assert (one.count, one.held.is_leading) == (SHARD_COUNT, True)


async def test_servers_share_and_one_of_them_leads(timeline: Timeline) -> None:
    nodes = [node(timeline, f"s_{number}") for number in range(3)]

    for each in nodes * 3:
        await each.keeper.run_once()

    assert sum(each.count for each in nodes) == SHARD_COUNT
    assert min(each.count for each in nodes) > SHARD_COUNT // 6
    assert [each.held.is_leading for each in nodes].count(True) == 1


async def test_shards_are_dropped_before_the_lease_can_be_over(timeline: Timeline) -> None:
    one, two = node(timeline, "s_one"), node(timeline, "s_two")
    await one.keeper.run_once()
    timeline.be_down(LEASE * 0.66)
    assert one.count == SHARD_COUNT

    timeline.be_down(LEASE * 0.33)  # nobody renews

    assert (one.count, one.held.ownership().epochs) == (0, {})
    await two.keeper.run_once()
    assert two.count == 0  # the store's lease lasts a little longer
    timeline.be_down(LEASE * 0.02)
    await two.keeper.run_once()
    assert two.count == SHARD_COUNT


async def test_a_server_that_lost_its_lease_comes_back(timeline: Timeline) -> None:
    one, two = node(timeline, "s_one"), node(timeline, "s_two")
    await one.keeper.run_once()
    timeline.be_down(LEASE)
    await two.keeper.run_once()

    await one.keeper.run_once()
    assert one.count == 0
    await two.keeper.run_once()
    await one.keeper.run_once()

    assert (one.count > 0, one.count + two.count) == (True, SHARD_COUNT)


async def test_handing_over_wakes_the_others_and_they_take_all(timeline: Timeline) -> None:
    one, two = node(timeline, "s_one"), node(timeline, "s_two")
    for each in (one, two, one, two):
        await each.keeper.run_once()
    listener = timeline.engine.queue.listen(SHARDS)

    await one.keeper.hand_over()

    assert await listener.wait(AT_ONCE)
    await two.keeper.run_once()
    await one.keeper.run_once()  # it goes on renewing while it finishes its work
    assert (one.count, two.count) == (0, SHARD_COUNT)
    listener.close()


async def test_shards_that_are_being_fired_are_handed_over_right_after(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = node(timeline)
    await one.keeper.run_once()
    busy = [{7: 1}, {7: 1}, {}]  # what stays behind, from one renewal to the next
    held: list[int] = []

    async def keep_shards(server: ServerId, *, stopping: bool) -> OwnedShards:
        held.append(one.count)
        return OwnedShards(True, timeline.ticker.instant, busy.pop(0))

    monkeypatch.setattr(timeline.store, "keep_shards", keep_shards)
    began = timeline.ticker.instant
    await one.keeper.hand_over()

    assert (busy, held) == ([], [0, 0, 0])
    assert timeline.ticker.instant - began < timedelta(milliseconds=100)


async def test_leaving_wakes_the_others_and_they_take_all(timeline: Timeline) -> None:
    one, two = node(timeline, "s_one"), node(timeline, "s_two")
    await one.keeper.run_once()
    await two.keeper.run_once()
    listener = timeline.engine.queue.listen(SHARDS)

    await one.keeper.leave()

    assert await listener.wait(AT_ONCE)
    assert await two.keeper.run_once() == SHARD_COUNT
    assert one.count == 0
    listener.close()


async def test_a_newcomer_wakes_the_owner(timeline: Timeline) -> None:
    one, two = node(timeline, "s_one"), node(timeline, "s_two")
    await one.keeper.run_once()
    listener = timeline.engine.queue.listen(SHARDS)

    await two.keeper.run_once()

    assert await listener.wait(AT_ONCE)
    await one.keeper.run_once()
    assert await listener.wait(AT_ONCE)  # it has given
    await one.keeper.run_once()
    assert not await listener.wait(AT_ONCE)
    listener.close()


async def test_the_end_of_another_lease_is_waited_for(timeline: Timeline) -> None:
    one, two = node(timeline, "s_one"), node(timeline, "s_two")
    await one.keeper.run_once()
    timeline.be_down(LEASE * 0.9)

    await two.keeper.run_once()

    assert LEASE * 0.1 < two.keeper._pause < LEASE * 0.11
    timeline.be_down(two.keeper._pause)
    assert await two.keeper.run_once() == SHARD_COUNT


async def test_gaining_shards_is_told_and_keeping_them_is_not(timeline: Timeline) -> None:
    one = node(timeline)
    told: list[int] = []
    one.held.on_gain(lambda: told.append(one.count))

    await one.keeper.run_once()
    await one.keeper.run_once()
    assert told == [SHARD_COUNT]

    timeline.be_down(LEASE)
    await one.keeper.run_once()
    assert told == [SHARD_COUNT] * 2


async def test_shards_that_the_store_denied_are_not_held(timeline: Timeline) -> None:
    one = node(timeline)
    await one.keeper.run_once()

    one.held.lose(one.held.ownership(), [0, 7])

    assert (one.count, one.held.is_leading) == (SHARD_COUNT - 2, False)


async def test_a_shard_that_was_taken_again_meanwhile_is_not_lost(timeline: Timeline) -> None:
    one, two = node(timeline, "s_one"), node(timeline, "s_two")
    await one.keeper.run_once()
    fired_with = one.held.ownership()
    timeline.be_down(LEASE)
    await two.keeper.run_once()
    timeline.be_down(LEASE)
    await one.keeper.run_once()

    one.held.lose(fired_with, [0, 7])

    assert (one.count, one.held.is_leading) == (SHARD_COUNT, True)

"""Servers that fire in one another's stead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from rota.domain.ids import SHARD_COUNT, ServerId
from rota.server.scheduler.releaser import Releaser, Sweeper
from rota.server.scheduler.shards import HeldShards, ShardKeeper
from rota.server.scheduler.timekeeper import TimekeeperConfig, grace_of
from rota.server.scheduler.watches import CongestionWatch
from testkit.builders import SERVER, new_server
from testkit.clock import FakeClock
from tests.unit.server.scheduler.timeline import Scheduler, Timeline, new_scheduler

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
LEASE = 5 * SECOND
FOR_EVER = float("inf")


@dataclass
class Node:
    """A server with the scheduler's role."""

    keeper: ShardKeeper
    held: HeldShards
    scheduler: Scheduler

    async def run_once(self) -> None:
        await self.keeper.run_once()
        await self.scheduler.run_once()

    def believe(self) -> None:
        """Hold on to the shards of now, come what may: its clock stands still."""
        self.held.hold(self.held.epochs, FOR_EVER)


def node(timeline: Timeline, name: str) -> Node:
    clock = FakeClock(timeline.ticker)
    held = HeldShards(ServerId(name), clock)
    config = TimekeeperConfig(grace=grace_of(LEASE))
    return Node(
        ShardKeeper(timeline.engine, clock, new_server(name, lease=LEASE), held),
        held,
        new_scheduler(timeline.engine, held, timeline.ticker, config),
    )


@pytest.fixture
async def one(timeline: Timeline) -> Node:
    await timeline.store.leave_cluster(SERVER)
    return node(timeline, "s_one")


@pytest.fixture
def two(timeline: Timeline) -> Node:
    return node(timeline, "s_two")


async def fire_for(timeline: Timeline, seconds: int, *nodes: Node) -> None:
    """Let time pass with these servers awake each second."""
    for _ in range(seconds):
        timeline.be_down(SECOND)
        for each in nodes:
            await each.run_once()


def seconds(*numbers: int) -> list[timedelta]:
    return [number * SECOND for number in numbers]


@pytest.mark.parametrize("policy", ["none", "last", "first", "all"])
async def test_nothing_is_missed_while_the_lease_of_a_dead_server_runs_out(
    timeline: Timeline, one: Node, two: Node, policy: str
) -> None:
    await timeline.apply("every 1s", overlap="allow", misfire={"policy": policy})
    await fire_for(timeline, 3, one)

    timeline.be_down(LEASE + SECOND)  # the longest take-over that is promised
    await two.run_once()

    assert len(two.held.epochs) == SHARD_COUNT
    assert await timeline.due_times() == seconds(*range(1, 10))
    assert {answer.state for answer in await timeline.ledger()} == {"QUEUED"}


async def test_a_longer_outage_follows_the_policy(timeline: Timeline, one: Node) -> None:
    await timeline.apply("every 1m", misfire={"policy": "none"})
    await one.run_once()

    timeline.be_down(60 * SECOND + grace_of(LEASE) + SECOND)
    await one.run_once()

    [answer] = await timeline.ledger()
    assert (answer.state, answer.cause) == ("MISSED", "downtime")


async def test_a_server_that_was_stopped_and_goes_on_fires_nothing(
    timeline: Timeline, one: Node, two: Node
) -> None:
    await timeline.apply("every 1s", overlap="allow")
    await fire_for(timeline, 2, one)
    timeline.be_down(LEASE)
    await two.run_once()
    timeline.be_down(SECOND)

    await one.scheduler.run_once()

    assert await timeline.due_times() == seconds(*range(1, 8))


async def test_two_owners_at_once_answer_each_due_time_once(
    timeline: Timeline, one: Node, two: Node
) -> None:
    for number in range(20):
        await timeline.apply("every 1s", name=f"job-{number}", overlap="allow")
    await fire_for(timeline, 2, one)
    one.believe()
    timeline.be_down(LEASE)
    await two.run_once()
    two.believe()

    for _ in range(5):
        timeline.be_down(SECOND)
        await one.scheduler.timekeeper.fire_due()
        await two.scheduler.run_once()
        await one.scheduler.run_once()

    for number in range(20):
        assert await timeline.due_times(f"job-{number}") == seconds(*range(1, 13))


async def test_who_is_refused_by_the_store_lets_go_of_the_shard(
    timeline: Timeline, one: Node, two: Node
) -> None:
    await timeline.apply("every 1s", overlap="allow")
    await fire_for(timeline, 2, one)
    one.believe()
    timeline.be_down(LEASE)
    await two.keeper.run_once()

    await one.scheduler.run_once()

    assert len(one.held.epochs) == SHARD_COUNT - 1
    assert await timeline.due_times() == seconds(1, 2)


async def test_a_planned_hand_over_is_not_even_late(
    timeline: Timeline, one: Node, two: Node
) -> None:
    await timeline.apply("every 1s", overlap="allow")
    await fire_for(timeline, 4, one, two)

    await one.keeper.hand_over()
    await fire_for(timeline, 4, one, two)

    runs = await timeline.runs()
    assert [run.queued_at for run in runs] == [run.due_at for run in runs]
    assert await timeline.due_times() == seconds(*range(1, 9))


async def test_servers_that_share_answer_all(timeline: Timeline, one: Node, two: Node) -> None:
    for number in range(20):
        await timeline.apply("every 1s", name=f"job-{number}", overlap="allow")

    await fire_for(timeline, 6, one, two)

    assert 0 < len(one.held.epochs) < SHARD_COUNT
    for number in range(20):
        assert await timeline.due_times(f"job-{number}") == seconds(*range(1, 7))


async def test_duties_that_are_not_divided_are_the_leaders(timeline: Timeline, one: Node) -> None:
    await timeline.apply(None)
    job = await timeline.job()
    await timeline.scene.trigger(job.id, at=timeline.ticker.instant + SECOND, count=1)
    timeline.be_down(SECOND)
    clock = FakeClock(timeline.ticker)
    duties: list[Releaser | Sweeper | CongestionWatch] = [
        one.scheduler.releaser,
        Sweeper(timeline.engine, clock, one.held),
        CongestionWatch(timeline.engine, clock, one.held),
    ]

    assert [await duty.run_once() for duty in duties] == [0, 0, 0]

    await one.keeper.run_once()
    assert await one.scheduler.releaser.run_once() == 1

"""Servers, their leases, and the shards that each may fire for, however often they change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import SHARD_COUNT, JobId, ServerId, shard_of
from rota.domain.job import Job
from rota.ports.records import Fired, OwnedShards, Ownership, RunQuery
from rota.ports.store import Store
from testkit.builders import ALL_SHARDS, MINUTE, Scene, firing_of, new_server
from tests.conformance.store.conftest import every_way

pytestmark = pytest.mark.anyio
LEASE = timedelta(seconds=5)
DAY = timedelta(days=1)
ONE, TWO = ServerId("s_one"), ServerId("s_two")


async def join(scene: Scene, server: str = ONE, **fields: Any) -> OwnedShards:
    await scene.store.join(new_server(server, lease=LEASE, **fields))
    return await keep(scene, server)


async def keep(scene: Scene, server: str = ONE, *, stopping: bool = False) -> OwnedShards:
    return await scene.store.keep_shards(ServerId(server), stopping=stopping)


async def owners(scene: Scene) -> set[str | None]:
    return {shard.owner for shard in await scene.store.shards()}


async def due_job(scene: Scene, name: str = "job") -> Job:
    return await scene.show_job(await scene.job(name, next_at=scene.clock.instant))


async def run_count(scene: Scene) -> int:
    return len(await scene.store.runs(RunQuery()))


def outcome(fired: Fired) -> tuple[set[JobId], set[int]]:
    """What was accepted, and which shards were lost."""
    return set(fired.accepted), set(fired.lost_shards)


async def take_over(scene: Scene) -> tuple[Ownership, Ownership]:
    """One server dies and another takes its shards; returns what each believes to own."""
    before = await join(scene, ONE)
    scene.advance(LEASE)
    after = await join(scene, TWO)
    return Ownership(ONE, before.shards), Ownership(TWO, after.shards)


async def test_the_first_server_takes_all_shards(scene: Scene) -> None:
    assert await owners(scene) == {None}

    holding = await join(scene)

    assert (holding.alive, holding.shards) == (True, dict.fromkeys(ALL_SHARDS, 1))
    assert [server.id for server in holding.servers] == [ONE]
    assert await owners(scene) == {ONE}


async def test_renewing_changes_nothing_else(scene: Scene) -> None:
    first = await join(scene)
    scene.advance(LEASE / 2)

    again = await keep(scene)

    assert (again.shards, again.given) == (first.shards, ())
    assert again.servers[0].expires_at == scene.clock.instant + LEASE


async def test_an_unknown_server_has_no_lease(scene: Scene) -> None:
    assert not (await keep(scene)).alive


async def test_a_lease_that_has_ended_cannot_be_renewed(scene: Scene) -> None:
    await join(scene)
    scene.advance(LEASE)

    assert not (await keep(scene)).alive
    back = await join(scene)

    assert (back.alive, set(back.shards.values())) == (True, {1})


async def test_a_newcomer_waits_until_the_owner_gives(scene: Scene) -> None:
    await join(scene, ONE)

    assert (await join(scene, TWO)).shards == {}
    given = (await keep(scene, ONE)).given
    taken = (await keep(scene, TWO)).shards

    assert taken == dict.fromkeys(given, 2)
    assert 0 < len(taken) < SHARD_COUNT
    assert (await keep(scene, ONE)).shards.keys() == set(ALL_SHARDS) - taken.keys()


@every_way
async def test_the_shards_of_a_dead_server_are_taken_with_a_new_epoch(scene: Scene) -> None:
    await join(scene, ONE)
    scene.advance(LEASE - timedelta(microseconds=1))
    assert (await join(scene, TWO)).shards == {}
    scene.advance(timedelta(microseconds=1))

    assert (await keep(scene, TWO)).shards == dict.fromkeys(ALL_SHARDS, 2)
    assert await owners(scene) == {TWO}


async def test_a_stopping_server_gives_all_at_once_and_stays_visible(scene: Scene) -> None:
    await join(scene, ONE)
    await join(scene, TWO)

    stopping = await keep(scene, ONE, stopping=True)

    assert (stopping.shards, len(stopping.given)) == ({}, SHARD_COUNT)
    assert len((await keep(scene, TWO)).shards) == SHARD_COUNT
    assert {server.id: server.stopping for server in await scene.store.servers()} == {
        ONE: True,
        TWO: False,
    }


async def test_a_server_that_leaves_frees_its_shards(scene: Scene) -> None:
    await join(scene)

    await scene.store.leave_cluster(ONE)
    await scene.store.leave_cluster(ONE)

    assert await owners(scene) == {None}
    assert not (await keep(scene)).alive
    kinds = [event.kind for event in await scene.store.events(0, 100)]
    assert kinds == ["server.joined", "shards.taken", "server.left"]


async def test_a_server_without_the_role_gets_no_shards(scene: Scene) -> None:
    await join(scene, ONE, roles=("gateway",))

    assert len((await join(scene, TWO)).shards) == SHARD_COUNT
    assert (await keep(scene, ONE)).shards == {}


async def test_a_server_that_is_alone_takes_over_without_waiting(scene: Scene) -> None:
    await join(scene, ONE)

    holding = await join(scene, TWO, is_alone=True)

    assert len(holding.shards) == SHARD_COUNT
    assert not (await keep(scene, ONE)).alive


async def test_servers_are_listed_for_a_day_after_their_end(scene: Scene) -> None:
    await join(scene, ONE, url="http://one", zone="fra", version="1.0")
    scene.advance(LEASE + DAY)
    await join(scene, TWO)
    assert [server.id for server in await scene.store.servers()] == [TWO, ONE]
    [*_, one] = await scene.store.servers()
    assert (one.url, one.zone, one.version, one.roles) == (
        "http://one",
        "fra",
        "1.0",
        ("scheduler",),
    )

    scene.advance(timedelta(microseconds=1))
    await scene.store.join(new_server(TWO))

    assert [server.id for server in await scene.store.servers()] == [TWO]


async def test_due_schedules_are_those_of_the_shards(scene: Scene) -> None:
    jobs = [await due_job(scene, f"job-{number}") for number in range(8)]
    wanted = {shard_of(job.id) for job in jobs[:3]}

    due = await scene.store.due_schedules(scene.clock.instant + MINUTE, 10, wanted)

    assert {schedule.job_id for schedule in due} == {
        job.id for job in jobs if shard_of(job.id) in wanted
    }
    assert {schedule.shard for schedule in due} == wanted
    assert await scene.store.due_schedules(scene.clock.instant + MINUTE, 10, []) == []


@every_way
async def test_only_the_latest_owner_of_a_shard_fires(scene: Scene) -> None:
    job = await due_job(scene)
    stale, current = await take_over(scene)

    refused = await scene.store.fire([firing_of(job)], stale)
    fired = await scene.store.fire([firing_of(job)], current)

    assert outcome(refused) == (set(), {shard_of(job.id)})
    assert outcome(fired) == ({job.id}, set())
    assert await run_count(scene) == 1


async def test_an_owner_that_lost_a_shard_and_took_it_again_cannot_fire_from_before(
    scene: Scene,
) -> None:
    job = await due_job(scene)
    before, _ = await take_over(scene)
    scene.advance(LEASE)
    now = Ownership(ONE, (await join(scene, ONE)).shards)

    refused = await scene.store.fire([firing_of(job)], before)
    fired = await scene.store.fire([firing_of(job)], now)

    assert outcome(refused) == (set(), {shard_of(job.id)})
    assert fired.accepted == {job.id}


async def test_a_shard_that_was_given_up_cannot_be_fired_by_who_had_it(scene: Scene) -> None:
    job = await due_job(scene)
    ownership = Ownership(ONE, (await join(scene)).shards)
    await keep(scene, stopping=True)

    refused = await scene.store.fire([firing_of(job)], ownership)

    assert outcome(refused) == (set(), {shard_of(job.id)})


async def test_a_lost_shard_does_not_harm_the_firings_of_others(scene: Scene) -> None:
    jobs = [await due_job(scene, f"job-{number}") for number in range(40)]
    before = await join(scene, ONE)
    await join(scene, TWO)
    lost = set((await keep(scene, ONE)).given)

    fired = await scene.store.fire([firing_of(job) for job in jobs], Ownership(ONE, before.shards))

    assert fired.lost_shards == {shard_of(job.id) for job in jobs} & lost
    assert fired.accepted == {job.id for job in jobs if shard_of(job.id) not in lost}
    assert 0 < len(fired.accepted) < len(jobs)


async def test_a_due_time_that_an_owner_answered_is_not_answered_by_the_next(scene: Scene) -> None:
    job = await due_job(scene)
    first = Ownership(ONE, (await join(scene, ONE)).shards)
    firing = firing_of(job, next_at=scene.clock.instant + MINUTE)
    await scene.store.fire([firing], first)
    scene.advance(LEASE)
    second = Ownership(TWO, (await join(scene, TWO)).shards)

    again = await scene.store.fire([firing], second)

    assert outcome(again) == (set(), set())
    assert await run_count(scene) == 1


FAILOVERS = 20


async def take_shards(store: Store, server: str) -> Ownership:
    """What a server owns that arrives after the others' leases have ended."""
    await store.join(new_server(server, lease=LEASE))
    holding = await store.keep_shards(ServerId(server), stopping=False)
    return Ownership(ServerId(server), holding.shards)


async def fire_as(scene: Scene, owners: list[Ownership], job: Job) -> list[frozenset[JobId]]:
    """What each of them was let do for the same due time, the oldest owner first."""
    assert job.next_at is not None
    firing = firing_of(job, next_at=job.next_at + LEASE)
    return [(await scene.store.fire([firing], owner)).accepted for owner in owners]


async def test_twenty_failovers_answer_each_due_time_once(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant + LEASE)
    owners: list[Ownership] = []
    for number in range(FAILOVERS):
        scene.advance(LEASE)
        owners.append(await take_shards(scene.store, f"s_{number % 2}"))

        accepted = await fire_as(scene, owners, await scene.show_job(job_id))

        assert accepted == [*[frozenset()] * number, {job_id}]
    runs = await scene.store.runs(RunQuery(job_id=job_id, limit=2 * FAILOVERS))
    assert len(runs) == FAILOVERS
    assert len({run.due_at for run in runs}) == FAILOVERS

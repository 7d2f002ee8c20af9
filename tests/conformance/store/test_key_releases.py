"""Runs that wait for shared keys, also for two at once, and claims that race for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rota.domain.ids import JobId, RunId, SessionId
from rota.domain.keys import Resource, Sharing
from rota.domain.states import RunState
from rota.ports.records import RunQuery
from rota.ports.work import Work
from rota.store.postgres.connections import PoolSizes
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.servers.postgres import PostgresServer

pytestmark = pytest.mark.anyio
SECOND = timedelta(seconds=1)
HELD = 10 * SECOND  # so long each run of an endless stream has its key


@dataclass
class Locks:
    """Two mutexes, and jobs that need the first, the second or both."""

    scene: Scene
    worker: SessionId
    jobs: dict[str, JobId]

    async def want(self, which: str) -> RunId:
        [run] = await self.scene.trigger(self.jobs[which])
        return run

    async def go_on(self) -> list[Work]:
        """Whoever may have its keys by now takes them."""
        while await self.scene.store.release_keys(200):
            pass
        return await self.scene.claim(self.worker)

    async def take(self, which: str) -> Work:
        run = await self.want(which)
        [work] = await self.go_on()
        assert work.run == run
        return work

    async def wait(self, duration: timedelta) -> None:
        self.scene.advance(duration)
        await self.scene.store.renew(self.worker, stopping=False)

    async def finish(self, *works: Work) -> None:
        await self.scene.finish(self.worker, works)


@pytest.fixture
async def locks(scene: Scene) -> Locks:
    mutexes = [Resource("default", name, sharing=Sharing.MUTEX) for name in ("a", "b")]
    await scene.store.save_declarations(mutexes, actor="editor")
    uses = {"a": {"a": 1}, "b": {"b": 1}, "both": {"a": 1, "b": 1}}
    jobs = {name: await scene.job(name, uses=each) for name, each in uses.items()}
    return Locks(scene, await scene.worker(), jobs)


async def kept_the_first(locks: Locks) -> RunId:
    """A run that waited ten seconds for the first key, and waits for the second one now."""
    first, _ = await locks.take("a"), await locks.take("b")
    run = await locks.want("both")
    await locks.wait(10 * SECOND)
    await locks.finish(first)
    await locks.go_on()
    return run


async def test_a_run_of_two_keys_gets_its_turn_among_endless_runs_of_one(
    scene: Scene, locks: Locks
) -> None:
    working = {await locks.take("a"): scene.clock.instant}
    await locks.wait(8 * SECOND)
    working[await locks.take("b")] = begin = scene.clock.instant
    both = await locks.want("both")
    started: list[str] = []

    while both not in started and scene.clock.instant < begin + 100 * SECOND:
        await locks.want("a")
        await locks.want("b")
        await locks.wait(SECOND)
        now = scene.clock.instant
        ended = [work for work, since in working.items() if now - since >= HELD]
        working = {work: since for work, since in working.items() if work not in ended}
        await locks.finish(*ended)
        working |= dict.fromkeys(works := await locks.go_on(), now)
        started += [work.run for work in works]

    # The first key was kept for two seconds, in vain; the second for ten.
    assert scene.clock.instant - begin == 14 * SECOND
    assert len(started) == 2


async def test_what_is_kept_for_a_run_is_free_after_as_long_as_it_had_waited(
    scene: Scene, locks: Locks
) -> None:
    both = await kept_the_first(locks)

    other = await locks.want("a")
    told = await scene.show(other)
    uses = await scene.store.key_uses(["resource:default/a"])
    await locks.wait(9 * SECOND)
    early = await locks.go_on()
    await locks.wait(SECOND)
    late = await locks.go_on()

    assert [reason.message for reason in told.reasons] == [
        "resource a: 0 of 1 in use, others wait before it"
    ]
    assert uses["resource:default/a"].state.kept == 1
    assert (early, [work.run for work in late]) == ([], [other])
    assert await scene.state(both) is RunState.BLOCKED


async def test_what_is_kept_for_a_run_is_free_when_it_waits_no_more(
    scene: Scene, locks: Locks
) -> None:
    both = await kept_the_first(locks)
    other = await locks.want("a")
    early = await locks.go_on()

    await scene.store.cancel([both], actor="user")

    assert early == []
    assert [work.run for work in await locks.go_on()] == [other]


async def test_a_run_that_goes_before_takes_what_is_kept_for_another(
    scene: Scene, locks: Locks
) -> None:
    await kept_the_first(locks)

    [urgent] = await scene.trigger(locks.jobs["a"], priority=9)

    assert [work.run for work in await locks.go_on()] == [urgent]


UNITS = 3
LIVE = (RunState.CLAIMED, RunState.PROCESSING)


@pytest.fixture
async def servers(
    postgres_server: PostgresServer, database: str, clock: FakeTicker
) -> AsyncIterator[list[Scene]]:
    """Some that share a store."""
    async with AsyncExitStack() as until:
        scenes = []
        for _ in range(4):
            sizes = PoolSizes(work=4, api=2)
            opened = await open_postgres(
                postgres_server.address(database), clock=clock, sizes=sizes
            )
            until.push_async_callback(opened.close)
            scenes.append(Scene(opened, clock))
        yield scenes


async def declare(scene: Scene, total: int) -> None:
    lock = Resource("default", "lock", total=total, sharing=Sharing.COUNTED)
    await scene.store.save_declarations([lock], actor="editor")


async def live(scene: Scene) -> int:
    return len(await scene.store.runs(RunQuery(states=LIVE, limit=1_000)))


async def claim_at_once(servers: list[Scene], workers: list[SessionId]) -> list[list[Work]]:
    """One run for each, as far as there are any."""
    return await asyncio.gather(
        *(servers[n % len(servers)].claim(worker, 1) for n, worker in enumerate(workers))
    )


@pytest.mark.slow
async def test_claims_that_race_for_the_last_unit_never_exceed_it(servers: list[Scene]) -> None:
    first = servers[0]
    await declare(first, total=200)
    job = await first.job(uses={"lock": 1})
    workers = [await first.worker(f"worker-{n}", slots=1) for n in range(200)]
    await first.trigger(job, 50)
    for worker, works in zip(workers, await claim_at_once(servers, workers), strict=True):
        await first.finish(worker, works)  # from here on all are equally quick
    await first.trigger(job, 200)
    await declare(first, total=1)

    claimed = await claim_at_once(servers, workers)

    assert sum(map(len, claimed)) == 1
    assert await live(first) == 1
    assert len(await first.store.runs(RunQuery(states=[RunState.BLOCKED], limit=1_000))) == 199


@pytest.mark.slow
async def test_units_are_never_exceeded_while_runs_come_end_and_go_on(
    servers: list[Scene],
) -> None:
    first = servers[0]
    await declare(first, total=UNITS)
    job = await first.job(uses={"lock": 1})
    workers = [await first.worker(f"worker-{n}", slots=4) for n in range(4)]
    most, ended = 0, 0

    async def work(scene: Scene, worker: SessionId) -> None:
        nonlocal most, ended
        held: list[Work] = []
        while ended < 60:
            held += await scene.claim(worker, 2)
            most = max(most, await live(scene))
            assert not (await scene.finish(worker, held[:1])).refused
            ended += len(held[:1])
            held = held[1:]
            await scene.store.release_keys(10)

    async def submit(scene: Scene) -> None:
        for _ in range(10):
            await scene.trigger(job, 3)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for scene, worker in zip(servers, workers, strict=True):
            group.create_task(work(scene, worker))
        group.create_task(submit(servers[1]))
        group.create_task(submit(servers[2]))

    assert most == UNITS
    uses = await first.store.key_uses(["resource:default/lock"])
    assert uses["resource:default/lock"].state.held == 0

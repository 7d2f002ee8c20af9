"""Somebody on PostgreSQL holds a lock, or a connection, and does not let go of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest

from rota.domain.access import Role
from rota.domain.ids import JobId, RunId, SessionId
from rota.domain.run import AttemptResult
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.records import NewToken
from rota.store.postgres.connections import application_name
from rota.store.postgres.driver import PostgresDriver, Prepared
from rota.store.script import Rows, Script, Statement, Urgency, query
from rota.store.store import SqlStore
from testkit.builders import Scene, firing_of, outcome, reported
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
QUICK = 10  # seconds, far below those after which the driver gives up a statement


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


@asynccontextmanager
async def stuck(rival: Rival, job_id: JobId) -> AsyncIterator[None]:
    """Somebody holds the gate of this job."""
    await rival.execute(f"BEGIN; SELECT FROM schedule WHERE job_id = '{job_id}' FOR UPDATE")
    yield
    await rival.execute("COMMIT")


class TestGates:
    async def test_one_that_is_stuck_stops_no_other_schedule(
        self, scene: Scene, rival: Rival
    ) -> None:
        due = scene.clock.instant + SECOND
        jobs = [await scene.job(name, next_at=due) for name in ("stuck", "free")]
        firings = [firing_of(await scene.show_job(job_id)) for job_id in jobs]
        scene.advance(SECOND)

        async with stuck(rival, jobs[0]), asyncio.timeout(QUICK):
            meanwhile = await scene.fire_all(firings)
        afterwards = await scene.fire_all(firings)

        assert meanwhile.accepted == {jobs[1]}
        assert afterwards.accepted == {jobs[0]}

    async def test_one_that_is_stuck_stops_no_other_run_for_which_a_worker_has_come(
        self, scene: Scene, rival: Rival
    ) -> None:
        await scene.worker("plain")
        jobs = [await scene.job(name, needs={"site": "fra"}) for name in ("stuck", "free")]
        runs = [run for job_id in jobs for run in await scene.trigger(job_id)]
        await scene.worker("able", labels={"site": "fra"})

        async with stuck(rival, jobs[0]), asyncio.timeout(QUICK):
            released = [await scene.store.release_fitting(100)]
            meanwhile = await scene.states(runs)
        released.append(await scene.store.release_fitting(100))

        assert released == [1, 1]
        assert meanwhile == [RunState.BLOCKED, RunState.QUEUED]
        assert await scene.states(runs) == [RunState.QUEUED] * 2

    async def test_one_that_is_stuck_stops_no_other_retry(self, scene: Scene, rival: Rival) -> None:
        jobs = [await scene.job(name, overlap=Overlap.ALLOW) for name in ("stuck", "free")]
        runs = [run for job_id in jobs for run in await scene.trigger(job_id)]
        await scene.store.end_session(await self._busy_worker(scene))

        async with stuck(rival, jobs[0]), asyncio.timeout(QUICK):
            await scene.release()
            meanwhile = await scene.states(runs)
        await scene.release()

        assert meanwhile == [RunState.SCHEDULED, RunState.QUEUED]
        assert await scene.states(runs) == [RunState.QUEUED, RunState.QUEUED]

    async def _busy_worker(self, scene: Scene) -> SessionId:
        worker = await scene.worker()
        await scene.claim(worker)
        return worker

    async def test_an_end_that_waits_for_one_does_not_keep_its_worker_from_renewing(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        job_id = await scene.job(max_concurrency=1)
        await scene.trigger(job_id)
        worker = await scene.worker()
        [work] = await scene.claim(worker)

        async with stuck(rival, job_id), asyncio.timeout(QUICK):
            ending = asyncio.create_task(
                scene.store.finish(worker, reported(outcome(work)), claim=1)
            )
            await until_somebody_waits(postgres_server)
            renewal = await scene.store.renew(worker, stopping=False)
            unanswered = await ending

        assert (unanswered.refused, unanswered.again) == ((), (work.fence,))
        assert renewal.held == (work.fence,)
        answered = await scene.store.finish(worker, reported(outcome(work)), claim=1)
        assert (answered.refused, answered.again) == ((), ())

    async def test_one_that_is_stuck_stops_no_other_end(self, scene: Scene, rival: Rival) -> None:
        jobs = [await scene.job(name, max_concurrency=1) for name in ("stuck", "limited")]
        jobs.append(await scene.job("free"))
        for job_id in jobs:
            await scene.trigger(job_id)
        worker = await scene.worker()
        works = {work.job_id: work for work in await scene.claim(worker)}
        reports = [outcome(works[job_id], AttemptResult.FAILED) for job_id in jobs]

        async with stuck(rival, jobs[0]), asyncio.timeout(QUICK):
            meanwhile = await scene.store.finish(worker, reported(*reports), claim=1)
        afterwards = await scene.store.finish(worker, reported(*reports))

        fences = [works[job_id].fence for job_id in jobs]
        assert (meanwhile.refused, meanwhile.again) == ((), (fences[0],))
        assert (afterwards.refused, afterwards.again) == ((), ())


class TestServersThatAreOver:
    async def _holds_a_gate(self, rival: Rival, server: str, job_id: JobId) -> None:
        """A server was stopped in the middle of a transaction."""
        await rival.execute(f"SET application_name = '{application_name(server)}'")
        await rival.execute(f"BEGIN; SELECT FROM schedule WHERE job_id = '{job_id}' FOR UPDATE")

    async def test_their_locks_are_free_once_another_server_renews(
        self, scene: Scene, rival: Rival
    ) -> None:
        job_id = await scene.job(max_concurrency=1)
        await scene.ownership("s_stopped")
        await self._holds_a_gate(rival, "s_stopped", job_id)
        scene.advance(timedelta(days=1))

        await scene.ownership("s_live")

        async with asyncio.timeout(QUICK):
            assert len(await scene.trigger(job_id)) == 1

    async def test_those_that_renew_keep_theirs(self, scene: Scene, rival: Rival) -> None:
        await scene.ownership("s_busy")
        await self._holds_a_gate(rival, "s_busy", await scene.job())

        await scene.ownership("s_live")

        assert await rival.fetchval("SELECT 1") == 1
        await rival.execute("COMMIT")

    async def test_a_server_s_transactions_bear_its_name(
        self, store: SqlStore, scene: Scene
    ) -> None:
        await scene.ownership("s_1")
        seen: list[Rows] = []

        def look(_: int) -> Script[None]:
            seen.append((yield query("application")))

        driver = store._driver
        assert isinstance(driver, PostgresDriver)
        statement = "SELECT current_setting('application_name') AS name"
        driver._statements["application"] = Prepared(Statement("application", statement, ()))
        await driver.read(look, Urgency.API)

        assert seen[0][0]["name"] == application_name("s_1")


class TestConnections:
    @asynccontextmanager
    async def _busy(self, store: SqlStore, urgency: Urgency, count: int) -> AsyncIterator[None]:
        """All connections of a kind are in use."""
        driver = store._driver
        assert isinstance(driver, PostgresDriver)
        async with AsyncExitStack() as taken:
            for _ in range(count):
                await taken.enter_async_context(driver._pools.connection(urgency))
            yield

    async def test_leases_are_kept_while_all_who_fire_are_busy(
        self, store: SqlStore, scene: Scene
    ) -> None:
        worker = await scene.worker()
        ownership = await scene.ownership()

        async with self._busy(store, Urgency.FIRE, 2), asyncio.timeout(QUICK):
            renewal = await store.renew(worker, stopping=False)
            holding = await store.keep_shards(ownership.server, stopping=False)

        assert renewal.alive
        assert holding.alive

    async def test_workers_keep_their_leases_while_the_api_is_busy(
        self, store: SqlStore, scene: Scene
    ) -> None:
        await store.add_token(NewToken("t_1", "w1", Role.VIEWER, "digest", "worker", "admin", None))
        job_id = await scene.job(overlap=Overlap.ALLOW)
        await scene.trigger(job_id)
        worker = await scene.worker()
        gone = await scene.worker("gone")

        async with self._busy(store, Urgency.API, 2), asyncio.timeout(QUICK):
            known = await store.token_by_digest("digest")
            [work] = await scene.claim(worker)
            documents = await store.documents([(job_id, work.job_version)])
            await store.lose(worker, [work.fence])
            await store.end_session(worker)
            await scene.vanish(gone)
            alive = await store.sessions(alive_only=True)

        assert known is not None
        assert len(documents) == 1
        assert (await store.attempts(RunId(work.run)))[0].result is AttemptResult.LOST
        assert alive == []

"""Who waits for whom on PostgreSQL, one step at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.domain.errors import Conflict
from rota.domain.ids import JobId, ServerId, new_run_id, shard_of
from rota.domain.run import Trigger
from rota.domain.shape import alone
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.records import Idempotency, NewRun, RunQuery, SubmittedRun
from rota.store.store import SqlStore
from testkit.builders import LEASE, SERVER, Scene, new_calendar
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


class TestDemandsOfLoneRuns:
    """A run whose demand nobody knows would never be found."""

    DEMAND = alone("")

    async def test_what_somebody_begins_to_ask_for_is_not_forgotten(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        [run] = await scene.trigger(await scene.job(max_losses=1))
        worker = await scene.worker()
        await scene.claim(worker)
        await rival.execute("INSERT INTO shape VALUES ($1)", self.DEMAND)
        await rival.execute("BEGIN; SELECT FROM pool FOR UPDATE")

        losing = asyncio.create_task(scene.vanish(worker))
        await until_somebody_waits(postgres_server)
        forgetting = asyncio.create_task(scene.store.forget_sessions(10))
        await until_somebody_waits(postgres_server, many=2)
        await rival.execute("COMMIT")
        await losing
        await forgetting
        await scene.release()

        assert [work.run for work in await scene.claim(await scene.worker())] == [run]

    async def test_what_is_being_forgotten_is_told_anew(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        [run] = await scene.trigger(await scene.job(max_losses=1))
        worker = await scene.worker()
        await scene.claim(worker)
        await rival.execute("INSERT INTO shape VALUES ($1)", self.DEMAND)
        await rival.execute("BEGIN; SELECT FROM shape FOR UPDATE")
        await rival.execute("DELETE FROM shape WHERE id = $1", self.DEMAND)

        losing = asyncio.create_task(scene.vanish(worker))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")
        await losing
        await scene.release()

        assert [work.run for work in await scene.claim(await scene.worker())] == [run]


class TestLinesAtRest:
    """A run in a line that rests would never be found."""

    async def test_whoever_enters_waits_for_whoever_puts_it_to_rest(
        self,
        scene: Scene,
        rival: Rival,
        postgres_server: PostgresServer,
    ) -> None:
        job_id, worker = await scene.job(), await scene.worker()
        await scene.trigger(job_id)
        await rival.execute("BEGIN; SELECT FROM chain FOR UPDATE; UPDATE chain SET active = 0")

        entering = asyncio.create_task(scene.trigger(job_id))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")
        await entering

        assert len(await scene.claim(worker)) == 2

    async def test_a_line_that_somebody_enters_is_not_put_to_rest(
        self, scene: Scene, rival: Rival
    ) -> None:
        job_id, worker = await scene.job(), await scene.worker()
        await scene.trigger(job_id)
        await rival.execute("BEGIN; SELECT FROM chain FOR KEY SHARE")

        await scene.claim(worker)

        assert await rival.fetchval("SELECT active FROM chain") == 1
        await rival.execute("COMMIT")

    async def test_a_later_claim_puts_it_to_rest(self, scene: Scene, rival: Rival) -> None:
        job_id, worker = await scene.job(), await scene.worker()
        await scene.trigger(job_id)
        await rival.execute("BEGIN; SELECT FROM chain FOR KEY SHARE")
        await scene.claim(worker)
        await rival.execute("COMMIT")

        await scene.claim(worker)

        assert await rival.fetchval("SELECT active FROM chain") == 0


class TestKeysOfCallers:
    """Of calls that go together, while another server has some of the same ones."""

    KEEP = "INSERT INTO idempotency VALUES ('{}', 'digest', '[\"{}\"]', 0)"

    async def test_they_are_taken_in_one_order(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        job_id = await scene.job()
        await rival.execute("BEGIN; SET LOCAL lock_timeout = 500; " + self.KEEP.format("b", ""))

        asking = asyncio.gather(*(self.submit(scene, job_id, key) for key in "cba"))
        await until_somebody_waits(postgres_server)
        await rival.execute(self.KEEP.format("c", "") + "; ROLLBACK")  # nobody has got so far yet

        assert [each.is_repeat for each in await asking] == [False] * 3

    async def test_whoever_comes_second_gets_the_answer_of_the_other_server(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        job_id = await scene.job()
        first = await self.submit(scene, job_id, "a")
        assert first.run is not None
        await rival.execute("BEGIN; " + self.KEEP.format("b", first.run.id))

        asking = asyncio.gather(*(self.submit(scene, job_id, key) for key in "cb"))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")
        new, repeated = await asking

        assert (new.is_repeat, repeated.is_repeat) == (False, True)
        assert repeated.run is not None
        assert repeated.run.id == first.run.id
        assert len(await scene.store.runs(RunQuery())) == 2

    async def submit(self, scene: Scene, job: JobId, key: str) -> SubmittedRun:
        run = NewRun(new_run_id(scene.clock.instant), job, 1, Trigger.MANUAL, "user")
        return await scene.store.submit_one(run, Idempotency(key, "digest"))


class TestLeases:
    async def test_a_session_that_is_being_renewed_is_not_reaped(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        worker = await scene.worker(lease=timedelta(seconds=30))
        scene.advance(timedelta(seconds=31))
        await rival.execute("BEGIN; UPDATE session SET beats = 1, expires_at = expires_at + lease")

        reaping = asyncio.create_task(scene.store.reap({worker: 0}))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")

        assert await reaping == frozenset()

    async def test_what_a_claim_has_in_hand_is_lost_with_its_session(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        [run] = await scene.trigger(await scene.job(overlap=Overlap.ALLOW))
        worker = await scene.worker()
        claim = (
            f"UPDATE run SET state = 'CLAIMED', session = '{worker}', attempt = 1, claimed_at = 0"
        )
        await rival.execute("BEGIN; SELECT FROM session FOR KEY SHARE; " + claim)

        ending = asyncio.create_task(scene.store.end_session(worker))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")
        await ending

        assert await scene.state(run) is RunState.SCHEDULED

    async def test_a_session_that_cannot_end_holds_up_no_other(
        self, scene: Scene, rival: Rival
    ) -> None:
        runs = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 2)
        workers = [await scene.worker(name) for name in ("good", "bad")]
        held = [(await scene.claim(worker, 1))[0].run for worker in workers]
        await rival.execute("UPDATE run SET delivery = 'nonsense' WHERE id = $1", held[1])
        scene.advance(2 * LEASE)

        gone = await scene.store.reap(dict.fromkeys(workers, 0))

        assert gone == {workers[0]}
        assert sorted(held) == sorted(runs)
        assert await scene.state(held[0]) is RunState.SCHEDULED

    async def test_the_end_of_one_locks_all_its_runs_at_once(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 2)
        worker = await scene.worker()
        printed, held = sorted(await scene.claim(worker), key=lambda work: work.run)
        await scene.finish(worker, [printed], output_bytes=10, output_lines=1)
        lock = "SELECT FROM run WHERE id = '{}' FOR NO KEY UPDATE NOWAIT"
        await rival.execute("BEGIN; " + lock.format(printed.run))

        ending = asyncio.create_task(scene.store.end_session(worker))
        await until_somebody_waits(postgres_server)
        await rival.execute(lock.format(held.run) + "; COMMIT")
        await ending

        assert await scene.state(held.run) is RunState.SCHEDULED


class TestDraining:
    async def test_it_waits_for_a_claim_under_way(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        await scene.worker("w1")
        await rival.execute("BEGIN; SELECT FROM session FOR KEY SHARE")

        draining = asyncio.create_task(scene.store.drain_worker("w1", actor="operator"))
        await until_somebody_waits(postgres_server)
        assert not draining.done()

        await rival.execute("COMMIT")
        await draining

    async def test_a_claim_that_waited_for_it_gets_nothing(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        await scene.trigger(await scene.job())
        worker = await scene.worker("w1")
        drain = "INSERT INTO drained_worker (name, drained_by, drained_at) VALUES ('w1', 'me', 0)"
        await rival.execute(f"BEGIN; {drain}; SELECT FROM session FOR UPDATE")

        claiming = asyncio.create_task(scene.claim(worker))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")

        assert await claiming == []


class TestCalendars:
    async def test_one_that_a_job_begins_to_use_is_not_deleted(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        await scene.store.save_calendars([new_calendar("nights")], actor="editor")
        job_id = await scene.job()
        use = f"INSERT INTO calendar_use VALUES ('{job_id}', 'nights', 'default')"
        await rival.execute("BEGIN; SELECT FROM calendar FOR SHARE; " + use)

        deleting = asyncio.create_task(
            scene.store.delete_calendar("default", "nights", expected_version=1, actor="editor")
        )
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")

        with pytest.raises(Conflict):
            await deleting

    async def test_one_that_is_being_deleted_is_not_used(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        await scene.store.save_calendars([new_calendar("nights")], actor="editor")
        await rival.execute("BEGIN; DELETE FROM calendar")

        saving = asyncio.create_task(scene.job(calendars=["nights"]))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")

        with pytest.raises(Conflict):
            await saving


class TestGates:
    async def test_an_end_waits_for_whoever_looks_at_the_gate_it_counts_at(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        job_id = await scene.job(max_concurrency=1)
        runs = await scene.trigger(job_id, 2)
        worker = await scene.worker()
        works = await scene.claim(worker)
        await rival.execute("BEGIN; SELECT FROM schedule FOR NO KEY UPDATE")

        ending = asyncio.create_task(scene.finish(worker, works))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")
        await ending

        assert await scene.states(runs) == [RunState.COMPLETED, RunState.QUEUED]

    async def test_an_end_lets_others_go_if_its_job_got_a_limit_right_before(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer
    ) -> None:
        runs = await scene.trigger(await scene.job(max_concurrency=1), 2)
        worker = await scene.worker()
        works = await scene.claim(worker)
        count = "UPDATE run SET gate_job = {} WHERE state = 'CLAIMED'"
        await rival.execute(count.format("NULL"))
        await rival.execute("BEGIN; SELECT FROM schedule FOR NO KEY UPDATE")
        await rival.execute(count.format("job_id"))

        ending = asyncio.create_task(scene.finish(worker, works))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")
        await ending

        assert await scene.states(runs) == [RunState.COMPLETED, RunState.QUEUED]

    async def test_an_end_that_counts_at_no_gate_waits_for_nobody(
        self, scene: Scene, rival: Rival
    ) -> None:
        [run] = await scene.trigger(await scene.job(overlap=Overlap.ALLOW))
        worker = await scene.worker()
        works = await scene.claim(worker)
        await rival.execute("BEGIN; SELECT FROM schedule FOR NO KEY UPDATE")

        await asyncio.wait_for(scene.finish(worker, works), 10)

        assert await scene.state(run) is RunState.COMPLETED
        await rival.execute("COMMIT")

    async def test_those_who_submit_without_a_limit_do_not_wait_for_one_another(
        self, scene: Scene, rival: Rival
    ) -> None:
        job_id = await scene.job(overlap=Overlap.ALLOW)
        await rival.execute("BEGIN; SELECT FROM schedule FOR SHARE")

        await asyncio.wait_for(scene.trigger(job_id), 10)

        assert len(await scene.store.runs(RunQuery())) == 1
        await rival.execute("COMMIT")

    @pytest.mark.parametrize("change", ["version = version + 1", "next_at = next_at + 1"])
    async def test_a_firing_waits_for_whoever_moves_its_schedule_and_leaves_it_alone(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer, change: str
    ) -> None:
        job_id = await scene.job(next_at=scene.clock.instant)
        await scene.ownership()
        await rival.execute(f"BEGIN; UPDATE schedule SET {change}")

        firing = asyncio.create_task(scene.fire(job_id))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")

        assert (await firing).accepted == frozenset()
        assert await scene.store.runs(RunQuery()) == []


class TestShards:
    """Firing holds the shards that it fires for."""

    @pytest.mark.parametrize("owner", ["s_two", SERVER])
    async def test_a_firing_waits_for_a_take_over_under_way_and_sees_it(
        self, scene: Scene, rival: Rival, postgres_server: PostgresServer, owner: str
    ) -> None:
        job_id = await scene.job(next_at=scene.clock.instant)
        await scene.ownership()
        await rival.execute(f"BEGIN; UPDATE shard SET owner = '{owner}', epoch = epoch + 1")

        firing = asyncio.create_task(scene.fire(job_id))
        await until_somebody_waits(postgres_server)
        await rival.execute("COMMIT")

        assert (await firing).lost_shards == {shard_of(job_id)}
        assert await scene.store.runs(RunQuery()) == []

    async def test_a_renewal_does_not_wait_for_the_firing_of_its_own_server(
        self, scene: Scene, rival: Rival
    ) -> None:
        owned = (await scene.ownership("s_one")).epochs
        await scene.ownership("s_two")
        await rival.execute("BEGIN; SELECT FROM shard FOR SHARE")
        scene.advance(timedelta(seconds=1))

        busy = await scene.store.keep_shards(ServerId("s_one"), stopping=True)
        await rival.execute("COMMIT")
        free = await scene.store.keep_shards(ServerId("s_one"), stopping=True)

        [one] = [each for each in busy.servers if each.id == "s_one"]
        assert one.expires_at > scene.clock.instant + timedelta(seconds=4)
        assert (busy.alive, busy.given, busy.shards) == (True, (), owned)
        assert (free.given, free.shards) == (tuple(sorted(owned)), {})

    async def test_what_is_not_being_fired_is_given(self, scene: Scene, rival: Rival) -> None:
        await scene.ownership("s_one")
        await rival.execute("BEGIN; SELECT FROM shard WHERE number = 7 FOR SHARE")

        holding = await scene.store.keep_shards(ServerId("s_one"), stopping=True)
        await rival.execute("COMMIT")

        assert (holding.shards, 7 in holding.given) == ({7: 1}, False)

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.access import Role
from rota.domain.ids import SHARD_COUNT, ServerId, new_server_id
from rota.ports.records import NewServer
from rota.store import sessions
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def test_workers_are_listed_with_what_they_hold(served: Served) -> None:
    await served.apply(job())
    await served.trigger()
    await (await served.worker("busy")).claim()
    gone = await served.worker("gone")
    await served.engine.store.end_session(gone.session)

    alive = (await served.get("workers")).json()["items"]
    every = (await served.get("workers", params={"all": "true"})).json()["items"]

    assert [(each["worker"], each["state"], each["running"]) for each in alive] == [
        ("busy", "alive", 1)
    ]
    assert alive[0]["lease"] == "30s"
    assert {(each["worker"], each["state"]) for each in every} == {
        ("busy", "alive"),
        ("gone", "gone"),
    }


async def test_a_worker_is_shown_with_what_it_offers_and_what_is_in_use(served: Served) -> None:
    worker = await served.worker(resources={"cpu": 4_000, "memory": 8 * 1024**3 * 1_000})
    await served.apply(job(resources={"cpu": 1.5, "memory": "512MiB"}))
    await served.trigger()
    await worker.claim()

    [shown] = (await served.get("workers")).json()["items"]

    assert shown["resources"] == {"cpu": "4", "memory": "8GiB"}
    assert shown["used"] == {"cpu": "1.5", "memory": "512MiB"}


async def joined(served: Served, name: str, *roles: str) -> ServerId:
    """A server that has taken what falls to it."""
    server = NewServer(new_server_id(), name, timedelta(seconds=5), roles or ("scheduler",))
    await served.engine.store.join(server)
    await served.engine.store.keep_shards(server.id, stopping=False)
    return server.id


class TestStatus:
    async def test_servers_and_what_they_fire(self, served: Served) -> None:
        firing = await joined(served, "firing", "scheduler", "gateway")
        answering = await joined(served, "answering", "gateway")

        status = (await served.get("cluster")).json()

        servers = {each["id"]: each for each in status["servers"]}
        assert {id_: each["shards"] for id_, each in servers.items()} == {
            firing: SHARD_COUNT,
            answering: 0,
        }
        assert (status["shards"], status["shards_owned"]) == (SHARD_COUNT, SHARD_COUNT)
        assert 0 < servers[firing]["lease_left_seconds"] <= 5
        assert servers[firing]["roles"] == ["scheduler", "gateway"]

    async def test_server_that_left_is_listed_only_when_asked_for(self, served: Served) -> None:
        gone = await joined(served, "gone")
        await served.engine.store.leave_cluster(gone)

        alive = (await served.get("servers")).json()["items"]
        every = (await served.get("servers", params={"all": "true"})).json()["items"]

        assert alive == []
        assert [(each["id"], each["state"]) for each in every] == [(gone, "gone")]

    async def test_shards_have_owners_and_epochs(self, served: Served) -> None:
        owner = await joined(served, "owner")

        shards = (await served.get("shards")).json()["items"]

        assert [each["number"] for each in shards] == list(range(SHARD_COUNT))
        assert {(each["owner"], each["epoch"]) for each in shards} == {(owner, 1)}

    async def test_lag_is_what_is_due_and_what_waits_for_workers(self, served: Served) -> None:
        await served.apply(job("due", schedule="every 100ms"), job("asked"))
        await served.trigger("asked")

        status = (await served.get("cluster")).json()
        while status["oldest_due_at"] is None:  # its first due time is 100 ms away
            status = (await served.get("cluster")).json()

        assert status["overdue_seconds"] >= 0
        assert [(each["pool"], each["queued"]) for each in status["queues"]] == [("default", 1)]


class TestDraining:
    async def test_drained_worker_is_told_apart(self, served: Served) -> None:
        await served.worker("one")
        await served.worker("two")

        drained = (await served.post("workers/one/drain")).json()["items"]
        listed = (await served.get("workers")).json()["items"]
        resumed = (await served.post("workers/one/resume")).json()["items"]

        assert [(each["worker"], each["state"]) for each in drained] == [("one", "draining")]
        assert {each["worker"]: each["draining"] for each in listed} == {"one": True, "two": False}
        assert [each["state"] for each in resumed] == ["alive"]

    async def test_worker_is_found_however_many_came_after_it(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "_MAX_SESSIONS", 1)
        await served.worker("one")
        await served.worker("two")

        for name in ("one", "two"):
            assert (await served.post(f"workers/{name}/drain")).status_code == 200

    async def test_worker_that_was_never_here_is_not_found(self, served: Served) -> None:
        refused = await served.post("workers/nobody/drain")

        assert (refused.status_code, refused.json()["code"]) == (404, "worker_not_found")

    async def test_viewer_may_not(self, served: Served) -> None:
        await served.worker("one")

        assert (await served.post("workers/one/drain", Role.VIEWER)).status_code == 403

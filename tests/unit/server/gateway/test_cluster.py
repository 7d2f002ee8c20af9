"""Servers, shards, drains and worker tokens over REST."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.ids import SHARD_COUNT, ServerId, new_server_id
from rota.operations.tokens import authenticate_worker
from rota.ports.records import NewServer, Role
from rota.server.gateway.app import create_app
from rota.server.gateway.health import Readiness
from rota.server.gateway.settings import GatewaySettings
from rota.store import sessions
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def joined(served: Served, name: str, *roles: str) -> ServerId:
    """A server that has taken what falls to it."""
    server = NewServer(new_server_id(), name, timedelta(seconds=5), roles or ("scheduler",))
    await served.backends.store.join(server)
    await served.backends.store.keep_shards(server.id, stopping=False)
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
        await served.backends.store.leave_cluster(gone)

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


class TestWorkerTokens:
    async def test_new_one_shows_its_secret_once_and_lets_that_worker_in(
        self, served: Served
    ) -> None:
        body = {"name": "fra-1", "pool": "fra", "expires_in": "90d"}

        made = (await served.post("worker_tokens", json=body)).json()

        listed = await served.get("worker_tokens")
        identity = await authenticate_worker(served.backends, made["secret"])
        assert (identity.name, identity.pool) == ("fra-1", "fra")
        assert made["secret"] not in listed.text
        [shown] = listed.json()["items"]
        assert (shown["id"], shown["pool"], shown["created_by"]) == (made["id"], "fra", "admin")

    async def test_it_opens_nothing_else(self, served: Served) -> None:
        made = (await served.post("worker_tokens", json={"name": "fra-1"})).json()

        caller = await served.browser({"Authorization": f"Bearer {made['secret']}"})

        assert (await caller.get("/api/v1/whoami")).status_code == 401

    async def test_revoked_one_is_worthless(self, served: Served) -> None:
        made = (await served.post("worker_tokens", json={"name": "fra-1"})).json()

        assert (await served.delete(f"worker_tokens/{made['id']}")).status_code == 204

        [shown] = (await served.get("worker_tokens")).json()["items"]
        assert shown["revoked_at"] is not None

    async def test_only_admins_make_them(self, served: Served) -> None:
        refused = await served.post("worker_tokens", Role.EDITOR, json={"name": "fra-1"})

        assert refused.status_code == 403


class TestHealth:
    async def test_hindered_server_is_not_ready(self, served: Served) -> None:
        readiness = Readiness(served.backends, hindrance=lambda: "it is stopping")
        served.app.state.readiness = readiness

        answer = await served.get("/readyz")

        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert "it is stopping" in answer.text

    async def test_server_without_the_gateway_has_no_api(self, served: Served) -> None:
        served.app = create_app(served.backends, GatewaySettings(), has_api=False)

        assert (await served.get("/readyz")).status_code == 200
        assert (await served.get("/metrics")).status_code == 200
        assert (await served.get("jobs")).status_code == 404

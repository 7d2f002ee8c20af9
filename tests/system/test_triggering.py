"""Starting, holding and repeating runs by hand, and what a lost answer does."""

from __future__ import annotations

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from tests.system.conftest import Up
from tests.system.jobs import apply, execute, job, settle

from rota.sdk import calls
from rota.sdk.client import Client
from rota.sdk.errors import Conflict
from rota.testing.checker import check, most_at_once
from rota.testing.evidence import Evidence
from rota.testing.processes import RotaUp
from rota.testing.waiting import eventually

SECOND = timedelta(seconds=1)


def states_of(client: Client, job: str) -> list[str]:
    """Oldest first."""
    return [run.state for run in client.get_history(job)][::-1]


class TestTriggers:
    def test_ten_triggers_at_once_are_ten_runs(self, client: Client, evidence: Evidence) -> None:
        apply(client, job("ten", evidence.script()))

        with ThreadPoolExecutor(10) as pool:
            runs = list(pool.map(lambda _: client.trigger("ten").id, range(10)))

        assert len(set(runs)) == 10
        assert {client.wait(run, 20).state for run in runs} == {"COMPLETED"}
        assert check(evidence.marks(), runs) == []

    def test_run_for_a_later_time_waits_for_it(self, client: Client) -> None:
        apply(client, job("later", "true"))
        at = client.now() + SECOND

        run = client.trigger("later", at=at)

        assert run.state == "SCHEDULED"
        ended = settle(client, run)
        assert ended.state == "COMPLETED"
        assert ended.started_at is not None
        assert ended.started_at >= at

    def test_retry_is_a_new_run_with_the_same_inputs(self, client: Client) -> None:
        failed = execute(
            client,
            'echo "$INPUT_WHO"; exit 4',
            name="repeated",
            inputs={"who": {"type": "string"}},
            given={"who": "Ada"},
        )

        again = settle(client, client.retry_run(failed.id))

        assert again.id != failed.id
        assert (again.retry_of, again.inputs) == (failed.id, {"who": "Ada"})
        assert client.get_run(failed.id).ended_at == failed.ended_at

    def test_run_that_goes_on_cannot_be_retried(self, client: Client) -> None:
        apply(client, job("going", "sleep 100"))
        run = client.trigger("going")

        with pytest.raises(Conflict, match="has not ended"):
            client.retry_run(run.id)
        client.cancel_run(run.id)
        settle(client, run)


class TestConcurrency:
    def test_limit_holds_at_every_instant(self, up: Up, evidence: Evidence) -> None:
        rota = up(slots="8")
        work = evidence.script(evidence.beats(3, every=SECOND / 20))
        apply(rota.client, job("limited", work, max_concurrency=2))

        batch = rota.client.trigger_many("limited", [{}] * 12)

        assert {rota.client.wait(run, 30).state for run in batch.runs} == {"COMPLETED"}
        assert most_at_once(evidence.marks()) == 2
        assert check(evidence.marks(), batch.runs) == []

    def test_worker_runs_no_more_than_its_slots(self, up: Up, evidence: Evidence) -> None:
        rota = up(slots="3")
        apply(rota.client, job("free", evidence.script(evidence.beats(2, every=SECOND / 20))))

        batch = rota.client.trigger_many("free", [{}] * 12)

        assert {rota.client.wait(run, 30).state for run in batch.runs} == {"COMPLETED"}
        assert most_at_once(evidence.marks()) == 3


class TestOverlap:
    """A job that is due each half second and takes longer than that."""

    @pytest.fixture
    def busy(self, rota: RotaUp, evidence: Evidence, request: pytest.FixtureRequest) -> Client:
        work = evidence.script(evidence.beats(12))
        apply(rota.client, job("busy", work, schedule="every 500ms", overlap=request.param))
        eventually(lambda: len(evidence.ended()) >= 2)
        return rota.client

    @pytest.mark.parametrize("busy", ["skip"], indirect=True)
    def test_skip_leaves_out_what_would_overlap(self, busy: Client, evidence: Evidence) -> None:
        history = busy.get_history("busy").items

        assert {run.cause for run in history if run.state == "SKIPPED"} == {"overlap"}
        assert most_at_once(evidence.marks()) == 1

    @pytest.mark.parametrize("busy", ["queue_one"], indirect=True)
    def test_queue_one_keeps_the_newest_only(self, busy: Client, evidence: Evidence) -> None:
        history = busy.get_history("busy").items

        assert {run.cause for run in history if run.state == "SKIPPED"} == {"superseded"}
        assert sum(run.state == "BLOCKED" for run in history) <= 1
        assert most_at_once(evidence.marks()) == 1

    @pytest.mark.parametrize("busy", ["queue_all"], indirect=True)
    def test_queue_all_runs_them_one_after_another(
        self, busy: Client, evidence: Evidence
    ) -> None:
        assert "SKIPPED" not in states_of(busy, "busy")
        order = [run.id for run in busy.get_history("busy")][::-1]
        started = [run for run, _ in evidence.started()]
        assert started == order[: len(started)]
        assert most_at_once(evidence.marks()) == 1

    def test_allow_runs_them_side_by_side(self, rota: RotaUp, evidence: Evidence) -> None:
        work = evidence.script(evidence.beats(12))
        apply(rota.client, job("busy", work, schedule="every 500ms", overlap="allow"))

        eventually(lambda: most_at_once(evidence.marks()) >= 2)

    def test_cancel_previous_makes_room_for_the_new_one(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        work = evidence.script("while :; do note beat; sleep 0.05; done")
        fields = {"schedule": "every 1s", "overlap": "cancel_previous"}
        apply(rota.client, job("busy", work, **fields))

        eventually(lambda: len(evidence.started()) >= 3)

        assert states_of(rota.client, "busy")[:2] == ["CANCELLED", "CANCELLED"]
        assert most_at_once(evidence.marks()) == 1


class TestHolding:
    def test_paused_job_fires_nothing_and_resumed_it_does_not_catch_up(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        client = rota.client
        apply(client, job("held", evidence.script(), schedule="every 500ms"))
        eventually(evidence.ended)

        assert client.pause_job("held").paused
        eventually(lambda: not client.list_runs(active=True).items)
        before = len(evidence.started())
        pause_ends = client.now() + 2 * SECOND
        eventually(lambda: client.now() > pause_ends)
        assert len(evidence.started()) == before

        assert not client.resume_job("held").paused
        eventually(lambda: len(evidence.started()) > before)
        skipped = [entry for entry in client.get_ledger("held") if entry.state == "SKIPPED"]
        assert {entry.cause for entry in skipped} == {"paused"}
        assert sum(entry.count for entry in skipped) >= 3

    def test_disabled_job_cannot_be_triggered(self, client: Client) -> None:
        apply(client, job("off", "true"))
        client.disable_job("off")

        with pytest.raises(Conflict, match="disabled"):
            client.trigger("off")
        client.enable_job("off")
        assert settle(client, client.trigger("off")).state == "COMPLETED"


class TestLostAnswers:
    def test_key_gives_the_same_run_after_the_server_died_before_answering(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        apply(rota.client, job("once", evidence.script()))
        request = http_trigger(rota.client, "once", key="order-4711")
        with socket.create_connection(address_of(rota.client)) as connection:
            connection.sendall(request)
            eventually(evidence.ended)
            rota.kill()

        rota.start()

        run = rota.client.trigger("once", key="order-4711")
        assert settle(rota.client, run).state == "COMPLETED"
        assert [started for started, _ in evidence.started()] == [run.id]
        assert len(rota.client.get_history("once").items) == 1

    def test_key_cannot_be_used_for_something_else(self, client: Client) -> None:
        apply(client, job("keyed", "true", inputs={"n": {"type": "integer", "default": 1}}))
        first = client.trigger("keyed", {"n": 1}, key="key")

        with pytest.raises(Conflict):
            client.trigger("keyed", {"n": 2}, key="key")

        assert client.trigger("keyed", {"n": 1}, key="key").id == first.id

    def test_acknowledged_runs_survive_a_crash(self, up: Up, evidence: Evidence) -> None:
        rota = up(lease="3s")
        apply(rota.client, job("sure", evidence.script()))
        acknowledged = []
        while len(acknowledged) < 200:
            acknowledged.append(rota.client.trigger("sure").id)

        os.kill(rota.process.pid, signal.SIGKILL)
        rota.kill()
        rota.start()

        for run in acknowledged:
            assert rota.client.wait(run, 30).state == "COMPLETED"
        known = {run.id for run in rota.client.each(calls.list_runs(job="sure", limit=1000))}
        assert known == set(acknowledged)


def address_of(client: Client) -> tuple[str, int]:
    parts = urlsplit(client.server.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def http_trigger(client: Client, job: str, key: str) -> bytes:
    """A request by hand, so that nobody reads its answer."""
    body = b'{"inputs": {}}'
    lines = [
        f"POST /api/v1/jobs/{job}/runs HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {client.server.token}",
        "Content-Type: application/json",
        f"Idempotency-Key: {key}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body

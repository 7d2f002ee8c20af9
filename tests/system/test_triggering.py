"""Starting, holding and repeating runs by hand, and what a lost answer does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from rota.sdk.answers import Run
from rota.sdk.client import Client
from rota.sdk.errors import Conflict
from testkit.checker import check, most_at_once
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, execute, job, settle

SECOND = timedelta(seconds=1)


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


@dataclass(frozen=True, slots=True)
class Busy:
    """A job that is due each half second and takes longer than that, after its second run."""

    history: list[Run]  # oldest first
    evidence: Evidence

    @property
    def most_at_once(self) -> int:
        return most_at_once(self.evidence.marks())

    def causes(self, state: str) -> set[str]:
        return {run.cause for run in self.history if run.state == state}


class TestOverlap:
    @pytest.fixture
    def busy(
        self, client: Client, evidence: Evidence, request: pytest.FixtureRequest
    ) -> Iterator[Busy]:
        name = f"busy-{request.param}"
        work = evidence.script(evidence.beats(12))
        apply(client, job(name, work, schedule="every 500ms", overlap=request.param))
        eventually(lambda: len(evidence.ended()) >= 2)
        yield Busy(list(client.get_history(name))[::-1], evidence)
        stop_job(client, name)

    @pytest.mark.parametrize("busy", ["skip"], indirect=True)
    def test_skip_leaves_out_what_would_overlap(self, busy: Busy) -> None:
        assert busy.causes("SKIPPED") == {"overlap"}
        assert busy.most_at_once == 1

    @pytest.mark.parametrize("busy", ["queue_one"], indirect=True)
    def test_queue_one_keeps_the_newest_only(self, busy: Busy) -> None:
        assert busy.causes("SKIPPED") == {"superseded"}
        assert sum(run.state == "BLOCKED" for run in busy.history) <= 1
        assert busy.most_at_once == 1

    @pytest.mark.parametrize("busy", ["queue_all"], indirect=True)
    def test_queue_all_runs_them_one_after_another(self, busy: Busy) -> None:
        assert busy.causes("SKIPPED") == set()
        started = [run for run, _ in busy.evidence.started()]
        assert started == [run.id for run in busy.history][: len(started)]
        assert busy.most_at_once == 1

    @pytest.mark.parametrize("busy", ["allow"], indirect=True)
    def test_allow_runs_them_side_by_side(self, busy: Busy) -> None:
        assert busy.causes("SKIPPED") == set()
        assert busy.most_at_once >= 2

    def test_cancel_previous_makes_room_for_the_new_one(
        self, client: Client, evidence: Evidence
    ) -> None:
        work = evidence.script("while :; do note beat; sleep 0.05; done")
        schedule = {"schedule": "every 1s", "overlap": "cancel_previous"}
        apply(client, job("impatient", work, **schedule))

        eventually(lambda: len(evidence.started()) >= 3)
        oldest_first = list(client.get_history("impatient"))[::-1]
        stop_job(client, "impatient")

        assert [run.state for run in oldest_first[:2]] == ["CANCELLED", "CANCELLED"]
        assert most_at_once(evidence.marks()) == 1


def stop_job(client: Client, name: str) -> None:
    client.disable_job(name)
    for run in client.list_runs(job=name, active=True):
        client.cancel_run(run.id)
    eventually(lambda: not client.list_runs(job=name, active=True).items)


class TestHolding:
    def test_paused_job_fires_nothing_and_resumed_it_does_not_catch_up(
        self, client: Client, evidence: Evidence
    ) -> None:
        apply(client, job("held", evidence.script(), schedule="every 500ms"))
        eventually(evidence.ended)

        assert client.pause_job("held").paused
        eventually(lambda: not client.list_runs(job="held", state="PROCESSING").items)
        before = len(evidence.started())
        pause_ends = client.now() + 2 * SECOND
        eventually(lambda: client.now() > pause_ends)
        assert len(evidence.started()) == before

        assert not client.resume_job("held").paused
        eventually(lambda: len(evidence.started()) > before)
        stop_job(client, "held")
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
        assert {started for started, _ in evidence.started()} == {run.id}
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
        acknowledged = [rota.client.trigger("sure").id for _ in range(100)]

        rota.kill()
        rota.start()

        for run in acknowledged:
            assert rota.client.wait(run, 30).state == "COMPLETED"
        known = {run.id for run in rota.client.each(Client.list_runs(job="sure", limit=1000))}
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

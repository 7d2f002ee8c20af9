"""Cancelling: what waits never starts, what runs is gone within its grace, whole tree and all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from rota.sdk.client import Client
from rota.sdk.errors import Conflict
from testkit.evidence import Evidence
from testkit.processes import processes_of
from testkit.waiting import boottime, eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, log_of, settle

GRACE = 1.0


class TestWaiting:
    def test_waiting_run_never_starts(self, client: Client, evidence: Evidence) -> None:
        apply(client, job("later", evidence.script()))
        run = client.trigger("later", at="2099-01-01T00:00:00Z")

        cancelled = client.cancel_run(run.id)

        assert (cancelled.state, cancelled.cause) == ("CANCELLED", "cancelled")
        assert evidence.marks() == []

    def test_run_behind_another_never_starts(self, client: Client, evidence: Evidence) -> None:
        apply(client, job("narrow", evidence.script("sleep 100"), max_concurrency=1))
        first, second = client.trigger("narrow"), client.trigger("narrow")
        eventually(evidence.started)
        assert client.get_run(second.id).state == "BLOCKED"

        assert client.cancel_run(second.id).state == "CANCELLED"

        client.cancel_run(first.id)
        settle(client, first)
        assert evidence.started() == [(first.id, 1)]

    def test_run_that_waits_for_its_next_attempt_never_gets_one(
        self, client: Client, evidence: Evidence
    ) -> None:
        retry = {"attempts": 2, "delay": "1h", "backoff": "fixed"}
        apply(client, job("failing", evidence.script("exit 1"), retry=retry))
        run = client.trigger("failing")
        eventually(lambda: client.get_run(run.id).state == "SCHEDULED")

        assert client.cancel_run(run.id).state == "CANCELLED"
        assert evidence.started() == [(run.id, 1)]

    def test_ended_run_cannot_be_cancelled(self, client: Client) -> None:
        apply(client, job("done", "true"))
        run = settle(client, client.trigger("done"))

        with pytest.raises(Conflict, match="already ended"):
            client.cancel_run(run.id)


class TestRunning:
    def test_job_may_tidy_up_when_asked_to_end(self, client: Client, evidence: Evidence) -> None:
        script = "trap 'echo tidied; exit 0' TERM; note beat; while :; do sleep 0.05; done"
        apply(client, job("polite", evidence.script(script), {"run": "echo later"}))
        run = client.trigger("polite")
        eventually(lambda: len(evidence.marks()) == 2)

        client.cancel_run(run.id)

        ended = settle(client, run)
        assert (ended.state, ended.cause) == ("CANCELLED", "cancelled")
        assert log_of(client, run.id).endswith("tidied\n")
        assert [step.result for step in ended.attempts[0].steps] == ["cancelled", "skipped"]

    def test_tree_that_ignores_the_request_is_killed_after_the_grace(
        self, client: Client, evidence: Evidence
    ) -> None:
        mark = f"mark-{os.urandom(8).hex()}"
        stubborn = f"trap '' TERM; while :; do note beat; sleep 0.05; done; : {mark}"
        script = f"(env -i setsid sh -c \"trap '' TERM; sleep 100; : {mark}\" &)\n{stubborn}"
        apply(client, job("stubborn", evidence.script(script), grace="1s"))
        run = client.trigger("stubborn")
        eventually(lambda: len(evidence.marks()) > 2)

        asked_at = boottime()
        client.cancel_run(run.id)

        ended = settle(client, run)
        assert ended.state == "CANCELLED"
        assert processes_of(mark) == []
        last = evidence.marks()[-1].at
        assert asked_at + GRACE - 0.2 < last < asked_at + GRACE + 5

    def test_steps_for_tidying_run_within_what_is_left_of_the_grace(
        self, client: Client, evidence: Evidence
    ) -> None:
        tidy = {"run": "trap '' TERM; echo tidying; sleep 100", "if": "always"}
        apply(client, job("tidying", evidence.script("sleep 100"), tidy, tidy, grace="1s"))
        run = client.trigger("tidying")
        eventually(evidence.started)

        asked_at = boottime()
        client.cancel_run(run.id)

        ended = settle(client, run)
        assert boottime() - asked_at < GRACE + 2.5
        assert ended.state == "CANCELLED"
        assert log_of(client, run.id).startswith("tidying\n")

    def test_step_that_follows_a_failure_can_be_cancelled(
        self, client: Client, evidence: Evidence
    ) -> None:
        tidy = {"run": evidence.script("sleep 100"), "if": "always"}
        apply(client, job("failed-first", "exit 1", tidy))
        run = client.trigger("failed-first")
        eventually(evidence.started)

        client.cancel_run(run.id)

        assert settle(client, run).state == "CANCELLED"

    def test_asking_twice_changes_nothing(self, client: Client, evidence: Evidence) -> None:
        stubborn = "trap '' TERM; note beat; while :; do sleep 0.05; done"
        apply(client, job("twice", evidence.script(stubborn), grace="1s"))
        run = client.trigger("twice")
        eventually(lambda: len(evidence.marks()) == 2)

        first = client.cancel_run(run.id)
        second = client.cancel_run(run.id)

        assert first.cancel_requested_at == second.cancel_requested_at
        assert settle(client, run).state == "CANCELLED"


class TestRaces:
    @pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
    def test_cancel_that_races_the_start_always_wins_in_the_end(
        self, up: Up, evidence: Evidence, delivery: str
    ) -> None:
        rota = up(slots="8")
        client = rota.client
        apply(client, job("raced", evidence.script("sleep 100"), delivery=delivery))

        def trigger_and_cancel(_: int) -> str:
            run = client.trigger("raced")
            client.cancel_run(run.id)
            return run.id

        with ThreadPoolExecutor(4) as pool:
            runs = list(pool.map(trigger_and_cancel, range(40)))

        ends = [client.wait(run, 20) for run in runs]
        assert {run.state for run in ends} == {"CANCELLED"}
        assert evidence.ended() == []

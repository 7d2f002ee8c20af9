"""`kill -9` of the whole server: nothing survives it, nothing is lost, nothing is done twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from rota.sdk.answers import LedgerEntry, Run
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job

SECOND = timedelta(seconds=1)
AS_IF_STOPPED_FOR_A_THOUSAND_INTERVALS = """
    UPDATE schedule SET next_at = next_at - 1000 * 100000, anchor = anchor - 1000 * 100000
"""
DELIVERIES = ("at_least_once", "at_most_once")
DONE, LONG, WAITING = 5, 10, 10  # of each delivery, when the server is killed


def trigger(client: Client, kind: str, count: int) -> None:
    for delivery in DELIVERIES:
        client.trigger_many(delivery, [{"kind": kind}] * count)


def unfinished(evidence: Evidence) -> set[str]:
    """Runs that have begun and not ended."""
    return {run for run, _ in evidence.started()} - {run for run, _ in evidence.ended()}


def ids(client: Client, *, job: str | None = None, state: str | None = None) -> set[str]:
    return {run.id for run in client.each(Client.list_runs(job=job, state=state, limit=1000))}


def losers(client: Client) -> set[str]:
    """Runs that lost a worker."""
    return {run.id for run in client.each(Client.list_runs(limit=1000)) if run.losses}


def settled(client: Client) -> list[Run]:
    runs = list(client.each(Client.list_runs(limit=1000)))
    assert all(run.is_settled for run in runs)
    return runs


@dataclass(frozen=True, slots=True)
class Crash:
    """A server that was killed and started again."""

    rota: RotaUp
    interrupted: set[str]  # runs in the middle of their first attempt
    repeatable: set[str]  # runs that may be attempted again


class TestFiftyRuns:
    """Some done, some in the middle, some waiting, half of them of the dangerous kind."""

    @pytest.fixture
    def crash(self, up: Up, evidence: Evidence, tmp_path: Path) -> Crash:
        rota = up(slots=str(2 * LONG), lease="4s")
        hold = tmp_path / "hold"
        hold.touch()
        wait = f"while [ -e {hold} ]; do note beat; sleep 0.1; done"
        work = evidence.script(f'if [ "$INPUT_KIND" = long ]; then {wait}; fi')
        inputs = {"kind": {"type": "string"}}
        apply(rota.client, *(job(name, work, delivery=name, inputs=inputs) for name in DELIVERIES))
        trigger(rota.client, "short", DONE)
        eventually(lambda: len(ids(rota.client, state="COMPLETED")) == 2 * DONE)
        trigger(rota.client, "long", LONG)
        eventually(lambda: len(unfinished(evidence)) == 2 * LONG)
        trigger(rota.client, "short", WAITING)

        rota.kill()

        hold.unlink()
        rota.start()
        return Crash(rota, unfinished(evidence), ids(rota.client, job="at_least_once"))

    def test_each_interrupted_run_is_tried_once_more_or_is_a_question(
        self, crash: Crash, evidence: Evidence
    ) -> None:
        rota, interrupted, repeatable = crash.rota, crash.interrupted, crash.repeatable

        runs = {run.id: run for run in eventually(lambda: settled(rota.client))}

        assert len(runs) == 2 * (DONE + LONG + WAITING)
        assert len(interrupted & repeatable) == LONG
        assert len(interrupted - repeatable) == LONG
        for run_id, run in runs.items():
            is_question = run_id in interrupted and run_id not in repeatable
            assert run.state == ("UNKNOWN" if is_question else "COMPLETED")
        attempts = {run_id: [a for r, a in evidence.started() if r == run_id] for run_id in runs}
        for run_id, started in attempts.items():
            is_repeated = run_id in interrupted and run_id in repeatable
            assert started == ([1, 2] if is_repeated else [1])
        questions = interrupted - repeatable
        assert check(evidence.marks(), runs.keys() - questions, optional=questions) == []

    def test_person_answers_the_question(self, crash: Crash, evidence: Evidence) -> None:
        rota, interrupted, repeatable = crash.rota, crash.interrupted, crash.repeatable
        eventually(lambda: settled(rota.client))
        first, second, third, *_ = sorted(interrupted - repeatable)

        for run, answer in ((first, "completed"), (second, "failed"), (third, "retry")):
            done = rota.command("run", "resolve", run, "--as", answer)
            assert done.returncode == 0, done.stderr

        assert rota.client.get_run(first).state == "COMPLETED"
        assert rota.client.get_run(second).state == "FAILED"
        retried = rota.client.wait(third, 20)
        assert (retried.state, retried.attempt) == ("COMPLETED", 2)
        assert (third, 2) in evidence.ended()
        again = rota.command("run", "resolve", first, "--as", "failed")
        assert again.returncode == 5
        assert "not unknown" in again.stderr


class TestLedger:
    """What the ledger says about due times that passed while nothing could fire."""

    POLICIES = ("none", "last", "first", "all")

    def test_downtime_is_explained_according_to_the_policy(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        common = {"schedule": "* * * * * *", "overlap": "queue_all"}
        apply(
            rota.client,
            *(
                job(policy, evidence.script(), misfire={"policy": policy}, **common)
                for policy in self.POLICIES
            ),
        )
        eventually(lambda: len(evidence.ended()) >= len(self.POLICIES))
        client = rota.client
        rota.kill()
        back_at = client.now() + 6 * SECOND
        eventually(lambda: client.now() > back_at)

        rota.start()
        eventually(lambda: all(last_due(rota.client, name) > back_at for name in self.POLICIES))

        ledgers = {policy: ledger_of(rota.client, policy) for policy in self.POLICIES}
        assert_policies_kept(ledgers)
        answered = {entry.run for entries in ledgers.values() for entry in entries if entry.run}
        eventually(lambda: answered <= ids(rota.client, state="COMPLETED"))
        marks = evidence.marks()
        newer = {mark.run for mark in marks} - answered
        assert check(marks, answered, newer, lost=losers(rota.client)) == []

    def test_thousand_missed_due_times_stop_nothing(self, rota: RotaUp, evidence: Evidence) -> None:
        apply(rota.client, job("often", evidence.script(), schedule="every 100ms"))
        eventually(evidence.ended)
        rota.kill()
        before = len(evidence.started())
        with closing(sqlite3.connect(rota.home / "rota.db")) as database, database:
            database.execute(AS_IF_STOPPED_FOR_A_THOUSAND_INTERVALS)

        rota.start()

        eventually(lambda: len(evidence.started()) > before + 5)
        missed = missed_in(ledger_of(rota.client, "often"))
        assert sum(entry.count for entry in missed) >= 900


def assert_policies_kept(ledgers: Mapping[str, list[LedgerEntry]]) -> None:
    for entries in ledgers.values():
        for one, following in pairwise(entries):
            assert one.count == (one.last - one.first) / SECOND + 1
            assert following.first == one.last + SECOND
    missed = {policy: missed_in(entries) for policy, entries in ledgers.items()}
    assert missed["all"] == []
    [none], [last], [first] = (missed[policy] for policy in ("none", "last", "first"))
    assert none.count >= 3
    assert {none.cause, last.cause, first.cause} == {"downtime"}
    assert (last.first, last.last) == (none.first, none.last - SECOND)
    assert (first.first, first.last) == (none.first + SECOND, none.last)


def last_due(client: Client, job: str) -> datetime:
    due_at = client.get_history(job, limit=1).items[0].due_at
    assert due_at is not None
    return due_at


def ledger_of(client: Client, job: str) -> list[LedgerEntry]:
    return sorted(client.each(Client.get_ledger(job, limit=1000)), key=lambda entry: entry.first)


def missed_in(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    return [entry for entry in entries if entry.state == "MISSED"]

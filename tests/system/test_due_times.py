"""Every due time has exactly one run: in the evidence, in the ledger and in the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

import pytest

from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job

SECOND = timedelta(seconds=1)
LATEST_START = 10.0  # seconds: a bound for a busy machine, not an objective


def runs_of(client: Client, job: str) -> list[Run]:
    """Those that have ended, by due time; a few of the newest may still go on."""
    runs = client.each(Client.list_runs(job=job, limit=1000))
    return sorted((run for run in runs if run.is_final), key=due)


def due(run: Run) -> datetime:
    assert run.due_at is not None
    return run.due_at


def every(interval: timedelta, runs: list[Run]) -> list[datetime]:
    """The due times that there should be between the first run and the last."""
    return [due(runs[0]) + n * interval for n in range(len(runs))]


class TestIntervals:
    INTERVALS: ClassVar = {"every 1s": SECOND, "every 200ms": SECOND / 5, "* * * * * *": SECOND}

    def test_every_due_time_has_one_run(self, rota: RotaUp, evidence: Evidence) -> None:
        names = {f"job-{number}": words for number, words in enumerate(self.INTERVALS)}
        queued = {"overlap": "queue_all", "misfire": {"policy": "all"}}
        apply(
            rota.client,
            *(job(name, evidence.script(), schedule=names[name], **queued) for name in names),
        )
        eventually(lambda: len(evidence.ended()) >= 30)

        runs = {name: runs_of(rota.client, name) for name in names}

        for name, words in names.items():
            times = [due(run) for run in runs[name]]
            assert times == every(self.INTERVALS[words], runs[name])
            ledger = list(rota.client.each(Client.get_ledger(name, limit=1000)))
            assert sorted(entry.first for entry in ledger if entry.first <= times[-1]) == times
            assert {run.state for run in runs[name]} == {"COMPLETED"}
            assert all(0 <= lateness(run) < LATEST_START for run in runs[name])
        ended = {run.id for each in runs.values() for run in each}
        marks = [mark for mark in evidence.marks() if mark.run in ended]
        assert check(marks, ended) == []


def lateness(run: Run) -> float:
    assert run.lateness_seconds is not None
    return run.lateness_seconds


class TestOneOffs:
    def test_thousand_jobs_due_at_the_same_second_each_run_once(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(slots="16")
        at = (rota.client.now() + 4 * SECOND).replace(microsecond=0)
        quick = evidence.script()
        names = [f"once-{number}" for number in range(1000)]

        apply(rota.client, *(job(name, quick, schedule=at.isoformat()) for name in names))
        eventually(lambda: len(evidence.ended()) >= len(names), within=timedelta(seconds=40))

        eventually(lambda: not rota.client.list_runs(active=True).items)
        runs = runs_of(rota.client, "once-*")
        assert sorted(run.job for run in runs) == sorted(names)
        assert {run.due_at for run in runs} == {at}
        assert {run.state for run in runs} == {"COMPLETED"}
        assert min(map(lateness, runs)) >= 0
        assert check(evidence.marks(), [run.id for run in runs]) == []
        assert rota.client.get_job(names[0]).next_at is None

    def test_one_off_time_that_passed_during_downtime_runs_late_and_says_so(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        client = rota.client
        at = client.now() + SECOND
        apply(client, job("late", evidence.script(), schedule=at.isoformat()))
        rota.kill()
        eventually(lambda: client.now() > at + 3 * SECOND)

        rota.start()

        [run] = eventually(lambda: runs_of(rota.client, "late"))
        assert (run.state, run.due_at) == ("COMPLETED", at)
        assert lateness(run) > 3
        assert check(evidence.marks(), [run.id]) == []


class TestRestarts:
    @pytest.mark.timeout(180)  # up to twenty starts
    def test_job_whose_interval_is_longer_than_any_uptime_still_runs(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        apply(rota.client, job("seldom", evidence.script(), schedule="every 4s"))

        for _ in range(20):
            rota.stop()
            rota.start()
            if evidence.ended():
                break

        [(first, _), *_] = eventually(evidence.ended)
        marks = evidence.marks()
        others = {run.id for run in rota.client.get_history("seldom")}
        assert check(marks, [first], optional=others) == []

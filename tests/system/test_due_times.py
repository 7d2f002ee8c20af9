"""Every due time has exactly one run: in the evidence, in the ledger and in the API."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.system.conftest import Up
from tests.system.jobs import apply, job

from rota.sdk import calls
from rota.sdk.answers import Run
from rota.sdk.client import Client
from rota.testing.checker import check
from rota.testing.evidence import Evidence
from rota.testing.processes import RotaUp
from rota.testing.waiting import eventually

SECOND = timedelta(seconds=1)
LATEST_START = timedelta(seconds=10)  # a bound for a busy machine, not an objective


def finished_runs(client: Client, job: str) -> list[Run]:
    runs = list(client.each(calls.list_runs(job=job, limit=1000)))
    assert all(run.is_final for run in runs)
    return runs


def due_times(runs: list[Run]) -> list[datetime]:
    times = [run.due_at for run in runs if run.due_at is not None]
    assert len(times) == len(runs)
    return sorted(times)


def assert_punctual(runs: list[Run]) -> None:
    for run in runs:
        assert run.lateness_seconds is not None
        assert 0 <= run.lateness_seconds < LATEST_START.total_seconds()


class TestIntervals:
    def test_short_intervals_leave_no_gap_and_no_double(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        every = {"second": SECOND, "fifth": SECOND / 5}
        quick = evidence.script()
        apply(
            rota.client,
            job("second", quick, schedule="every 1s", overlap="queue_all"),
            job("fifth", quick, schedule="every 200ms", overlap="queue_all"),
        )
        eventually(lambda: len(evidence.ended()) >= 30)
        for name in every:
            rota.client.pause_job(name)

        runs = {name: eventually(lambda n=name: finished_runs(rota.client, n)) for name in every}

        for name, interval in every.items():
            times = due_times(runs[name])
            assert times == [times[0] + n * interval for n in range(len(times))]
            ledger = list(rota.client.each(calls.get_ledger(name, limit=1000)))
            assert sorted(entry.first for entry in ledger if entry.run) == times
            assert_punctual(runs[name])
        completed = [run for each in runs.values() for run in each]
        assert {run.state for run in completed} == {"COMPLETED"}
        assert check(evidence.marks(), [run.id for run in completed]) == []

    def test_cron_with_seconds_fires_each_second_once(self, rota: RotaUp) -> None:
        apply(rota.client, job("cron", "true", schedule="* * * * * *"))

        eventually(lambda: len(rota.client.get_history("cron").items) >= 3)
        rota.client.pause_job("cron")

        times = due_times(eventually(lambda: finished_runs(rota.client, "cron")))
        assert all(time.microsecond == 0 for time in times)
        assert times == [times[0] + n * SECOND for n in range(len(times))]


class TestOneOffs:
    def test_thousand_jobs_due_at_the_same_second_each_run_once(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(slots="16")
        due = (rota.client.now() + 4 * SECOND).replace(microsecond=0)
        quick = evidence.script()
        names = [f"once-{number}" for number in range(1000)]

        apply(rota.client, *(job(name, quick, schedule=due.isoformat()) for name in names))
        eventually(lambda: len(evidence.ended()) >= len(names), within=timedelta(seconds=40))

        runs = eventually(lambda: finished_runs(rota.client, "once-*"))
        assert sorted(run.job for run in runs) == sorted(names)
        assert set(due_times(runs)) == {due}
        assert {run.state for run in runs} == {"COMPLETED"}
        assert all(run.lateness_seconds is not None and run.lateness_seconds >= 0 for run in runs)
        assert check(evidence.marks(), [run.id for run in runs]) == []
        job_after = rota.client.get_job(names[0])
        assert job_after.next_at is None

    def test_one_off_time_that_passed_during_downtime_runs_late_and_says_so(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        due = rota.client.now() + SECOND
        apply(rota.client, job("late", evidence.script(), schedule=due.isoformat()))
        client = rota.client
        rota.kill()
        eventually(lambda: client.now() > due + 3 * SECOND)

        rota.start()

        eventually(evidence.ended)
        [run] = eventually(lambda: finished_runs(rota.client, "late"))
        assert run.due_at == due
        assert run.lateness_seconds is not None
        assert run.lateness_seconds > 3


class TestRestarts:
    def test_job_whose_interval_is_longer_than_any_uptime_still_runs(
        self, rota: RotaUp, evidence: Evidence
    ) -> None:
        apply(rota.client, job("seldom", evidence.script(), schedule="every 6s"))

        for _ in range(20):
            rota.stop()
            rota.start()
            if evidence.ended():
                break

        runs = [run.id for run in rota.client.get_history("seldom") if run.state == "COMPLETED"]
        assert len(runs) >= 1
        assert check(evidence.marks(), runs) == []

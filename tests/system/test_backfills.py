"""Due times of the past, run for real and through a crash."""

from __future__ import annotations

from datetime import timedelta

from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.checker import check, most_at_once
from testkit.evidence import Evidence
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, log_of

HOUR = timedelta(hours=1)
TENTH = timedelta(milliseconds=100)


def start(client: Client, name: str, hours: int, *, max_parallel: int) -> str:
    """Backfill so many due times of an hourly job; returns the backfill's id."""
    next_at = client.get_job(name).next_at
    assert next_at is not None
    made = client.backfill_job(name, next_at - hours * HOUR, max_parallel=max_parallel)
    assert (made.runs, made.id is not None) == (hours, True)
    return str(made.id)


def runs_of(client: Client, backfill: str) -> list[Run]:
    """By due time."""
    found = client.each(Client.list_runs(backfill=backfill))
    return sorted(found, key=lambda run: str(run.due_at))


def test_every_due_time_of_the_past_is_told_to_its_run_in_turn(client: Client) -> None:
    apply(client, job("report", 'echo "$ROTA_DUE_AT"', schedule="0 * * * *"))

    backfill = start(client, "report", 3, max_parallel=1)

    eventually(lambda: all(run.is_final for run in runs_of(client, backfill)))
    runs = runs_of(client, backfill)
    assert [run.state for run in runs] == ["COMPLETED"] * 3
    for run in runs:
        assert run.due_at is not None
        assert f"{run.due_at:%Y-%m-%dT%H:%M}" in log_of(client, run.id)
    ends = [run.ended_at for run in runs if run.ended_at is not None]
    assert ends == sorted(ends)


def test_a_crash_in_the_middle_neither_ends_it_nor_widens_it(up: Up, evidence: Evidence) -> None:
    rota = up(slots="8")
    work = evidence.script(evidence.beats(3, every=TENTH))
    apply(rota.client, job("rebuilt", work, schedule="0 * * * *"))
    backfill = start(rota.client, "rebuilt", 8, max_parallel=2)
    eventually(lambda: len(evidence.ended()) >= 2)

    rota.kill()
    rota.start()

    eventually(lambda: all(run.is_final for run in runs_of(rota.client, backfill)))
    runs = runs_of(rota.client, backfill)
    assert [run.state for run in runs] == ["COMPLETED"] * 8
    lost = [run.id for run in runs if run.losses]
    assert check(evidence.marks(), [run.id for run in runs], lost=lost) == []
    assert most_at_once(evidence.marks()) <= 2

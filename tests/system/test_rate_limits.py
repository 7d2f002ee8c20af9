"""Rate limits with real processes: starts in any time are bounded, and waiting runs say when."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import combinations

from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import all_completed, apply, job, runs_of

SECOND = timedelta(seconds=1)
RATE, BURST = 10, 10  # tokens a second, tokens at once
SUBMITTED = 100
INEXACT = 1 * SECOND  # by which a run may be told a wrong time
IN_TIME = 5 * SECOND  # for a busy machine


def starts_of(runs: list[Run]) -> list[datetime]:
    """When tokens were taken."""
    return sorted(run.claimed_at for run in runs if run.claimed_at)


def told(client: Client) -> dict[str, datetime]:
    """When the runs that wait may go, by what they say."""
    waiting = runs_of(client, state="BLOCKED")
    assert {reason.gate for run in waiting for reason in run.reasons} == {"rate_limit"}
    return {run.id: run.eligible_at for run in waiting if run.eligible_at}


def test_starts_never_exceed_burst_and_rate_and_come_when_they_were_told(up: Up) -> None:
    client = up(slots=str(SUBMITTED)).client
    client.put_limit("api", tokens=RATE, per=SECOND, burst=BURST)
    apply(client, job("call", "true", rate_limits=["api"]))
    client.trigger_many("call", [{}] * SUBMITTED)

    promised = told(client)
    runs = eventually(lambda: all_completed(client, SUBMITTED), within=45 * SECOND)

    assert len(promised) >= SUBMITTED / 2
    starts = starts_of(runs)
    for (n, one), (m, other) in combinations(enumerate(starts), 2):
        assert m - n + 1 <= BURST + RATE * (other - one) / SECOND
    for run in runs:
        if due := promised.get(run.id):
            assert run.claimed_at
            assert due - INEXACT <= run.claimed_at <= due + IN_TIME


def test_runs_that_wait_follow_a_limit_that_is_raised(client: Client) -> None:
    client.put_limit("slow", tokens=1, per="1h")
    apply(client, job("slowed", "true", rate_limits=["slow"]))
    client.trigger_many("slowed", [{}] * 10)
    eventually(lambda: len(told(client)) == 9)

    client.put_limit("slow", tokens=10, per="1s")

    eventually(lambda: all_completed(client, 10))

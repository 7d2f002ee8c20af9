"""Resources with real processes: never more in use than there is, and large runs get their turn."""

from __future__ import annotations

from datetime import timedelta

from tests.system.conftest import Up
from tests.system.jobs import apply, job

from rota.sdk import calls
from rota.sdk.client import Client
from rota.testing.checker import most_in_use
from rota.testing.evidence import Event, Evidence
from rota.testing.processes import RotaUp
from rota.testing.waiting import eventually

OFFER = "cpu=64,memory=8GiB"
SIZES = {"small": 2, "large": 8}  # GiB
WORKERS, SMALL = 2, 40
QUIET = timedelta(seconds=45)  # the lease of the dead has to pass, on a busy machine


def in_use(client: Client) -> set[str]:
    return {worker.used["memory"] for worker in client.list_workers()}


def unfinished(client: Client) -> int:
    return sum(not run.is_settled for run in client.each(calls.list_runs(limit=1_000)))


def burden(rota: RotaUp, evidence: Evidence) -> None:
    """A backlog of small runs before and behind a large one."""
    work = evidence.script(evidence.beats(3))
    retry = {"attempts": 3}
    apply(
        rota.client,
        *(job(n, work, resources={"memory": f"{s}GiB"}, retry=retry) for n, s in SIZES.items()),
    )
    rota.client.trigger_many("small", [{}] * (SMALL // 2))
    rota.client.trigger("large")
    rota.client.trigger_many("small", [{}] * (SMALL // 2))


def test_no_more_is_in_use_than_there_is_whatever_is_killed_and_the_large_run_has_its_turn(
    up: Up, evidence: Evidence
) -> None:
    rota = up(slots="16", resources=OFFER, lease="4s")
    second = rota.start_worker("second")
    burden(rota, evidence)
    eventually(lambda: len(evidence.started()) > SMALL // 4)

    second.kill()
    eventually(lambda: unfinished(rota.client) == 0, QUIET)

    started = [mark.job for mark in evidence.marks() if mark.event is Event.START]
    assert started.index("large") < SMALL - 4  # small ones were still waiting
    assert most_in_use(evidence.marks(), SIZES) <= WORKERS * 8
    assert {run for run, _ in evidence.ended()} == {run for run, _ in evidence.started()}
    assert in_use(rota.client) == {"0B"}

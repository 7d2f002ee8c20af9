"""Resources with real processes: never more in use than there is, and large runs get their turn."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.api.why import Reserved
from rota.sdk.client import Client
from testkit.checker import most_in_use
from testkit.evidence import Event, Evidence
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import Document, apply, job, runs_of, settle

OFFER = "cpu=64,memory=8GiB"
SIZES = {"small": 2, "large": 8, "early": 6}  # GiB
WORKERS, SMALL = 2, 40
QUIET = timedelta(seconds=45)  # the lease of the dead has to pass, on a busy machine


def sized(name: str, work: str, **fields: Any) -> Document:
    return job(name, work, resources={"memory": f"{SIZES[name]}GiB"}, **fields)


def in_use(client: Client) -> set[str]:
    return {worker.used["memory"] for worker in client.list_workers()}


def unfinished(client: Client) -> int:
    return sum(not run.is_settled for run in client.each(Client.list_runs(limit=1_000)))


def reservation(client: Client, run: str) -> Reserved:
    """What is kept free for it."""
    order = client.explain(run).order
    assert order
    assert order.reservation
    assert order.reservation.run == run
    return order.reservation


def burden(rota: RotaUp, evidence: Evidence) -> None:
    """A backlog of small runs before and behind a large one."""
    work = evidence.script(evidence.beats(3))
    apply(rota.client, *(sized(name, work, retry={"attempts": 3}) for name in ("small", "large")))
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


def test_a_run_that_needs_a_whole_worker_starts_within_its_reservation_while_small_ones_pass(
    up: Up, evidence: Evidence, tmp_path: Path
) -> None:
    rota, room = up(slots="16", resources=OFFER), tmp_path / "room"
    rota.start_worker("second")
    until_room = f"until [ -e {room} ]; do sleep 0.05; done"
    work = {"early": until_room, "large": "true", "small": "true"}
    apply(rota.client, *(sized(name, evidence.script(what)) for name, what in work.items()))
    rota.client.trigger_many("early", [{}] * WORKERS)
    eventually(lambda: len(evidence.started()) == WORKERS)
    large = rota.client.trigger("large")
    reserved = eventually(lambda: reservation(rota.client, large.id))

    rota.client.trigger_many("small", [{}] * SMALL)
    eventually(lambda: len(evidence.ended()) >= SMALL // 4)
    room.touch()
    starts_at = settle(rota.client, large).claimed_at
    eventually(lambda: unfinished(rota.client) == 0, QUIET)

    assert starts_at
    assert starts_at <= reserved.until
    small = runs_of(rota.client, "small")
    before = [run for run in small if run.claimed_at and run.claimed_at < starts_at]
    assert len(before) >= SMALL // 4
    assert reserved.worker not in {run.worker for run in before}
    assert most_in_use(evidence.marks(), SIZES) <= WORKERS * 8

"""Shards that change hands again and again, while every former owner still believes to own them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.ids import JobId, ServerId
from rota.domain.job import Job
from rota.ports.records import Ownership, RunQuery
from rota.ports.store import Store
from testkit.builders import Scene, firing_of, new_server

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=5)
FAILOVERS = 20


async def take_over(store: Store, server: str) -> Ownership:
    """What a server owns that arrives after the others' leases have ended."""
    await store.join(new_server(server, lease=LEASE))
    holding = await store.keep_shards(ServerId(server), stopping=False)
    return Ownership(ServerId(server), holding.shards)


async def fire_as(scene: Scene, owners: list[Ownership], job: Job) -> list[frozenset[JobId]]:
    """What each of them was let do for the same due time, the oldest owner first."""
    assert job.next_at is not None
    firing = firing_of(job, next_at=job.next_at + LEASE)
    return [(await scene.store.fire([firing], owner)).accepted for owner in owners]


async def test_twenty_failovers_answer_each_due_time_once(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant + LEASE)
    owners: list[Ownership] = []
    for number in range(FAILOVERS):
        scene.advance(LEASE)
        owners.append(await take_over(scene.store, f"s_{number % 2}"))

        accepted = await fire_as(scene, owners, await scene.show_job(job_id))

        assert accepted == [*[frozenset()] * number, {job_id}]
    runs = await scene.store.runs(RunQuery(job_id=job_id, limit=2 * FAILOVERS))
    assert len(runs) == FAILOVERS
    assert len({run.due_at for run in runs}) == FAILOVERS

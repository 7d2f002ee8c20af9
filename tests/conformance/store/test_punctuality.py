from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.spec import Late, Overlap
from rota.domain.states import RunState
from rota.ports.store import Rearmed
from rota.testing.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio
SOON = timedelta(seconds=30)


async def test_a_run_that_is_too_late_is_missed_instead_of_started(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant, start_within=SOON, late=Late.DROP)
    run = await scene.scheduled_run(job_id)
    worker = await scene.worker()
    scene.advance(SOON)

    works = await scene.claim(worker)

    dropped = await scene.show(run.id)
    assert works == []
    assert (dropped.state, dropped.cause) == (RunState.MISSED, "too late")


async def test_who_waited_for_a_run_that_is_dropped_goes_at_once(scene: Scene) -> None:
    rules: dict[str, Any] = {"start_within": SOON, "late": Late.DROP, "overlap": Overlap.QUEUE_ALL}
    job_id = await scene.job(next_at=scene.clock.instant, **rules)
    worker = await scene.worker()
    await scene.scheduled_run(job_id)
    second = await scene.scheduled_run(job_id)

    works = await scene.claim(worker)

    assert second.state is RunState.BLOCKED
    assert [work.run for work in works] == [second.id]


async def test_what_a_person_asked_for_is_never_dropped(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(start_within=SOON, late=Late.DROP))
    worker = await scene.worker()
    scene.advance(MINUTE)

    assert [work.run for work in await scene.claim(worker)] == [run]


@pytest.mark.parametrize(("waited", "is_late"), [(SOON, False), (MINUTE, True)])
async def test_a_missed_objective_is_told_once(
    scene: Scene, waited: timedelta, is_late: bool
) -> None:
    [run] = await scene.trigger(await scene.job(start_within=SOON))
    worker = await scene.worker()
    scene.advance(waited)
    await scene.finish(worker, await scene.claim(worker))
    scene.advance(MINUTE)

    for _ in range(2):
        await scene.store.release_forgotten(100)

    events = [event.kind for event in await scene.store.events(0, 100, ids=[run])]
    assert (await scene.show(run)).is_late is is_late
    assert events.count("run.late") == is_late


async def test_a_schedule_that_counts_from_the_end_goes_on_when_its_run_has_ended(
    scene: Scene,
) -> None:
    job_id = await scene.job(next_at=scene.clock.instant)
    worker = await scene.worker()
    await scene.fire(job_id, next_at=None, waits=True)
    works = await scene.claim(worker)

    before = await scene.store.ended_waits(10)
    await scene.finish(worker, works)
    [ended] = await scene.store.ended_waits(10)
    next_at = ended.ended_at + MINUTE
    rearmed = Rearmed(job_id, ended.schedule_version, next_at)
    await scene.store.rearm([rearmed])
    await scene.store.rearm([Rearmed(job_id, ended.schedule_version, next_at + MINUTE)])

    assert before == []
    assert (await scene.show_job(job_id)).next_at == next_at
    assert await scene.store.ended_waits(10) == []

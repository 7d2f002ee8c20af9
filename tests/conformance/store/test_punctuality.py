"""Lateness: objectives, runs too late to start, and the figures."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest

from rota.domain.run import Run
from rota.domain.spec import Late
from rota.domain.states import RunState
from testkit.builders import Scene

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
OBJECTIVE = 30 * SECOND


async def due_run(scene: Scene, **rules: Any) -> Run:
    job_id = await scene.job(next_at=scene.clock.instant, start_within=OBJECTIVE, **rules)
    return await scene.scheduled_run(job_id)


async def start_after(scene: Scene, wait: timedelta) -> None:
    scene.advance(wait)
    session = await scene.worker()
    await scene.start(session, await scene.claim(session))


async def judged(scene: Scene, run: Run) -> bool | None:
    scene.advance(10 * OBJECTIVE)
    await scene.store.release_forgotten(100)
    return (await scene.show(run.id)).is_late


async def late_events(scene: Scene) -> list[tuple[str, ...]]:
    return [event.ids for event in await scene.store.events(0, 1_000) if event.kind == "run.late"]


class TestObjectives:
    async def test_a_run_is_not_judged_before_it_can_be_late(self, scene: Scene) -> None:
        run = await due_run(scene)
        scene.advance(OBJECTIVE)
        await scene.store.release_forgotten(100)

        assert (await scene.show(run.id)).is_late is None

    async def test_a_run_that_starts_in_time_is_not_late(self, scene: Scene) -> None:
        run = await due_run(scene)
        await start_after(scene, OBJECTIVE)

        assert await judged(scene, run) is False
        assert await late_events(scene) == []

    async def test_a_run_that_starts_too_late_is_told_once(self, scene: Scene) -> None:
        run = await due_run(scene)
        await start_after(scene, OBJECTIVE + SECOND)

        assert await judged(scene, run) is True
        assert await judged(scene, run) is True
        assert await late_events(scene) == [(run.id,)]

    async def test_a_run_that_never_starts_is_late(self, scene: Scene) -> None:
        run = await due_run(scene)

        assert await judged(scene, run) is True
        assert (await scene.show(run.id)).state is RunState.QUEUED

    async def test_a_run_that_was_cancelled_before_is_not_late(self, scene: Scene) -> None:
        run = await due_run(scene)
        await scene.store.cancel([run.id], actor="operator")

        assert await judged(scene, run) is False
        assert await late_events(scene) == []

    async def test_without_an_objective_nothing_is_late(self, scene: Scene) -> None:
        run = await scene.scheduled_run(await scene.job(next_at=scene.clock.instant))

        assert await judged(scene, run) is None


class TestDropping:
    async def test_a_run_too_late_to_start_is_missed(self, scene: Scene) -> None:
        run = await due_run(scene, late=Late.DROP)
        scene.advance(OBJECTIVE)

        await scene.store.release_forgotten(100)

        dropped = await scene.show(run.id)
        assert (dropped.state, dropped.cause) == (RunState.MISSED, "too late")

    async def test_it_is_never_claimed_then(self, scene: Scene) -> None:
        run = await due_run(scene, late=Late.DROP)
        session = await scene.worker()
        scene.advance(OBJECTIVE)

        assert await scene.claim(session) == []
        assert await scene.state(run.id) is RunState.MISSED

    async def test_it_is_claimed_until_then(self, scene: Scene) -> None:
        await due_run(scene, late=Late.DROP)
        session = await scene.worker()
        scene.advance(OBJECTIVE - SECOND)

        assert len(await scene.claim(session)) == 1

    async def test_what_has_started_goes_on(self, scene: Scene) -> None:
        run = await due_run(scene, late=Late.DROP)
        await start_after(scene, SECOND)
        scene.advance(OBJECTIVE)

        await scene.store.release_forgotten(100)

        assert await scene.state(run.id) is RunState.PROCESSING

    async def test_what_a_person_asked_for_is_late_but_not_dropped(self, scene: Scene) -> None:
        job_id = await scene.job(start_within=OBJECTIVE, late=Late.DROP)
        [run] = await scene.trigger(job_id)
        scene.advance(2 * OBJECTIVE)

        await scene.store.release_forgotten(100)

        shown = await scene.show(run)
        assert (shown.state, shown.is_late) == (RunState.QUEUED, True)

    async def test_a_dropped_run_lets_the_next_one_pass(self, scene: Scene) -> None:
        job_id = await scene.job(
            next_at=scene.clock.instant, start_within=OBJECTIVE, late=Late.DROP
        )
        first = await scene.scheduled_run(job_id, every=OBJECTIVE - SECOND)
        second = await scene.scheduled_run(job_id)
        assert await scene.state(second.id) is RunState.BLOCKED

        scene.advance(SECOND)
        await scene.store.release_forgotten(100)

        assert await scene.states([first.id, second.id]) == [RunState.MISSED, RunState.QUEUED]


class TestFigures:
    async def end_after(self, scene: Scene, *waits: timedelta) -> None:
        """Runs that start so late, one after another, and end at once."""
        job_id = await scene.job()
        session = await scene.worker(lease=timedelta(days=1))
        for wait in waits:
            await scene.trigger(job_id)
            scene.advance(wait)
            works = await scene.claim(session)
            await scene.start(session, works)
            await scene.finish(session, works, exit_code=0)

    async def test_the_delays_of_a_job_come_newest_first(self, scene: Scene) -> None:
        job_id = await scene.job()
        session = await scene.worker()
        for seconds in (1, 2, 3):
            await scene.trigger(job_id)
            scene.advance(seconds * SECOND)
            await scene.start(session, await scene.claim(session))
        await scene.trigger(job_id)

        assert await scene.store.start_delays(job_id, 2) == [3.0, 2.0]

    async def test_ended_runs_are_counted_by_how_late_they_started(self, scene: Scene) -> None:
        await self.end_after(scene, 2 * SECOND, 2 * SECOND, 10_000 * SECOND)

        delays = (await scene.store.counts()).start_delays

        assert delays == {("default", 2.5): (2, 4.0), ("default", inf): (1, 10_000.0)}

    async def test_a_repeated_run_counts_once_from_its_first_start(self, scene: Scene) -> None:
        job_id = await scene.job()
        session = await scene.worker()
        await scene.trigger(job_id)
        scene.advance(2 * SECOND)
        works = await scene.claim(session)
        await scene.start(session, works)
        await scene.finish(session, works, "INTERRUPTED")
        await scene.release()
        scene.advance(100 * SECOND)
        await scene.finish(session, await scene.claim(session))

        delays = (await scene.store.counts()).start_delays

        assert delays == {("default", 2.5): (1, 2.0)}

    @pytest.mark.parametrize("exit_code", [None, 0])  # the short way to end a run, and the long
    async def test_a_backfill_tells_nothing_about_lateness(
        self, scene: Scene, exit_code: int | None
    ) -> None:
        job_id = await scene.job()
        session = await scene.worker()
        await scene.backfill(job_id, [scene.clock.instant - 100 * SECOND])
        scene.advance(2 * SECOND)
        works = await scene.claim(session)
        await scene.start(session, works)
        await scene.finish(session, works, exit_code=exit_code)

        assert await scene.store.start_delays(job_id, 10) == []
        assert (await scene.store.counts()).start_delays == {}

    async def test_a_run_that_never_started_does_not_count(self, scene: Scene) -> None:
        [run] = await scene.trigger(await scene.job())
        await scene.store.cancel([run], actor="operator")

        assert (await scene.store.counts()).start_delays == {}

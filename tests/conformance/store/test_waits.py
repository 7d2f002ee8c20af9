"""Runs that wait: for a worker that they fit, until they are cancelled or too late to start."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest

from rota.domain.ids import RunId
from rota.domain.keys import Resource
from rota.domain.run import AttemptResult, Reason, Run
from rota.domain.spec import Delivery, Late, Overlap, Retry
from rota.domain.states import RunState
from rota.ports.carts import PauseCart
from rota.ports.queue import Wakes
from rota.ports.records import RunQuery
from testkit.builders import MINUTE, Scene, hello
from testkit.cart_scenes import CartScene
from tests.conformance.store.key_scenes import declare

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


async def look_for_workers(scene: Scene, limit: int = 100) -> int:
    """What the scheduler does once a worker has come."""
    return await scene.store.release_fitting(limit)


async def reason_of(scene: Scene, run: str) -> Reason:
    [reason] = (await scene.show(run)).reasons
    return reason


@pytest.mark.parametrize(
    ("demand", "lacks", "offer"),
    [
        ({"needs": {"site": "fra"}}, "label site=fra", {"labels": {"site": "fra"}}),
        ({"function": "app:load"}, "function app:load", {"functions": ("app:load",)}),
        ({"resources": {"gpu": 2_000}}, "2 gpu", {"resources": {"gpu": 2_000}}),
    ],
)
async def test_a_run_that_nobody_could_take_waits_for_a_worker_that_can(
    scene: Scene, demand: dict[str, Any], lacks: str, offer: dict[str, Any]
) -> None:
    await scene.worker("plain")
    [run] = await scene.trigger(await scene.job(**demand))
    waiting = await scene.show(run)

    before = await look_for_workers(scene)
    worker = await scene.worker("able", **offer)
    released = await look_for_workers(scene)

    [reason] = waiting.reasons
    assert waiting.state is RunState.BLOCKED
    assert (reason.gate, reason.action) == ("worker", "rota worker list")
    assert reason.key.startswith("worker:default/")
    assert lacks in reason.message
    assert (before, released) == (0, 1)
    assert [work.run for work in await scene.claim(worker)] == [run]


async def test_in_an_empty_pool_runs_stay_in_the_queue(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(needs={"site": "fra"}))

    assert await scene.state(run) is RunState.QUEUED


async def test_a_worker_that_has_just_come_is_seen_by_the_next_run(scene: Scene) -> None:
    job_id = await scene.job(needs={"site": "fra"})
    await scene.worker("plain")

    [before] = await scene.trigger(job_id)
    scene.advance(timedelta(milliseconds=100))
    await scene.worker("able", labels={"site": "fra"})
    scene.advance(timedelta(milliseconds=100))
    [after] = await scene.trigger(job_id)

    assert await scene.states([before, after]) == [RunState.BLOCKED, RunState.QUEUED]


async def test_a_worker_that_was_here_a_moment_ago_may_come_back(scene: Scene) -> None:
    job_id = await scene.job(needs={"site": "fra"})
    worker = await scene.worker(labels={"site": "fra"})
    await scene.worker("plain")
    await scene.store.end_session(worker)

    [soon] = await scene.trigger(job_id)
    scene.advance(2 * MINUTE)
    [later] = await scene.trigger(job_id)

    assert await scene.states([soon, later]) == [RunState.QUEUED, RunState.BLOCKED]


async def test_due_runs_and_retries_come_to_the_same_gate(scene: Scene) -> None:
    await scene.worker("plain")
    job_id = await scene.job(needs={"site": "fra"}, next_at=scene.clock.instant + MINUTE)
    [planned] = await scene.trigger(job_id, at=scene.clock.instant + MINUTE)

    due = await scene.scheduled_run(job_id)
    await scene.release()

    assert due.state is RunState.BLOCKED
    assert await scene.state(planned) is RunState.BLOCKED
    assert (await reason_of(scene, planned)).gate == "worker"


async def test_a_run_without_a_worker_holds_no_slot_of_its_job(scene: Scene) -> None:
    await scene.worker("plain")
    job_id = await scene.job(max_concurrency=1, needs={"site": "fra"})
    [unfit] = await scene.trigger(job_id)
    await scene.change(job_id, max_concurrency=1)

    [fit] = await scene.trigger(job_id)

    assert await scene.states([unfit, fit]) == [RunState.BLOCKED, RunState.QUEUED]


async def test_unfit_runs_are_not_in_the_way_of_others(scene: Scene) -> None:
    worker = await scene.worker(slots=10)
    await scene.trigger(await scene.job("unfit", needs={"site": "fra"}), 500, priority=9)
    [run] = await scene.trigger(await scene.job("fit"))

    assert [work.run for work in await scene.claim(worker, 10)] == [run]
    assert ("QUEUED", "default") not in (await scene.store.counts()).runs


async def test_those_that_fit_go_in_steps_and_by_age(scene: Scene) -> None:
    await scene.worker("plain")
    runs = await scene.trigger(await scene.job(needs={"site": "fra"}), 5)
    other = await scene.trigger(await scene.job("other", needs={"site": "ams"}), 5)
    await scene.worker(labels={"site": "fra"})

    steps = [await look_for_workers(scene, 2) for _ in range(4)]

    assert steps == [2, 2, 1, 0]
    assert await scene.states(runs) == [RunState.QUEUED] * 5
    assert await scene.states(other) == [RunState.BLOCKED] * 5


async def test_those_that_fit_are_queued_at_once(scene: Scene) -> None:
    await scene.worker("plain")
    runs = await scene.trigger(await scene.job(needs={"site": "fra"}), 3)
    await scene.worker(labels={"site": "fra"})

    await look_for_workers(scene)

    [*_, last] = await scene.store.events(0, 100)
    assert await scene.states(runs) == [RunState.QUEUED] * 3
    assert (last.kind, last.actor, list(last.ids)) == ("run.queued", "scheduler", runs)


async def test_who_fits_passes_the_gates_of_its_job_first(scene: Scene) -> None:
    await scene.worker("plain")
    demand = {"needs": {"site": "fra"}}
    paused = await scene.job("paused", **demand)
    limited = await scene.job("limited", max_concurrency=5, **demand)
    waiting = await scene.trigger(paused)
    waiting += await scene.trigger(limited, 3)
    await scene.move("paused", paused)
    await scene.change(limited, max_concurrency=2, **demand)
    await scene.worker("able", labels={"site": "fra"})

    released = await look_for_workers(scene)

    assert released == 4
    assert await scene.states(waiting) == [
        RunState.BLOCKED,
        RunState.QUEUED,
        RunState.QUEUED,
        RunState.BLOCKED,
    ]
    assert (await reason_of(scene, waiting[0])).gate == "pause"
    assert (await reason_of(scene, waiting[3])).gate == "max_concurrency"


async def test_who_fits_asks_for_keys_by_age(scene: Scene) -> None:
    await declare(scene, Resource("default", "license"))
    await scene.worker("plain")
    jobs = [
        await scene.job(site, uses={"license": 1}, needs={"site": site}) for site in ("fra", "ams")
    ]
    runs = [run for job in jobs for run in await scene.trigger(job)]
    await scene.worker("one", labels={"site": "fra"})
    await scene.worker("two", labels={"site": "ams"})

    released = await look_for_workers(scene)

    assert released == 2
    assert await scene.states(runs) == [RunState.QUEUED, RunState.BLOCKED]
    assert (await reason_of(scene, runs[1])).key == "resource:default/license"


async def test_due_times_that_fit_take_turns_by_the_overlap_rule(scene: Scene) -> None:
    await scene.worker("plain")
    job_id = await scene.job(
        needs={"site": "fra"}, overlap=Overlap.QUEUE_ALL, next_at=scene.clock.instant
    )
    first = await scene.scheduled_run(job_id)
    second = await scene.scheduled_run(job_id)
    worker = await scene.worker("able", labels={"site": "fra"})

    await look_for_workers(scene)
    before = await scene.states([first.id, second.id])
    await scene.finish(worker, await scene.claim(worker))

    assert before == [RunState.QUEUED, RunState.BLOCKED]
    assert await scene.state(second.id) is RunState.QUEUED


async def test_who_fits_is_held_by_its_cart(scene: Scene) -> None:
    await scene.worker("plain")
    carts = CartScene(scene)
    cart = await carts.submit(await scene.job(needs={"site": "fra"}))
    await carts.advance(cart)
    [run] = await scene.store.runs(RunQuery(cart=cart))
    await carts.command(cart, PauseCart())
    await scene.worker("able", labels={"site": "fra"})

    await look_for_workers(scene)

    assert run.state is RunState.BLOCKED
    assert (await reason_of(scene, run.id)).gate == "cart"


async def test_workers_that_come_wake_whoever_looks_after_these_runs(
    scene: Scene, published: list[Wakes]
) -> None:
    await scene.store.register(hello(), timedelta(minutes=1))
    wakes = published[-1]

    assert wakes.workers


async def test_what_waits_is_cancelled_at_once(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    [scheduled] = await scene.trigger(job_id, at=scene.clock.instant + MINUTE)
    queued, blocked = await scene.trigger(job_id, 2)

    cancelled = await scene.store.cancel([scheduled, blocked, queued], actor="user")

    assert cancelled == {scheduled, blocked, queued}
    assert await scene.states([scheduled, queued, blocked]) == [RunState.CANCELLED] * 3
    assert await scene.claim(await scene.worker()) == []


async def test_what_is_live_is_asked_to_stop(scene: Scene, published: list[Wakes]) -> None:
    runs = await scene.trigger(await scene.job(), 2)
    worker = await scene.worker()
    works = await scene.claim(worker)
    await scene.start(worker, works[:1])

    cancelled = await scene.store.cancel(runs, actor="user")
    wakes = published[-1]

    asked = tuple(work.fence for work in works)
    assert cancelled == set(runs)
    assert wakes.sessions == {worker}
    assert await scene.store.cancels(worker) == asked
    assert (await scene.store.renew(worker, stopping=False)).cancel == asked
    assert await scene.states(runs) == [RunState.PROCESSING, RunState.CLAIMED]


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (AttemptResult.COMPLETED, RunState.COMPLETED),
        (AttemptResult.FAILED, RunState.CANCELLED),
        (AttemptResult.TIMED_OUT, RunState.CANCELLED),
        (AttemptResult.CANCELLED, RunState.CANCELLED),
    ],
)
async def test_after_a_cancel_nothing_is_tried_again(
    scene: Scene, result: AttemptResult, state: RunState
) -> None:
    [run] = await scene.trigger(await scene.job(retry=Retry(attempts=9)))
    worker = await scene.worker()
    works = await scene.claim(worker)
    await scene.store.cancel([run], actor="user")

    await scene.finish(worker, works, result)

    assert await scene.state(run) is state


async def test_a_cancelled_run_that_loses_its_worker_is_cancelled(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker()
    await scene.start(worker, await scene.claim(worker))
    await scene.store.cancel([run], actor="user")

    await scene.store.end_session(worker)

    assert await scene.state(run) is RunState.CANCELLED


async def test_a_cancelled_at_most_once_run_that_loses_its_worker_is_unknown(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(delivery=Delivery.AT_MOST_ONCE))
    worker = await scene.worker()
    await scene.start(worker, await scene.claim(worker))
    await scene.store.cancel([run], actor="user")

    await scene.store.end_session(worker)
    cancelled = await scene.store.cancel([run], actor="user")

    assert await scene.state(run) is RunState.UNKNOWN
    assert cancelled == frozenset()


async def test_a_run_in_back_off_is_cancelled_at_once(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job(retry=Retry(attempts=2, delay=MINUTE)))
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)

    await scene.store.cancel([run], actor="user")
    scene.advance(2 * MINUTE)

    assert await scene.release() == 0
    assert await scene.state(run) is RunState.CANCELLED


async def test_what_has_ended_or_never_was_is_left_out(
    scene: Scene, published: list[Wakes]
) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker))

    cancelled = await scene.store.cancel([run, RunId("r_nope")], actor="user")
    wakes = published[-1]

    assert (cancelled, wakes.sessions) == (frozenset(), frozenset())
    assert await scene.state(run) is RunState.COMPLETED


async def test_the_first_cancel_is_the_one_that_is_remembered(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    worker = await scene.worker()
    await scene.claim(worker)
    first_at = scene.clock.instant

    await scene.store.cancel([run], actor="first")
    scene.advance(timedelta(seconds=5))
    await scene.store.cancel([run], actor="second")

    shown = await scene.show(run)
    assert (shown.cancel_requested_by, shown.cancel_requested_at) == ("first", first_at)

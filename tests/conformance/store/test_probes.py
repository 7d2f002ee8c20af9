"""Probes: what asks about runs that are UNKNOWN, and what becomes of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.ids import RunId, SessionId
from rota.domain.run import AttemptResult, Trigger
from rota.domain.spec import Backoff, Delivery, Retry
from rota.domain.states import RunState
from rota.domain.walls import PROBES
from rota.ports.records import RunQuery
from rota.ports.work import Fence, Offer, Work
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene

pytestmark = pytest.mark.anyio

DELAY = timedelta(seconds=5)
POLICY = Retry(3, Backoff.EXPONENTIAL, DELAY, timedelta(minutes=1))
OFFERS = (Offer("capability", PROBES),)


async def lost(scene: Scene, runs: int = 1, **rules: Any) -> list[Work]:
    """Leave runs UNKNOWN: their worker vanished."""
    given: dict[str, Any] = {"delivery": Delivery.AT_MOST_ONCE, "probe": POLICY, **rules}
    job = await scene.job(**given)
    await scene.trigger(job, runs, inputs={"to": "ada"})
    worker = await scene.worker("first", slots=100)
    works = await scene.claim(worker)
    await scene.start(worker, works)
    await scene.vanish(worker)
    return works


async def ask(scene: Scene, worker: str = "second") -> tuple[SessionId, list[Work]]:
    """Give probes to a new worker, once their pause is over."""
    scene.advance(DELAY)
    await scene.release()
    session = await scene.worker(worker, offers=OFFERS)
    return session, await scene.claim(session)


async def answer(scene: Scene, session: SessionId, work: Work, code: int) -> None:
    if code:
        await scene.finish(session, [work], AttemptResult.FAILED, exit_code=code)
    else:
        await scene.finish(session, [work], exit_code=0)
    await scene.store.settle_probes(100)


async def probes_in(scene: Scene) -> list[RunState]:
    found = await scene.store.runs(RunQuery(project=scene.home, trigger=Trigger.PROBE))
    return [run.state for run in found]


@pytest.mark.parametrize(
    ("code", "state"),
    [(0, RunState.COMPLETED), (1, RunState.FAILED), (2, RunState.SCHEDULED)],
)
async def test_its_exit_code_ends_the_doubt(scene: Scene, code: int, state: RunState) -> None:
    [work] = await lost(scene)

    session, [probe] = await ask(scene)
    assert await scene.state(work.run) is RunState.UNKNOWN
    await answer(scene, session, probe, code)

    run = await scene.show(work.run)
    assert (run.state, await scene.state(probe.run)) == (state, RunState.COMPLETED)
    resolved = [e for e in await scene.store.events(0, 100) if e.kind == "run.resolved"]
    assert [(e.actor, e.ids, e.data["state"]) for e in resolved] == [("probe", (work.run,), state)]


async def test_it_is_told_what_it_asks_about(scene: Scene) -> None:
    [work] = await lost(scene)

    _, [probe] = await ask(scene)

    assert (probe.probed, probe.inputs, probe.due_at) == (work.fence, work.inputs, work.due_at)
    assert probe.run != work.run
    assert await scene.store.probed_by(RunId(probe.run)) == work.run


async def test_no_answer_is_asked_for_again_later_and_then_a_person_must_decide(
    scene: Scene,
) -> None:
    [work] = await lost(scene)
    session, [probe] = await ask(scene)

    for code, pause in ((3, DELAY), (127, 2 * DELAY)):
        await answer(scene, session, probe, code)
        scene.advance(pause - timedelta(microseconds=1))
        await scene.release()
        assert await scene.claim(session) == []
        scene.advance(timedelta(microseconds=1))
        await scene.release()
        [probe] = await scene.claim(session)
    await answer(scene, session, probe, 3)

    assert (await scene.state(work.run), await probes_in(scene)) == (
        RunState.UNKNOWN,
        [RunState.FAILED],
    )
    await scene.store.resolve(RunId(work.run), RunState.FAILED, actor="person")
    assert await scene.state(work.run) is RunState.FAILED


async def test_a_lost_probe_is_tried_again(scene: Scene) -> None:
    [work] = await lost(scene)
    session, [probe] = await ask(scene)

    await scene.start(session, [probe])
    await scene.vanish(session)
    assert await scene.state(work.run) is RunState.UNKNOWN
    third, [again] = await ask(scene, "third")
    await answer(scene, third, again, 0)

    assert (again.run, again.attempt, again.probed) == (probe.run, 2, work.fence)
    assert await scene.state(work.run) is RunState.COMPLETED


async def test_a_worker_of_a_release_without_probes_gets_none(scene: Scene) -> None:
    await lost(scene)
    scene.advance(DELAY)
    await scene.release()

    # It would take the probe for the run itself, and do it a second time.
    assert await scene.claim(await scene.worker("old")) == []


async def test_a_person_may_be_quicker(scene: Scene) -> None:
    [work] = await lost(scene)
    session, [probe] = await ask(scene)

    await scene.store.resolve(RunId(work.run), RunState.FAILED, actor="person")
    await answer(scene, session, probe, 0)

    assert await scene.state(work.run) is RunState.FAILED


async def test_what_a_person_decided_needs_no_probe_any_more(scene: Scene) -> None:
    [work] = await lost(scene)

    await scene.store.resolve(RunId(work.run), RunState.FAILED, actor="person")
    await scene.store.settle_probes(100)

    assert await probes_in(scene) == [RunState.CANCELLED]


async def test_an_answer_about_an_earlier_attempt_counts_for_nothing(scene: Scene) -> None:
    [work] = await lost(scene)
    session, [probe] = await ask(scene)
    await scene.store.resolve(RunId(work.run), RunState.SCHEDULED, actor="person")
    await scene.release()
    [again] = await scene.claim(session)
    await scene.start(session, [again])
    await scene.store.lose(session, [again.fence])
    assert await scene.state(work.run) is RunState.UNKNOWN

    await answer(scene, session, probe, 0)

    assert await scene.state(work.run) is RunState.UNKNOWN
    assert await probes_in(scene) == [RunState.SCHEDULED, RunState.COMPLETED]


async def test_each_lost_attempt_is_asked_about_until_too_many_workers_are_lost(
    scene: Scene,
) -> None:
    [work] = await lost(scene, max_losses=1)
    session, [probe] = await ask(scene)
    await answer(scene, session, probe, 2)
    await scene.release()

    [again] = await scene.claim(session)
    await scene.start(session, [again])
    await scene.vanish(session)
    third, [second] = await ask(scene, "third")
    assert second.probed == Fence(work.run, 2)
    await answer(scene, third, second, 2)

    run = await scene.show(work.run)
    assert (run.state, run.cause) == (RunState.FAILED, "poison")


async def test_what_somebody_wanted_to_stop_is_not_begun_anew(scene: Scene) -> None:
    job = await scene.job(delivery=Delivery.AT_MOST_ONCE, probe=POLICY)
    [run] = await scene.trigger(job)
    worker = await scene.worker("first")
    await scene.start(worker, await scene.claim(worker))
    await scene.store.cancel([run], actor="user")
    await scene.vanish(worker)

    session, [probe] = await ask(scene)
    await answer(scene, session, probe, 2)

    found = await scene.show(run)
    assert (found.state, found.cause) == (RunState.FAILED, "cancelled")


async def test_gates_and_keys_of_the_job_do_not_hold_its_probe(scene: Scene) -> None:
    [work] = await lost(scene, max_concurrency=1, exclusive_by=("to",))
    job = (await scene.show(work.run)).job_id
    [waiting] = await scene.trigger(job, inputs={"to": "ada"})
    await scene.move("paused", job)

    session, [probe] = await ask(scene)
    assert (probe.probed, await scene.state(waiting)) == (work.fence, RunState.BLOCKED)
    await answer(scene, session, probe, 0)

    assert await scene.state(work.run) is RunState.COMPLETED


async def test_a_pause_lets_queued_probes_go_on(scene: Scene) -> None:
    [work] = await lost(scene)
    scene.advance(DELAY)
    await scene.release()

    await scene.move("paused", (await scene.show(work.run)).job_id)

    session = await scene.worker("second", offers=OFFERS)
    assert [probe.probed for probe in await scene.claim(session)] == [work.fence]


async def test_probes_count_as_no_runs_of_their_job(scene: Scene) -> None:
    [work] = await lost(scene)
    job = (await scene.show(work.run)).job_id
    session, [probe] = await ask(scene)
    scene.advance(timedelta(minutes=10))
    await answer(scene, session, probe, 0)

    counts = await scene.store.counts()
    assert list(counts.finished.values()) == [1]  # the run itself
    assert (await scene.show_job(job)).expected_seconds is None


async def test_nothing_is_learned_of_a_job_by_its_probes(scene: Scene) -> None:
    [work] = await lost(scene)
    job = await scene.show_job((await scene.show(work.run)).job_id)
    session, [probe] = await ask(scene)
    scene.advance(timedelta(minutes=10))
    await answer(scene, session, probe, 1)

    await scene.job("follower", after=(job.name,))
    assert await scene.store.latest_durations([job.id], 10) == {}
    assert len(await scene.store.start_delays(job.id, 10)) == 1  # that of the run itself
    assert (await scene.store.last_runs([job.id]))[job.id][0] == RunState.FAILED
    assert await scene.store.completions(10) == {}


async def test_an_item_is_asked_about_on_its_own_worker(scene: Scene, carts: CartScene) -> None:
    job = await scene.job(delivery=Delivery.AT_MOST_ONCE, probe=POLICY)
    first = await scene.worker("web-1", offers=OFFERS)
    await carts.advance(await carts.submit(job, PARALLEL, items=1, workers=["web-1"]))
    [work] = await scene.claim(first)
    await scene.start(first, [work])
    await scene.vanish(first)

    # Of another machine it would hear that nothing was done, and do it a second time.
    _, probes = await ask(scene, "web-0")
    assert probes == []
    again = await scene.worker("web-1", offers=OFFERS)
    await scene.store.release_fitting(100)
    await scene.release()
    assert [probe.probed for probe in await scene.claim(again)] == [work.fence]


async def test_runs_without_a_probe_wait_for_a_person(scene: Scene) -> None:
    [work] = await lost(scene, probe=None)

    assert (await scene.state(work.run), await probes_in(scene)) == (RunState.UNKNOWN, [])


async def test_many_are_asked_about_at_once(scene: Scene) -> None:
    works = await lost(scene, 40, max_concurrency=50)

    scene.advance(DELAY)
    await scene.release()
    session = await scene.worker("second", slots=100, offers=OFFERS)
    probes = await scene.claim(session)
    await scene.finish(session, probes, exit_code=0)
    await scene.store.settle_probes(100)

    assert {probe.probed for probe in probes} == {work.fence for work in works}
    assert set(await scene.states([work.run for work in works])) == {RunState.COMPLETED}

"""Single runs that wait: held, let go, moved to another line."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import JobId, RunId, SessionId, new_run_id
from rota.domain.run import AttemptResult
from rota.domain.spec import Overlap, Retry
from rota.domain.states import RunState
from rota.ports.carts import PauseCart, ResumeCart
from rota.ports.queue import Wakes
from rota.ports.records import RunQuery
from testkit.builders import MINUTE, Scene
from testkit.cart_scenes import PARALLEL, CartScene

pytestmark = pytest.mark.anyio


async def hold(scene: Scene, run: RunId) -> None:
    await scene.store.hold_run(run, actor="ann")


async def let_go(scene: Scene, run: RunId) -> None:
    await scene.store.let_go(run, actor="ben")
    await scene.release()


async def waiting_run(scene: Scene, state: RunState) -> RunId:
    job_id = await scene.job(max_concurrency=1)
    if state is RunState.SCHEDULED:
        return (await scene.trigger(job_id, at=scene.clock.instant + MINUTE))[0]
    runs = await scene.trigger(job_id, 2)
    return runs[0] if state is RunState.QUEUED else runs[1]


@pytest.mark.parametrize("state", [RunState.SCHEDULED, RunState.BLOCKED, RunState.QUEUED])
async def test_a_waiting_run_goes_nowhere_while_it_is_held(scene: Scene, state: RunState) -> None:
    run = await waiting_run(scene, state)
    worker = await scene.worker()

    await hold(scene, run)
    await hold(scene, run)
    scene.advance(2 * MINUTE)
    await scene.release()
    await scene.store.release_forgotten(100)
    claimed = [work.run for work in await scene.claim(worker)]

    held = await scene.show(run)
    assert run not in claimed
    assert held.state is RunState.BLOCKED
    assert [(r.gate, r.key, r.message) for r in held.reasons] == [
        ("hold", f"hold:{run}", "ann holds it")
    ]


async def test_a_held_run_leaves_its_slot_to_others(scene: Scene) -> None:
    job_id = await scene.job(max_concurrency=1)
    first, second = await scene.trigger(job_id, 2)

    await hold(scene, first)
    between = await scene.states([first, second])
    await let_go(scene, first)

    assert between == [RunState.BLOCKED, RunState.QUEUED]
    assert [reason.gate for reason in (await scene.show(first)).reasons] == ["max_concurrency"]


async def test_a_run_that_is_let_go_passes_every_gate_again(scene: Scene) -> None:
    job_id = await scene.job()
    [run] = await scene.trigger(job_id)
    await hold(scene, run)
    await scene.move("paused", job_id)
    held = await scene.show(run)

    await let_go(scene, run)
    paused = await scene.show(run)
    await scene.move("resumed", job_id)

    assert [reason.gate for reason in (*held.reasons, *paused.reasons)] == ["hold", "pause"]
    assert await scene.state(run) is RunState.QUEUED


async def test_a_run_that_is_let_go_before_its_time_waits_for_it(scene: Scene) -> None:
    run = await waiting_run(scene, RunState.SCHEDULED)
    await hold(scene, run)

    await let_go(scene, run)

    assert await scene.state(run) is RunState.SCHEDULED
    scene.advance(MINUTE)
    await scene.release()
    assert await scene.state(run) is RunState.QUEUED


async def test_a_hold_does_not_shorten_the_wait_for_the_next_attempt(
    scene: Scene, worker: SessionId
) -> None:
    [run] = await scene.trigger(await scene.job(retry=Retry(2, delay=MINUTE)))
    await scene.finish(worker, await scene.claim(worker), AttemptResult.FAILED)
    next_attempt_at = (await scene.show(run)).eligible_at
    await hold(scene, run)

    await let_go(scene, run)

    waiting = await scene.show(run)
    assert (waiting.state, waiting.eligible_at) == (RunState.SCHEDULED, next_attempt_at)


@pytest.mark.parametrize(
    ("overlap", "later"),
    [
        (Overlap.QUEUE_ALL, [RunState.BLOCKED, RunState.BLOCKED]),
        (Overlap.QUEUE_ONE, [RunState.SKIPPED, RunState.BLOCKED]),
        (Overlap.CANCEL_PREVIOUS, [RunState.SKIPPED, RunState.BLOCKED]),
        (Overlap.SKIP, [RunState.SKIPPED, RunState.SKIPPED]),
    ],
)
async def test_a_held_due_run_keeps_its_place_in_its_job(
    scene: Scene, overlap: Overlap, later: list[RunState]
) -> None:
    job_id = await scene.job(next_at=scene.clock.instant + MINUTE, overlap=overlap)
    first = await scene.scheduled_run(job_id)
    await hold(scene, first.id)

    others = [(await scene.scheduled_run(job_id)).id for _ in range(2)]
    await scene.store.release_forgotten(100)
    held, meanwhile = await scene.show(first.id), await scene.states(others)
    await let_go(scene, first.id)

    assert [reason.gate for reason in held.reasons] == ["hold"]
    assert meanwhile == later
    assert await scene.state(first.id) is RunState.QUEUED


async def test_the_hold_of_an_item_outlasts_the_pause_of_its_cart(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, PARALLEL, items=2)
    await carts.advance(cart)
    first, second = [run.id for run in await scene.store.runs(RunQuery(cart=cart))]
    await hold(scene, first)

    await carts.command(cart, PauseCart())
    await carts.command(cart, ResumeCart())
    await scene.release()
    resumed = await scene.states([first, second])
    await carts.command(cart, PauseCart())
    await let_go(scene, first)

    assert resumed == [RunState.BLOCKED, RunState.QUEUED]
    assert [reason.gate for reason in (await scene.show(first)).reasons] == ["cart"]


async def test_what_does_not_wait_cannot_be_steered(scene: Scene, worker: SessionId) -> None:
    [run] = await scene.trigger(await scene.job())
    works = await scene.claim(worker)

    for _ in ("live", "final"):
        for steer in (
            scene.store.hold_run(run, actor="ann"),
            scene.store.let_go(run, actor="ann"),
            scene.store.set_priority(run, 9, actor="ann"),
        ):
            with pytest.raises(Conflict) as refusal:
                await steer
            assert refusal.value.code == "run_not_waiting"
        await scene.finish(worker, works, AttemptResult.FAILED)


async def test_only_what_is_held_can_be_let_go(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())

    with pytest.raises(Conflict) as refusal:
        await scene.store.let_go(run, actor="ann")

    assert refusal.value.code == "run_not_held"


async def test_an_unknown_run_cannot_be_steered(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await scene.store.hold_run(new_run_id(scene.clock.instant), actor="ann")


async def test_a_higher_priority_moves_a_queued_run_to_the_front(
    scene: Scene, worker: SessionId, published: list[Wakes]
) -> None:
    runs = await scene.trigger(await scene.job(), 100)

    await scene.store.set_priority(runs[-1], 9, actor="ann")
    wakes = published[-1]
    [first] = await scene.claim(worker, 1)
    rest = await scene.claim(worker, 100)

    assert first.run == runs[-1]
    assert wakes.pools == {"default": (runs[-1],)}
    assert (await scene.show(runs[-1])).priority == 9
    assert [work.run for work in rest] == runs[:-1]


async def test_a_run_that_waits_elsewhere_comes_with_its_new_priority(
    scene: Scene, worker: SessionId
) -> None:
    run = await waiting_run(scene, RunState.SCHEDULED)
    await scene.store.set_priority(run, 9, actor="ann")
    scene.advance(MINUTE)
    others = await scene.trigger(await scene.job("other"), 3)

    await scene.release()
    [first] = await scene.claim(worker, 1)

    assert first.run == run
    assert {work.run for work in await scene.claim(worker)} == set(others)


async def test_what_people_do_to_a_run_is_recorded(scene: Scene) -> None:
    [run] = await scene.trigger(await scene.job())
    await hold(scene, run)
    await let_go(scene, run)
    await scene.store.set_priority(run, 7, actor="cleo")

    events = await scene.store.events(0, 100, ids=[run])

    steered = [(e.kind, e.actor, dict(e.data)) for e in events if e.actor in ("ann", "ben", "cleo")]
    assert steered == [
        ("run.held", "ann", {}),
        ("run.blocked", "ann", {}),
        ("run.let_go", "ben", {}),
        ("run.scheduled", "ben", {}),
        ("run.prioritised", "cleo", {"priority": 7, "before": 5}),
    ]


async def test_a_run_is_held_or_claimed_and_never_both(scene: Scene, worker: SessionId) -> None:
    runs = await scene.trigger(await scene.job(), 30)
    held: set[str] = set()

    async def try_to_hold(run: RunId) -> None:
        with suppress(Conflict):
            await hold(scene, run)
            held.add(run)

    claims = await asyncio.gather(
        *(scene.claim(worker, 5) for _ in range(4)), *(try_to_hold(run) for run in runs)
    )

    claimed = {work.run for works in claims if works for work in works}
    assert claimed
    assert held | claimed == set(runs)
    assert held.isdisjoint(claimed)

"""A run that lost workers again and again goes alone: no neighbour pays for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from rota.domain.carts.facts import CartState
from rota.domain.ids import RunId, SessionId
from rota.domain.resources import SLOTS, UNIT
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, Retry
from rota.domain.states import LEASED_STATES, RunState, is_final
from rota.ports.work import Fence, Work
from rota.store import claims
from testkit.builders import Scene
from testkit.cart_scenes import PARALLEL, CartScene

pytestmark = pytest.mark.anyio

SLOTS_OF_A_WORKER = 4


async def lose_together(scene: Scene, times: int) -> None:
    """All runs that wait lose their worker, so often."""
    for _ in range(times):
        await scene.release()
        worker = await scene.worker(slots=100)
        await scene.claim(worker)
        await scene.vanish(worker)


async def lone_run(scene: Scene, *, is_released: bool = True, **fields: Any) -> RunId:
    """A run that goes alone from now on; `fields` are those of its job."""
    [run] = await scene.trigger(await scene.job("lone", **fields))
    await lose_together(scene, 2)
    if is_released:
        await scene.release()
    return run


async def waiting_lone_run(scene: Scene) -> tuple[RunId, SessionId]:
    """A run that goes alone, and the worker that is kept free for it."""
    lone = await lone_run(scene, is_released=False)
    here = await scene.worker("here", slots=2)
    await scene.trigger(await scene.job("long"))
    await scene.claim(here)
    await scene.release()
    assert await scene.claim(here) == []
    return lone, here


def names(works: Sequence[Work]) -> list[str]:
    return [work.run for work in works]


@pytest.mark.parametrize(("max_losses", "attempts"), [(1, 2), (2, 3), (3, 4)])
async def test_a_poison_run_is_quarantined_and_no_neighbour_ever_is(
    scene: Scene, max_losses: int, attempts: int
) -> None:
    [poison] = await scene.trigger(await scene.job("poison", max_losses=max_losses))
    neighbours = await scene.trigger(await scene.job("fine", max_losses=max_losses), 6)
    crew = count()

    while await scene.state(poison) is not RunState.FAILED:
        worker = await scene.worker(f"worker {next(crew)}", slots=SLOTS_OF_A_WORKER)
        works = await scene.claim(worker, SLOTS_OF_A_WORKER)
        if poison in names(works):
            await scene.vanish(worker)
        else:
            await scene.finish(worker, works)
        await scene.release()

    run = await scene.show(poison)
    assert (run.cause, run.attempt) == ("poison", attempts)
    ends = [await scene.show(neighbour) for neighbour in neighbours]
    assert not [end for end in ends if end.state is RunState.FAILED]
    assert max(end.losses for end in ends) <= min(2, max_losses)


async def test_one_loss_is_forgiven(scene: Scene) -> None:
    runs = await scene.trigger(await scene.job(), SLOTS_OF_A_WORKER)
    await lose_together(scene, 1)
    await scene.release()

    worker = await scene.worker(slots=SLOTS_OF_A_WORKER)

    assert names(await scene.claim(worker)) == runs


class TestLoneRun:
    async def test_it_gets_a_worker_of_its_own(self, scene: Scene) -> None:
        lone = await lone_run(scene)
        small = await scene.trigger(await scene.job("small"), 2)
        here, there = await scene.worker("here", slots=2), await scene.worker("there", slots=2)

        first = await scene.claim(here)

        assert names(first) == [lone]
        assert (await scene.claim(here), names(await scene.claim(there))) == ([], small)
        [busy, _] = sorted(await scene.store.sessions(alive_only=True), key=lambda s: s.worker)
        assert (busy.held, busy.used[SLOTS]) == (1, 2 * UNIT)

    async def test_its_worker_is_as_before_when_it_has_ended(self, scene: Scene) -> None:
        await lone_run(scene)
        small = await scene.trigger(await scene.job("small"), 2)
        here = await scene.worker(slots=2)

        await scene.finish(here, await scene.claim(here))

        assert names(await scene.claim(here)) == small

    async def test_a_worker_with_one_slot_will_do(self, scene: Scene) -> None:
        lone = await lone_run(scene)

        assert names(await scene.claim(await scene.worker(slots=1))) == [lone]

    async def test_a_stream_of_small_runs_does_not_starve_it(self, scene: Scene) -> None:
        lone, stream = await lone_run(scene, is_released=False), await scene.job("stream")
        here = await scene.worker(slots=2)
        await scene.trigger(stream, 2)
        going = await scene.claim(here)
        await scene.release()
        await scene.trigger(stream, 20)

        given: list[str] = []
        for work in going:
            await scene.finish(here, [work])
            given += names(await scene.claim(here))

        assert given == [lone]

    async def test_it_is_charged_as_usual(self, scene: Scene) -> None:
        lone = await lone_run(scene)
        [usual] = await scene.trigger(await scene.job("usual"))
        await scene.worker(slots=SLOTS_OF_A_WORKER)

        places = [await scene.store.place_of(run) for run in (lone, usual)]

        assert len({place.cost for place in places if place is not None}) == 1

    async def test_two_of_them_go_one_after_the_other(self, scene: Scene) -> None:
        runs = await scene.trigger(await scene.job(), 2)
        await lose_together(scene, 2)
        await scene.release()
        here = await scene.worker(slots=2)

        first = await scene.claim(here)
        await scene.finish(here, first)

        assert names([*first, *await scene.claim(here)]) == runs

    async def test_it_stays_alone_when_it_fails_and_is_tried_again(self, scene: Scene) -> None:
        lone = await lone_run(scene, retry=Retry(attempts=2))
        here = await scene.worker(slots=2)

        await scene.finish(here, await scene.claim(here), AttemptResult.FAILED)
        await scene.release()
        await scene.trigger(await scene.job("small"))

        assert names(await scene.claim(here)) == [lone]
        assert await scene.claim(here) == []

    async def test_a_worker_that_comes_meanwhile_takes_it(self, scene: Scene) -> None:
        lone, here = await waiting_lone_run(scene)
        small = await scene.trigger(await scene.job("small"), 2)

        there = await scene.worker("there", slots=2)

        assert names(await scene.claim(there)) == [lone]
        assert names(await scene.claim(here)) == small[:1]

    @pytest.mark.parametrize("way", ["cancel", "hold_run"])
    async def test_nothing_is_kept_free_for_one_that_is_stopped(
        self, scene: Scene, way: str
    ) -> None:
        lone, here = await waiting_lone_run(scene)
        small = await scene.trigger(await scene.job("small"), 2)

        await getattr(scene.store, way)([lone] if way == "cancel" else lone, actor="ann")

        assert names(await scene.claim(here)) == small[:1]

    async def test_one_that_was_held_goes_alone_when_it_is_let_go(self, scene: Scene) -> None:
        lone = await lone_run(scene)
        await scene.store.hold_run(lone, actor="ann")
        await scene.store.let_go(lone, actor="ann")
        await scene.release()
        await scene.trigger(await scene.job("small"))

        assert names(await scene.claim(await scene.worker(slots=2))) == [lone]

    async def test_with_another_priority_it_is_alone_as_before(self, scene: Scene) -> None:
        lone = await lone_run(scene)
        small = await scene.trigger(await scene.job("small"))
        await scene.store.set_priority(lone, 0, actor="ann")
        here = await scene.worker(slots=2)

        first = await scene.claim(here)
        await scene.finish(here, first)

        assert (names(first), names(await scene.claim(here))) == (small, [lone])

    async def test_it_waits_for_its_key_and_is_alone_then(self, scene: Scene) -> None:
        host = {"exclusive_by": ("host",), "exclusive_defaults": {"host": "a"}}
        lone = await lone_run(scene, is_released=False, **host)
        here, there = await scene.worker("here", slots=2), await scene.worker("there", slots=2)
        await scene.trigger(await scene.job("other", **host))
        other = await scene.claim(there)
        await scene.release()
        small = await scene.trigger(await scene.job("small"), 3)

        beside = await scene.claim(here)
        await scene.finish(there, other)
        await scene.store.release_keys(100)
        freed = names(await scene.claim(here))
        await scene.finish(here, beside)

        assert (names(beside), freed) == (small[:2], [])
        assert names(await scene.claim(here)) == [lone]

    async def test_the_same_holds_for_an_item_of_a_cart(
        self, scene: Scene, carts: CartScene
    ) -> None:
        cart = await carts.submit(await scene.job("item"), PARALLEL, items=3)
        await carts.advance(cart)
        await lose_together(scene, 2)
        await scene.release()
        here = await scene.worker(slots=SLOTS_OF_A_WORKER)

        shown, flights = await carts.play(cart, here)

        assert (shown.state, [len(flight) for flight in flights]) == (CartState.COMPLETED, [1] * 3)


async def bring(scene: Scene, run: RunId, state: RunState) -> None:
    """A run that is SCHEDULED into this state."""
    if state is RunState.BLOCKED:
        await scene.store.hold_run(run, actor="ann")
    await scene.release()
    if state in (RunState.BLOCKED, RunState.QUEUED):
        return
    worker = await scene.worker()
    works = await scene.claim(worker)
    if state is not RunState.CLAIMED:
        await scene.start(worker, works)
    if state is RunState.UNKNOWN:
        await scene.vanish(worker)


async def queue_again(scene: Scene, run: RunId) -> None:
    """From any of these states."""
    found = await scene.show(run)
    if found.state is RunState.BLOCKED:
        await scene.store.let_go(run, actor="ann")
    if found.state is RunState.UNKNOWN:
        await scene.store.resolve(run, RunState.SCHEDULED, actor="ann")
    if found.state in LEASED_STATES:
        assert found.session is not None
        fence = Fence(run, found.attempt)
        await scene.finish(found.session, [fence], AttemptResult.INTERRUPTED)
    await scene.release()


class TestForgetting:
    async def test_when_the_last_of_them_has_ended_claims_go_the_short_way_again(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await lone_run(scene)
        here = await scene.worker()
        await scene.finish(here, await scene.claim(here))
        small = await scene.trigger(await scene.job("small"), 2)

        await scene.store.forget_sessions(10)
        monkeypatch.delattr(claims, "place")

        assert names(await scene.claim(here)) == small

    @pytest.mark.parametrize("state", [state for state in RunState if not is_final(state)])
    async def test_until_then_it_stays_alone(self, scene: Scene, state: RunState) -> None:
        delivery = Delivery.AT_MOST_ONCE if state is RunState.UNKNOWN else Delivery.AT_LEAST_ONCE
        lone = await lone_run(scene, is_released=False, delivery=delivery)
        if state is not RunState.SCHEDULED:
            await bring(scene, lone, state)
        assert await scene.state(lone) is state

        await scene.store.forget_sessions(10)
        await queue_again(scene, lone)
        await scene.trigger(await scene.job("small"))

        assert names(await scene.claim(await scene.worker("next", slots=2))) == [lone]

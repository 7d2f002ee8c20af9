"""What a stopped cart has done is undone by a cart of its own, the last wave first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from rota.domain.carts.definition import Order, Share
from rota.domain.carts.facts import FAILED_ITEM_STATES, CartState, ItemState
from rota.domain.errors import Conflict, Invalid
from rota.operations import carts as operations
from rota.operations.cart_changes import plan_rollback, rollback
from rota.operations.cart_templates import TemplateRequest, submit_template
from rota.operations.carts import CartPlan, command, find_cart
from rota.ports.carts import (
    CancelCart,
    Cart,
    CartQuery,
    Item,
    ItemQuery,
    PauseCart,
    ResumeCart,
    RetryItems,
    Selection,
)
from testkit.cart_scenes import CartScene
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

INPUTS = {"host": {"type": "string", "default": ""}, "fast": {"type": "boolean", "default": True}}


CONTINUE = {"allow": 0, "then": "continue"}


@pytest.fixture
def carts(timeline: Timeline) -> CartScene:
    return CartScene(timeline.scene)


async def submitted(timeline: Timeline, **fields: Any) -> Cart:
    """A cart of four items in waves of 1, 2 and the rest, whose rollback knows only the host."""
    jobs = [
        {"name": "upgrade", "steps": [{"run": "true"}], "inputs": INPUTS},
        {"name": "undo", "steps": [{"run": "true"}], "inputs": {"host": INPUTS["host"]}},
    ]
    cart = {
        "name": "rollout",
        "job": "upgrade",
        "rollback": "undo",
        "order": "groups",
        "group_size": [1, 2],
        "items": [{"key": f"db-{n}", "with": {"host": f"10.0.0.{n}"}} for n in range(4)],
        **fields,
    }
    await timeline.apply_file({"jobs": jobs, "carts": [cart]})
    return await submit_template(timeline.engine, TemplateRequest("rollout"), actor="ann")


async def breached(timeline: Timeline, carts: CartScene, **fields: Any) -> Cart:
    """One that was stopped in its second wave: db-1 failed, db-2 did not."""
    cart = await submitted(timeline, **fields)
    await _work(timeline, carts, cart)
    await _work(timeline, carts, cart, failing=["db-1"])
    await carts.advance(cart.id)
    return await find_cart(timeline.engine, cart.id)


async def _work(
    timeline: Timeline, carts: CartScene, cart: Cart, failing: Collection[str] = ()
) -> None:
    await carts.advance(cart.id)
    await carts.work(cart.id, timeline.session, failing=list(failing))


async def items_of(timeline: Timeline, cart: Cart) -> list[Item]:
    return await timeline.store.items(ItemQuery(cart.id))


async def test_items_that_were_started_are_undone_the_last_wave_first(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await breached(timeline, carts)

    undoing = await rollback(timeline.engine, cart, actor="bea")

    assert (undoing.name, undoing.created_by) == ("rollout-rollback", "bea")
    items = await items_of(timeline, undoing)
    assert {item.key: item.wave for item in items} == {"db-0": 2, "db-1": 1, "db-2": 1}
    assert {item.job for item in items} == {"undo"}


async def test_it_takes_the_inputs_of_before_that_its_job_knows(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await breached(timeline, carts)

    undoing = await rollback(timeline.engine, cart, actor="bea")

    [first, *_] = await items_of(timeline, undoing)
    assert first.inputs == {"host": "10.0.0.0"}


async def test_it_undoes_each_item_on_the_worker_that_it_is_for(
    timeline: Timeline, carts: CartScene
) -> None:
    needs = {"worker": "worker"}  # the one of the scene
    items = [{"key": f"db-{n}", "needs": needs} for n in range(4)]
    cart = await breached(timeline, carts, items=items)

    undoing = await rollback(timeline.engine, cart, actor="bea")

    assert [item.needs for item in await items_of(timeline, undoing)] == [needs] * 3


async def test_its_gates_are_left_out_and_a_breach_pauses_it(
    timeline: Timeline, carts: CartScene
) -> None:
    between = {"wait": "0s", "approve": "operator"}
    failures = {"allow": 0, "then": "cancel"}
    cart = await submitted(timeline, between=between, failures=failures, max_parallel=3)
    await _work(timeline, carts, cart, failing=["db-0"])
    await carts.advance(cart.id)
    cart = await find_cart(timeline.engine, cart.id)
    assert cart.state is CartState.FAILED

    rules = (await rollback(timeline.engine, cart, actor="bea")).rules

    assert (rules.order, rules.max_parallel) == (Order.EXPLICIT, 3)
    assert (rules.between.approve, rules.failures.then) == ("", "pause")


async def test_a_paused_cart_is_cancelled_so_that_nobody_resumes_it(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await breached(timeline, carts)
    assert cart.state is CartState.PAUSED

    await rollback(timeline.engine, cart, actor="bea")

    assert (await carts.advance(cart.id)).state is CartState.CANCELLED


async def test_a_cancelled_cart_can_be_rolled_back(timeline: Timeline, carts: CartScene) -> None:
    cart = await submitted(timeline)
    await _work(timeline, carts, cart)
    await command(timeline.engine, cart, CancelCart(), actor="ann")
    ended = await carts.advance(cart.id)

    undoing = await rollback(timeline.engine, ended, actor="bea")

    assert [item.key for item in await items_of(timeline, undoing)] == ["db-0"]


async def test_what_ran_and_was_then_skipped_is_undone(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await breached(timeline, carts)
    again = Selection(FAILED_ITEM_STATES)
    await command(timeline.engine, cart, RetryItems(again), actor="ann")
    await command(timeline.engine, cart, CancelCart(), actor="ann")
    ended = await carts.advance(cart.id)
    assert ItemState.SKIPPED in await carts.states(cart.id)

    undoing = await rollback(timeline.engine, ended, actor="bea")

    assert {item.key for item in await items_of(timeline, undoing)} == {"db-0", "db-1", "db-2"}


async def test_what_was_called_off_before_a_worker_had_it_is_not_undone(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await submitted(timeline)
    await _work(timeline, carts, cart)
    await carts.advance(cart.id)
    await command(timeline.engine, cart, CancelCart(), actor="ann")
    ended = await carts.advance(cart.id)

    undoing = await rollback(timeline.engine, ended, actor="bea")

    assert [item.key for item in await items_of(timeline, undoing)] == ["db-0"]


async def test_a_cart_that_was_resumed_meanwhile_is_not_undone(
    timeline: Timeline, carts: CartScene
) -> None:
    seen = await breached(timeline, carts)
    await command(timeline.engine, seen, ResumeCart(Share(5)), actor="ann")

    assert await refusal(timeline, seen) == "cart_not_stopped"
    assert [cart.id for cart in await timeline.store.carts(CartQuery())] == [seen.id]


async def test_a_cart_that_is_resumed_while_its_undoing_is_planned_goes_on(
    timeline: Timeline, carts: CartScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = await breached(timeline, carts)
    plan = operations.plan

    async def resumed_meanwhile(*args: Any) -> CartPlan:
        await command(timeline.engine, seen, ResumeCart(Share(5)), actor="ann")
        return await plan(*args)

    monkeypatch.setattr(operations, "plan", resumed_meanwhile)

    assert await refusal(timeline, seen) == "changed_meanwhile"
    assert (await carts.show(seen.id)).state is CartState.RUNNING


async def test_what_was_undone_is_not_undone_again(timeline: Timeline, carts: CartScene) -> None:
    cart = await breached(timeline, carts)
    undoing = await rollback(timeline.engine, cart, actor="bea")

    with pytest.raises(Conflict) as live:
        await rollback(timeline.engine, cart, actor="bob")
    await carts.play(undoing.id, timeline.session)
    with pytest.raises(Conflict) as over:
        await plan_rollback(timeline.engine, await carts.show(cart.id))

    assert live.value.code == over.value.code == "already_rolled_back"
    assert live.value.hint == f"rota cart watch {undoing.id}"
    assert over.value.hint.endswith(f"rota cart retry {undoing.id} --from-wave 1")


async def test_what_was_done_again_is_undone_again(timeline: Timeline, carts: CartScene) -> None:
    cart = await breached(timeline, carts)
    undoing = await rollback(timeline.engine, cart, actor="bea")
    await carts.play(undoing.id, timeline.session)
    await carts.advance(cart.id)
    again = Selection(FAILED_ITEM_STATES)
    await command(timeline.engine, cart, RetryItems(again), actor="ann")
    await carts.play(cart.id, timeline.session, failing=["db-1"])
    await command(timeline.engine, cart, CancelCart(), actor="ann")
    ended = await carts.advance(cart.id)

    second = await rollback(timeline.engine, ended, actor="bea")

    assert second.id != undoing.id


@pytest.mark.parametrize("failures", [CONTINUE, CONTINUE | {"of": "wave"}])
async def test_a_breach_that_the_cart_outlived_can_be_rolled_back(
    timeline: Timeline, carts: CartScene, failures: dict[str, Any]
) -> None:
    cart = await submitted(timeline, failures=failures)
    ended, _ = await carts.play(cart.id, timeline.session, failing=["db-1"])
    assert ended.state is CartState.PARTIAL

    undoing = await rollback(timeline.engine, ended, actor="bea")

    assert undoing.items == cart.items


async def test_a_plan_changes_nothing(timeline: Timeline, carts: CartScene) -> None:
    cart = await breached(timeline, carts)

    planned = await plan_rollback(timeline.engine, cart)

    assert (planned.items, planned.waves) == (3, "2, 1")
    assert len(await timeline.store.carts(CartQuery())) == 1
    assert (await carts.show(cart.id)).state is CartState.PAUSED


async def refusal(timeline: Timeline, cart: Cart) -> str:
    with pytest.raises(Conflict) as refused:
        await rollback(timeline.engine, cart, actor="bea")
    return refused.value.code


async def test_a_cart_without_a_rollback_job_is_refused(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await breached(timeline, carts, rollback=None)

    assert await refusal(timeline, cart) == "no_rollback"


async def test_a_cart_that_goes_on_is_refused(timeline: Timeline) -> None:
    assert await refusal(timeline, await submitted(timeline)) == "cart_not_stopped"


async def test_a_cart_that_ended_well_is_refused(timeline: Timeline, carts: CartScene) -> None:
    cart = await submitted(timeline)
    ended, _ = await carts.play(cart.id, timeline.session)

    with pytest.raises(Conflict) as refused:
        await rollback(timeline.engine, ended, actor="bea")

    assert refused.value.code == "cart_not_stopped"
    assert refused.value.hint == "submit a cart of the job undo"


async def test_a_cart_that_could_not_be_undone_is_not_begun(timeline: Timeline) -> None:
    undo = {"name": "erase", "steps": [{"run": "true"}], "inputs": {"reason": {"type": "string"}}}
    await timeline.apply_file({"jobs": [undo]})

    with pytest.raises(Invalid) as refused:
        await submitted(timeline, rollback="erase")

    [problem] = refused.value.problems
    assert problem.message.startswith('rollback job erase: input "reason" must be given')
    assert not await timeline.store.carts(CartQuery())


async def test_a_cart_that_somebody_paused_is_refused(timeline: Timeline, carts: CartScene) -> None:
    cart = await submitted(timeline)
    await carts.advance(cart.id)
    done = await command(timeline.engine, cart, PauseCart(), actor="ann")

    assert await refusal(timeline, done.cart) == "cart_not_stopped"


async def test_what_is_still_running_is_waited_for(timeline: Timeline, carts: CartScene) -> None:
    cart = await submitted(timeline)
    await _work(timeline, carts, cart)
    await carts.advance(cart.id)
    works = await timeline.start_runs()
    await timeline.scene.finish(timeline.session, works[:1], "FAILED")
    paused = await carts.show(cart.id)
    assert (paused.state, paused.open) == (CartState.PAUSED, 1)

    assert await refusal(timeline, paused) == "cart_is_running"


async def test_what_no_worker_had_is_called_off(timeline: Timeline, carts: CartScene) -> None:
    cart = await submitted(timeline)
    await _work(timeline, carts, cart)
    await carts.advance(cart.id)
    await carts.work(cart.id, timeline.session, failing=["db-1"], most=1)
    paused = await carts.show(cart.id)
    assert (paused.state, paused.open) == (CartState.PAUSED, 1)

    undoing = await rollback(timeline.engine, paused, actor="bea")

    assert {item.key for item in await items_of(timeline, undoing)} == {"db-0", "db-1"}
    assert (await carts.advance(cart.id)).state is CartState.CANCELLED


async def test_a_cart_of_which_nothing_started_is_refused(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await submitted(timeline)
    await command(timeline.engine, cart, CancelCart(), actor="ann")

    ended = await carts.advance(cart.id)

    assert await refusal(timeline, ended) == "nothing_to_roll_back"

"""What people ask of a cart that is under way."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.carts.commands import Approver
from rota.domain.carts.facts import FAILED_ITEM_STATES
from rota.domain.errors import Conflict, Invalid
from rota.operations import cart_changes
from rota.operations.cart_changes import CartChange
from rota.operations.cart_templates import TemplateRequest, submit_template
from rota.ports.carts import Cart, Selection
from testkit.cart_scenes import CartScene
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

ANN = Approver("ann", {"operator"})
TEXT = {"type": "string"}
FAILED = Selection(FAILED_ITEM_STATES)


@pytest.fixture
def carts(timeline: Timeline) -> CartScene:
    return CartScene(timeline.scene)


async def apply_job(timeline: Timeline, **inputs: Any) -> int:
    """A version of the job of all carts here."""
    await timeline.apply(None, name="upgrade", inputs=inputs)
    return (await timeline.job("upgrade")).version


async def submitted(timeline: Timeline, **fields: Any) -> Cart:
    items = [{"key": f"db-{n}", "with": {"host": f"10.0.0.{n}"}} for n in range(3)]
    cart = {"name": "rollout", "job": "upgrade", "items": items, **fields}
    await timeline.apply_file({"carts": [cart]})
    return await submit_template(timeline.engine, TemplateRequest("rollout"), actor="ann")


async def failed(timeline: Timeline, carts: CartScene) -> Cart:
    """A cart of which every item failed."""
    await apply_job(timeline, host=TEXT)
    cart = await submitted(timeline, order="parallel", failures={"allow": 3})
    shown, _ = await carts.play(cart.id, timeline.session, ["db-0", "db-1", "db-2"])
    return shown


async def versions(carts: CartScene, cart: Cart) -> set[int]:
    return {item.job_version for item in await carts.items(cart.id)}


async def test_a_check_that_is_not_there_is_refused(timeline: Timeline) -> None:
    await apply_job(timeline, host=TEXT)
    cart = await submitted(timeline)
    change = CartChange(between={"check": "nothing"})

    with pytest.raises(Invalid) as refusal:
        await cart_changes.edit(timeline.engine, cart, change, by=ANN)

    assert [problem.path for problem in refusal.value.problems] == ["between.check"]


async def test_a_check_that_is_there_is_taken(timeline: Timeline) -> None:
    await apply_job(timeline, host=TEXT)
    await timeline.apply(None, name="smoke")
    cart = await submitted(timeline)
    change = CartChange(between={"check": "smoke"})

    done = await cart_changes.edit(timeline.engine, cart, change, by=ANN)

    assert done.cart.rules.between.check == "smoke"


@pytest.mark.parametrize(
    "inputs",
    [
        {"host": TEXT},
        {"host": TEXT, "port": {"type": "integer", "default": 5432}},
        {"host": {**TEXT, "default": "localhost"}},
    ],
)
async def test_a_retry_takes_the_job_of_now_where_the_inputs_fit(
    timeline: Timeline, carts: CartScene, inputs: dict[str, Any]
) -> None:
    cart = await failed(timeline, carts)
    await timeline.apply(None, name="upgrade", inputs=inputs, description="mended")
    current = (await timeline.job("upgrade")).version
    assert await versions(carts, cart) == {current - 1}

    done = await cart_changes.retry(timeline.engine, cart, FAILED, actor="ann")

    assert done.items == 3
    assert await versions(carts, cart) == {current}


@pytest.mark.parametrize("inputs", [{}, {"host": TEXT, "port": TEXT}, {"host": {"type": "number"}}])
async def test_a_retry_is_refused_where_the_inputs_do_not_fit_any_more(
    timeline: Timeline, carts: CartScene, inputs: dict[str, Any]
) -> None:
    cart = await failed(timeline, carts)
    before = await versions(carts, cart)
    await apply_job(timeline, **inputs)

    with pytest.raises(Conflict) as refusal:
        await cart_changes.retry(timeline.engine, cart, FAILED, actor="ann")

    assert refusal.value.code == "inputs_changed"
    assert refusal.value.facts == {"job": "upgrade", "items": ["db-0", "db-1", "db-2"]}
    assert await versions(carts, cart) == before


async def test_items_that_are_not_meant_need_not_fit(timeline: Timeline, carts: CartScene) -> None:
    cart = await failed(timeline, carts)
    await apply_job(timeline, host={"type": "string", "default": "x"}, port=TEXT)
    selection = Selection(FAILED_ITEM_STATES, from_wave=99)

    with pytest.raises(Conflict) as refusal:
        await cart_changes.retry(timeline.engine, cart, selection, actor="ann")

    assert refusal.value.code == "nothing_to_retry"


async def test_a_cause_is_known_however_many_others_there_are(
    timeline: Timeline, carts: CartScene
) -> None:
    await apply_job(timeline, host=TEXT)
    items = [{"key": f"db-{n}", "with": {"host": "x"}} for n in range(14)]
    cart = await submitted(timeline, order="parallel", failures={"allow": 14}, items=items)
    await carts.advance(cart.id)
    works = await timeline.start_runs()
    for number, work in enumerate(works):
        message = f"fault {'x' * max(1, number - 1)}"  # the last ones are each the only one
        await timeline.scene.finish(timeline.session, [work], "FAILED", message=message)
    shown = await carts.advance(cart.id)

    rare = Selection(FAILED_ITEM_STATES, cause="x" * 12)
    done = await cart_changes.retry(timeline.engine, shown, rare, actor="ann")

    assert done.items == 1

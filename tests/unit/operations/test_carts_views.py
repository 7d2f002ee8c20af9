"""A cart as a person looks at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.domain.carts.definition import CartRules, Order, Scope
from rota.domain.carts.facts import CartState
from rota.domain.carts.intake import NewItem
from rota.domain.ids import CartId, new_cart_id
from rota.domain.spec import Delivery
from rota.operations import cart_templates
from rota.operations.cart_templates import TemplateRequest
from rota.operations.carts import WAVES_LOOKED_AT, CartView, view
from rota.ports.carts import NewCart
from testkit.cart_scenes import CartScene, allowing
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

WAVES = (1, 1, 1, 2, 2, 2)
OPENS = datetime(2030, 2, 1, tzinfo=UTC)


@pytest.fixture
def carts(timeline: Timeline) -> CartScene:
    return CartScene(timeline.scene)


async def look(timeline: Timeline, carts: CartScene, cart: CartId) -> CartView:
    return await view(timeline.engine, await carts.show(cart))


async def test_failures_are_those_of_the_wave_where_these_count(
    timeline: Timeline, carts: CartScene
) -> None:
    rules = CartRules(Order.EXPLICIT, failures=allowing(1, scope=Scope.WAVE))
    cart = await carts.submit(await timeline.scene.job(), rules, waves=WAVES)

    await carts.play(cart, timeline.session, ["item-0", "item-3", "item-4"])

    shown = await look(timeline, carts, cart)
    assert shown.cart.failed == 3
    assert (shown.failures, shown.limit, shown.is_breached) == (2, 1, True)


@pytest.mark.parametrize(("between", "is_known"), [({}, True), ({"approve": "admin"}, False)])
async def test_nobody_knows_how_long_an_approval_takes(
    timeline: Timeline, between: dict[str, str], is_known: bool
) -> None:
    job = {"name": "upgrade", "steps": [{"run": "true"}], "expect": "10m"}
    items = [{"key": f"db-{n}"} for n in range(4)]
    cart = {"name": "rollout", "job": "upgrade", "items": items, "between": between}
    await timeline.apply_file({"jobs": [job], "carts": [cart]})

    made = await cart_templates.submit_template(
        timeline.engine, TemplateRequest("rollout"), actor="ann"
    )

    assert ((await view(timeline.engine, made)).eta is not None) is is_known


async def test_an_end_that_nobody_knows_counts_as_a_failure(
    timeline: Timeline, carts: CartScene
) -> None:
    job = await timeline.scene.job(delivery=Delivery.AT_MOST_ONCE)
    rules = CartRules(Order.PARALLEL, failures=allowing(0))
    cart = await carts.submit(job, rules, items=2)
    await carts.advance(cart)
    worker = await timeline.scene.worker()
    await timeline.scene.start(worker, await timeline.scene.claim(worker, 1))
    await timeline.scene.vanish(worker)

    shown = await look(timeline, carts, cart)

    assert shown.cart.failed == 0
    assert (shown.failures, shown.is_breached) == (1, True)


async def test_a_plan_and_a_look_foresee_the_same(timeline: Timeline) -> None:
    job = {"name": "upgrade", "steps": [{"run": "true"}], "expect": "10m"}
    items = [{"key": f"db-{n}"} for n in range(4)]
    between = {"wait": "5m"}
    cart = {"name": "rollout", "job": "upgrade", "items": items, "between": between}
    await timeline.apply_file({"jobs": [job], "carts": [cart]})
    request = TemplateRequest("rollout")

    planned = await cart_templates.plan_template(timeline.engine, request)
    made = await cart_templates.submit_template(timeline.engine, request, actor="ann")

    shown = await view(timeline.engine, made)
    assert planned.eta == timedelta(minutes=55)
    assert shown.eta == timeline.ticker.instant + timedelta(minutes=55)


async def test_an_end_is_foreseen_from_when_it_goes_on(
    timeline: Timeline, carts: CartScene
) -> None:
    job = {"name": "upgrade", "steps": [{"run": "true"}], "expect": "10m"}
    freeze = {"name": "freeze", "windows": ["2030-01-01T00:00/2030-02-01T00:00"]}
    rules: dict[str, Any] = {"calendars": ["freeze"], "between": {"wait": "5m"}}
    cart = {"name": "rollout", "job": "upgrade", "items": [{"key": "a"}, {"key": "b"}], **rules}
    await timeline.apply_file({"jobs": [job], "calendars": [freeze], "carts": [cart]})
    request = TemplateRequest("rollout")
    made = await cart_templates.submit_template(timeline.engine, request, actor="ann")

    await carts.advance(made.id, closed_until=OPENS)
    closed = await look(timeline, carts, made.id)
    await carts.advance(made.id)
    await carts.play(made.id, timeline.session)
    soaking = await look(timeline, carts, made.id)

    assert (closed.cart.reason, soaking.cart.reason) == ("window", "soak")
    assert closed.eta == OPENS + timedelta(minutes=25)
    assert soaking.eta is not None
    assert soaking.eta >= timeline.ticker.instant + timedelta(minutes=5)


async def test_a_soak_names_nobody_who_has_to_approve(timeline: Timeline, carts: CartScene) -> None:
    between: dict[str, Any] = {"wait": "1h", "approve": "admin"}
    items = [{"key": f"db-{n}"} for n in range(2)]
    await timeline.apply(None)
    cart = {"name": "rollout", "job": "job", "items": items, "between": between}
    await timeline.apply_file({"carts": [cart]})
    made = await cart_templates.submit_template(
        timeline.engine, TemplateRequest("rollout"), actor="ann"
    )
    await carts.play(made.id, timeline.session)

    soaking = (await look(timeline, carts, made.id)).gate
    timeline.be_down(timedelta(hours=1))
    await carts.advance(made.id)
    waiting = (await look(timeline, carts, made.id)).gate

    assert soaking is not None
    assert waiting is not None
    assert (soaking.waits_for, soaking.approve_role) == ("soak", None)
    assert (waiting.waits_for, waiting.approve_role) == ("approval", "admin")


async def test_a_look_at_a_cart_of_very_many_waves_reads_few_of_them(
    timeline: Timeline, carts: CartScene
) -> None:
    cart = await _serial(timeline, 100_000)

    shown = await look(timeline, carts, cart)

    assert shown.cart.state is CartState.PLANNED
    assert (shown.overview.waves, len(shown.overview.left)) == (100_000, WAVES_LOOKED_AT)
    waves = await timeline.store.waves(cart, 41, 3)
    assert [wave.number for wave in waves] == [42, 43, 44]


async def _serial(timeline: Timeline, count: int) -> CartId:
    job = await timeline.scene.job()
    version = (await timeline.scene.show_job(job)).version
    cart = new_cart_id()
    store = timeline.store
    await store.create_cart(NewCart(cart, "default", "rollout", CartRules(), count, "ann", {}))
    items = [NewItem(f"item-{n}", n + 1, job, version, None) for n in range(count)]
    await store.add_items(cart, 0, items)
    await store.submit_cart(cart)
    return cart

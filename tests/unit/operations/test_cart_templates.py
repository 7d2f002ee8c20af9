"""Templates submitted by people: their items as they are now, and what is given with them."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.carts.facts import CartState
from rota.domain.errors import Conflict, Invalid, NotFound
from rota.operations.calendars import delete_calendar
from rota.operations.cart_templates import (
    TemplateRequest,
    delete_template,
    find_template,
    plan_template,
    submit_template,
)
from rota.ports.carts import Cart, CartQuery, ItemQuery
from testkit.builders import hello, new_calendar
from tests.unit.server.scheduler.timeline import EVER, Timeline

pytestmark = pytest.mark.anyio

ITEMS = [{"key": "db-1", "with": {"version": 15}}, {"key": "db-2"}]


async def apply(timeline: Timeline, *, inputs: Any = None, **fields: Any) -> None:
    """A cart `rollout`, and its job."""
    job = {
        "name": "upgrade",
        "steps": [{"run": "true"}],
        "inputs": inputs or {"version": {"type": "integer", "default": 16}},
    }
    cart = {"name": "rollout", "job": "upgrade", "items": ITEMS, **fields}
    await timeline.apply_file({"jobs": [job], "carts": [cart]})


async def submit(timeline: Timeline, **fields: Any) -> Cart:
    request = TemplateRequest("rollout", **fields)
    return await submit_template(timeline.engine, request, actor="ann")


async def inputs_of(timeline: Timeline, cart: Cart) -> dict[str, Any]:
    items = await timeline.store.items(ItemQuery(cart.id))
    return {item.key: dict(item.inputs or {}) for item in items}


async def worker(timeline: Timeline, name: str, **labels: str) -> None:
    await timeline.store.register(hello(name, labels=labels), EVER)


async def test_a_template_becomes_a_cart(timeline: Timeline) -> None:
    await apply(timeline, description="all of them", rollback="upgrade")

    cart = await submit(timeline)

    assert (cart.name, cart.state, cart.created_by) == ("rollout", CartState.PLANNED, "ann")
    assert (cart.document["rollback"], cart.document["description"]) == ("upgrade", "all of them")
    assert await inputs_of(timeline, cart) == {"db-1": {"version": 15}, "db-2": {"version": 16}}


async def test_what_is_given_goes_before_what_is_written(timeline: Timeline) -> None:
    await apply(timeline)

    cart = await submit(timeline, inputs={"version": "17"})

    assert await inputs_of(timeline, cart) == {"db-1": {"version": 17}, "db-2": {"version": 17}}


async def test_a_calendar_that_keeps_it_closed_is_not_deleted(timeline: Timeline) -> None:
    await timeline.store.save_calendars([new_calendar("nights")], actor="ann")
    await apply(timeline, calendars=["nights"])
    [calendar] = await timeline.store.calendars("default")

    with pytest.raises(Conflict) as refusal:
        await delete_calendar(timeline.engine, calendar, actor="ann")
    assert refusal.value.code == "calendar_in_use"


async def test_the_same_key_gives_the_same_cart(timeline: Timeline) -> None:
    await apply(timeline)

    first, second = [await submit(timeline, idempotency_key="once") for _ in range(2)]

    assert first.id == second.id


async def test_only_one_of_a_template_is_live(timeline: Timeline) -> None:
    await apply(timeline)
    await submit(timeline)

    with pytest.raises(Conflict) as refused:
        await submit(timeline)

    assert refused.value.code == "cart_is_live"


async def test_a_plan_stores_nothing(timeline: Timeline) -> None:
    await apply(timeline)

    planned = await plan_template(timeline.engine, TemplateRequest("rollout"))

    assert (planned.items, planned.wave_count) == (2, 2)
    assert await timeline.store.carts(CartQuery()) == []


async def test_items_from_workers_are_the_live_ones_with_these_labels(timeline: Timeline) -> None:
    takes_worker = {"worker": {"type": "string", "default": ""}}
    workers = {"workers": {"site": "fra"}}
    await apply(timeline, inputs=takes_worker, items=None, items_from=workers)
    await worker(timeline, "fra-2", site="fra", disk="ssd")
    await worker(timeline, "fra-1", site="fra")
    await worker(timeline, "ams-1", site="ams")

    cart = await submit(timeline)

    expected = {"fra-1": {"worker": "fra-1"}, "fra-2": {"worker": "fra-2"}}
    items = await timeline.store.items(ItemQuery(cart.id))
    assert await inputs_of(timeline, cart) == expected
    assert {item.key: item.needs for item in items} == expected


async def test_workers_of_other_pools_are_no_items(timeline: Timeline) -> None:
    await apply(timeline, items=None, items_from={"workers": {}})
    await worker(timeline, "fra-1")
    await timeline.store.register(hello("gpu-1", pool="gpu"), EVER)

    cart = await submit(timeline)

    assert [*await inputs_of(timeline, cart)] == ["fra-1", "worker"]  # which is always there


async def test_one_worker_may_be_chosen_by_its_name(timeline: Timeline) -> None:
    await apply(timeline, items=None, items_from={"workers": {"worker": "fra-1"}})
    for name in "fra-1", "fra-2":
        await worker(timeline, name)

    cart = await submit(timeline)

    assert [*await inputs_of(timeline, cart)] == ["fra-1"]


async def test_a_plan_tells_items_that_nobody_can_run(timeline: Timeline) -> None:
    items = [
        {"key": "a", "needs": {"worker": "fra-1"}},
        {"key": "b", "needs": {"worker": "fra-7"}},
        {"key": "c", "needs": {"disk": "tape"}},
        {"key": "d", "needs": {"disk": "tape"}},
    ]
    await apply(timeline, items=items)
    await worker(timeline, "fra-1", disk="ssd")

    planned = await plan_template(timeline.engine, TemplateRequest("rollout"))

    assert planned.unrunnable == [
        "b: no live worker of pool default can run it (needs worker=fra-7)",
        "c and 1 more: no live worker of pool default can run it (needs disk=tape)",
    ]


async def test_a_job_without_the_input_is_not_told_the_worker(timeline: Timeline) -> None:
    await apply(timeline, items=None, items_from={"workers": {"site": "fra"}})
    await worker(timeline, "fra-1", site="fra")

    cart = await submit(timeline)

    assert await inputs_of(timeline, cart) == {"fra-1": {"version": 16}}


async def test_without_such_workers_it_is_refused(timeline: Timeline) -> None:
    await apply(timeline, items=None, items_from={"workers": {"site": "fra"}})

    with pytest.raises(Invalid, match="no live worker with site=fra"):
        await submit(timeline)


async def test_a_deleted_template_leaves_its_carts(timeline: Timeline) -> None:
    await apply(timeline)
    cart = await submit(timeline)

    template = await find_template(timeline.engine, "rollout")
    await delete_template(timeline.engine, template, actor="ann")

    with pytest.raises(NotFound) as refused:
        await submit(timeline)
    assert refused.value.code == "template_not_found"
    assert [each.id for each in await timeline.store.carts(CartQuery())] == [cart.id]

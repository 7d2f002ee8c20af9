"""Carts that people hand in, and how they are found again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from rota.domain.carts.definition import CartItem
from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.jobfile import read_cart
from rota.operations import carts, runs
from rota.ports.carts import Cart, CartQuery
from testkit.cart_scenes import CartScene
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

ITEM = CartItem("db-1")


def request(count: int = 1, **fields: Any) -> carts.CartRequest:
    document = {"name": "rollout", "job": "job", "items": [{"key": "some"}], **fields}
    return carts.CartRequest(read_cart(document), count)


async def each(*items: CartItem) -> AsyncIterator[CartItem]:
    for item in items:
        yield item


async def submit(timeline: Timeline, key: str = "", **fields: Any) -> Cart:
    wanted = replace(request(**fields), idempotency_key=key)
    return await carts.submit(timeline.engine, wanted, each(ITEM), actor="ann")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"between": {"check": "nothing"}}, "between.check"),
        ({"rollback": "nothing"}, "rollback"),
        ({"calendars": ["nothing"]}, "calendars"),
    ],
)
async def test_names_of_what_is_not_there_are_refused(
    timeline: Timeline, fields: dict[str, Any], path: str
) -> None:
    await timeline.apply(None)

    with pytest.raises(Invalid) as refusal:
        await submit(timeline, **fields)

    assert [problem.path for problem in refusal.value.problems] == [path]
    assert await timeline.store.carts(CartQuery()) == []


async def test_a_check_that_lacks_an_input_is_refused(timeline: Timeline) -> None:
    await timeline.apply(None)
    inputs = {"host": {"type": "string"}, "port": {"type": "integer", "default": 5432}}
    await timeline.apply(None, name="smoke", inputs=inputs)

    with pytest.raises(Invalid) as refusal:
        await submit(timeline, between={"check": "smoke"})

    [problem] = refusal.value.problems
    assert 'job smoke needs the input "host", and a check is given none' in str(problem)
    assert await timeline.store.carts(CartQuery()) == []


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "no items"),
        ([ITEM], "2 items were announced, 1 came"),
        ([ITEM, ITEM], "1 of 2 items cannot be run"),
        ([ITEM, CartItem("db-2", order=3)], "1 of 2 items cannot be run"),
        ([CartItem("db-1", inputs={"host": "a"}), CartItem("db-2", job="none")], "2 of 2 items"),
    ],
)
async def test_nothing_is_left_of_a_cart_that_is_refused(
    timeline: Timeline, items: list[CartItem], said: str
) -> None:
    await timeline.apply(None)

    with pytest.raises(Invalid, match=said):
        await carts.submit(timeline.engine, request(2), each(*items), actor="ann")

    assert await timeline.store.carts(CartQuery()) == []
    assert await timeline.store.forget_loading_carts(await timeline.store.now()) == 0


async def test_problems_that_are_not_told_are_counted(timeline: Timeline) -> None:
    await timeline.apply(None)
    wrong = [CartItem(f"db-{n}", inputs={f"host{n}": "a", f"port{n}": 1}) for n in range(60)]

    with pytest.raises(Invalid) as refusal:
        await carts.submit(timeline.engine, request(60), each(*wrong), actor="ann")

    assert str(refusal.value) == "60 of 60 items cannot be run, 100 problems and 20 more"
    assert len(refusal.value.problems) == 100


async def test_what_is_wrong_with_all_items_is_told_once(timeline: Timeline) -> None:
    await timeline.apply(None)
    wrong = [CartItem(f"db-{n}", job="none" if n % 2 else "", inputs={"a": 1}) for n in range(6)]

    with pytest.raises(Invalid, match="6 of 6 items cannot be run") as refusal:
        await carts.submit(timeline.engine, request(6), each(*wrong), actor="ann")

    told = [(problem.path, problem.message) for problem in refusal.value.problems]
    assert told == [
        ("items[0] (db-0)", 'job job has no input "a" (and 2 more items)'),
        ("items[1] (db-1)", "there is no job 'none' (and 2 more items)"),
    ]
    assert "app.apply()" in refusal.value.problems[1].hint


@pytest.mark.parametrize(
    "other",
    [
        {"job": "other"},
        {"rollback": "other"},
        {"priority": 7},
        {"labels": {"team": "db"}},
        {"description": "another"},
        {"max_parallel": 2},
    ],
)
async def test_the_same_key_is_for_the_very_same_cart(
    timeline: Timeline, other: dict[str, Any]
) -> None:
    await timeline.apply(None)
    await timeline.apply(None, name="other")
    first = await submit(timeline, key="once")

    assert (await submit(timeline, key="once")).id == first.id
    with pytest.raises(Conflict) as refusal:
        await submit(timeline, key="once", **other)

    assert refusal.value.code == "idempotency_key_reused"


async def test_a_cart_is_found_by_its_id_its_beginning_and_its_exact_name(
    timeline: Timeline,
) -> None:
    await timeline.apply(None)
    cart = await submit(timeline)

    for wanted in (cart.id, cart.id[:6], "rollout"):
        assert (await carts.find_cart(timeline.engine, wanted)).id == cart.id
    # No id has a "u" in it.
    for wanted in ("ROLLOUT", "roll*", "c_u"):
        with pytest.raises(NotFound):
            await carts.find_cart(timeline.engine, wanted)


async def test_a_run_of_a_cart_is_retried_by_the_cart(timeline: Timeline) -> None:
    await timeline.apply(None)
    scenes = CartScene(timeline.scene)
    cart = await submit(timeline)
    await scenes.play(cart.id, timeline.session, failing=["db-1"])
    [item] = await scenes.items(cart.id)
    run = await timeline.scene.show(str(item.run))

    with pytest.raises(Conflict) as refusal:
        await runs.retry(timeline.engine, run, actor="ann")

    assert (refusal.value.code, refusal.value.hint) == (
        "run_of_cart",
        f"rota cart retry {cart.id} --item db-1",
    )


async def test_items_of_other_systems_need_no_worker(timeline: Timeline) -> None:
    await timeline.apply(None, type="external", steps=None, timeout="1h")
    item = replace(ITEM, needs={"worker": "web-1"})

    with pytest.raises(Invalid) as refusal:
        await carts.submit(timeline.engine, request(), each(item), actor="ann")

    [problem] = refusal.value.problems
    assert "is of type external: no worker does it" in problem.message

"""Templates become carts when their time has come, once, and never two at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.scheduler.timeline import Timeline

from rota.domain.carts.states import CartState
from rota.ports.carts import Cart, CartQuery, NewTemplate, Template, TemplateChanges
from rota.scheduler.cart_keeper import CartKeeper
from rota.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


def new_keeper(timeline: Timeline) -> CartKeeper:
    return CartKeeper(timeline.backends, FakeClock(timeline.ticker), timeline.shards)


@pytest.fixture
def keeper(timeline: Timeline) -> CartKeeper:
    return new_keeper(timeline)


async def apply(timeline: Timeline, schedule: str = "@hourly", **fields: Any) -> None:
    """A cart `rollout` of one item, and its job."""
    job = {"name": "upgrade", "steps": [{"run": "true"}]}
    cart = {"name": "rollout", "job": "upgrade", "schedule": schedule, "items": [{"key": "db-1"}]}
    await timeline.apply_file({"jobs": [job], "carts": [cart | fields]})


async def carts_of(timeline: Timeline) -> list[Cart]:
    """The oldest first."""
    return (await timeline.store.carts(CartQuery(name_like="rollout")))[::-1]


async def template_of(timeline: Timeline) -> Template:
    [template] = await timeline.store.templates("default")
    return template


async def missed(timeline: Timeline) -> list[tuple[str, int]]:
    """The causes of due times without a cart, and how many had each."""
    events = await timeline.store.events(0, 1_000)
    return [
        (event.data["cause"], event.data["count"])
        for event in events
        if event.kind == "cart.missed"
    ]


async def complete(timeline: Timeline, keeper: CartKeeper) -> None:
    """A worker does all that there is to do."""
    await keeper.run_once()
    await timeline.end_runs()
    await keeper.run_once()


async def test_nothing_starts_when_it_is_applied(timeline: Timeline, keeper: CartKeeper) -> None:
    await apply(timeline)

    await keeper.run_once()

    assert await carts_of(timeline) == []


async def test_a_template_becomes_a_cart_at_each_of_its_times(
    timeline: Timeline, keeper: CartKeeper
) -> None:
    await apply(timeline)

    for _ in range(2):
        timeline.be_down(HOUR)
        await complete(timeline, keeper)

    found = await carts_of(timeline)
    assert [cart.state for cart in found] == [CartState.COMPLETED] * 2
    assert {cart.created_by for cart in found} == {"scheduler"}
    assert await missed(timeline) == []


async def test_a_time_written_down_starts_it_once(timeline: Timeline, keeper: CartKeeper) -> None:
    at = timeline.ticker.instant + HOUR
    await apply(timeline, at.isoformat())

    for _ in range(3):
        timeline.be_down(HOUR)
        await complete(timeline, keeper)

    assert len(await carts_of(timeline)) == 1
    assert (await template_of(timeline)).next_at is None


async def test_several_servers_make_one_cart(timeline: Timeline) -> None:
    await apply(timeline)
    timeline.be_down(HOUR)

    await asyncio.gather(*(new_keeper(timeline).run_once() for _ in range(4)))

    assert len(await carts_of(timeline)) == 1
    assert await missed(timeline) == []


async def test_after_a_downtime_only_the_latest_starts(
    timeline: Timeline, keeper: CartKeeper
) -> None:
    await apply(timeline)

    timeline.be_down(5 * HOUR)
    await keeper.run_once()

    assert len(await carts_of(timeline)) == 1
    assert await missed(timeline) == [("downtime", 4)]


async def test_what_is_more_than_six_hours_late_does_not_start(
    timeline: Timeline, keeper: CartKeeper
) -> None:
    at = timeline.ticker.instant + HOUR
    await apply(timeline, at.isoformat())

    timeline.be_down(7 * HOUR + timedelta(seconds=1))
    await keeper.run_once()

    assert await carts_of(timeline) == []
    assert await missed(timeline) == [("downtime", 1)]


async def test_what_is_six_hours_late_starts(timeline: Timeline, keeper: CartKeeper) -> None:
    at = timeline.ticker.instant + HOUR
    await apply(timeline, at.isoformat())

    timeline.be_down(7 * HOUR)
    await keeper.run_once()

    assert len(await carts_of(timeline)) == 1


async def test_while_one_is_live_no_other_starts(timeline: Timeline, keeper: CartKeeper) -> None:
    await apply(timeline)

    for _ in range(3):
        timeline.be_down(HOUR)
        await keeper.run_once()

    assert len(await carts_of(timeline)) == 1
    assert await missed(timeline) == [("overlap", 1), ("overlap", 1)]


async def test_a_cart_that_cannot_be_made_is_told_and_the_schedule_goes_on(
    timeline: Timeline, keeper: CartKeeper
) -> None:
    await apply(timeline, items_from={"workers": {"site": "fra"}}, items=None)

    timeline.be_down(HOUR)
    await keeper.run_once()

    assert await missed(timeline) == [("refused", 1)]
    [event] = [e for e in await timeline.store.events(0, 99) if e.kind == "cart.missed"]
    assert "no live worker with site=fra" in event.data["message"]
    assert (await template_of(timeline)).next_at == timeline.ticker.instant + HOUR


async def test_an_edit_of_its_items_leaves_its_times_alone(timeline: Timeline) -> None:
    await apply(timeline, "every 90m")
    before = await template_of(timeline)
    timeline.be_down(timedelta(minutes=10))

    await apply(timeline, "every 90m", items=[{"key": "db-2"}])

    after = await template_of(timeline)
    assert (after.version, after.next_at, after.anchor) == (2, before.next_at, before.anchor)


async def test_an_edit_of_its_schedule_goes_on_from_now(timeline: Timeline) -> None:
    await apply(timeline, "every 90m")
    timeline.be_down(timedelta(minutes=10))

    await apply(timeline, "every 20m")

    expected = timeline.ticker.instant + timedelta(minutes=20)
    assert (await template_of(timeline)).next_at == expected


async def test_what_this_release_cannot_read_is_left_to_one_that_can(
    timeline: Timeline, keeper: CartKeeper
) -> None:
    await _save(timeline, {"name": "rollout", "order": "by the moon"})
    before = await template_of(timeline)

    assert await keeper.run_once() == 0

    assert await template_of(timeline) == before
    assert await missed(timeline) == []


async def _save(timeline: Timeline, document: Mapping[str, Any]) -> None:
    now = timeline.ticker.instant
    new = NewTemplate("default", "rollout", document, "digest", "file", now, now)
    changes = TemplateChanges([new])
    await timeline.store.save_jobs([], removed=(), actor="test", templates=changes)

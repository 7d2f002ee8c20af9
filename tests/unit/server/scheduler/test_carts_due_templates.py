"""Templates become carts when their time has come, once, and never two at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.domain.carts.facts import CartState
from rota.operations.cart_templates import TemplateRequest, submit_template
from rota.ports.carts import Cart, CartQuery, NewTemplate, Template, TemplateChanges
from rota.server.scheduler.carts import CartKeeper, DueTemplates, DueTemplatesConfig
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


def new_starter(timeline: Timeline, **config: Any) -> DueTemplates:
    return DueTemplates(timeline.engine, timeline.shards, DueTemplatesConfig(**config))


@pytest.fixture
def starter(timeline: Timeline) -> DueTemplates:
    return new_starter(timeline)


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


async def complete(timeline: Timeline, starter: DueTemplates) -> None:
    """A worker does all that there is to do."""
    keeper = CartKeeper(timeline.engine, timeline.shards)
    await starter.run_once()
    await keeper.run_once()
    await timeline.end_runs()
    await keeper.run_once()


async def test_nothing_starts_when_it_is_applied(timeline: Timeline, starter: DueTemplates) -> None:
    await apply(timeline)

    await starter.run_once()

    assert await carts_of(timeline) == []


async def test_a_template_becomes_a_cart_at_each_of_its_times(
    timeline: Timeline, starter: DueTemplates
) -> None:
    await apply(timeline)

    for _ in range(2):
        timeline.be_down(HOUR)
        await complete(timeline, starter)

    found = await carts_of(timeline)
    assert [cart.state for cart in found] == [CartState.COMPLETED] * 2
    assert {cart.created_by for cart in found} == {"scheduler"}
    assert await missed(timeline) == []


async def test_a_time_written_down_starts_it_once(
    timeline: Timeline, starter: DueTemplates
) -> None:
    at = timeline.ticker.instant + HOUR
    await apply(timeline, at.isoformat())

    for _ in range(3):
        timeline.be_down(HOUR)
        await complete(timeline, starter)

    assert len(await carts_of(timeline)) == 1
    assert (await template_of(timeline)).next_at is None


async def test_several_servers_make_one_cart(timeline: Timeline) -> None:
    await apply(timeline)
    timeline.be_down(HOUR)

    await asyncio.gather(*(new_starter(timeline).run_once() for _ in range(4)))

    assert len(await carts_of(timeline)) == 1
    assert await missed(timeline) == []


async def test_after_a_downtime_only_the_latest_starts(
    timeline: Timeline, starter: DueTemplates
) -> None:
    await apply(timeline)

    timeline.be_down(5 * HOUR)
    await starter.run_once()

    assert len(await carts_of(timeline)) == 1
    assert await missed(timeline) == [("downtime", 4)]


async def test_what_is_more_than_six_hours_late_does_not_start(
    timeline: Timeline, starter: DueTemplates
) -> None:
    at = timeline.ticker.instant + HOUR
    await apply(timeline, at.isoformat())

    timeline.be_down(7 * HOUR + timedelta(seconds=1))
    await starter.run_once()

    assert await carts_of(timeline) == []
    assert await missed(timeline) == [("downtime", 1)]


async def test_what_is_six_hours_late_starts(timeline: Timeline, starter: DueTemplates) -> None:
    at = timeline.ticker.instant + HOUR
    await apply(timeline, at.isoformat())

    timeline.be_down(7 * HOUR)
    await starter.run_once()

    assert len(await carts_of(timeline)) == 1


async def test_while_one_is_live_no_other_starts(timeline: Timeline, starter: DueTemplates) -> None:
    await apply(timeline)

    for _ in range(3):
        timeline.be_down(HOUR)
        await starter.run_once()

    assert len(await carts_of(timeline)) == 1
    assert await missed(timeline) == [("overlap", 1), ("overlap", 1)]


async def test_a_cart_that_cannot_be_made_is_told_and_the_schedule_goes_on(
    timeline: Timeline, starter: DueTemplates
) -> None:
    await apply(timeline, items_from={"workers": {"site": "fra"}}, items=None)

    timeline.be_down(HOUR)
    await starter.run_once()

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
    timeline: Timeline, starter: DueTemplates
) -> None:
    await _save(timeline, {"name": "rollout", "order": "by the moon"})
    before = await template_of(timeline)

    assert await starter.run_once() == 0

    assert await template_of(timeline) == before
    assert await missed(timeline) == []


async def test_what_cannot_be_read_is_told_once_for_each_version(
    timeline: Timeline, starter: DueTemplates
) -> None:
    await _save(timeline, {"name": "rollout", "order": "by the moon"})

    with capture_logs() as logs:
        for _ in range(3):
            await starter.run_once()
        await _save(timeline, {"name": "rollout", "order": "by the sun"}, version=1)
        await starter.run_once()

    assert [line["event"] for line in logs] == ["cart.unreadable"] * 2


async def test_what_cannot_be_read_does_not_hold_up_the_others(timeline: Timeline) -> None:
    starter = new_starter(timeline, batch_size=1)
    await apply(timeline)
    await _save(timeline, {"name": "moon", "order": "by the moon"})
    timeline.be_down(HOUR)

    for _ in range(2):
        await starter.run_once()

    assert len(await carts_of(timeline)) == 1


async def test_a_live_cart_of_another_name_holds_up_nothing(
    timeline: Timeline, starter: DueTemplates
) -> None:
    await apply(timeline, name="ROLLOUT")
    await submit_template(timeline.engine, TemplateRequest("ROLLOUT"), actor="ann")
    await apply(timeline)

    timeline.be_down(HOUR)
    await starter.run_once()

    assert [cart.name for cart in await carts_of(timeline)] == ["ROLLOUT", "rollout"]


async def test_the_loop_that_moves_carts_does_not_wait_for_templates(timeline: Timeline) -> None:
    await apply(timeline)
    timeline.be_down(HOUR)

    assert await CartKeeper(timeline.engine, timeline.shards).run_once() == 0

    assert await carts_of(timeline) == []


async def _save(timeline: Timeline, document: Mapping[str, Any], version: int = 0) -> None:
    """A template that is due now, as another release may have written it."""
    now = timeline.ticker.instant
    new = NewTemplate(
        "default",
        document["name"],
        document,
        "digest",
        "file",
        now,
        now,
        expected_version=version,
        expected_next_at=now if version else None,
    )
    changes = TemplateChanges([new])
    await timeline.store.save_jobs([], removed=(), actor="test", templates=changes)

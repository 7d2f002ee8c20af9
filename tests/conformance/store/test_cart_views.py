"""What is read of carts, however big they are, and their templates: one answer a due time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.carts.definition import CartRules, Order
from rota.domain.carts.facts import FAILED_ITEM_STATES, FINAL_ITEM_STATES, CartState, ItemState
from rota.domain.errors import Conflict
from rota.domain.ids import CartId, JobId
from rota.domain.spec import Delivery
from rota.domain.states import RunState
from rota.ports.carts import (
    CancelCart,
    CartQuery,
    DueTemplate,
    MissedCarts,
    NewTemplate,
    PauseCart,
    Selection,
    Template,
    TemplateChanges,
)
from rota.ports.queue import Wakes
from testkit.builders import ALL_SHARDS, Scene, new_calendar, new_job
from testkit.cart_scenes import PARALLEL, CartScene, allowing

pytestmark = pytest.mark.anyio
HOUR = timedelta(hours=1)


def new_template(scene: Scene, name: str = "rollout", **fields: Any) -> NewTemplate:
    return NewTemplate(
        project=fields.pop("project", "default"),
        name=name,
        document={"name": name, "job": "job", "items": [{"key": "db-1"}]},
        digest=fields.pop("digest", f"{name}-1"),
        set_name=fields.pop("set_name", "file"),
        next_at=fields.pop("next_at", None),
        anchor=scene.clock.instant,
        **fields,
    )


async def save(scene: Scene, *new: NewTemplate, removed: tuple[Template, ...] = ()) -> None:
    changes = TemplateChanges(new, removed)
    await scene.store.save_jobs([], removed=(), actor="editor", templates=changes)


async def due_template(scene: Scene, name: str = "rollout") -> Template:
    """One that is due now, with an hour from one due time to the next."""
    await save(scene, new_template(scene, name, next_at=scene.clock.instant))
    return await show(scene, name)


async def show(scene: Scene, name: str = "rollout") -> Template:
    [template] = await scene.store.templates("default", [name])
    return template


def answer_to(template: Template) -> DueTemplate:
    assert template.next_at is not None
    due_at = template.next_at
    return DueTemplate("default", template.name, template.version, due_at, due_at + HOUR)


async def missed(scene: Scene) -> list[Any]:
    events = await scene.store.events(0, 100)
    return [event.data for event in events if event.kind == "cart.missed"]


class TestSaving:
    async def test_a_template_is_kept_as_it_was_given(self, scene: Scene) -> None:
        new = new_template(scene, next_at=scene.clock.instant + HOUR)

        await save(scene, new)

        found = await show(scene)
        assert (found.version, found.document, found.digest) == (1, new.document, new.digest)
        assert (found.next_at, found.anchor) == (new.next_at, new.anchor)
        assert (found.set_name, found.updated_by) == ("file", "editor")

    async def test_they_are_found_by_project_and_name(self, scene: Scene) -> None:
        await save(scene, new_template(scene, "b"), new_template(scene, "a"))
        await scene.project("other")
        await save(scene, new_template(scene, "a", project="other"))

        names = [each.name for each in await scene.store.templates("default")]

        assert names == ["a", "b"]
        assert await scene.store.templates("default", ["c"]) == []

    async def test_jobs_calendars_and_templates_are_saved_together_or_not_at_all(
        self, scene: Scene
    ) -> None:
        await save(scene, new_template(scene))
        again = TemplateChanges([new_template(scene)])

        with pytest.raises(Conflict):
            await scene.store.save_jobs(
                [new_job("job", scene.clock.instant)],
                removed=(),
                actor="editor",
                calendars=[new_calendar()],
                templates=again,
            )

        assert await scene.store.calendars("default") == []
        assert (await show(scene)).version == 1

    async def test_a_change_of_what_somebody_else_changed_is_refused(self, scene: Scene) -> None:
        await save(scene, new_template(scene))
        seen = new_template(scene, digest="mine", expected_version=1)
        await save(scene, replace(seen, digest="theirs"))

        with pytest.raises(Conflict) as refused:
            await save(scene, seen)

        assert refused.value.code == "template_changed"
        assert (await show(scene)).digest == "theirs"

    async def test_a_change_does_not_undo_the_answer_to_a_due_time(self, scene: Scene) -> None:
        template = await due_template(scene)
        stale = new_template(
            scene,
            next_at=template.next_at,
            expected_version=1,
            expected_next_at=template.next_at,
        )
        await scene.store.pass_template(
            answer_to(template), MissedCarts("overlap", scene.clock.instant)
        )

        with pytest.raises(Conflict) as refused:
            await save(scene, stale)

        assert refused.value.code == "schedule_moved"
        assert (await show(scene)).next_at == scene.clock.instant + HOUR

    async def test_a_template_is_deleted_only_as_it_was_seen(self, scene: Scene) -> None:
        await save(scene, new_template(scene))
        seen = await show(scene)
        await save(scene, new_template(scene, digest="new", expected_version=1))

        with pytest.raises(Conflict):
            await save(scene, removed=(seen,))
        await save(scene, removed=(await show(scene),))

        assert await scene.store.templates("default") == []

    async def test_saving_wakes_the_keeper_and_is_an_event(
        self, scene: Scene, published: list[Wakes]
    ) -> None:
        changes = TemplateChanges([new_template(scene)])

        await scene.store.save_jobs([], removed=(), actor="editor", templates=changes)
        wakes = published[-1]

        assert wakes.carts
        [event] = [e for e in await scene.store.events(0, 100) if e.kind == "cart.defined"]
        assert (event.actor, list(event.ids)) == ("editor", ["rollout"])

    async def test_edits_that_cross_never_wait_for_each_other_for_ever(self, scene: Scene) -> None:
        await save(scene, new_template(scene, "a"), new_template(scene, "b"))
        first, second = await scene.store.templates("default")
        edits = [
            save(scene, new_template(scene, "a", expected_version=1), removed=(second,)),
            save(scene, new_template(scene, "b", expected_version=1), removed=(first,)),
        ]

        done = await asyncio.wait_for(asyncio.gather(*edits, return_exceptions=True), 20)

        assert done.count(None) == 1
        assert sum(isinstance(each, Conflict) for each in done) == 1


class TestDueTimes:
    async def test_only_what_is_due_in_these_shards_is_found(self, scene: Scene) -> None:
        now = scene.clock.instant
        await save(
            scene,
            new_template(scene, "due", next_at=now),
            new_template(scene, "later", next_at=now + HOUR),
            new_template(scene, "on-demand"),
        )

        found = await scene.store.due_templates(list(ALL_SHARDS), 10)

        assert [each.name for each in found] == ["due"]
        assert await scene.store.due_templates([], 10) == []
        assert await scene.store.next_template_due() == now

    async def test_a_cart_answers_a_due_time_and_moves_the_schedule_on(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        template = await due_template(scene)
        cart = await carts.fill(job, CartRules(), items=1)

        await scene.store.submit_cart(cart, due=answer_to(template))

        assert (await carts.show(cart)).state is CartState.PLANNED
        moved = await show(scene)
        assert (moved.next_at, moved.version) == (scene.clock.instant + HOUR, template.version)

    async def test_of_many_servers_one_answers(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        template = await due_template(scene)
        filled = [await carts.fill(job, CartRules(), items=1) for _ in range(4)]

        async def submit(cart: CartId) -> bool:
            try:
                await scene.store.submit_cart(cart, due=answer_to(template))
            except Conflict:
                return False
            return True

        answers = await asyncio.gather(*map(submit, filled))

        assert sum(answers) == 1
        assert len(await scene.store.carts(CartQuery())) == 1

    async def test_a_due_time_that_was_answered_gets_no_second_cart(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        template = await due_template(scene)
        due = answer_to(template)
        await scene.store.pass_template(due, MissedCarts("overlap", due.due_at))
        cart = await carts.fill(job, CartRules(), items=1)

        with pytest.raises(Conflict) as refused:
            await scene.store.submit_cart(cart, due=due)

        assert refused.value.code == "template_moved"
        assert await scene.store.carts(CartQuery()) == []

    async def test_a_changed_template_is_not_answered_as_it_was(
        self, scene: Scene, carts: CartScene, job: JobId
    ) -> None:
        old = await due_template(scene)
        change = new_template(scene, next_at=old.next_at, expected_version=1)
        await save(scene, replace(change, expected_next_at=old.next_at))
        cart = await carts.fill(job, CartRules(), items=1)

        with pytest.raises(Conflict):
            await scene.store.submit_cart(cart, due=answer_to(old))

        assert (await show(scene)).next_at == old.next_at

    async def test_what_got_no_cart_is_told_once(self, scene: Scene) -> None:
        template = await due_template(scene)
        due, told = answer_to(template), MissedCarts("downtime", scene.clock.instant, 3)

        await scene.store.pass_template(due, told)
        await scene.store.pass_template(due, told)

        [event] = await missed(scene)
        assert (event["cause"], event["count"]) == ("downtime", 3)
        assert event["due_at"] == due.due_at.isoformat()
        assert (await show(scene)).next_at == due.next_at


TOLERANT = CartRules(Order.PARALLEL, failures=allowing("100%"))


async def test_waves_come_some_at_a_time(scene: Scene, carts: CartScene, job: JobId) -> None:
    cart = await carts.submit(job, CartRules(Order.EXPLICIT), waves=(5, 7, 7, 9))

    async def numbers(after: int, limit: int) -> list[int]:
        return [wave.number for wave in await scene.store.waves(cart, after, limit)]

    assert await numbers(0, 2) == [5, 7]
    assert await numbers(7, 2) == [9]
    [seven] = await scene.store.waves(cart, 5, 1)
    assert seven.items == {ItemState.PENDING: 2}


async def test_the_cells_of_a_big_cart_are_in_the_order_of_its_items(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, PARALLEL, items=2_100)
    await carts.advance(cart)
    worker = await scene.worker()
    await scene.claim(worker, 1)

    cells = await scene.store.cells(cart)

    assert cells == ["CLAIMED"] + ["QUEUED"] * 999 + ["PENDING"] * 1_100


async def test_open_items_whose_end_nobody_knows_are_counted(
    scene: Scene, carts: CartScene
) -> None:
    job = await scene.job(delivery=Delivery.AT_MOST_ONCE)
    cart = await carts.submit(job, TOLERANT, items=3)
    await carts.advance(cart)
    worker = await scene.worker()
    await scene.start(worker, await scene.claim(worker, 2))
    await scene.vanish(worker)

    overview = await scene.store.overview(await carts.show(cart), 10)

    assert overview.unknown == 2


async def test_open_items_are_counted_by_the_states_of_their_runs_as_they_are_seen(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, PARALLEL, items=3)
    await carts.advance(cart)
    worker = await scene.worker()
    await scene.claim(worker, 1)
    served = (await scene.store.overview(await carts.show(cart), 10)).open_runs

    await carts.command(cart, PauseCart())
    await carts.advance(cart)

    assert served == {RunState.CLAIMED: 1, RunState.QUEUED: 2}
    paused = (await scene.store.overview(await carts.show(cart), 10)).open_runs
    assert paused == {RunState.CLAIMED: 1, RunState.BLOCKED: 2}


async def test_versions_are_those_of_the_items_that_are_meant(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, TOLERANT, items=2)
    await carts.play(cart, await scene.worker(), failing=["item-1"])
    version = (await scene.show_job(job)).version

    async def found(selection: Selection) -> list[tuple[JobId, int]]:
        return await scene.store.versions_of_items(cart, selection)

    assert await found(Selection(FAILED_ITEM_STATES)) == [(job, version)]
    assert await found(Selection(FINAL_ITEM_STATES, from_wave=2)) == []
    assert await found(Selection(FAILED_ITEM_STATES, keys=["item-0"])) == []


async def test_only_what_a_worker_had_was_attempted(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    cart = await carts.submit(job, PARALLEL, items=3)
    await carts.advance(cart)
    worker = await scene.worker()
    await carts.work(cart, worker, most=1)
    await carts.command(cart, CancelCart())
    await carts.advance(cart)

    attempted = await carts.items(cart, only_attempted=True)

    assert [item.key for item in attempted] == ["item-0"]


async def test_a_cart_is_cancelled_just_as_it_was_seen(carts: CartScene, job: JobId) -> None:
    cart = await carts.submit(job)
    seen = (await carts.command(cart, PauseCart())).cart

    with pytest.raises(Conflict) as refusal:
        await carts.command(cart, CancelCart(expected_version=seen.version - 1))

    assert refusal.value.code == "changed_meanwhile"
    done = await carts.command(cart, CancelCart(expected_version=seen.version))
    assert done.has_changed

"""Steering carts: what is granted, what is refused, and what two people do at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.domain.access import Role
from tests.unit.server.gateway.cart_scenes import CartScene, faults, item, refusal
from tests.unit.server.gateway.served import Served

pytestmark = pytest.mark.anyio
APPROVED = {"between": {"approve": "editor"}}


@pytest.fixture
async def carts(served: Served) -> CartScene:
    return await CartScene.set(served)


async def breached(carts: CartScene, **fields: object) -> str:
    """A cart that is paused because its first item failed."""
    made = await carts.started(3, **fields)
    await carts.work(made, failing=["db-0"])
    assert (await carts.show())["reason"] == "failures"
    return made


class TestPausing:
    async def test_the_second_who_pauses_is_told_that_it_was_so(self, carts: CartScene) -> None:
        await carts.started()

        first, second = await asyncio.gather(carts.command("pause"), carts.command("pause"))

        assert {first.json()["state"], second.json()["state"]} == {"PAUSED"}
        assert sorted([first.json()["changed"], second.json()["changed"]]) == [False, True]

    async def test_nothing_starts_until_it_is_resumed(self, carts: CartScene) -> None:
        made = await carts.started()
        await carts.command("pause")
        assert await carts.work(made) == []

        answer = await carts.command("resume")

        assert (answer.status_code, answer.json()["state"]) == (200, "RUNNING")

    async def test_what_is_not_paused_is_not_resumed(self, carts: CartScene) -> None:
        await carts.started()

        assert refusal(await carts.command("resume")) == (409, "not_paused")

    async def test_what_is_over_is_not_paused(self, carts: CartScene) -> None:
        await carts.play(await carts.submit())

        assert refusal(await carts.command("pause")) == (409, "cart_final")


class TestResuming:
    async def test_more_failures_than_may_keep_it_paused(self, carts: CartScene) -> None:
        await breached(carts)

        assert refusal(await carts.command("resume")) == (409, "still_breached")
        assert refusal(await carts.command("resume", {"allow": 0})) == (409, "still_breached")

    @pytest.mark.parametrize("allow", [1, "34%"])
    async def test_a_raised_allowance_lets_it_go_on(
        self, carts: CartScene, allow: int | str
    ) -> None:
        made = await breached(carts)

        answer = await carts.command("resume", {"allow": allow})

        assert (answer.status_code, answer.json()["failures"]["allow"]) == (200, allow)
        assert (await carts.play(made))["state"] == "PARTIAL"

    @pytest.mark.parametrize("allow", [-1, "101%", "many", "5", True, 1.5, [1]])
    async def test_an_allowance_that_is_none_is_refused(
        self, carts: CartScene, allow: object
    ) -> None:
        await breached(carts)

        assert refusal(await carts.command("resume", {"allow": allow})) == (422, "invalid")


class TestCancelling:
    async def test_what_runs_is_stopped(self, carts: CartScene) -> None:
        await carts.started(3, order="parallel", max_parallel=1)
        worker = await carts.served.worker()
        [held] = await worker.claim()

        answer = await carts.command("cancel")

        assert (answer.json()["reason"], answer.json()["ending"]) == ("cancelling", "CANCELLED")
        run = (await carts.served.get(f"runs/{held.run}")).json()
        assert run["cancel_requested_by"] == "operator"

    async def test_what_runs_may_finish(self, carts: CartScene) -> None:
        made = await carts.started()
        worker = await carts.served.worker()
        [held] = await worker.claim()

        await carts.command("cancel", {"running": "finish"})
        await worker.finish(held)
        await carts.advance(made)

        shown = await carts.show()
        assert (shown["state"], shown["completed"], shown["skipped"]) == ("CANCELLED", 1, 2)

    async def test_a_wave_that_opens_meanwhile_ends_with_it(self, carts: CartScene) -> None:
        made = await carts.submit(20, order="parallel")

        await asyncio.gather(carts.advance(made), carts.command("cancel"))
        await carts.advance(made)

        shown = await carts.show()
        assert (shown["state"], shown["open"], shown["pending"]) == ("CANCELLED", 0, 0)
        assert shown["cancelled"] + shown["skipped"] == 20

    async def test_it_is_cancelled_once(self, carts: CartScene) -> None:
        await carts.started()
        await (await carts.served.worker()).claim()

        changed = [(await carts.command("cancel")).json()["changed"] for _ in range(2)]

        assert changed == [True, False]
        assert refusal(await carts.command("pause")) == (409, "cart_cancelling")

    async def test_what_becomes_of_runs_is_one_of_two(self, carts: CartScene) -> None:
        await carts.submit()

        assert refusal(await carts.command("cancel", {"running": "kill"})) == (422, "invalid")
        assert refusal(await carts.command("cancel", {"runing": "stop"})) == (422, "invalid")


class TestApproving:
    async def waiting(self, carts: CartScene, **fields: object) -> str:
        made = await carts.started(2, **(fields or APPROVED))
        await carts.work(made)
        assert (await carts.show())["gate"]["waits_for"] == "approval"
        return made

    async def test_somebody_else_lets_the_next_wave_open(self, carts: CartScene) -> None:
        made = await self.waiting(carts)

        answer = await carts.command("approve", role=Role.EDITOR)

        assert (answer.status_code, answer.json()["approved_by"]) == (200, "editor")
        assert (await carts.play(made))["state"] == "COMPLETED"

    async def test_a_higher_role_includes_the_one_that_is_asked_for(self, carts: CartScene) -> None:
        await self.waiting(carts)

        assert (await carts.command("approve", role=Role.ADMIN)).status_code == 200

    async def test_a_role_that_is_too_low_does_not(self, carts: CartScene) -> None:
        await self.waiting(carts)

        answer = await carts.command("approve", role=Role.OPERATOR)

        assert refusal(answer) == (403, "role_too_low")

    async def test_nor_does_whoever_submitted_it(self, carts: CartScene) -> None:
        await self.waiting(carts, between={"approve": "operator"})

        assert refusal(await carts.command("approve", role=Role.OPERATOR)) == (403, "own_cart")

    async def test_yes_to_one_wave_is_no_yes_to_another(self, carts: CartScene) -> None:
        made = await carts.started(3, **APPROVED)
        await carts.work(made)
        assert (await carts.show())["gate"]["wave"] == 2
        other = await carts.command("approve", {"wave": 3}, role=Role.EDITOR)
        right = await carts.command("approve", {"wave": 2}, role=Role.EDITOR)
        await carts.play(made)

        again = await carts.command("approve", {"wave": 2}, role=Role.EDITOR)

        assert refusal(other) == (409, "other_wave_waits")
        assert right.status_code == 200
        assert refusal(again) == (409, "other_wave_waits")

    async def test_what_does_not_wait_is_not_approved(self, carts: CartScene) -> None:
        await carts.started(2, **APPROVED)

        answer = await carts.command("approve", role=Role.ADMIN)

        assert refusal(answer) == (409, "not_waiting_for_approval")


class TestRetrying:
    async def test_failed_items_run_again(self, carts: CartScene) -> None:
        made = await breached(carts)

        answer = await carts.command("retry")
        await carts.command("resume")

        assert (answer.json()["affected"], answer.json()["changed"]) == (1, True)
        assert (await carts.play(made))["state"] == "COMPLETED"

    async def test_a_selection_narrows(self, carts: CartScene) -> None:
        failures = {"allow": 0, "then": "cancel"}
        made = await carts.started(4, failures=failures)
        await carts.work(made, failing=["db-0"])

        async def affected(**body: object) -> Any:
            answer = await carts.command("retry", {"select": "failed+skipped", **body})
            return answer.json().get("affected")

        assert await affected(from_wave=9) is None
        assert await affected(cause="another") is None
        assert await affected(keys=["db-2"]) == 1
        assert await affected(from_wave=4) == 1
        assert await affected() == 2

    async def test_a_part_of_the_cause_is_enough(self, carts: CartScene) -> None:
        await breached(carts)

        other = await carts.command("retry", {"cause": "disk full"})
        answer = await carts.command("retry", {"cause": "EXIT"})

        assert refusal(other) == (404, "no_such_cause")
        assert answer.json()["affected"] == 1

    async def test_an_item_that_is_not_there_is_named(self, carts: CartScene) -> None:
        await breached(carts)

        answer = await carts.command("retry", {"select": "all", "keys": ["db-0", "db-9999"]})

        assert refusal(answer) == (404, "item_not_found")
        assert "db-9999" in answer.json()["detail"]

    async def test_all_takes_what_completed_too(self, carts: CartScene) -> None:
        await carts.play(await carts.submit())

        assert refusal(await carts.command("retry")) == (409, "nothing_to_retry")
        assert (await carts.command("retry", {"select": "all"})).json()["affected"] == 3

    @pytest.mark.parametrize(
        "body",
        [
            {"select": "some"},
            {"from_wave": 0},
            {"from_wave": "last"},
            {"keys": []},
            {"keys": ["\0"]},
            {"cause": "\0"},
            {"key": "db-0"},
        ],
    )
    async def test_a_selection_that_means_nothing_is_refused(
        self, carts: CartScene, body: object
    ) -> None:
        await breached(carts)

        assert refusal(await carts.command("retry", body)) == (422, "invalid")

    async def test_it_does_not_come_back_beside_a_live_one(self, carts: CartScene) -> None:
        old = await carts.submit()
        await carts.play(old)
        await carts.submit()

        answer = await carts.command("retry", {"select": "all"}, of=old)

        assert refusal(answer) == (409, "cart_is_live")


class TestEditing:
    async def test_rules_change_and_what_is_left_out_stays(self, carts: CartScene) -> None:
        await carts.submit(3, max_parallel=2, failures={"allow": 1, "of": "wave"})

        answer = await carts.edit(
            {"max_parallel": 5, "failures": {"allow": "3%"}, "between": {"wait": "10m"}}
        )

        changed = answer.json()
        assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
        assert (changed["max_parallel"], changed["version"]) == (5, 2)
        assert changed["failures"] == {
            "allow": "3%",
            "of": "wave",
            "then": "pause",
            "strict": False,
        }
        assert changed["between"]["wait"] == "10m"

    async def test_items_of_closed_waves_change(self, carts: CartScene) -> None:
        made = await carts.started()

        answer = await carts.edit(
            {
                "items": [
                    {"key": "db-1", "skip": True},
                    {"key": "db-2", "order": 5, "with": {"host": "there"}},
                ]
            }
        )

        assert answer.json()["affected"] == 2
        listed = (await carts.served.get("carts/rollout/items")).json()["items"]
        assert [(each["state"], each["wave"]) for each in listed] == [
            ("OPEN", 1),
            ("SKIPPED", 2),
            ("PENDING", 5),
        ]
        assert listed[2]["inputs"] == {"host": "there"}
        shown = await carts.play(made)
        assert (shown["state"], shown["completed"], shown["skipped"]) == ("PARTIAL", 2, 1)

    async def test_a_wave_that_was_opened_does_not(self, carts: CartScene) -> None:
        await carts.started()

        skipped = await carts.edit({"items": [{"key": "db-0", "skip": True}]})
        moved = await carts.edit({"items": [{"key": "db-2", "order": 1}]})

        assert [refusal(answer) for answer in (skipped, moved)] == [(409, "wave_opened")] * 2

    async def test_an_item_is_skipped_once(self, carts: CartScene) -> None:
        await carts.started()
        skip = {"items": [{"key": "db-2", "skip": True}]}
        await carts.edit(skip)

        assert refusal(await carts.edit(skip)) == (409, "item_ended")
        assert (await carts.show())["skipped"] == 1

    async def test_somebody_who_saw_another_version_is_refused(self, carts: CartScene) -> None:
        await carts.submit()
        await carts.command("pause")
        body = {"max_parallel": 5}

        late = await carts.edit(body, headers={"If-Match": '"1"'})
        current = await carts.edit(body, headers={"If-Match": '"2"'})

        assert refusal(late) == (412, "etag_mismatch")
        assert current.status_code == 200

    async def test_an_item_that_is_not_there_is_not_found(self, carts: CartScene) -> None:
        await carts.submit()

        answer = await carts.edit({"items": [{"key": "db-9", "skip": True}]})

        assert refusal(answer) == (404, "item_not_found")

    async def test_inputs_must_fit_the_job(self, carts: CartScene) -> None:
        await carts.submit()
        changes = [{"key": "db-1", "with": {"hots": "x"}}, {"key": "db-2", "with": {"host": 1}}]

        answer = await carts.edit({"items": changes})

        assert refusal(answer) == (422, "invalid")
        assert [path for path, _ in faults(answer)] == ["items[0] (db-1)", "items[1] (db-2)"]

    @pytest.mark.parametrize(
        "body",
        [
            {"max_parallel": 0},
            {"failures": {"allow": "101%"}},
            {"failures": {"alow": 1}},
            {"failures": 5},
            {"between": {"wait": "soon"}},
            {"items": [{"key": "db-1", "order": 0}]},
            {"items": [{"key": "db-1", "order": "last"}]},
            {"items": [{"skip": True}]},
            {"items": [item("db-1", job="smoke")]},
            {"order": "parallel"},
        ],
    )
    async def test_a_change_that_means_nothing_is_refused(
        self, carts: CartScene, body: object
    ) -> None:
        await carts.submit()

        assert refusal(await carts.edit(body)) == (422, "invalid")

    async def test_an_item_is_not_changed_twice_at_once(self, carts: CartScene) -> None:
        await carts.submit()

        answer = await carts.edit({"items": [item("db-1", order=5), item("db-1", order=6)]})

        assert refusal(answer) == (422, "duplicate_key")

    async def test_what_is_over_is_not_edited(self, carts: CartScene) -> None:
        await carts.play(await carts.submit())

        assert refusal(await carts.edit({"max_parallel": 5})) == (409, "cart_final")


async def test_commands_are_told_with_their_actors(carts: CartScene) -> None:
    made = await breached(carts)
    await carts.command("resume", {"allow": 1})

    events = (await carts.served.get(f"carts/{made}/events")).json()["items"]

    resumed = next(event for event in events if event["type"] == "rota.cart.resumed")
    assert (resumed["data"]["actor"], resumed["data"]["allow"]) == ("operator", "1")


class TestRehearsing:
    """`plan=true`: what is refused is refused, and nothing changes."""

    async def test_it_says_whether_the_cart_would_change(self, carts: CartScene) -> None:
        await carts.started()

        first = await carts.command("pause?plan=true")
        still = (await carts.show())["state"]
        await carts.command("pause")
        second = await carts.command("pause?plan=true")

        assert (first.json()["changed"], still) == (True, "RUNNING")
        assert second.json()["changed"] is False

    async def test_an_approval_is_refused_to_whoever_may_not(self, carts: CartScene) -> None:
        made = await carts.started(3, **APPROVED)
        await carts.work(made)

        granted = await carts.command("approve?plan=true", {"wave": 2}, role=Role.EDITOR)
        other = await carts.command("approve?plan=true", {"wave": 3}, role=Role.EDITOR)
        low = await carts.command("approve?plan=true")

        assert (granted.json()["changed"], granted.json()["approved_by"]) == (True, "")
        assert refusal(other) == (409, "other_wave_waits")
        assert refusal(low) == (403, "role_too_low")

    async def test_more_allowed_failures_count(self, carts: CartScene) -> None:
        await breached(carts)

        assert refusal(await carts.command("resume?plan=true")) == (409, "still_breached")
        assert (await carts.command("resume?plan=true", {"allow": 1})).json()["changed"] is True
        assert (await carts.show())["state"] == "PAUSED"

    async def test_a_deleted_job_keeps_it_paused(self, carts: CartScene) -> None:
        made = await carts.started()
        await carts.command("pause")
        deleted = await carts.served.delete("jobs/upgrade")
        assert deleted.status_code < 300, deleted.text

        rehearsed, refused = await carts.command("resume?plan=true"), await carts.command("resume")

        assert refusal(rehearsed) == refusal(refused) == (409, "job_deleted")
        assert rehearsed.json()["detail"] == refused.json()["detail"]
        assert made in rehearsed.text

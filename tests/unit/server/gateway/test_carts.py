"""Carts as they are looked at: lists, details, items, waves, cells, events and metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime

import pytest

from rota.api.carts import Cells
from rota.domain.access import Role
from rota.server.gateway import carts as routes
from rota.server.gateway import metrics
from rota.server.gateway.carts import cells_answer
from rota.server.gateway.filters import encode_cursor
from tests.unit.server.gateway.cart_scenes import CartScene, cart, item, refusal
from tests.unit.server.gateway.served import Served
from tests.unit.server.gateway.streaming import streaming

pytestmark = pytest.mark.anyio
GROUPS = {"order": "groups", "group_size": [1, 2]}
TOLERANT = {"order": "parallel", "failures": {"allow": "100%"}}


@pytest.fixture
async def carts(served: Served) -> CartScene:
    return await CartScene.set(served)


async def names(carts: CartScene, **params: object) -> list[str]:
    answer = await carts.served.get("carts", Role.VIEWER, params=params)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["items"]]


class TestListing:
    async def test_the_newest_come_first_in_parts(self, carts: CartScene) -> None:
        for name in ("a", "b", "c"):
            await carts.submit(name=name)

        first = (await carts.served.get("carts", params={"limit": 2})).json()
        rest = (await carts.served.get("carts", params={"cursor": first["next_cursor"]})).json()

        assert [each["name"] for each in first["items"] + rest["items"]] == ["c", "b", "a"]
        assert rest["next_cursor"] is None

    async def test_filters_hold_together(self, carts: CartScene) -> None:
        await carts.play(await carts.submit(name="upgrade-pg15"))
        await carts.started(name="upgrade-pg16")
        await carts.submit(name="rotate-keys")

        assert await names(carts, where="state:running name:upgrade-*") == ["upgrade-pg16"]
        assert await names(carts, where="active:true") == ["rotate-keys", "upgrade-pg16"]
        assert await names(carts, state="completed,planned") == ["rotate-keys", "upgrade-pg15"]
        assert await names(carts, where="active:true", state="completed") == []

    @pytest.mark.parametrize("where", ["stat:running", "state:queued", "active:x", "name:a name:b"])
    async def test_a_filter_that_cannot_be_read_is_refused(
        self, carts: CartScene, where: str
    ) -> None:
        answer = await carts.served.get("carts", params={"where": where})

        assert refusal(answer) == (400, "bad_filter")

    @pytest.mark.parametrize("position", ["", "c_1", "x c_1", f"{'9' * 19} c_1", "1" * 30])
    async def test_a_cursor_that_was_made_up_is_refused(
        self, carts: CartScene, position: str
    ) -> None:
        cursor = encode_cursor("carts", position)

        answer = await carts.served.get("carts", params={"cursor": cursor})

        assert refusal(answer) == (400, "bad_cursor")

    async def test_a_cursor_of_another_list_is_refused(self, carts: CartScene) -> None:
        await carts.served.trigger("smoke")
        await carts.served.trigger("smoke")
        other = (await carts.served.get("runs", params={"limit": 1})).json()["next_cursor"]

        answer = await carts.served.get("carts", params={"cursor": other})

        assert refusal(answer) == (400, "bad_cursor")


class TestLooking:
    async def test_a_cart_is_named_by_id_beginning_or_name(self, carts: CartScene) -> None:
        old = await carts.submit()
        await carts.play(old)
        new = await carts.submit()

        assert (await carts.show("rollout"))["id"] == new
        assert [(await carts.show(ref))["id"] for ref in (old, old[:-1])] == [old, old]

    async def test_what_is_not_there_is_not_found(self, carts: CartScene) -> None:
        answers = [await carts.served.get(f"carts/{ref}") for ref in ("nope", "c_0")]

        assert [refusal(answer) for answer in answers] == [(404, "cart_not_found")] * 2

    async def test_a_wildcard_names_no_cart(self, carts: CartScene) -> None:
        await carts.submit()

        assert refusal(await carts.served.post("carts/*:pause")) == (400, "malformed")

    async def test_how_far_it_is(self, carts: CartScene) -> None:
        made = await carts.started(6, **GROUPS, failures={"allow": "50%"})
        await carts.work(made)
        await carts.work(made, failing=["db-1"])

        shown = await carts.show()

        assert (shown["place"], shown["limit"], shown["breached"]) == ("3 of 4", 3, False)
        assert shown["progress"]["done"] == 3
        assert shown["progress"]["states"]["COMPLETED"] == 2
        assert (shown["completed"], shown["failed"], shown["open"]) == (2, 1, 2)
        assert shown["why"] == "it is running"

    async def test_the_limit_of_a_wave_is_of_its_own_items(self, carts: CartScene) -> None:
        failures = {"allow": "50%", "of": "wave"}
        made = await carts.submit(7, order="groups", group_size=[2, 4], failures=failures)
        assert (await carts.show())["limit"] == 1

        await carts.advance(made)
        await carts.work(made)

        assert (await carts.show())["limit"] == 2

    async def test_a_breach_tells_why_it_stands_still(self, carts: CartScene) -> None:
        made = await carts.started(3, order="parallel")
        await carts.work(made, failing=["db-1", "db-2"])

        shown = await carts.show()

        assert (shown["state"], shown["reason"]) == ("PAUSED", "failures")
        assert (shown["breached"], shown["limit"], shown["eta"]) == (True, 0, None)
        assert "too many of its items failed" in shown["why"]
        [group] = shown["failure_groups"]
        assert (group["count"], group["key"]) == (2, "db-1")

    async def test_a_gate_tells_what_it_waits_for(self, carts: CartScene) -> None:
        made = await carts.started(2, between={"wait": "10m", "approve": "admin"})
        await carts.work(made)

        shown = await carts.show()

        assert (shown["state"], shown["gate"]["waits_for"]) == ("WAITING", "soak")
        until = datetime.fromisoformat(shown["gate"]["until"])
        assert until > datetime.fromisoformat(shown["started_at"])
        assert shown["gate"]["approve_role"] is None

    async def test_a_check_is_named(self, carts: CartScene) -> None:
        made = await carts.started(2, between={"check": "smoke"})
        await carts.work(made)

        gate = (await carts.show())["gate"]

        run = (await carts.served.get(f"runs/{gate['check_run']}")).json()
        assert (gate["waits_for"], run["job"], run["cart"]) == ("check", "smoke", made)
        assert run["item"] is None

    async def test_a_check_that_failed_is_named_too(self, carts: CartScene) -> None:
        made = await carts.started(2, between={"check": "smoke"})
        await carts.work(made)
        worker = await carts.served.worker()
        [check] = await worker.claim()
        await worker.finish(check, "FAILED")
        await carts.advance(made)

        shown = await carts.show()

        assert (shown["state"], shown["reason"]) == ("PAUSED", "check")
        run = (await carts.served.get(f"runs/{shown['gate']['check_run']}")).json()
        assert (run["job"], run["state"]) == ("smoke", "FAILED")

    async def test_an_end_is_foreseen_once_durations_are_known(self, carts: CartScene) -> None:
        await carts.served.run_through("upgrade")
        await carts.started()

        shown = await carts.show()

        assert datetime.fromisoformat(shown["eta"]) >= datetime.fromisoformat(shown["started_at"])

    async def test_its_version_is_its_tag(self, carts: CartScene) -> None:
        await carts.submit()
        await carts.command("pause")

        answer = await carts.served.get("carts/rollout")

        assert answer.headers["etag"] == '"2"'


class TestItems:
    async def test_conditions_hold_together(self, carts: CartScene) -> None:
        made = await carts.started(4, **TOLERANT)
        await carts.work(made, failing=["db-1", "db-3"])
        [group] = (await carts.show(made))["failure_groups"]

        assert await carts.keys(state="failed") == ["db-1", "db-3"]
        assert await carts.keys(state="failed", key=["db-1", "db-0"]) == ["db-1"]
        assert await carts.keys(state=["failed", "completed,skipped"], wave=1) == [
            "db-0",
            "db-1",
            "db-2",
            "db-3",
        ]
        assert await carts.keys(cause=group["cause"]) == ["db-1", "db-3"]
        assert await carts.keys(wave=2) == []

    async def test_they_come_in_parts(self, carts: CartScene) -> None:
        await carts.submit(5)

        seen: list[str] = []
        cursor = None
        while cursor is not None or not seen:
            params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
            part = (await carts.served.get("carts/rollout/items", params=params)).json()
            seen += [each["key"] for each in part["items"]]
            cursor = part["next_cursor"]

        assert seen == [f"db-{number}" for number in range(5)]

    @pytest.mark.parametrize(
        ("params", "code"),
        [
            ({"state": "broken"}, "bad_filter"),
            ({"wave": 0}, "malformed"),
            ({"key": "\0"}, "malformed"),
        ],
    )
    async def test_conditions_that_mean_nothing_are_refused(
        self, carts: CartScene, params: dict[str, str], code: str
    ) -> None:
        await carts.submit()

        answer = await carts.served.get("carts/rollout/items", params=params)

        assert refusal(answer) == (400, code)

    async def test_an_item_knows_its_run(self, carts: CartScene) -> None:
        made = await carts.started()

        [first, *_] = (await carts.served.get("carts/rollout/items")).json()["items"]

        run = (await carts.served.get(f"runs/{first['run']}")).json()
        assert (first["state"], first["run_state"], first["runs"]) == ("OPEN", "BLOCKED", 1)
        assert run["state"] == "BLOCKED"  # there is no worker
        assert (run["cart"], run["item"], run["trigger"]) == (made, "db-0", "cart")

    async def test_runs_are_found_by_their_cart(self, carts: CartScene) -> None:
        made = await carts.started(3, order="parallel")
        await carts.served.trigger("upgrade")

        async def found(**params: str) -> set[str]:
            listed = (await carts.served.get("runs", params=params)).json()["items"]
            return {each["item"] for each in listed}

        of_cart = {"db-0", "db-1", "db-2"}
        assert await found(where=f"cart:{made}") == of_cart
        assert await found(cart=made, state="blocked") == of_cart  # there is no worker
        assert await found(where="trigger:cart") == of_cart
        assert await found(where="cart:rollout") == of_cart
        nothing = await carts.served.get("runs", params={"where": "cart:nothing"})
        assert refusal(nothing) == (404, "cart_not_found")


class TestFailureGroups:
    async def test_causes_are_listed_with_how_many_they_hit(self, carts: CartScene) -> None:
        made = await carts.started(3, order="parallel", failures={"allow": 3})
        await carts.work(made, failing=["db-0", "db-2"])

        listed = (await carts.served.get("carts/rollout/failure-groups")).json()["items"]

        assert listed == (await carts.show())["failure_groups"]
        assert [(group["count"], group["key"]) for group in listed] == [(2, "db-0")]


class TestWavesAndCells:
    async def test_letters_are_not_put_together_where_leases_are_renewed(
        self, carts: CartScene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await carts.submit(2)
        threads: list[int] = []

        def letters(states: Iterable[str]) -> Cells:
            threads.append(threading.get_ident())
            return cells_answer(states)

        monkeypatch.setattr(routes, "cells_answer", letters)

        answer = await carts.served.get("carts/rollout/cells")

        assert answer.json()["cells"] == "PP"
        assert threads != [threading.get_ident()]

    async def test_waves_tell_how_many_are_where(self, carts: CartScene) -> None:
        made = await carts.started(items=[item("a", order=10), item("b", order=20)])
        await carts.work(made)

        waves = (await carts.served.get("carts/rollout/waves")).json()["items"]

        assert waves == [
            {"number": 10, "items": {"COMPLETED": 1}},
            {"number": 20, "items": {"OPEN": 1}},
        ]

    async def test_waves_come_in_parts(self, carts: CartScene) -> None:
        await carts.submit(3)

        first = (await carts.served.get("carts/rollout/waves", params={"limit": 2})).json()
        params = {"cursor": first["next_cursor"]}
        rest = (await carts.served.get("carts/rollout/waves", params=params)).json()

        assert [wave["number"] for wave in first["items"] + rest["items"]] == [1, 2, 3]

    async def test_cells_have_a_letter_for_each_item(self, carts: CartScene) -> None:
        made = await carts.started(6, order="groups", group_size=2, failures={"allow": 5})
        await carts.work(made, failing=["db-1"])

        answer = (await carts.served.get("carts/rollout/cells", Role.VIEWER)).json()

        assert answer["cells"] == "CFQQPP"
        assert [answer["legend"][letter] for letter in "CFQP"] == [
            "COMPLETED",
            "FAILED",
            "QUEUED",
            "PENDING",
        ]


class TestEvents:
    async def test_what_happened_to_a_cart_is_listed(self, carts: CartScene) -> None:
        made = await carts.submit()
        await carts.submit(name="other")
        await carts.command("pause")

        of_cart = (await carts.served.get("carts/rollout/events")).json()["items"]
        of_all = (await carts.served.get("events", params={"cart": made[:8]})).json()["items"]

        kinds = ["rota.cart.submitted", "rota.cart.paused"]
        assert [event["type"] for event in of_cart] == kinds
        assert {event["subject"] for event in of_cart} == {made}
        assert of_all == of_cart

    async def test_the_events_of_one_cart_are_streamed(self, carts: CartScene) -> None:
        made = await carts.submit()

        async with streaming(carts.served, "events/stream", cart=made[:8], after=0) as stream:
            submitted = await stream.event()
            await carts.submit(name="other")
            await carts.command("pause")
            paused = await stream.event()

        assert submitted["data"]["type"] == "rota.cart.submitted"
        assert (paused["data"]["type"], paused["data"]["data"]["ids"]) == (
            "rota.cart.paused",
            [made],
        )


class TestMetrics:
    async def test_items_of_carts_that_live_are_counted(self, carts: CartScene) -> None:
        await carts.play(await carts.submit(name="done"))
        made = await carts.started(4, **TOLERANT, max_parallel=2)
        await carts.work(made, failing=["db-0"])

        lines = (await carts.served.get("/metrics")).text.splitlines()

        assert 'rota_cart_items{cart="rollout",state="FAILED"} 1.0' in lines
        assert 'rota_cart_items{cart="rollout",state="OPEN"} 2.0' in lines
        assert not [line for line in lines if 'cart="done"' in line]
        assert "rota_cart_label_dropped 0.0" in lines

    async def test_too_many_carts_are_cut_and_it_says_so(
        self, carts: CartScene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics, "MAX_CARTS", 1)
        await carts.submit(name="old")
        await carts.submit(name="new")

        text = (await carts.served.get("/metrics")).text

        assert 'cart="new"' in text
        assert 'cart="old"' not in text
        assert "rota_cart_label_dropped 1.0" in text.splitlines()


async def test_carts_are_of_their_project(carts: CartScene) -> None:
    made = await carts.submit()

    answer = await carts.served.get(f"carts/{made}", params={"project": "other"})

    assert refusal(answer) == (404, "cart_not_found")
    assert refusal(await carts.served.post("carts", params={"project": "other"}, json=cart())) == (
        422,
        "invalid",
    )


async def test_a_mistyped_cart_gets_the_nearest_one(carts: CartScene) -> None:
    await carts.submit(name="upgrade-pg16")

    shown = await carts.served.get("carts/upgrde-pg16")
    paused = await carts.served.post("carts/upgrde-pg16:pause")
    strange = await carts.served.get("carts/something-else")

    assert [it.status_code for it in (shown, paused, strange)] == [404] * 3
    assert shown.json()["hint"] == paused.json()["hint"] == 'did you mean "upgrade-pg16"?'
    assert strange.json()["hint"] == "rota cart list shows them"

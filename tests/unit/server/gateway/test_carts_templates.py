"""Carts as files define them, over REST; and undoing one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.domain.access import Role
from rota.ports.carts import ItemQuery
from rota.server.gateway.parameters import GatewaySettings
from tests.unit.server.gateway.cart_scenes import CartScene
from tests.unit.server.gateway.served import YAML, Served, job, serving_gateway

pytestmark = pytest.mark.anyio

NDJSON = {"Content-Type": "application/x-ndjson"}
JOBS = [job("upgrade", inputs={"version": {"type": "integer", "default": 16}}), job("undo")]


def fleet(**fields: object) -> dict[str, object]:
    items = [{"key": "db-1"}, {"key": "db-2"}]
    return {"name": "fleet", "job": "upgrade", "rollback": "undo", "items": items, **fields}


def from_file(**fields: object) -> dict[str, object]:
    """The same, with its items in a file."""
    return fleet(items=None, items_from="hosts.csv", **fields)


async def apply(served: Served, *carts: dict[str, object], **params: object) -> httpx.Response:
    text = json.dumps({"jobs": JOBS, "carts": carts})
    return await served.post("jobs:apply", content=text, headers=YAML, params=params)


async def apply_lines(served: Served, *lines: object) -> httpx.Response:
    body = "\n".join(map(json.dumps, lines))
    return await served.post("jobs:apply", content=body, headers=NDJSON)


def text_of(*carts: dict[str, object]) -> str:
    return json.dumps({"jobs": JOBS, "carts": carts})


async def items_of(served: Served, cart: str) -> list[tuple[str, Any]]:
    items = await served.engine.store.items(ItemQuery(cart))  # type: ignore[arg-type]
    return [(item.key, item.inputs) for item in items]


async def test_a_plan_tells_what_carts_would_do(served: Served) -> None:
    answer = await apply(served, fleet(schedule="@daily"), plan=True)

    [planned] = answer.json()["carts"]
    assert (planned["name"], planned["change"]) == ("fleet", "new")
    assert planned["words"].startswith("2 items one after another · none may fail · every day")
    assert planned["next_at"]
    assert (await served.get("cart-templates")).json()["items"] == []


async def test_applied_carts_are_listed_shown_and_deleted(served: Served) -> None:
    await apply(served, fleet(), fleet(name="second"))

    first = (await served.get("cart-templates", params={"limit": 1})).json()
    cursor = first["next_cursor"]
    second = (await served.get("cart-templates", params={"cursor": cursor})).json()
    shown = await served.get("cart-templates/fleet", Role.VIEWER)
    stale = await served.delete("cart-templates/fleet", headers={"If-Match": '"old"'})
    etag = shown.headers["etag"]
    deleted = await served.delete("cart-templates/fleet", headers={"If-Match": etag})
    gone = await served.get("cart-templates/fleet")

    assert [it["name"] for it in (*first["items"], *second["items"])] == ["fleet", "second"]
    assert shown.json()["document"]["rollback"] == "undo"
    assert (stale.status_code, deleted.status_code, gone.status_code) == (412, 204, 404)
    assert gone.json()["code"] == "template_not_found"


async def test_deleting_needs_an_editor(served: Served) -> None:
    await apply(served, fleet())

    operator = await served.client(Role.OPERATOR)
    refused = await operator.delete("/api/v1/cart-templates/fleet")

    assert refused.status_code == 403


async def test_a_template_is_submitted_by_its_name(served: Served) -> None:
    await apply(served, fleet())

    answer = await served.post("carts", json={"template": "fleet", "with": {"version": 17}})

    assert answer.status_code == 202, answer.text
    made = answer.json()["id"]
    expected = [("db-1", {"version": 17}), ("db-2", {"version": 17})]
    assert await items_of(served, made) == expected


class TestItemsFromFiles:
    async def test_they_come_line_by_line_after_the_file(self, served: Served) -> None:
        lines = [{"cart": "fleet", "key": f"db-{n}", "with": {"version": n}} for n in range(3)]

        answer = await apply_lines(served, text_of(from_file()), *lines)

        assert answer.status_code == 200, answer.text
        made = (await served.post("carts", json={"template": "fleet"})).json()["id"]
        assert await items_of(served, made) == [(f"db-{n}", {"version": n}) for n in range(3)]

    async def test_a_file_alone_is_refused(self, served: Served) -> None:
        answer = await apply(served, from_file())

        [error] = answer.json()["errors"]
        assert (answer.status_code, error["path"]) == (422, "carts[0].items_from")
        assert "the CLI reads the file and sends its items" in error["hint"]

    async def test_they_are_checked_like_items_in_the_file(self, served: Served) -> None:
        lines = [
            {"cart": "fleet", "key": "a", "with": {"version": "new"}},
            {"cart": "fleet", "key": "b", "colour": "red"},
            {"cart": "fleet", "key": "b"},
        ]

        answer = await apply_lines(served, text_of(from_file()), *lines)

        assert answer.status_code == 422
        paths = {error["path"] for error in answer.json()["errors"]}
        assert {"carts[0].items[1].colour", "carts[0].items[2].key"} <= paths

    async def test_items_that_no_cart_waits_for_are_refused(self, served: Served) -> None:
        answer = await apply_lines(served, text_of(fleet()), {"cart": "fleet", "key": "a"})

        [error] = answer.json()["errors"]
        assert "names no file" in error["message"]

    @pytest.mark.parametrize("line", ['{"key": "a"}', "[]", "{", '{"cart": 5, "key": "a"}'])
    async def test_a_bad_line_is_told_by_its_number(self, served: Served, line: str) -> None:
        body = f"{json.dumps(text_of(from_file()))}\n\n{line}"

        answer = await served.post("jobs:apply", content=body, headers=NDJSON)

        assert answer.status_code in (400, 422)
        assert answer.json()["errors"][0]["path"] == "line 3 of the body"

    async def test_the_first_line_is_the_file(self, served: Served) -> None:
        answer = await apply_lines(served, {"jobs": []})

        assert answer.json()["errors"][0]["path"] == "line 1 of the body"

    async def test_more_may_come_than_other_bodies_may_have(
        self, tmp_path: Path, anyio_backend: str
    ) -> None:
        lines = [{"cart": "fleet", "key": f"db-{n}"} for n in range(200)]
        settings = GatewaySettings(max_body_bytes=2_000, max_cart_bytes=10_000)
        async with serving_gateway(tmp_path, settings) as served:
            taken = await apply_lines(served, text_of(from_file()), *lines)
            too_large = await apply_lines(served, text_of(from_file()), *lines, *lines)

        assert taken.json()["carts"][0]["words"].startswith("200 items")
        assert too_large.status_code == 413


class TestRollback:
    @pytest.fixture
    async def carts(self, served: Served) -> CartScene:
        await apply(served, fleet())
        return CartScene(served)

    async def breached(self, carts: CartScene) -> str:
        answer = await carts.served.post("carts", json={"template": "fleet"})
        made = str(answer.json()["id"])
        await carts.play(made, failing=["db-2"])
        return made

    async def test_it_answers_with_the_cart_that_undoes(self, carts: CartScene) -> None:
        made = await self.breached(carts)

        answer = await carts.served.post(f"carts/{made}:rollback", Role.OPERATOR)

        undoing = answer.json()
        assert answer.status_code == 202, answer.text
        assert (undoing["name"], undoing["items"]) == ("fleet-rollback", 2)
        assert answer.headers["location"] == f"/api/v1/carts/{undoing['id']}"

    async def test_a_plan_changes_nothing(self, carts: CartScene) -> None:
        made = await self.breached(carts)

        answer = await carts.served.post(f"carts/{made}:rollback", params={"plan": True})

        assert (answer.status_code, answer.json()["items"]) == (200, 2)
        assert (await carts.show(made))["state"] == "PAUSED"

    async def test_a_cart_that_goes_on_is_a_conflict(self, carts: CartScene) -> None:
        made = (await carts.served.post("carts", json={"template": "fleet"})).json()["id"]

        answer = await carts.served.post(f"carts/{made}:rollback")

        assert (answer.status_code, answer.json()["code"]) == (409, "cart_not_stopped")

    async def test_viewers_may_not(self, carts: CartScene) -> None:
        made = await self.breached(carts)

        answer = await carts.served.post(f"carts/{made}:rollback", Role.VIEWER)

        assert answer.status_code == 403


async def test_a_mistyped_definition_gets_the_nearest_one(served: Served) -> None:
    await apply(served, fleet())

    mistyped = await served.get("cart-templates/fleett")
    never_started = await served.get("carts/fleet")

    assert (mistyped.status_code, mistyped.json()["hint"]) == (404, 'did you mean "fleet"?')
    assert never_started.json()["hint"] == "it was never started; rota cart submit fleet"

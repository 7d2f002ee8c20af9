"""Carts as they are handed in: what is taken, and everything that is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.domain.access import Role
from rota.server.gateway.cart_submissions import Blocks
from rota.server.gateway.parameters import GatewaySettings
from tests.unit.server.gateway.cart_scenes import (
    NDJSON,
    CartScene,
    cart,
    faults,
    header,
    item,
    items,
    lines,
    refusal,
)
from tests.unit.server.gateway.served import Served, serving_gateway

pytestmark = pytest.mark.anyio


@pytest.fixture
async def carts(served: Served) -> CartScene:
    return await CartScene.set(served)


async def stored(served: Served) -> list[Any]:
    return list((await served.get("carts")).json()["items"])


async def test_a_cart_is_taken_with_its_rules(carts: CartScene) -> None:
    answer = await carts.send(
        cart(
            10,
            order="groups",
            group_size=[1, "50%"],
            max_parallel=4,
            failures={"allow": "10%", "of": "wave"},
            between={"wait": "5m", "check": "smoke", "approve": "admin"},
            labels={"tier": "db"},
            priority=7,
        )
    )

    made = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/carts/{made['id']}"
    assert (made["state"], made["items"], made["pending"]) == ("PLANNED", 10, 10)
    assert (made["order"], made["group_size"], made["max_parallel"]) == ("groups", [1, "50%"], 4)
    assert made["failures"] == {"allow": "10%", "of": "wave", "then": "pause", "strict": False}
    assert made["between"] == {"wait": "5m", "check": "smoke", "approve": "admin"}
    assert (made["created_by"], made["labels"], made["priority"]) == ("operator", {"tier": "db"}, 7)


async def test_items_come_line_by_line(carts: CartScene) -> None:
    body = lines(header(2), item("a", order=10), item("b", order=20, **{"with": {"host": "h"}}))

    answer = await carts.stream(b"\r\n" + body.replace(b"\n", b"\r\n\r\n"))

    assert (answer.status_code, answer.json()["order"]) == (202, "explicit")
    listed = (await carts.served.get("carts/rollout/items")).json()["items"]
    assert [(each["key"], each["wave"], each["inputs"]) for each in listed] == [
        ("a", 10, {"host": "here"}),
        ("b", 20, {"host": "h"}),
    ]


async def blocks_of(text: bytes, *, pieces: int, size: int) -> list[tuple[int, bytes]]:
    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(text), pieces):
            yield text[start : start + pieces]

    blocks = Blocks(body(), size)
    return [await blocks.first_line(), *[block async for block in blocks.others()]]


async def test_lines_may_be_cut_anywhere() -> None:
    text = b'\n{"a": 1}\n\n{"b": "\xc3\xa9"}\n{"c": 3}'

    found = [await blocks_of(text, pieces=cut, size=5) for cut in range(1, 30)]

    lines_of_each = [
        [
            (number, line)
            for first, block in blocks
            for number, line in enumerate(block.split(b"\n"), first)
            if line
        ]
        for blocks in found
    ]
    expected = [(2, b'{"a": 1}'), (4, b'{"b": "\xc3\xa9"}'), (5, b'{"c": 3}')]
    assert lines_of_each == [expected] * 29


async def test_a_block_has_many_lines_and_none_of_them_in_part() -> None:
    text = b"header\n" + b"1234567\n" * 100

    first, *blocks = await blocks_of(text, pieces=50, size=64)

    assert first == (1, b"header\n")
    assert {block for _, block in blocks[:-1]} == {b"1234567\n" * 8}
    assert [line for line, _ in blocks] == list(range(2, 102, 8))


async def test_no_more_is_kept_than_a_block_and_a_piece() -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield b"header\n" * 10

    blocks = Blocks(body(), 140)
    await blocks.first_line()
    async for _ in blocks.others():
        assert len(blocks._kept) <= 210


async def test_a_plan_tells_what_would_happen_and_stores_nothing(carts: CartScene) -> None:
    document = cart(10, order="groups", group_size=[1, 5], failures={"allow": "25%"})

    answer = await carts.send(document, plan=True)

    plan = answer.json()
    assert (answer.status_code, plan["waves"], plan["wave_count"]) == (200, "1, 5, 4", 3)
    assert (plan["limit"], plan["eta_seconds"]) == (2, None)
    assert "no live worker" in plan["unrunnable"][0]
    assert await stored(carts.served) == []


async def test_a_plan_is_made_of_lines_too(carts: CartScene) -> None:
    await carts.served.worker()

    answer = await carts.stream(lines(header(2), *items(2)), plan=True)

    assert (answer.status_code, answer.json()["waves"]) == (200, "1 × 2")
    assert answer.json()["unrunnable"] == []


async def test_a_cart_begins_at_its_time(carts: CartScene) -> None:
    answer = await carts.send(cart(starts_at="2999-01-01T02:00:00+02:00"))

    await carts.advance(answer.json()["id"])
    shown = await carts.show()
    assert (shown["state"], shown["starts_at"]) == ("PLANNED", "2999-01-01T00:00:00Z")


async def test_the_same_key_gives_the_same_cart(carts: CartScene) -> None:
    first = await carts.send(cart(), key="once")

    again = await carts.send(cart(), key="once")
    other = await carts.send(cart(4), key="once")

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["id"] == first.json()["id"]
    assert refusal(other)[0] == 409
    assert len(await stored(carts.served)) == 1


async def test_two_of_one_name_do_not_live_together(carts: CartScene) -> None:
    await carts.submit()

    assert refusal(await carts.send(cart())) == (409, "cart_is_live")
    assert len(await stored(carts.served)) == 1


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no items": (cart(items=[]), "items"),
    "items left out": ({"name": "rollout", "job": "upgrade"}, "items"),
    "a key twice": (cart(items=[item("a"), item("a")]), "items[1].key"),
    "order that is no integer": (cart(items=[item("a", order="1st")]), "items[0].order"),
    "order below one": (cart(items=[item("a", order=0)]), "items[0].order"),
    "order of some": (cart(items=[item("a", order=1), item("b")]), "items[1]"),
    "order twice": (cart(order="serial", items=[item("a", order=1)]), "items[0].order"),
    "101 %": (cart(failures={"allow": "101%"}), "failures.allow"),
    "less than none": (cart(failures={"allow": -1}), "failures.allow"),
    "group of none": (cart(order="groups", group_size=0), "group_size"),
    "group of 0 %": (cart(order="groups", group_size=["0%"]), "group_size[0]"),
    "groups without a size": (cart(order="groups"), "order"),
    "max_parallel 0": (cart(max_parallel=0), "max_parallel"),
    "no name": ({"job": "upgrade", "items": items(1)}, ""),
    "unknown key": (cart(max_paralel=3), "max_paralel"),
    "unknown key of an item": (cart(items=[item("a", odrer=3)]), "items[0].odrer"),
    "count of a document": (cart(count=3), "count"),
    "schedule": (cart(schedule="0 2 * * *"), "schedule"),
    "file": (cart(items_from="fleet.csv"), "items_from"),
    "time without offset": (cart(starts_at="2999-01-01T00:00:00"), "starts_at"),
    "time that is none": (cart(starts_at=5), "starts_at"),
    "key with NUL": (cart(items=[item("a\0b")]), "items[0].key"),
    "unknown job": (cart(job="nope"), "items[0] (db-0)"),
    "unknown job of an item": (cart(items=[item("a"), item("b", job="x")]), "items[1] (b)"),
    "unknown input": (cart(items=[item("a", **{"with": {"hots": "x"}})]), "items[0] (a)"),
    "input of another type": (cart(items=[item("a", **{"with": {"host": 5}})]), "items[0] (a)"),
    "key of a template": ({"template": "x", "items": []}, "items"),
    "name of a template": ({"template": 5}, "template"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_wrong_is_told_with_its_place(carts: CartScene, what: str) -> None:
    document, path = REFUSED[what]

    answer = await carts.send(document)

    assert refusal(answer) == (422, "invalid"), answer.text
    assert path in [place for place, _ in faults(answer)], answer.text
    assert await stored(carts.served) == []


@pytest.mark.parametrize("what", REFUSED)
async def test_a_plan_refuses_what_submitting_would(carts: CartScene, what: str) -> None:
    document, _ = REFUSED[what]

    assert refusal(await carts.send(document, plan=True)) == (422, "invalid")


async def test_everything_is_told_at_once(carts: CartScene) -> None:
    document = cart(schedule="daily", max_parallel=0, starts_at="soon", colour="red")

    answer = await carts.send(document)

    assert {path for path, _ in faults(answer)} == {
        "schedule",
        "max_parallel",
        "starts_at",
        "colour",
    }


async def test_a_thousand_faults_are_counted_and_a_hundred_told(carts: CartScene) -> None:
    wrong = [item(f"k{number}", order="x") for number in range(500)]

    whole = await carts.send(cart(items=wrong))
    streamed = await carts.stream(lines(header(500), *wrong))

    assert len(faults(whole)) == len(faults(streamed)) == 100
    assert "500" in whole.json()["detail"]
    assert "500 of 500" in streamed.json()["detail"]


async def test_a_template_that_was_not_applied_is_not_found(carts: CartScene) -> None:
    assert refusal(await carts.send({"template": "fleet"})) == (404, "template_not_found")


BROKEN_LINES = {
    "broken JSON": (lines(header(2), item("a")) + b'{"key":\n', ("", 3)),
    "no JSON": (lines(header(1)) + b"\xff\n", ("", 2)),
    "a key twice in an item": (lines(header(1)) + b'{"key":"a","key":"b"}\n', ("", 2)),
    "not a mapping": (lines(header(2), item("a"), ["b"]), ("items[1]", 3)),
    "unknown key": (lines(header(2), item("a"), item("b", odrer=1)), ("items[1] (b)", 3)),
    "order": (lines(header(2), item("a"), item("b", order=1.5)), ("items[1] (b)", 3)),
    "no key": (lines(header(1), {"order": 1}), ("items[0]", 2)),
    "a key twice": (lines(header(2), item("a"), item("a")), ("items[1] (a)", None)),
    "unknown job": (lines(header(1), item("a", job="nope")), ("items[0] (a)", None)),
    "header with items": (lines(cart(1, count=1)), ("items", None)),
    "no count": (lines({"name": "rollout", "job": "upgrade"}, item("a")), ("count", None)),
    "count of none": (lines(header(0)), ("count", None)),
    "too many": (lines(header(100_001)), ("count", None)),
    "count that is true": (lines(header(True), item("a")), ("count", None)),
    "101 %": (lines(header(1, failures={"allow": "101%"}), item("a")), ("failures.allow", None)),
}


@pytest.mark.parametrize("what", BROKEN_LINES)
async def test_a_bad_line_is_told_with_its_number(carts: CartScene, what: str) -> None:
    body, place = BROKEN_LINES[what]

    answer = await carts.stream(body)

    assert refusal(answer) == (422, "invalid"), answer.text
    assert place in faults(answer), answer.text
    assert await stored(carts.served) == []


@pytest.mark.parametrize(
    ("came", "detail"),
    [(0, "the cart has no items"), (2, "3 items were announced, 2 came"), (4, "more came")],
)
async def test_as_many_items_must_come_as_were_announced(
    carts: CartScene, came: int, detail: str
) -> None:
    answer = await carts.stream(lines(header(3), *items(came)))

    assert refusal(answer) == (422, "invalid")
    assert detail in answer.json()["detail"]
    assert await stored(carts.served) == []


@pytest.mark.parametrize("body", [b"", b"\n\n", b"nonsense\n", b"[" * 100_000])
async def test_a_header_that_cannot_be_read_is_malformed(carts: CartScene, body: bytes) -> None:
    assert refusal(await carts.stream(body)) == (400, "malformed")


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'{"name": 1, "name": 2}', b"[" * 100_000])
async def test_a_document_that_cannot_be_read_is_malformed(carts: CartScene, body: bytes) -> None:
    answer = await carts.served.post(
        "carts", content=body, headers={"Content-Type": "application/json"}
    )

    assert refusal(answer) == (400, "malformed")


async def test_a_cart_of_another_type_is_refused(carts: CartScene) -> None:
    answer = await carts.served.post("carts", content=b"a,b", headers={"Content-Type": "text/csv"})

    assert refusal(answer) == (415, "unsupported_media_type")


async def test_a_line_that_is_too_long_is_refused(carts: CartScene) -> None:
    long = b'{"key": "' + b"x" * 1_000_001

    answer = await carts.stream(lines(header(1)) + long)

    assert refusal(answer) == (422, "invalid")
    assert faults(answer) == [("", 2)]


async def test_lines_may_be_larger_than_other_bodies_up_to_a_limit_of_their_own(
    tmp_path: Path, anyio_backend: str
) -> None:
    settings = GatewaySettings(max_body_bytes=2_000, max_cart_bytes=4_000)
    async with serving_gateway(tmp_path, settings) as served:
        carts = await CartScene.set(served)

        whole = await carts.send(cart(150))
        streamed = await carts.stream(lines(header(150), *items(150)))
        elsewhere = await served.post("jobs:validate", content=b" " * 3_000, headers=NDJSON)
        too_large = await carts.stream(lines(header(300, name="b"), *items(300)))

        assert refusal(whole) == (413, "too_large")
        assert streamed.status_code == 202
        assert refusal(elsewhere) == (413, "too_large")
        assert refusal(too_large) == (413, "too_large")


async def test_a_body_that_grows_too_large_leaves_nothing(
    tmp_path: Path, anyio_backend: str
) -> None:
    settings = GatewaySettings(max_cart_bytes=100_000)
    async with serving_gateway(tmp_path, settings) as served:
        await CartScene.set(served)

        async def body() -> Any:
            yield lines(header(100_000))
            for start in range(0, 10_000, 1_000):
                yield lines(*(item(f"db-{number}") for number in range(start, start + 1_000)))

        answer = await served.post("carts", content=body(), headers=NDJSON)

        assert refusal(answer) == (413, "too_large")
        now = await served.engine.store.now()
        assert await served.engine.store.forget_loading_carts(now) == 0


async def test_nothing_is_left_of_a_caller_who_leaves(carts: CartScene) -> None:
    sent = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if sent.is_set():
            return {"type": "http.disconnect"}
        sent.set()
        return {
            "type": "http.request",
            "body": lines(header(9_000), *items(3_000)),
            "more_body": True,
        }

    async def send(_: Any) -> None: ...

    served = carts.served
    token = served.secrets[Role.OPERATOR]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "POST",
        "path": "/api/v1/carts",
        "query_string": b"",
        "headers": [
            (b"authorization", f"Bearer {token}".encode()),
            (b"content-type", b"application/x-ndjson"),
        ],
        "client": ("127.0.0.1", 1),
    }
    await served.app(scope, receive, send)

    now = await served.engine.store.now()
    assert await served.engine.store.forget_loading_carts(now) == 0
    assert await stored(served) == []


async def test_the_contract_describes_both_ways(served: Served) -> None:
    document = (await served.get("openapi.json")).json()

    body = document["paths"]["/api/v1/carts"]["post"]["requestBody"]["content"]

    whole, template = body["application/json"]["schema"]["anyOf"]
    assert {"items", "name", "starts_at"} <= whole["properties"].keys()
    assert not {"items_from", "schedule"} & whole["properties"].keys()
    assert template["required"] == ["template"]
    example = body["application/x-ndjson"]["example"].splitlines()
    assert json.loads(example[0])["count"] == len(example) - 1


async def test_the_examples_of_the_contract_are_taken(carts: CartScene) -> None:
    document = (await carts.served.get("openapi.json")).json()
    body = document["paths"]["/api/v1/carts"]["post"]["requestBody"]["content"]
    await carts.served.apply({**cart_job(), "name": "upgrade-db"})

    whole = await carts.send(body["application/json"]["examples"]["cart"]["value"], plan=True)
    streamed = await carts.stream(body["application/x-ndjson"]["example"].encode(), plan=True)

    assert (whole.status_code, streamed.status_code) == (200, 200)


def cart_job() -> dict[str, object]:
    return {"steps": [{"run": "true"}], "inputs": {"host": {"type": "string"}}}

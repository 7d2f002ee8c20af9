from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rota import AsyncClient, Client, Invalid
from rota.api.carts import CartPlan, ordinal
from rota.sdk.carts import Item
from rota.sdk.exchange import Call, read_as, to_json
from tests.unit.sdk.answering import Answering, document

CART = {"id": "c_1", "name": "upgrade", "state": "RUNNING", "items": 3}
PLAN = {"name": "upgrade", "items": 26, "order": "groups", "waves": "1, 5, 20", "limit": 2}


@pytest.fixture
def client(server: Answering) -> Iterator[Client]:
    with Client(server.url, "secret") as client:
        yield client


class TestSubmitting:
    def test_header_comes_first_and_then_a_line_for_each_item(
        self, server: Answering, client: Client
    ) -> None:
        server.on("POST /carts", document(CART, 202))
        items = ({"key": f"db-{number}"} for number in range(3))

        cart = client.submit_cart({"name": "upgrade", "job": "up"}, items, count=3, key="once")

        (asked,) = server.asked
        assert cart.id == "c_1"
        assert asked.headers["Content-Type"] == "application/x-ndjson"
        assert asked.headers["Idempotency-Key"] == "once"
        assert asked.lines == [
            {"name": "upgrade", "job": "up", "count": 3},
            {"key": "db-0"},
            {"key": "db-1"},
            {"key": "db-2"},
        ]

    def test_items_are_taken_as_they_are_sent(self) -> None:
        taken: list[int] = []

        def items() -> Iterator[Item]:
            for number in range(100_000):
                taken.append(number)
                yield {"key": f"host-{number}", "with": {"host": f"host-{number}"}}

        pieces = iter(_pieces(Client.submit_cart({"name": "up"}, items(), count=100_000)))
        first = next(pieces)

        assert len(first) < 100_000
        assert len(taken) < 3_000
        assert sum(piece.count(b"\n") for piece in pieces) + first.count(b"\n") == 100_001

    def test_number_of_items_must_be_known(self) -> None:
        with pytest.raises(TypeError, match="count="):
            Client.submit_cart({"name": "up"}, iter([{"key": "a"}]))

    def test_only_what_can_be_gone_through_again_may_be_sent_again(self) -> None:
        again = Client.submit_cart({"name": "up"}, [{"key": "a"}])
        once = Client.submit_cart({"name": "up"}, iter([{"key": "a"}]), count=1)

        assert again.is_repeatable
        assert b"".join(_pieces(again)) == b"".join(_pieces(again))
        assert not once.is_repeatable

    def test_event_loop_streams_the_same(self, server: Answering) -> None:
        server.on("POST /carts", document(CART, 202))

        async def submit() -> str:
            async with AsyncClient(server.url, "secret") as client:
                items = [{"key": "a"}, {"key": "b"}]
                return (await client.submit_cart({"name": "up"}, items)).id

        assert asyncio.run(submit()) == "c_1"
        assert [line.get("key") for line in server.asked[0].lines] == [None, "a", "b"]

    def test_template_is_submitted_by_name(self, server: Answering, client: Client) -> None:
        server.on("POST /carts", document(CART, 202))

        client.submit_template("upgrade", {"version": 16}, at="2026-06-01T22:00:00+02:00")

        assert server.asked[0].document == {
            "template": "upgrade",
            "with": {"version": 16},
            "starts_at": "2026-06-01T22:00:00+02:00",
        }

    def test_refusal_in_the_middle_of_the_items_is_heard(self) -> None:
        with refusing_server() as url, Client(url, "secret") as client:
            items = [{"key": "x" * 1_000}] * 20_000

            with pytest.raises(Invalid, match="too many items"):
                client.submit_cart({"name": "up"}, items)


class refusing_server:  # noqa: N801 (used like a function)
    """Answers as soon as it has read a header, and hangs up without reading the rest."""

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(1_000)
            body = b'{"type": "urn:rota:problem:too_large", "detail": "too many items"}'
            head = f"HTTP/1.1 413 Too Large\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body)
            connection.shutdown(socket.SHUT_WR)
            # Half closed first: an unread byte at the close would take the answer away.
            while connection.recv(1 << 20):
                pass


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"order": "serial", "items": 1}, "one after another · up to 2 may fail, the 3rd pauses"),
        (
            {"order": "parallel", "failures": {"then": "cancel", "of": "wave"}},
            "all at once · up to 2 of each wave may fail, the 3rd cancels",
        ),
        (
            {"order": "explicit", "failures": {"then": "continue"}},
            "waves 1, 5, 20 · up to 2 may fail, more are only recorded",
        ),
    ],
)
def test_plan_tells_order_and_allowance(fields: dict[str, Any], words: str) -> None:
    assert str(read_as(CartPlan, to_json({**PLAN, **fields}))).endswith(words)


def test_ordinals() -> None:
    numbers = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1_001]

    assert [ordinal(number) for number in numbers] == [
        *["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th", "1,001st"]
    ]


def test_edit_is_bound_to_the_version_that_was_seen(server: Answering, client: Client) -> None:
    server.on("PATCH /carts/c_1", document(CART))

    client.edit_cart("c_1", max_parallel=5, items=[{"key": "a", "skip": True}], if_match="7")

    (asked,) = server.asked
    assert asked.headers["If-Match"] == '"7"'
    assert asked.document == {"max_parallel": 5, "items": [{"key": "a", "skip": True}]}


def test_items_are_asked_for_by_what_they_have_in_common(server: Answering, client: Client) -> None:
    item = {"key": "a", "state": "FAILED", "wave": 2, "cause": "disk full on #"}
    server.on("GET /carts/c_1/items", document({"items": [item]}))

    page = client.list_cart_items("c_1", state=["FAILED", "TIMED_OUT"], wave=2, cause="disk full")

    assert [item.key for item in page] == ["a"]
    assert server.asked[0].query == {
        "state": ["FAILED", "TIMED_OUT"],
        "wave": ["2"],
        "cause": ["disk full"],
    }


def _pieces(call: Call[Any]) -> Iterator[bytes]:
    assert call.body is not None
    assert not isinstance(call.body, bytes)
    return iter(call.body)

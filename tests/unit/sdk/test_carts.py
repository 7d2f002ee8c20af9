from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from rota import App, AsyncClient, CartDraft, CartFailed, CartPaused, Client, Invalid
from rota.api.carts import CartPlan, ordinal
from rota.sdk.carts import Item
from rota.sdk.exchange import Call, read_as
from rota.sdk.values import to_json
from tests.unit.sdk.answering import Answering, document, problem

CART = {"id": "c_1", "name": "upgrade", "state": "RUNNING", "items": 3}
PLAN = {"name": "upgrade", "items": 26, "order": "groups", "waves": "1, 5, 20", "limit": 2}

app = App("fleet")


@app.job()
def upgrade(host: str, version: int) -> None: ...


@app.job(name="check-host")
def check(hosts: list[str]) -> None: ...


@pytest.fixture
def client(server: Answering) -> Iterator[Client]:
    with Client(server.url, "secret") as client, app.submitting_to(client, _no_loop()):
        yield client


def _no_loop() -> Any:
    return AsyncClient("http://127.0.0.1:1", "secret")


def draft(**options: Any) -> CartDraft:
    cart = app.cart("upgrade", **options)
    cart.add(upgrade, key="db-1", host="db-1", version=16)
    return cart


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
            body = b'{"detail": "too many items"}'
            head = f"HTTP/1.1 413 Too Large\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body)
            connection.shutdown(socket.SHUT_WR)
            # Half closed first: an unread byte at the close would take the answer away.
            while connection.recv(1 << 20):
                pass


class TestDraft:
    def test_functions_are_packed_as_their_jobs_take_them(
        self, server: Answering, client: Client
    ) -> None:
        server.on("POST /carts", document(CART, 202))
        cart = draft(order="groups", group_size=[1, "10%"], between={"wait": timedelta(minutes=5)})
        cart.add(check, key="all", hosts=["db-1"])
        cart.add("by-name", key="other", target="x")

        handle = cart.submit(key="k", at="2026-06-01T22:00:00+02:00")

        (asked,) = server.asked
        header, *items = asked.lines
        assert (handle.id, handle.url) == ("c_1", f"{server.url}/carts/c_1")
        assert header == {
            "name": "upgrade",
            "job": "upgrade",
            "order": "groups",
            "group_size": [1, "10%"],
            "between": {"wait": "300s"},
            "count": 3,
            "starts_at": "2026-06-01T22:00:00+02:00",
        }
        assert items == [
            {"key": "db-1", "with": {"host": "db-1", "version": 16}},
            {"key": "all", "with": {"arguments": '{"hosts":["db-1"]}'}, "job": "check-host"},
            {"key": "other", "with": {"target": "x"}, "job": "by-name"},
        ]

    def test_numbers_of_items_are_kept(self, server: Answering, client: Client) -> None:
        server.on("POST /carts", document(CART, 202))
        cart = app.cart("upgrade")
        cart.add(upgrade, key="a", order=20, host="a", version=1)
        cart.add_item("odd", "b", {"key": "an input", "order": 3}, order=10)

        cart.submit()

        assert [item["order"] for item in server.asked[0].lines[1:]] == [20, 10]
        assert server.asked[0].lines[2]["with"] == {"key": "an input", "order": 3}

    def test_arguments_must_fit_the_function(self) -> None:
        with pytest.raises(TypeError, match="version"):
            app.cart("upgrade").add(upgrade, key="a", host="a")  # type: ignore[call-overload]

    def test_key_is_taken_once(self) -> None:
        cart = draft()

        with pytest.raises(ValueError, match='key "db-1"'):
            cart.add(upgrade, key="db-1", host="db-1", version=17)

    def test_there_is_a_most(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rota.sdk.cart_drafts.MOST_ITEMS", 1)
        cart = draft()

        with pytest.raises(ValueError, match="at most"):
            cart.add(upgrade, key="db-2", host="db-2", version=16)
        assert len(cart) == 1

    def test_misspelt_option_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"no option of a cart: max_parallel\?"):
            app.cart("upgrade", max_paralel=3)  # type: ignore[call-arg]

    def test_plan_reads_well(self, server: Answering, client: Client) -> None:
        server.on("POST /carts", document({**PLAN, "failures": {"allow": "10%"}}))

        plan = draft().plan()

        assert server.asked[0].query == {"plan": ["true"]}
        assert str(plan) == (
            "upgrade · 26 items · groups 1, 5, 20 · up to 2 may fail (10%), the 3rd pauses"
        )

    def test_event_loop_plans_and_submits(self, server: Answering) -> None:
        server.on("POST /carts", document(PLAN), document(CART, 202))
        server.on("POST /carts/c_1:pause", document(CART))
        server.on("GET /carts/c_1", document({**CART, "state": "COMPLETED"}))

        async def use() -> str:
            async with AsyncClient(server.url, "secret") as client:
                with app.submitting_to(Client(server.url, "secret"), client):
                    assert (await draft().aplan()).items == 26
                    handle = await draft().asubmit()
                    await handle.pause()
                    assert (await handle.refresh()).state == "COMPLETED"
                    return (await handle.watch(timeout=5)).state

        assert asyncio.run(use()) == "COMPLETED"

    def test_carts_need_a_server(self) -> None:
        class NoServer: ...

        nobody: Any = NoServer()
        with app.submitting_to(nobody, nobody), pytest.raises(TypeError, match="need a server"):
            draft().submit()


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
            "groups 1, 5, 20 · up to 2 may fail, more are only recorded",
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


class TestHandle:
    @pytest.fixture
    def submitted(self, server: Answering, client: Client) -> Any:
        server.on("POST /carts", document(CART, 202))
        return draft().submit()

    def test_cart_that_completes_is_watched_to_its_end(
        self, server: Answering, submitted: Any
    ) -> None:
        server.on("GET /carts/c_1", document(CART), document({**CART, "state": "COMPLETED"}))

        assert submitted.watch().state == "COMPLETED"

    def test_failures_within_the_budget_are_no_failure(
        self, server: Answering, submitted: Any
    ) -> None:
        server.on("GET /carts/c_1", document({**CART, "state": "PARTIAL", "failed": 1}))

        assert submitted.watch().failed == 1

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"state": "PAUSED", "failed": 3, "limit": 2}, CartPaused),
            ({"state": "FAILED"}, CartFailed),
            ({"state": "CANCELLED"}, CartFailed),
            ({"state": "PARTIAL", "breached": True}, CartFailed),
        ],
    )
    def test_all_else_is_an_error_that_has_the_cart(
        self,
        server: Answering,
        submitted: Any,
        fields: dict[str, Any],
        error: type[CartPaused] | type[CartFailed],
    ) -> None:
        server.on("GET /carts/c_1", document({**CART, **fields}))

        with pytest.raises(error) as caught:
            submitted.watch()

        assert isinstance(caught.value, CartPaused | CartFailed)
        assert caught.value.cart.state == fields["state"]
        assert "rota cart show c_1 --failed" in caught.value.hint

    def test_watching_bears_with_a_server_that_is_away(
        self, server: Answering, submitted: Any
    ) -> None:
        away = problem(503, detail="restarting")
        server.on("GET /carts/c_1", away, away, document({**CART, "state": "COMPLETED"}))

        assert submitted.watch().state == "COMPLETED"

    def test_time_that_is_up_leaves_the_cart_going(self, server: Answering, submitted: Any) -> None:
        server.on("GET /carts/c_1", document(CART))

        with pytest.raises(TimeoutError, match="c_1"):
            submitted.watch(timeout=0)

    @pytest.mark.parametrize(
        ("steer", "verb", "body"),
        [
            (lambda cart: cart.pause(), "pause", None),
            (lambda cart: cart.resume(), "resume", None),
            (lambda cart: cart.resume(allow="3%"), "resume", {"allow": "3%"}),
            (lambda cart: cart.approve(), "approve", None),
            (lambda cart: cart.cancel(), "cancel", {"running": "stop"}),
            (lambda cart: cart.cancel("finish"), "cancel", {"running": "finish"}),
            (lambda cart: cart.retry(), "retry", {"select": "failed"}),
            (
                lambda cart: cart.retry(skipped=True, cause="disk full"),
                "retry",
                {"select": "failed+skipped", "cause": "disk full"},
            ),
            (
                lambda cart: cart.retry(failed=False, keys=["a"], from_wave=2),
                "retry",
                {"select": "all", "keys": ["a"], "from_wave": 2},
            ),
        ],
    )
    def test_steering_sends_what_was_asked_for(
        self,
        server: Answering,
        submitted: Any,
        steer: Callable[[Any], object],
        verb: str,
        body: object,
    ) -> None:
        server.on(f"POST /carts/c_1:{verb}", document(CART))

        steer(submitted)

        sent = server.asked[-1]
        assert (sent.document if sent.body else None) == body

    def test_only_skipped_ones_cannot_be_retried(self, submitted: Any) -> None:
        with pytest.raises(TypeError, match="together with failed"):
            submitted.retry(failed=False, skipped=True)


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

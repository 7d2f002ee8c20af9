from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from rota import App, AsyncClient, CartDraft, CartFailed, CartPaused, Client
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

    def test_items_may_be_for_a_worker(self, server: Answering, client: Client) -> None:
        server.on("POST /carts", document(CART, 202))
        cart = app.cart("upgrade", within="10m")
        cart.add_item("odd", "b", {}, needs={"worker": "web-01"})

        cart.submit()

        assert server.asked[0].lines[0]["within"] == "10m"
        assert server.asked[0].lines[1] == {"key": "b", "needs": {"worker": "web-01"}}

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
            "upgrade · 26 items · waves 1, 5, 20 · up to 2 may fail (10%), the 3rd pauses"
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

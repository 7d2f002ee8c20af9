"""The calls about carts, each from the outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from rota.contracts import carts_pb2 as pb
from rota.contracts.client_pb2 import GetDueJobsRequest
from rota.domain.access import Role
from rota.server.gateway.parsing import ParsingPool
from tests.unit.server.gateway.cart_scenes import CartScene
from tests.unit.server.gateway.rpc.conftest import Calls

pytestmark = pytest.mark.anyio

INVALID = grpc.StatusCode.INVALID_ARGUMENT
REFUSED = grpc.StatusCode.FAILED_PRECONDITION
MISSING = grpc.StatusCode.NOT_FOUND


def item(key: str, **fields: Any) -> pb.CartItem:
    return pb.CartItem(key=key, **fields)


def items(count: int) -> list[pb.CartItem]:
    return [item(f"db-{number}") for number in range(count)]


def header(count: int, **fields: Any) -> pb.SubmitCartRequest:
    given = {"name": "rollout", "job": "upgrade", "count": count, **fields}
    return pb.SubmitCartRequest(header=pb.CartHeader(**given))


def batch(*entries: pb.CartItem) -> pb.SubmitCartRequest:
    return pb.SubmitCartRequest(items=pb.CartItems(items=entries))


def stream(*parts: pb.SubmitCartRequest) -> AsyncIterator[pb.SubmitCartRequest]:
    async def each() -> AsyncIterator[pb.SubmitCartRequest]:
        for part in parts:
            yield part

    return each()


@dataclass(frozen=True, slots=True)
class CartCalls:
    """Calls, and the scene that they are about."""

    calls: Calls
    scene: CartScene

    async def __call__(self, name: str, role: Role = Role.OPERATOR, **fields: Any) -> Any:
        return await self.calls(name, self._request(name, fields), role)

    async def refused(
        self, name: str, role: Role = Role.OPERATOR, **fields: Any
    ) -> tuple[grpc.StatusCode, str]:
        status, problem = await self.calls.refused(name, self._request(name, fields), role)
        return status, problem.code

    async def submit(self, count: int = 3, **fields: Any) -> pb.Cart:
        parts = stream(header(count, **fields), batch(*items(count)))
        cart: pb.Cart = (await self.calls("SubmitCart", parts, Role.OPERATOR)).cart
        return cart

    async def started(self, count: int = 3, **fields: Any) -> pb.Cart:
        cart = await self.submit(count, **fields)
        await self.scene.advance(cart.id)
        return cart

    def _request(self, name: str, fields: dict[str, Any]) -> Any:
        return getattr(pb, f"{name}Request")(**{"cart": "rollout", **fields})


@pytest.fixture
async def carts(calls: Calls) -> CartCalls:
    return CartCalls(calls, await CartScene.set(calls.served))


class TestSubmitting:
    async def test_items_may_be_for_a_worker_and_wait_for_it(self, carts: CartCalls) -> None:
        ten = Duration(seconds=600)
        parts = stream(header(1, within=ten), batch(item("a", needs={"worker": "web-1"})))

        cart = (await carts.calls("SubmitCart", parts, Role.OPERATOR)).cart
        [listed] = (await carts("ListItems", cart=cart.id)).items

        assert cart.within == ten
        assert dict(listed.needs) == {"worker": "web-1"}

    async def test_large_batches_are_parsed_by_a_child(self, carts: CartCalls) -> None:
        parts = stream(header(3_000), *(batch(*items(3_000)[n::2]) for n in range(2)))

        cart = (await carts.calls("SubmitCart", parts, Role.OPERATOR)).cart

        assert cart.items == 3_000
        assert len(carts.calls.served.app.state.parsing.pids) == 1

    async def test_too_many_large_ones_of_one_caller_are_refused(self, carts: CartCalls) -> None:
        pool: ParsingPool = carts.calls.served.app.state.parsing

        async def take() -> None:
            async with pool.turn("operator"):
                pass

        async with asyncio.TaskGroup() as group, pool.turn("operator"):
            for _ in range(pool.limits.waiting_of_caller):
                group.create_task(take())
            parts = stream(header(3_000), batch(*items(3_000)))
            status, problem = await carts.calls.refused("SubmitCart", parts, Role.OPERATOR)

        assert (status, problem.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too_many_files")

    async def test_items_come_in_batches(self, carts: CartCalls) -> None:
        parts = stream(
            header(
                3,
                order="groups",
                group_size=["1", "50%"],
                max_parallel=4,
                failures=pb.CartFailures(allow="2%", of="wave", strict=True),
                between=pb.CartBetween(wait=Duration(seconds=90), check="smoke", approve="admin"),
                labels={"tier": "db"},
                priority=0,
            ),
            batch(item("a", inputs_json='{"host": "h"}')),
            batch(item("b"), item("c")),
        )

        cart = (await carts.calls("SubmitCart", parts, Role.OPERATOR)).cart

        assert (cart.state, cart.items, cart.created_by) == (pb.CART_STATE_PLANNED, 3, "operator")
        assert (cart.order, cart.group_size, cart.max_parallel) == ("groups", ["1", "50%"], 4)
        assert (cart.failures.allow, cart.failures.of, cart.failures.then) == (
            "2%",
            "wave",
            "pause",
        )
        assert cart.failures.strict
        assert (cart.between.wait.seconds, cart.between.check) == (90, "smoke")
        assert (cart.labels, cart.HasField("priority"), cart.priority) == ({"tier": "db"}, True, 0)
        listed = (await carts("ListItems")).items
        assert [(each.key, each.wave, each.inputs_json) for each in listed] == [
            ("a", 1, '{"host": "h"}'),
            ("b", 2, '{"host": "here"}'),
            ("c", 2, '{"host": "here"}'),
        ]

    async def test_order_numbers_are_taken(self, carts: CartCalls) -> None:
        parts = stream(header(2), batch(item("a", order=20), item("b", order=10)))

        cart = (await carts.calls("SubmitCart", parts)).cart

        assert cart.order == "explicit"
        assert [each.wave for each in (await carts("ListItems")).items] == [20, 10]

    async def test_a_plan_stores_nothing(self, carts: CartCalls) -> None:
        parts = stream(header(3, failures=pb.CartFailures(allow="50%")), batch(*items(3)))

        plan = await carts.calls("PlanCart", parts, Role.OPERATOR)

        assert (plan.items, plan.waves, plan.wave_count, plan.limit) == (3, "1 × 3", 3, 1)
        assert not plan.HasField("eta")
        assert "no live worker" in plan.unrunnable[0]
        assert not (await carts.calls("ListCarts", pb.ListCartsRequest())).carts

    async def test_the_same_key_gives_the_same_cart(self, carts: CartCalls) -> None:
        first = await carts.submit(idempotency_key="once")

        assert await carts.submit(idempotency_key="once") == first

    async def test_it_begins_at_its_time(self, carts: CartCalls) -> None:
        cart = await carts.submit(starts_at=datetime(2999, 1, 1, tzinfo=UTC))

        assert cart.starts_at.ToDatetime(UTC) == datetime(2999, 1, 1, tzinfo=UTC)

    async def test_two_of_one_name_do_not_live_together(self, carts: CartCalls) -> None:
        await carts.submit()

        refused = await carts.calls.refused("SubmitCart", stream(header(1), batch(item("a"))))

        assert (refused[0], refused[1].code) == (REFUSED, "cart_is_live")


NONSENSE = {
    "nothing": [],
    "no header": [batch(item("a"))],
    "an empty part": [header(1), pb.SubmitCartRequest()],
    "two headers": [header(1), header(1)],
    "no items": [header(1)],
    "too few": [header(2), batch(item("a"))],
    "too many": [header(1), batch(item("a"), item("b"))],
    "count of none": [header(0)],
    "more than may be": [header(100_001)],
    "a key twice": [header(2), batch(item("a")), batch(item("a"))],
    "no key": [header(1), batch(item(""))],
    "order of none": [header(1), batch(item("a", order=0))],
    "order of some": [header(2), batch(item("a", order=1), item("b"))],
    "inputs": [header(1), batch(item("a", inputs_json="{"))],
    "unknown input": [header(1), batch(item("a", inputs_json='{"hots": "x"}'))],
    "unknown job": [header(1, job="nope"), batch(item("a"))],
    "101 %": [header(1, failures=pb.CartFailures(allow="101%")), batch(item("a"))],
    "group of none": [header(1, order="groups", group_size=["0"]), batch(item("a"))],
    "order": [header(1, order="random"), batch(item("a"))],
    "wait": [header(1, between=pb.CartBetween(wait=Duration(seconds=-1))), batch(item("a"))],
    "endless wait": [header(1, between=pb.CartBetween(wait=Duration(seconds=2**60)))],
    "project": [header(1, project="../x"), batch(item("a"))],
    "key": [header(1, idempotency_key="ä"), batch(item("a"))],
    "no name": [header(1, name=""), batch(item("a"))],
}


@pytest.mark.parametrize("call", ["SubmitCart", "PlanCart"])
@pytest.mark.parametrize("what", NONSENSE)
async def test_a_stream_that_means_nothing_leaves_nothing(
    carts: CartCalls, call: str, what: str
) -> None:
    status, problem = await carts.calls.refused(call, stream(*NONSENSE[what]))

    assert status is INVALID, problem
    assert problem.message
    assert not (await carts.calls("ListCarts", pb.ListCartsRequest())).carts


async def test_faults_are_told_with_their_items(carts: CartCalls) -> None:
    parts = stream(header(3), batch(item("a", order=0), item("b"), item("", order=0)))

    _, problem = await carts.calls.refused("SubmitCart", parts)

    assert {fault.path for fault in problem.faults} == {"items[0] (a)", "items[2]"}


async def test_more_bytes_than_may_be_are_refused(carts: CartCalls) -> None:
    long = [item(f"{number:0200}") for number in range(600)]

    status, problem = await carts.calls.refused("SubmitCart", stream(header(600), batch(*long)))

    assert (status, problem.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too_large")


class TestLooking:
    async def test_how_far_it_is(self, carts: CartCalls) -> None:
        cart = await carts.started(3, failures=pb.CartFailures(allow="50%"))
        await carts.scene.work(cart.id, failing=["db-0"])

        shown = await carts("GetCart", Role.VIEWER)

        assert (shown.limit, shown.breached, shown.place) == (1, False, "2 of 3")
        assert (shown.cart.failed, shown.cart.open, shown.cart.pending) == (1, 1, 1)
        assert shown.why == "it is running"
        assert [(group.count, group.key) for group in shown.failure_groups] == [(1, "db-0")]
        assert shown.failures_in_scope == 1

    async def test_a_gate_tells_what_it_waits_for(self, carts: CartCalls) -> None:
        cart = await carts.started(2, between=pb.CartBetween(approve="admin"))
        await carts.scene.work(cart.id)

        gate = (await carts("GetCart", Role.VIEWER)).gate

        assert (gate.waits_for, gate.approve_role) == ("approval", "admin")

    async def test_carts_are_listed_in_pages(self, carts: CartCalls) -> None:
        for name in ("a", "b", "c"):
            await carts.submit(name=name)

        async def page(**fields: Any) -> Any:
            return await carts.calls("ListCarts", pb.ListCartsRequest(**fields), Role.VIEWER)

        first = await page(page_size=2)
        rest = await page(page_size=2, page_token=first.next_page_token)
        assert [cart.name for cart in [*first.carts, *rest.carts]] == ["c", "b", "a"]
        assert rest.next_page_token == ""
        assert [cart.name for cart in (await page(where="name:b")).carts] == ["b"]
        assert not (await page(where="active:true state:completed")).carts

    async def test_items_are_listed_by_conditions_and_in_pages(self, carts: CartCalls) -> None:
        cart = await carts.started(5, order="parallel", failures=pb.CartFailures(allow="100%"))
        await carts.scene.work(cart.id, failing=["db-1", "db-3"])

        failed = await carts("ListItems", states=[pb.ITEM_STATE_FAILED])
        chosen = await carts("ListItems", keys=["db-1", "db-2"], wave=1)
        first = await carts("ListItems", page_size=3)
        rest = await carts("ListItems", page_size=3, page_token=first.next_page_token)

        assert [each.key for each in failed.items] == ["db-1", "db-3"]
        assert {each.run_state for each in failed.items} == {"FAILED"}
        assert [each.key for each in chosen.items] == ["db-1", "db-2"]
        assert [each.number for each in [*first.items, *rest.items]] == list(range(5))

    async def test_cells_have_a_letter_each(self, carts: CartCalls) -> None:
        cart = await carts.started(3)
        await carts.scene.work(cart.id)

        answer = await carts("GetCells", Role.VIEWER)

        assert answer.cells == "CQP"
        assert answer.legend["Q"] == "QUEUED"

    async def test_runs_name_their_cart_and_item(self, carts: CartCalls) -> None:
        cart = await carts.started()

        [run] = (await carts.calls("GetDueJobs", GetDueJobsRequest())).runs

        assert (run.cart, run.item, run.trigger) == (cart.id, "db-0", "cart")


class TestSteering:
    async def test_two_may_pause_and_one_resume(self, carts: CartCalls) -> None:
        await carts.started()

        changed = [(await carts("PauseCart")).changed for _ in range(2)]
        resumed = (await carts("ResumeCart")).cart

        assert (changed, resumed.state) == ([True, False], pb.CART_STATE_RUNNING)

    async def test_a_breach_holds_until_more_may_fail(self, carts: CartCalls) -> None:
        cart = await carts.started()
        await carts.scene.work(cart.id, failing=["db-0"])

        assert await carts.refused("ResumeCart") == (REFUSED, "still_breached")
        assert await carts.refused("ResumeCart", allow="101%") == (INVALID, "invalid")
        assert (await carts("ResumeCart", allow="1")).cart.failures.allow == "1"

    async def test_it_is_cancelled_once(self, carts: CartCalls) -> None:
        await carts.started()
        await (await carts.calls.served.worker()).claim()

        first = await carts("CancelCart", let_running_finish=True)
        again = await carts("CancelCart")

        assert (first.changed, again.changed, again.cart.reason) == (True, False, "cancelling")
        assert await carts.refused("PauseCart") == (REFUSED, "cart_cancelling")

    async def test_somebody_else_with_the_role_approves(self, carts: CartCalls) -> None:
        cart = await carts.started(2, between=pb.CartBetween(approve="operator"))
        assert await carts.refused("ApproveCart") == (REFUSED, "not_waiting_for_approval")
        await carts.scene.work(cart.id)

        denied = grpc.StatusCode.PERMISSION_DENIED
        assert await carts.refused("ApproveCart") == (denied, "own_cart")
        await carts("EditCart", Role.ADMIN, between=pb.CartBetween(approve="admin"))
        assert await carts.refused("ApproveCart", Role.EDITOR) == (denied, "role_too_low")
        await carts("ApproveCart", Role.ADMIN)
        assert (await carts.scene.play(cart.id))["state"] == "COMPLETED"

    async def test_selected_items_run_again(self, carts: CartCalls) -> None:
        cart = await carts.started(4, failures=pb.CartFailures(then="cancel"))
        await carts.scene.work(cart.id, failing=["db-0"])
        both = pb.RETRY_SELECTION_FAILED_AND_SKIPPED

        assert await carts.refused("RetryCart", from_wave=9) == (REFUSED, "nothing_to_retry")
        assert await carts.refused("RetryCart", cause="other") == (MISSING, "no_such_cause")
        assert (await carts("RetryCart", select=both, keys=["db-3"])).items == 1
        assert (await carts("RetryCart")).items == 1

    async def test_rules_and_closed_waves_are_edited(self, carts: CartCalls) -> None:
        cart = await carts.started(3, max_parallel=2)
        change = pb.ItemChange(key="db-2", order=7, inputs_json='{"host": "there"}')
        skip = pb.ItemChange(key="db-1", skip=True)
        wait = pb.CartBetween(wait=Duration(seconds=60))

        edited = (
            await carts("EditCart", version=cart.version, between=wait, items=[change, skip])
        ).cart

        listed = (await carts("ListItems")).items
        assert (edited.between.wait.seconds, edited.max_parallel, edited.skipped) == (60, 2, 1)
        assert (listed[2].wave, listed[2].inputs_json) == (7, '{"host": "there"}')

    async def test_what_was_opened_or_changed_meanwhile_is_not_edited(
        self, carts: CartCalls
    ) -> None:
        await carts.started()
        opened = [pb.ItemChange(key="db-0", skip=True)]

        stale = await carts.refused("EditCart", version=9, max_parallel=5)

        assert stale == (grpc.StatusCode.ABORTED, "etag_mismatch")
        assert await carts.refused("EditCart", items=opened) == (REFUSED, "wave_opened")


BAD_CALLS: dict[str, tuple[str, Any]] = {
    "no cart": ("GetCart", {"cart": ""}),
    "NUL": ("PauseCart", {"cart": "a\0b"}),
    "page size": ("ListItems", {"page_size": 1_001}),
    "page token": ("ListItems", {"page_token": "x"}),
    "state of none": ("ListItems", {"states": [pb.ITEM_STATE_UNSPECIFIED]}),
    "unknown state": ("ListItems", {"states": [99]}),
    "empty key": ("ListItems", {"keys": [""]}),
    "cause": ("ListItems", {"cause": "\0"}),
    "long cause": ("RetryCart", {"cause": "x" * 1_001}),
    "selection": ("RetryCart", {"select": 99}),
    "allowance": ("ResumeCart", {"allow": "many"}),
    "max_parallel": ("EditCart", {"max_parallel": 100_001}),
    "order": ("EditCart", {"items": [pb.ItemChange(key="db-1", order=0)]}),
    "inputs": ("EditCart", {"items": [pb.ItemChange(key="db-1", inputs_json="[]")]}),
    "unfit inputs": ("EditCart", {"items": [pb.ItemChange(key="db-1", inputs_json='{"a": 1}')]}),
    "rules": ("EditCart", {"failures": pb.CartFailures(of="job")}),
}


@pytest.mark.parametrize("what", BAD_CALLS)
async def test_nonsense_is_an_invalid_argument(carts: CartCalls, what: str) -> None:
    name, fields = BAD_CALLS[what]
    await carts.submit()

    status, _ = await carts.refused(name, **fields)

    assert status is INVALID


@pytest.mark.parametrize("where", ["stat:running", "x" * 2_001])
async def test_a_filter_that_cannot_be_read_is_refused(carts: CartCalls, where: str) -> None:
    status, _ = await carts.calls.refused("ListCarts", pb.ListCartsRequest(where=where))

    assert status is INVALID


async def test_what_is_not_there_is_not_found(carts: CartCalls) -> None:
    not_found = grpc.StatusCode.NOT_FOUND

    assert await carts.refused("GetCart") == (not_found, "cart_not_found")
    await carts.submit()
    change = [pb.ItemChange(key="db-9", skip=True)]
    assert await carts.refused("EditCart", items=change) == (not_found, "item_not_found")


ROLES = {
    "SubmitCart": Role.OPERATOR,
    "PlanCart": Role.OPERATOR,
    "GetCart": Role.VIEWER,
    "ListCarts": Role.VIEWER,
    "ListItems": Role.VIEWER,
    "GetCells": Role.VIEWER,
    "PauseCart": Role.OPERATOR,
    "ResumeCart": Role.OPERATOR,
    "CancelCart": Role.OPERATOR,
    "ApproveCart": Role.OPERATOR,
    "RetryCart": Role.OPERATOR,
    "EditCart": Role.OPERATOR,
}


def test_the_service_has_exactly_these_calls() -> None:
    service = pb.DESCRIPTOR.services_by_name["Carts"]

    assert [method.name for method in service.methods] == list(ROLES)


@pytest.mark.parametrize("name", ROLES)
async def test_every_call_needs_a_credential_and_its_role(calls: Calls, name: str) -> None:
    method = pb.DESCRIPTOR.services_by_name["Carts"].methods_by_name[name]

    async def status(role: Role | None) -> grpc.StatusCode:
        message = getattr(pb, method.input_type.name)()
        request = stream(message) if method.client_streaming else message
        code: grpc.StatusCode = await calls.begin(name, request, role).code()
        return code

    assert await status(None) is grpc.StatusCode.UNAUTHENTICATED
    if ROLES[name] is Role.OPERATOR:
        assert await status(Role.VIEWER) is grpc.StatusCode.PERMISSION_DENIED

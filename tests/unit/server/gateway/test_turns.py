"""What one caller may take of a server: streams that are counted, whatever ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from rota.contracts import client_pb2 as pb
from rota.domain.access import Role
from rota.domain.errors import Unavailable
from rota.server.gateway.parameters import GatewaySettings
from rota.server.gateway.turns import OpenStreams, Turns
from testkit.waiting import eventually
from tests.unit.server.gateway.rpc.conftest import Calls, calling, problem_of
from tests.unit.server.gateway.served import Served, job, serving_gateway
from tests.unit.server.gateway.streaming import streaming

pytestmark = pytest.mark.anyio

SETTINGS = GatewaySettings(max_streams_per_caller=2, max_streams=3)


@pytest.fixture
async def calls(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Calls]:
    async with calling(tmp_path, SETTINGS) as calls:
        yield calls


@pytest.fixture
async def served(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    async with serving_gateway(tmp_path, SETTINGS) as served:
        yield served


def as_role(served: Served, role: Role) -> dict[str, str]:
    return {"authorization": f"Bearer {served.secrets[role]}"}


async def open_streams(
    served: Served, stack: AsyncExitStack, path: str = "events/stream", role: Role = Role.VIEWER
) -> None:
    stream = await stack.enter_async_context(streaming(served, path, as_role(served, role)))
    await stream.started()
    assert stream.status == 200


async def soon(claim: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, claim)


class TestStreamsOfRest:
    async def test_a_caller_has_so_many_and_is_told_when_to_ask_again(self, served: Served) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await open_streams(served, stack)

            refused = await served.get("events/stream", Role.VIEWER)
            other = await stack.enter_async_context(
                streaming(served, "events/stream", as_role(served, Role.EDITOR))
            )
            await other.started()

        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        assert "has 2 open on this server" in refused.json()["detail"]
        assert refused.headers["Retry-After"] == "10"
        assert other.status == 200

    async def test_all_callers_together_have_so_many(self, served: Served) -> None:
        async with AsyncExitStack() as stack:
            for role in (Role.VIEWER, Role.VIEWER, Role.EDITOR):
                await open_streams(served, stack, role=role)

            refused = await served.get("events/stream", Role.ADMIN)

        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        assert "3 are open on this server" in refused.json()["detail"]

    async def test_streams_of_every_kind_count(self, served: Served) -> None:
        await served.apply(job())
        run = (await served.trigger())["id"]
        paths = (f"runs/{run}/stream", f"runs/{run}/log/stream", "events/stream")

        for first, second in zip(paths, [*paths[1:], paths[0]], strict=True):
            async with AsyncExitStack() as stack:
                await open_streams(served, stack, first)
                await open_streams(served, stack, second)
                for path in paths:
                    assert (await served.get(path, Role.VIEWER)).status_code == 429

    @pytest.mark.parametrize("breaks", [True, False], ids=["it breaks off", "it cannot be sent"])
    async def test_a_stream_that_ends_in_any_way_is_open_no_longer(
        self, served: Served, breaks: bool
    ) -> None:
        streams: OpenStreams = served.app.state.streams
        for _ in range(4):
            if breaks:
                async with AsyncExitStack() as stack:
                    await open_streams(served, stack)
                    assert len(streams) == 1
            else:
                await _ask_and_vanish(served)
            assert len(streams) == 0

    async def test_a_call_that_is_refused_for_another_reason_opens_none(
        self, served: Served
    ) -> None:
        for path in ("runs/r_nothing/stream", "events/stream?project=nothing"):
            for _ in range(3):
                assert (await served.get(path, Role.VIEWER)).status_code == 404

        assert len(served.app.state.streams) == 0


async def _ask_and_vanish(served: Served) -> None:
    async def receive() -> dict[str, Any]:
        return await asyncio.Future()

    async def send(message: Any) -> None:
        raise OSError("gone")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": "GET",
        "path": "/api/v1/events/stream",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {served.secrets[Role.VIEWER]}".encode())],
        "client": ("127.0.0.1", 1),
    }
    await served.app(scope, receive, send)


class TestStreamsOfRpc:
    async def test_watching_counts_with_the_streams_of_rest(self, calls: Calls) -> None:
        watch = calls.begin("Watch", pb.WatchRequest(after=0), Role.VIEWER)
        streams: OpenStreams = calls.served.app.state.streams
        await soon(lambda: len(streams) == 1)
        async with AsyncExitStack() as stack:
            await open_streams(calls.served, stack)

            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await calls.begin("Watch", pb.WatchRequest(after=0), Role.VIEWER).read()

            status, problem = problem_of(refusal.value)
            assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert problem.code == "too_many_streams"
            assert dict(refusal.value.trailing_metadata() or ())["retry-after"] == "10"
        watch.cancel()
        await soon(lambda: len(streams) == 0)


async def test_turns_of_all_are_few_where_few_work_at_once() -> None:
    turns, begun, go_on = Turns(_refusal, at_once=1), [], asyncio.Event()

    async def work(caller: str) -> None:
        async with turns.of(caller):
            begun.append(caller)
            await go_on.wait()

    async with asyncio.TaskGroup() as group:
        for caller in ("ada", "grace"):
            group.create_task(work(caller))
        await soon(lambda: begun == ["ada"])
        go_on.set()

    assert begun == ["ada", "grace"]


def _refusal(reason: str) -> Unavailable:
    return Unavailable(reason)

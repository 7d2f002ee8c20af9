"""The services for programs on a real port, and callers of every role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from rota.contracts import client_pb2 as pb
from rota.contracts.carts_pb2_grpc import CartsStub
from rota.contracts.client_pb2_grpc import SchedulerStub
from rota.domain.access import Role
from rota.server.gateway.auth import TrustedTokens
from rota.server.gateway.parameters import GatewaySettings
from rota.server.gateway.rpc.carts import CartsService
from rota.server.gateway.rpc.scheduler import SchedulerService
from rota.server.gateway.rpc.server import serve
from tests.unit.server.gateway.served import Served, serving_gateway


@dataclass
class Calls:
    """What programs can call, by the names of the contract."""

    served: Served
    _stubs: tuple[Any, ...]  # of the services, whose calls have names of their own

    async def __call__(self, name: str, request: Any, role: Role | None = Role.ADMIN) -> Any:
        return await self.begin(name, request, role)

    def begin(self, name: str, request: Any, role: Role | None = Role.ADMIN) -> Any:
        """A call under way, for streams."""
        return self.begin_with(name, request, "" if role is None else self.served.secrets[role])

    def begin_with(self, name: str, request: Any, secret: str) -> Any:
        """A call of whoever has this secret."""
        metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
        [method] = [getattr(stub, name) for stub in self._stubs if hasattr(stub, name)]
        return method(request, metadata=metadata, timeout=20)

    async def submit(self, yaml: str, **fields: Any) -> pb.SubmitJobResponse:
        answer: pb.SubmitJobResponse = await self(
            "SubmitJob", pb.SubmitJobRequest(yaml=yaml, **fields)
        )
        return answer

    async def refused(
        self, name: str, request: Any, role: Role | None = Role.ADMIN
    ) -> tuple[grpc.StatusCode, pb.Problem]:
        """How a call is refused."""
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await self(name, request, role)
        return problem_of(refusal.value)


def problem_of(error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, pb.Problem]:
    trailing = dict(error.trailing_metadata())
    problem = pb.Problem.FromString(trailing["rota-problem-bin"])
    assert trailing["rota-code"] == problem.code
    assert error.details() == problem.message
    return error.code(), problem


@asynccontextmanager
async def calling(tmp_path: Path, settings: GatewaySettings) -> AsyncIterator[Calls]:
    """The services over a gateway with these settings."""
    async with serving_gateway(tmp_path, settings) as served:
        state = served.app.state
        tokens = TrustedTokens(served.engine, timedelta(0), wrong=state.wrong_secrets)
        ours = [
            SchedulerService(served.engine, settings, tokens, state.parsing, state.streams).add_to,
            CartsService(served.engine, settings, tokens, state.parsing).add_to,
        ]
        server = await serve("127.0.0.1:0", ours)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Calls(served, (SchedulerStub(channel), CartsStub(channel)))
        await server.close()


@pytest.fixture
async def calls(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Calls]:
    settings = GatewaySettings(max_body_bytes=10_000, max_cart_bytes=100_000)
    async with calling(tmp_path, settings) as calls:
        yield calls

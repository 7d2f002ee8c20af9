from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from rota.sdk.client import AsyncClient, Client
from tests.unit.sdk.answering import Answering, AnsweringServer, Ask


@pytest.fixture
def server() -> Iterator[Answering]:
    with AnsweringServer() as answering:
        yield answering


@pytest.fixture(params=["sync", "async"])
def ask(server: Answering, request: pytest.FixtureRequest) -> Ask:
    """Calls a client's method by name, in either of its two forms; iterators become lists."""
    return _ask if request.param == "sync" else _ask_async


def _ask(server: Answering, method: str, *args: Any, **kwargs: Any) -> Any:
    with Client(server.url, "secret") as client:
        answer = getattr(client, method)(*args, **kwargs)
        return list(answer) if inspect.isgenerator(answer) else answer


def _ask_async(server: Answering, method: str, *args: Any, **kwargs: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(server.url, "secret") as client:
            answer = getattr(client, method)(*args, **kwargs)
            if inspect.isasyncgen(answer):
                return [part async for part in answer]
            return await answer

    return asyncio.run(run())

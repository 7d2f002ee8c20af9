from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from tests.unit.server.gateway.served import Served

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/nope", "/livez"])
async def test_answered_request_is_noted_for_debugging_only(served: Served, path: str) -> None:
    with capture_logs() as logged:
        await (await served.client()).get(path)

    assert [(line["event"], line["log_level"]) for line in logged] == [("request", "debug")]


@pytest.mark.parametrize(
    "path", ["/auth/device", "/auth/device/token", "/auth/backchannel", "/api/v1/login"]
)
async def test_strangers_cannot_fill_the_memory(served: Served, path: str) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"a=" + b"x" * 8_000

    stranger = await served.browser()
    whole = await stranger.post(path, content=b"x" * 16_385)
    piecemeal = await stranger.post(path, content=pieces())

    assert [whole.status_code, piecemeal.status_code] == [413, 413]
    assert sent <= 3


async def test_request_that_the_server_failed_is_a_warning(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(served.engine.store, "jobs", broken)
    with capture_logs() as logged:
        answer = await served.get("jobs")

    assert answer.status_code == 500
    assert [line["log_level"] for line in logged] == ["error", "warning"]

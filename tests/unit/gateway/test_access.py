from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from tests.unit.gateway.served import Served

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("path", "level"),
    [("/api/v1/jobs", "debug"), ("/api/v1/jobs/nope", "info"), ("/livez", "debug")],
)
async def test_only_requests_that_did_not_work_are_noted_above_debug(
    served: Served, path: str, level: str
) -> None:
    with capture_logs() as logged:
        await (await served.client()).get(path)

    assert [line["log_level"] for line in logged if line["event"] == "request"] == [level]


async def test_request_that_the_server_failed_is_a_warning(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(served.backends.store, "jobs", broken)
    with capture_logs() as logged:
        answer = await served.get("jobs")

    assert answer.status_code == 500
    assert [line["log_level"] for line in logged] == ["error", "warning"]

from __future__ import annotations

import pytest

from rota.domain.access import Role
from rota.domain.errors import Unavailable
from rota.server.gateway import metrics
from rota.server.gateway.app import create_app
from rota.server.gateway.pages import Readiness
from rota.server.gateway.parameters import GatewaySettings
from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def test_health_is_open_to_everyone(served: Served) -> None:
    assert (await served.get("/livez", None)).json() == {"status": "ok"}
    assert (await served.get("/readyz", None)).json() == {"status": "ready"}


async def test_a_server_without_its_store_is_alive_but_not_ready(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(served.engine.store, "check", fail)

    assert (await served.get("/livez", None)).status_code == 200
    assert (await served.get("/readyz", None)).status_code == 503


async def test_asking_often_whether_it_is_ready_checks_the_store_once_a_second(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = 0
    now = 0.0

    async def check() -> None:
        nonlocal checks
        checks += 1

    monkeypatch.setattr(served.engine.store, "check", check)
    readiness = Readiness(served.engine, lambda: now)

    for _ in range(100):
        await readiness.require()
    assert checks == 1
    now = 1.0
    await readiness.require()
    assert checks == 2


async def test_metrics_count_runs_workers_and_requests(served: Served) -> None:
    await served.apply(job())
    await served.run_through()
    await served.trigger()

    answer = await served.get("/metrics", Role.VIEWER)

    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert 'rota_runs_total{job="tidy",state="COMPLETED"} 1.0' in lines
    assert 'rota_runs_active{pool="default",state="QUEUED"} 1.0' in lines
    assert 'rota_workers{pool="default",state="alive"} 1.0' in lines
    assert any(line.startswith("rota_queue_oldest_age_seconds{") for line in lines)
    assert 'rota_run_start_delay_seconds_bucket{le="+Inf",pool="default"} 1.0' in lines
    assert 'rota_run_start_delay_seconds_count{pool="default"} 1.0' in lines
    assert any(
        'route="/api/v1/jobs/{job}/runs"' in line and 'status="202"' in line for line in lines
    )


async def test_too_many_series_lose_the_job_and_say_so(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_JOB_SERIES", 1)
    await served.apply(job("a"), job("b"))
    await served.run_through("a")
    await served.run_through("b")

    lines = (await served.get("/metrics")).text.splitlines()

    assert 'rota_runs_total{job="",state="COMPLETED"} 2.0' in lines
    assert "rota_job_label_dropped 1.0" in lines


class TestHealth:
    async def test_hindered_server_is_not_ready(self, served: Served) -> None:
        readiness = Readiness(served.engine, hindrance=lambda: "it is stopping")
        served.app.state.readiness = readiness

        answer = await served.get("/readyz")

        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert "it is stopping" in answer.text

    async def test_server_without_the_gateway_has_no_api(self, served: Served) -> None:
        served.app = create_app(served.engine, GatewaySettings(), has_api=False)

        assert (await served.get("/readyz")).status_code == 200
        assert (await served.get("/metrics")).status_code == 200
        assert (await served.get("jobs")).status_code == 404

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from rota.domain.errors import Unavailable
from rota.ports.records import Role
from rota.server.gateway import metrics
from rota.server.gateway.health import Readiness
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

    monkeypatch.setattr(served.backends.store, "check", fail)

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

    monkeypatch.setattr(served.backends.store, "check", check)
    readiness = Readiness(served.backends, lambda: now)

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


async def test_the_job_file_schema_is_published(served: Served) -> None:
    schema = (await served.get("schema", Role.VIEWER)).json()

    assert schema["$schema"].endswith("2020-12/schema")


async def test_openapi_describes_every_route_with_its_role_and_problems(served: Served) -> None:
    document = (await served.get("openapi.json", Role.VIEWER)).json()

    assert document["openapi"].startswith("3.1")
    apply = document["paths"]["/api/v1/jobs:apply"]["post"]
    assert apply["x-rota-role"] == "editor"
    assert "application/yaml" in apply["requestBody"]["content"]
    assert document["paths"]["/api/v1/login"]["post"]["security"] == []
    assert document["paths"]["/livez"]["get"]["security"] == []
    assert "ProblemReport" in document["components"]["schemas"]
    for operation in operations(document):
        assert {"4XX", "5XX"} <= operation["responses"].keys()
        assert operation["description"]


async def test_openapi_has_no_dangling_reference(served: Served) -> None:
    document = (await served.get("openapi.json")).json()
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    assert set(references(document)) <= known


async def test_pages_load_nothing_and_run_nothing(served: Served) -> None:
    for path in ("/", "/api/v1/docs"):
        page = await served.get(path)

        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert not Loads.of(page.text)


async def test_the_docs_page_lists_the_api(served: Served) -> None:
    page = await served.get("docs")

    assert "/api/v1/jobs/{job}/runs:batch" in page.text


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


class Loads(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @classmethod
    def of(cls, text: str) -> list[str]:
        parser = cls()
        parser.feed(text)
        return parser.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe", "style", "form"}:
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name.startswith("on") or name == "src"]

"""The OpenAPI document is the one that was checked in: a change of the API is a visible one."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

import pytest

from rota.domain.access import Role
from tests.unit.server.gateway.served import Served
from tools.generate_docs import OPENAPI, openapi

pytestmark = pytest.mark.anyio


def test_openapi_document_is_the_one_that_was_checked_in() -> None:
    snapshot, current = OPENAPI.read_text("utf-8"), openapi()

    if current != snapshot:
        lines = unified_diff(
            snapshot.splitlines(), current.splitlines(), "checked in", "now", lineterm=""
        )
        pytest.fail("\n".join(["the API has changed; if it should, run: make docs", *lines]))


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

"""The API does what its OpenAPI document says, whatever it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.unit.server.gateway.served import Served, job, serving_gateway

pytestmark = pytest.mark.slow
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 20  # for each operation
ROLLOUT = {"name": "rollout", "job": "tidy", "items": [{"key": "a"}, {"key": "b"}]}


@dataclass
class Api:
    """A gateway on an event loop of its own, with a job, a run and a cart that exist."""

    served: Served
    portal: BlockingPortal
    run_id: str

    def send(self, case: Any) -> httpx.Response:
        prepared = requests.Request(**case.as_transport_kwargs(base_url="http://rota")).prepare()
        return self.portal.call(self._send, prepared)

    async def _send(self, prepared: requests.PreparedRequest) -> httpx.Response:
        headers = [
            (name.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
            for name, value in prepared.headers.items()
            if name.lower() != "authorization"
        ]
        client = await self.served.client()
        body: Any = prepared.body
        return await client.request(
            prepared.method or "", prepared.url or "", headers=headers, content=body
        )

    def operations(self) -> Iterator[Any]:
        """All that end by themselves."""
        document = self.portal.call(self.served.get, "openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)

        @schema.hook
        def map_path_parameters(context: Any, parameters: dict[str, Any] | None) -> Any:
            """Every other name is one that exists, but for what would delete it."""
            names = parameters or {}
            for name, known in (("job", "nightly"), ("run", self.run_id), ("cart", "rollout")):
                if len(str(names.get(name, ""))) % 2 and context.operation.method != "delete":
                    names[name] = known
            return names

        for found in schema.exclude(path_regex="/stream$").get_all_operations():
            assert isinstance(found, Ok), found
            yield found.ok()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving_gateway(tmp_path)) as served,
    ):
        portal.call(served.apply, job(), job("nightly", schedule="0 2 * * *"))
        run_id = portal.call(served.run_through, "tidy", b"one\ntwo\n")
        portal.call(partial(served.post, "carts", json=ROLLOUT))
        yield Api(served, portal, run_id)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_as_documented(
    api: Api, subtests: pytest.Subtests, mode: GenerationMode
) -> None:
    for operation in api.operations():

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.validate_response(api.send(case), checks=CHECKS)

        # What takes no input cannot be sent a wrong one.
        with subtests.test(operation.label), suppress(Unsatisfiable):
            check()

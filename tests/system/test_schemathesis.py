"""The API does what its OpenAPI document says, whatever it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from tests.unit.gateway.served import job, serving_gateway

from rota.ports.store import Role

pytestmark = pytest.mark.slow
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 25  # for each operation


class SelfOpening:
    """The gateway of a fresh store, opened on the event loop that serves it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lifespan = Starlette(lifespan=self._open)
        self._app = FastAPI()
        self._secret = b""
        self.run_id = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self._app(self._as_admin(scope), receive, send)

    def _as_admin(self, scope: Scope) -> Scope:
        others = [pair for pair in scope["headers"] if pair[0].lower() != b"authorization"]
        return {**scope, "headers": [*others, (b"authorization", b"Bearer " + self._secret)]}

    @asynccontextmanager
    async def _open(self, _: Starlette) -> AsyncIterator[None]:
        async with serving_gateway(self._folder) as served:
            await served.apply(job(), job("nightly", schedule="0 2 * * *"))
            self.run_id = await served.run_through(printed=b"one\ntwo\n")
            self._app = served.app
            self._secret = served.secrets[Role.ADMIN].encode()
            yield


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    app = SelfOpening(tmp_path_factory.mktemp("gateway"))
    loaded = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)

    @loaded.hook
    def map_path_parameters(
        context: Any, parameters: MutableMapping[str, Any] | None
    ) -> MutableMapping[str, Any] | None:
        """Every other name is one that exists, but for what would delete it."""
        for name, known in (("job", "nightly"), ("run", app.run_id)):
            value = (parameters or {}).get(name)
            if value and len(str(value)) % 2 and context.operation.method != "delete":
                parameters[name] = known
        return parameters

    return loaded


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_as_documented(
    api: Any, subtests: pytest.Subtests, mode: GenerationMode
) -> None:
    for found in api.exclude(path_regex="/stream$").get_all_operations():
        operation = found.ok()

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        # What takes no input cannot be sent a wrong one.
        with subtests.test(operation.label), suppress(Unsatisfiable):
            check()

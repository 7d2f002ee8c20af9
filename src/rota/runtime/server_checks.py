"""What `rota doctor` finds out about the server that the CLI talks to."""

from __future__ import annotations

from collections.abc import Iterator

from rota.runtime.findings import Finding, Verdict
from rota.runtime.settings import Settings
from rota.sdk import token_calls
from rota.sdk.errors import Invalid, RotaApiError, Unreachable
from rota.sdk.exchange import Request, read, request_for
from rota.sdk.server import Server, find_server
from rota.sdk.transport import Transport

_ANSWER_SECONDS = 3.0
_READY = Request("GET", "/readyz", {}, None, is_repeatable=True)


def look_at_api(settings: Settings) -> Iterator[Finding]:
    """Whether the server of ROTA_URL is ready, and whom it takes us for."""
    try:
        server = find_server(settings.url, settings.token, _as_environment(settings))
        transport = Transport(server, _ANSWER_SECONDS)
        yield _readiness(server, transport)
        yield _caller(server, transport)
        transport.close()
    except (Invalid, Unreachable) as error:
        yield Finding("server", Verdict.PROBLEM, error.message, error.hint)


def _as_environment(settings: Settings) -> dict[str, str]:
    """What the CLI goes by besides, wherever it was set."""
    authorities = {"ROTA_TLS_CA": str(settings.tls_ca)} if settings.tls_ca else {}
    return {"ROTA_HOME": str(settings.home), **authorities}


def _readiness(server: Server, transport: Transport) -> Finding:
    status = transport.exchange(_READY).status
    if status == 200:
        return Finding("server", Verdict.OK, f"{server.url} is ready")
    message = f"{server.url} is not ready (status {status})"
    return Finding("server", Verdict.WARNING, message, "look at its log; is it a server of Rota?")


def _caller(server: Server, transport: Transport) -> Finding:
    call = token_calls.whoami()
    try:
        caller = read(call, transport.exchange(request_for(call, server, None)))
    except Unreachable:
        raise
    except RotaApiError as error:
        return Finding("token", Verdict.PROBLEM, error.message, error.hint)
    return Finding("token", Verdict.OK, f"{caller.name}, {caller.role}")

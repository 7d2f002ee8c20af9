"""The gateway as one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from rota.domain.errors import RotaError
from rota.operations.backends import Backends
from rota.server.gateway import problems
from rota.server.gateway.access import Access
from rota.server.gateway.auth import API, Authentication, TrustedTokens, cookie_name
from rota.server.gateway.cart_intake import NDJSON
from rota.server.gateway.limits import BodyLimit, SecurityHeaders
from rota.server.gateway.logins import FailedLogins
from rota.server.gateway.metrics import Requests
from rota.server.gateway.readiness import Readiness
from rota.server.gateway.routes import (
    backfills,
    calendars,
    callers,
    cart_commands,
    cart_rollback,
    cart_templates,
    carts,
    cluster,
    documents,
    events,
    forecast,
    front,
    health,
    job_runs,
    jobs,
    limits,
    logs,
    quotas,
    resources,
    run_steering,
    runs,
    schedules,
    shares,
    shortcuts,
    simulations,
    tokens,
    workers,
)
from rota.server.gateway.settings import GatewaySettings

_ROUTERS = (
    job_runs.router,  # first: triggering is the busiest
    jobs.router,
    backfills.router,
    calendars.router,
    limits.router,
    resources.router,
    quotas.router,
    shares.router,
    runs.router,
    run_steering.router,
    carts.router,
    cart_commands.router,
    cart_rollback.router,
    cart_templates.router,
    logs.router,
    events.router,
    workers.router,
    cluster.router,
    schedules.router,
    forecast.router,
    simulations.router,
    tokens.router,
    callers.login_router,
    callers.router,
    shortcuts.router,
    documents.router,
    health.router,
    front.router,
)
_MEANINGFUL_ERRORS = (RotaError, RequestValidationError, HTTPException)


def create_app(
    backends: Backends,
    settings: GatewaySettings,
    readiness: Readiness | None = None,
    *,
    has_api: bool = True,
) -> FastAPI:
    """All routes over these backends, or only those for machines that watch.

    It starts nothing: whoever serves it decides when.
    """
    trusted = TrustedTokens(backends, settings.trust_tokens_for)
    requests = Requests()
    routers = _ROUTERS if has_api else (health.router,)
    app = FastAPI(
        routes=[route for router in routers for route in router.routes],
        openapi_url=None,  # FastAPI's own pages load scripts from elsewhere
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=_middleware(settings, trusted, requests),
        exception_handlers=dict.fromkeys(_MEANINGFUL_ERRORS, problems.handle),
    )
    app.state.backends = backends
    app.state.settings = settings
    app.state.tokens = trusted
    app.state.requests = requests
    app.state.readiness = readiness or Readiness(backends)
    app.state.failed_logins = FailedLogins(settings.failed_logins, settings.failed_logins_per)
    return app


def _middleware(
    settings: GatewaySettings, trusted: TrustedTokens, requests: Requests
) -> list[Middleware]:
    """From the outside in: who calls is known before a byte of the body is read."""
    secure = settings.secure_cookies
    return [
        Middleware(SecurityHeaders, secure=secure),
        Middleware(Access, requests=requests),
        Middleware(Authentication, tokens=trusted, cookie=cookie_name(secure=secure)),
        Middleware(
            BodyLimit,
            max_bytes=settings.max_body_bytes,
            streamed={
                (f"{API}/carts", NDJSON): settings.max_cart_bytes,
                (f"{API}/jobs:apply", NDJSON): settings.max_cart_bytes,
            },
        ),
    ]

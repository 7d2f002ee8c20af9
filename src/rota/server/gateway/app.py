"""The gateway as one ASGI application."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from types import ModuleType

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route

from rota.domain.errors import RotaError
from rota.operations.engine import Engine
from rota.operations.wrong_secrets import WrongSecrets
from rota.server import gateway
from rota.server.gateway import logins, pages, problems
from rota.server.gateway.auth import (
    API,
    OPEN,
    Authentication,
    TrustedTokens,
    check_needs,
    cookie_name,
)
from rota.server.gateway.cart_submissions import NDJSON
from rota.server.gateway.metrics import Requests
from rota.server.gateway.middleware import Access, BodyLimit, SecurityHeaders
from rota.server.gateway.pages import Readiness
from rota.server.gateway.parameters import GatewaySettings, Router
from rota.server.gateway.parsing import ParsingPool
from rota.server.gateway.proxies import Proxied, check_prefix, prefix_of
from rota.server.gateway.turns import OpenStreams, Turns, too_much_work

_THREADS = 2  # that compute: they share one interpreter with the loop, which renews leases
_MEANINGFUL_ERRORS = (RotaError, RequestValidationError, HTTPException)


def create_app(
    engine: Engine,
    settings: GatewaySettings,
    readiness: Readiness | None = None,
    *,
    has_api: bool = True,
) -> FastAPI:
    """Create the app with all routes over this engine, or only those for monitoring.

    It starts nothing: the server that runs it decides when, and closes `app.state.parsing`. Raise
    `LookupError` if a route does not declare what it needs of its callers.
    """
    wrong = WrongSecrets(settings.wrong_secrets, settings.wrong_secrets_per)
    trusted = TrustedTokens(engine, settings.trust_tokens_for, wrong=wrong)
    requests = Requests()
    routers = api_routers() if has_api else (pages.health_router,)
    routes = [route for router in routers for route in router.routes]
    check_prefix(prefix_of(settings.public_url), _paths(routes))
    check_needs(routes)
    app = FastAPI(
        routes=routes,
        openapi_url=None,  # FastAPI's own pages load scripts from elsewhere
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=_middleware(settings, trusted, requests),
        exception_handlers=dict.fromkeys(_MEANINGFUL_ERRORS, problems.handle),
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.tokens = trusted
    app.state.requests = requests
    app.state.parsing = ParsingPool()
    app.state.forecasts, app.state.simulations = (
        Turns(too_much_work, at_once=_THREADS) for _ in range(2)
    )
    app.state.streams = OpenStreams(
        of_caller=settings.max_streams_per_caller, in_all=settings.max_streams
    )
    app.state.readiness = readiness or Readiness(engine)
    app.state.wrong_secrets = wrong
    app.state.wrong_logins = WrongSecrets(settings.wrong_logins, settings.wrong_secrets_per)
    app.state.begun_logins = logins.begun_logins()
    app.state.typed_codes = logins.typed_codes()
    return app


def _paths(routes: Iterable[BaseRoute]) -> Iterator[str]:
    return (route.path for route in routes if isinstance(route, Route))


@cache
def api_routers() -> Sequence[Router]:
    """List every router of this package; a module that is added to it is found."""
    found = {id(router): router for module in _modules() for router in _routers(module)}
    return sorted(found.values(), key=lambda router: not router.is_busy)


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.iter_modules(gateway.__path__, f"{gateway.__name__}."):
        if not module.ispkg:  # `rpc` has no routes, and needs an extra
            yield importlib.import_module(module.name)


def _routers(module: ModuleType) -> Iterator[Router]:
    return (value for value in vars(module).values() if isinstance(value, Router))


def _middleware(
    settings: GatewaySettings, trusted: TrustedTokens, requests: Requests
) -> list[Middleware]:
    """List the middleware, outermost first: callers are authenticated before the body is read."""
    secure = settings.secure_cookies
    return [
        *_behind_proxies(settings),
        Middleware(SecurityHeaders, secure=secure),
        Middleware(Access, requests=requests),
        Middleware(
            Authentication,
            tokens=trusted,
            cookie=cookie_name(secure=secure),
        ),
        Middleware(
            BodyLimit,
            max_bytes=settings.max_body_bytes,
            open_calls=OPEN,
            files=f"{API}/uploads/",
            streamed={
                (f"{API}/carts", NDJSON): settings.max_cart_bytes,
                (f"{API}/jobs:apply", NDJSON): settings.max_cart_bytes,
            },
        ),
    ]


def _behind_proxies(settings: GatewaySettings) -> list[Middleware]:
    """List what only servers need that have a public address or proxies before them."""
    if not settings.public_url and not settings.trusted_proxies:
        return []
    return [Middleware(Proxied, public_url=settings.public_url, trusted=settings.trusted_proxies)]

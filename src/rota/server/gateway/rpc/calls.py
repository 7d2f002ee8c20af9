"""The edge of every call: who makes it, whether they may, and what a refusal looks like."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import structlog

from rota.domain.errors import Denied, RotaError
from rota.operations.tokens import Caller
from rota.ports.link import bearer_in, rpc_status_of
from rota.ports.records import Role
from rota.server.gateway.auth import TrustedTokens
from rota.server.gateway.problems import HIDDEN, MAX_DETAIL
from rota.server.gateway.rpc.messages import problem_message

Context = grpc.aio.ServicerContext[Any, Any]

_log = structlog.get_logger("rota.server.gateway")


class Guarded(Protocol):
    """A service that asks who calls."""

    tokens: TrustedTokens


S = TypeVar("S", bound=Guarded)
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Handler = Callable[[S, Request, Caller], Awaitable[Answer]]
Method = Callable[[S, Request, Context], Awaitable[Answer]]


def needs(role: Role) -> Callable[[Handler[S, Request, Answer]], Method[S, Request, Answer]]:
    """A call that is answered once, for callers with at least this role."""

    def decorate(handler: Handler[S, Request, Answer]) -> Method[S, Request, Answer]:
        @functools.wraps(handler)
        async def method(service: S, request: Request, context: Context) -> Answer:
            began = time.perf_counter()
            caller: Caller | None = None
            try:
                caller = await admitted(service.tokens, context, role)
                answer = await handler(service, request, caller)
            except Exception as error:  # noqa: BLE001 (the edge of a call)
                note(handler.__name__, caller, began, error)
                await refuse(context, error)
            note(handler.__name__, caller, began)
            return answer

        return method

    return decorate


async def admitted(tokens: TrustedTokens, context: Context, role: Role) -> Caller:
    """Who calls; `Denied` unless they have at least this role."""
    caller = await tokens.caller(_secret(context))
    caller.require(role)
    return caller


def _secret(context: Context) -> str:
    if secret := bearer_in(context.invocation_metadata()):
        return secret
    raise Denied(
        "no credential came with the call",
        code="unauthenticated",
        hint="send the metadata `authorization: Bearer TOKEN`, made by rota token create",
    )


async def refuse(context: Context, error: Exception) -> NoReturn:
    """End a call with what its caller may know of an error."""
    told = error if isinstance(error, RotaError) else HIDDEN
    trailing = (
        ("rota-code", told.code),
        ("rota-problem-bin", problem_message(told).SerializeToString()),
    )
    await context.abort(grpc.StatusCode[rpc_status_of(told)], told.message[:MAX_DETAIL], trailing)


def note(method: str, caller: Caller | None, began: float, error: Exception | None = None) -> None:
    """One line in the log; loud only if it is our fault."""
    facts = {
        "method": method,
        "caller": caller.name if caller else None,
        "ms": round((time.perf_counter() - began) * 1_000, 2),
    }
    if error is None:
        _log.debug("call", status="OK", **facts)
    elif not isinstance(error, RotaError):
        _log.error("unexpected error", exc_info=error, **facts)
    else:
        status = rpc_status_of(error)
        is_our_fault = status in {"INTERNAL", "UNAVAILABLE"}
        (_log.warning if is_our_fault else _log.debug)(
            "call", status=status, code=error.code, **facts
        )

"""Tokens of programs and of workers."""

from __future__ import annotations

from datetime import timedelta

from rota.domain.quantities import parse_duration
from rota.operations import tokens
from rota.server.gateway.auth import Admin, Tokens
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.shapes.token import (
    NewTokenBody,
    NewTokenShape,
    NewWorkerTokenBody,
    NewWorkerTokenShape,
    TokenShape,
    WorkerTokenShape,
)
from rota.server.gateway.wiring import UsedBackends, api_router

router = api_router("tokens")


@router.get("/tokens")
async def list_tokens(actor: Admin, backends: UsedBackends) -> Listing[TokenShape]:
    """API tokens, newest first, without their secrets."""
    found = await tokens.list_tokens(backends)
    return Listing(items=[TokenShape.model_validate(token) for token in found])


@router.post("/tokens", status_code=201)
async def create_token(actor: Admin, backends: UsedBackends, body: NewTokenBody) -> NewTokenShape:
    """A new token; its secret is in this answer and never again."""
    token_id, secret = await tokens.create_token(
        backends.store,
        name=body.name,
        role=body.role,
        actor=actor.name,
        lifetime=_lifetime(body.expires_in),
    )
    return NewTokenShape(id=token_id, name=body.name, role=body.role, secret=secret)


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(
    actor: Admin, backends: UsedBackends, trusted: Tokens, token_id: str
) -> None:
    """End a token; here at once, on other servers within seconds."""
    await tokens.revoke_token(backends, token_id, actor=actor.name)
    trusted.forget()


@router.get("/worker_tokens")
async def list_worker_tokens(actor: Admin, backends: UsedBackends) -> Listing[WorkerTokenShape]:
    """Tokens of workers, newest first, without their secrets."""
    found = await tokens.list_worker_tokens(backends)
    return Listing(items=[WorkerTokenShape.model_validate(token) for token in found])


@router.post("/worker_tokens", status_code=201)
async def create_worker_token(
    actor: Admin, backends: UsedBackends, body: NewWorkerTokenBody
) -> NewWorkerTokenShape:
    """A new token for a worker; its secret is in this answer and never again."""
    token_id, secret = await tokens.create_worker_token(
        backends.store,
        name=body.name,
        pool=body.pool,
        actor=actor.name,
        lifetime=_lifetime(body.expires_in),
    )
    return NewWorkerTokenShape(id=token_id, name=body.name, pool=body.pool, secret=secret)


@router.delete("/worker_tokens/{token_id}", status_code=204)
async def revoke_worker_token(actor: Admin, backends: UsedBackends, token_id: str) -> None:
    """End a worker's token: a worker that is connected with it is sent away at its next beat."""
    await tokens.revoke_token(backends, token_id, actor=actor.name)


def _lifetime(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)

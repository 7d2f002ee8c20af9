"""API tokens."""

from __future__ import annotations

from rota.domain.durations import parse_duration
from rota.gateway.auth import Admin, Tokens
from rota.gateway.shapes.models import Listing
from rota.gateway.shapes.token import NewTokenBody, NewTokenShape, TokenShape
from rota.gateway.wiring import UsedBackends, api_router
from rota.operations import tokens

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
        lifetime=None if body.expires_in is None else parse_duration(body.expires_in),
    )
    return NewTokenShape(id=token_id, name=body.name, role=body.role, secret=secret)


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(
    actor: Admin, backends: UsedBackends, trusted: Tokens, token_id: str
) -> None:
    """End a token; here at once, on other servers within seconds."""
    await tokens.revoke_token(backends, token_id, actor=actor.name)
    trusted.forget()

"""Saving what people declare about keys that runs share, alike for every kind."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from rota.domain.limits import Declaration
from rota.gateway.shapes.limit import DeclarationChangeShape
from rota.gateway.wiring import NAME
from rota.operations.backends import Backends
from rota.operations.differences import Change
from rota.operations.limits import plan_declaration, save_declaration

DeclaredName = Annotated[str, Path(pattern=NAME, description="name")]
IsPlan = Annotated[bool, Query(description="only say what would be changed")]


async def declare(
    backends: Backends, new: Declaration, response: Response, *, actor: str, plan: bool
) -> DeclarationChangeShape:
    """Save it, or only say what that would change."""
    if plan:
        change = await plan_declaration(backends, new)
    else:
        change = await save_declaration(backends, new, actor=actor)
        if change.change is Change.NEW:
            response.status_code = 201
    return DeclarationChangeShape.of(change, applied=not plan)

"""Saving what people declare about keys that runs share, alike for every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Path, Query
from starlette.responses import Response

from rota.domain.keys import Declaration, Limit, Resource
from rota.operations.backends import Backends
from rota.operations.differences import Change
from rota.operations.limits import Standing, list_standings, plan_declaration, save_declaration
from rota.server.gateway.paging import decode_cursor, encode_cursor, listing
from rota.server.gateway.shapes.limit import DeclarationChangeShape
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.wiring import NAME

D = TypeVar("D", Limit, Resource)
S = TypeVar("S")
DeclaredName = Annotated[str, Path(pattern=NAME, description="name")]
IsPlan = Annotated[bool, Query(description="only say what would be changed")]


async def list_declared(
    backends: Backends,
    kind: type[D],
    shape: Callable[[Standing[D]], S],
    project: str,
    *,
    cursor: str | None,
    limit: int,
) -> Listing[S]:
    """A part of those of one kind, by name."""
    word = f"{kind.__name__.lower()}s"
    after = decode_cursor(word, cursor, "")
    found = await list_standings(backends, kind, project, after=after, limit=limit + 1)
    return listing(found, limit, shape, lambda it: encode_cursor(word, it.declaration.name))


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

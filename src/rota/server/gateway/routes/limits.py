"""Rate limits: list, look, set, delete."""

from __future__ import annotations

from starlette.responses import Response

from rota.domain import keys
from rota.operations.limits import delete_declaration, find_standing
from rota.server.gateway.auth import Editor
from rota.server.gateway.declaring import DeclaredName, IsPlan, declare, list_declared
from rota.server.gateway.paging import Cursor, Limit
from rota.server.gateway.shapes.limit import DeclarationChangeShape, LimitBody, LimitShape
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.wiring import Project, UsedBackends, api_router

router = api_router("limits")


@router.get("/limits")
async def list_limits(
    backends: UsedBackends, project: Project, limit: Limit = 100, cursor: Cursor = None
) -> Listing[LimitShape]:
    """Rate limits by name, with the tokens that are there."""
    return await list_declared(
        backends, keys.Limit, LimitShape.of, project, cursor=cursor, limit=limit
    )


@router.get("/limits/{name}")
async def show_limit(backends: UsedBackends, project: Project, name: DeclaredName) -> LimitShape:
    """A rate limit, with the tokens that are there."""
    return LimitShape.of(await find_standing(backends, keys.Limit, project, name))


@router.put("/limits/{name}", responses={201: {"model": DeclarationChangeShape}})
async def put_limit(
    actor: Editor,
    backends: UsedBackends,
    project: Project,
    name: DeclaredName,
    body: LimitBody,
    response: Response,
    plan: IsPlan = False,
) -> DeclarationChangeShape:
    """Create or change a rate limit; runs that wait for it follow it at once."""
    new = body.limit(project, name)
    return await declare(backends, new, response, actor=actor.name, plan=plan)


@router.delete("/limits/{name}", status_code=204)
async def delete_limit(
    actor: Editor, backends: UsedBackends, project: Project, name: DeclaredName
) -> None:
    """Forget a rate limit, and let go the runs that wait for it."""
    await delete_declaration(backends, keys.Limit, project, name, actor=actor.name)

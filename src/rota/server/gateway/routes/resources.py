"""Named resources that runs share whichever worker they are on: list, look, set, delete."""

from __future__ import annotations

from starlette.responses import Response

from rota.domain.keys import Resource
from rota.operations.limits import delete_declaration, find_standing
from rota.server.gateway.auth import Editor
from rota.server.gateway.declaring import DeclaredName, IsPlan, declare, list_declared
from rota.server.gateway.paging import Cursor, Limit
from rota.server.gateway.shapes.limit import DeclarationChangeShape, ResourceBody, ResourceShape
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.wiring import Project, UsedBackends, api_router

router = api_router("resources")


@router.get("/resources")
async def list_resources(
    backends: UsedBackends, project: Project, limit: Limit = 100, cursor: Cursor = None
) -> Listing[ResourceShape]:
    """Named resources by name, and the runs that hold them."""
    return await list_declared(
        backends, Resource, ResourceShape.of, project, cursor=cursor, limit=limit
    )


@router.get("/resources/{name}")
async def show_resource(
    backends: UsedBackends, project: Project, name: DeclaredName
) -> ResourceShape:
    """A named resource, and the runs that hold it."""
    return ResourceShape.of(await find_standing(backends, Resource, project, name))


@router.put("/resources/{name}", responses={201: {"model": DeclarationChangeShape}})
async def put_resource(
    actor: Editor,
    backends: UsedBackends,
    project: Project,
    name: DeclaredName,
    body: ResourceBody,
    response: Response,
    plan: IsPlan = False,
) -> DeclarationChangeShape:
    """Create or change a named resource; runs that wait for it follow it at once."""
    new = body.resource(project, name)
    return await declare(backends, new, response, actor=actor.name, plan=plan)


@router.delete("/resources/{name}", status_code=204)
async def delete_resource(
    actor: Editor, backends: UsedBackends, project: Project, name: DeclaredName
) -> None:
    """Forget a named resource that no job uses."""
    await delete_declaration(backends, Resource, project, name, actor=actor.name)

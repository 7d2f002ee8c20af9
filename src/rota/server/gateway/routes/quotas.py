"""What a project may have: look, set, clear."""

from __future__ import annotations

from starlette.responses import Response

from rota.domain.keys import Quota
from rota.operations.limits import delete_declaration, find_quota
from rota.server.gateway.auth import Admin
from rota.server.gateway.declaring import IsPlan, declare
from rota.server.gateway.shapes.limit import DeclarationChangeShape, QuotaBody, QuotaShape
from rota.server.gateway.wiring import Project, UsedBackends, api_router

router = api_router("quota")


@router.get("/quota")
async def show_quota(backends: UsedBackends, project: Project) -> QuotaShape:
    """The quota of the project, and what it has of it."""
    counts = await backends.store.project_counts(project)
    shown = QuotaShape(project=project, jobs_now=counts.jobs, queued_now=counts.waiting)
    standing = await find_quota(backends, project)
    return shown if standing is None else shown.with_quota(standing)


@router.put("/quota", responses={201: {"model": DeclarationChangeShape}})
async def put_quota(
    actor: Admin,
    backends: UsedBackends,
    project: Project,
    body: QuotaBody,
    response: Response,
    plan: IsPlan = False,
) -> DeclarationChangeShape:
    """Set the whole quota of the project; runs that wait for it follow it at once."""
    new = body.quota(project)
    return await declare(backends, new, response, actor=actor.name, plan=plan)


@router.delete("/quota", status_code=204)
async def delete_quota(actor: Admin, backends: UsedBackends, project: Project) -> None:
    """Let the project have as much as it likes, and let go the runs that wait for it."""
    await delete_declaration(backends, Quota, project, Quota.name, actor=actor.name)

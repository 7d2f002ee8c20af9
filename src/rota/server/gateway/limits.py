"""Rate limits, named resources, quotas and shares: list, show, set, delete."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, Field, model_validator
from starlette.responses import Response

from rota.api import limits as api
from rota.api.answers import Answer, Page
from rota.domain.ids import instant, micros
from rota.domain.jobfile.declarations import MOST_TOTAL
from rota.domain.jobfile.demands import MOST_TOKENS
from rota.domain.jobfile.export import Change
from rota.domain.jobfile.parts import SHORTEST
from rota.domain.keys import (
    MINUTE_QUOTA,
    OUTPUT_QUOTA,
    READERS,
    RUNNING_QUOTA,
    Declaration,
    Each,
    KeyState,
    Limit,
    Quota,
    Rate,
    Resource,
    Sharing,
)
from rota.domain.quantities import format_duration, parse_duration
from rota.operations.engine import Engine
from rota.operations.limits import (
    Standing,
    delete_declaration,
    find_quota,
    find_standing,
    in_words,
    list_standings,
    plan_declaration,
    save_declaration,
    set_weight,
)
from rota.operations.tenants import seen_weights, sight_of
from rota.ports.records import KeyUse, ProjectCounts
from rota.server.gateway import filters
from rota.server.gateway.auth import Editor, InstallationAdmin, Member, Viewer
from rota.server.gateway.filters import Cursor, decode_cursor, encode_cursor, page
from rota.server.gateway.parameters import NAME, Body, Duration, Project, UsedEngine, api_router
from rota.server.gateway.routing import fill

D = TypeVar("D", Limit, Resource)
A = TypeVar("A", bound=Answer)

# Strict: JSON's `true` is no number, nor is "10".
Tokens = Annotated[int, Field(strict=True, ge=1, le=MOST_TOKENS)]
Units = Annotated[int, Field(strict=True, ge=1, le=MOST_TOTAL)]
Most = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Bytes = Annotated[int, Field(strict=True, ge=0, le=2**50)]
DeclaredName = Annotated[str, Path(pattern=NAME, description="name")]
IsPlan = Annotated[bool, Query(description="only say what would be changed")]
_Share = Annotated[
    str,
    Path(
        pattern=r"^[^\x00-\x1f\x7f]{1,300}$",
        description="a project, a user in it (project/user), or the key that jobs name",
    ),
]

router = api_router("limits")
resource_router = api_router("resources")
quota_router = api_router("quota")
share_router = api_router("shares")


def _long_enough(text: str) -> str:
    if parse_duration(text) < SHORTEST:
        raise ValueError(f"at least {format_duration(SHORTEST)}")
    return text


class LimitBody(Body):
    tokens: Tokens
    per: Annotated[Duration, AfterValidator(_long_enough)]
    burst: Tokens | None = None  # how many may be taken at once; None: as many as `tokens`
    each: Literal["job", "user", "project"] | None = None  # None: for the jobs that name it

    def limit(self, project: str, name: str) -> Limit:
        return Limit(
            project,
            name,
            self.tokens,
            parse_duration(self.per),
            self.burst or self.tokens,
            Each(self.each or ""),
        )


class ResourceBody(Body):
    """Either a number of units, or a kind that needs none."""

    kind: Sharing = Sharing.COUNTED
    total: Units | None = None

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> ResourceBody:
        if (self.kind is Sharing.COUNTED) != (self.total is not None):
            raise ValueError("give either `total`, or `kind`: mutex or read_write")
        return self

    def resource(self, project: str, name: str) -> Resource:
        return Resource(project, name, self.total or 1, self.kind)


class QuotaBody(Body):
    """All of it: what is left out is not limited."""

    jobs: Most | None = None
    queued: Most | None = None
    running: Most | None = None
    runs_per_minute: Most | None = None
    output_bytes_per_day: Bytes | None = None
    file_bytes: Bytes | None = None

    def quota(self, project: str) -> Quota:
        return Quota(project, **self.model_dump())


class ShareBody(Body):
    weight: Annotated[float, Field(strict=True, ge=0.001, le=1_000, allow_inf_nan=False)]


def limit_answer(standing: Standing[Limit]) -> api.Limit:
    limit = standing.declaration
    use = standing.uses.get(limit.name)
    return fill(
        api.Limit,
        limit,
        per=format_duration(limit.per),
        each=limit.each or None,
        words=in_words(limit),
        bucket=None if use is None else _bucket_answer(use, standing.now),
        updated_by=standing.updated_by,
        updated_at=standing.updated_at,
    )


def resource_answer(standing: Standing[Resource]) -> api.Resource:
    resource = standing.declaration
    is_group = resource.sharing is Sharing.READ_WRITE
    use = standing.uses.get(resource.name) or KeyUse(KeyState(resource.rule))  # just deleted
    return fill(
        api.Resource,
        resource,
        kind=resource.sharing,
        total=None if is_group else resource.total,
        words=in_words(resource),
        use=_use_answer(use, is_group=is_group),
        is_written=is_group and use.state.held >= READERS,
        updated_by=standing.updated_by,
        updated_at=standing.updated_at,
    )


def _quota_answer(
    project: str, counts: ProjectCounts, file_bytes: int, standing: Standing[Quota] | None
) -> api.Quota:
    """Build the answer of a project's quota and usage; without a standing, no quota is set."""
    quota = standing.declaration if standing else Quota(project)
    uses = standing.uses if standing else {}
    running, minute, output = (
        uses.get(name) for name in (RUNNING_QUOTA, MINUTE_QUOTA, OUTPUT_QUOTA)
    )
    return fill(
        api.Quota,
        quota,
        jobs_now=counts.jobs,
        queued_now=counts.waiting,
        file_bytes_now=file_bytes,
        use=_use_answer(running) if running else None,
        bucket=_bucket_answer(minute, standing.now) if standing and minute else None,
        output=_bucket_answer(output, standing.now) if standing and output else None,
        updated_by=standing.updated_by if standing else None,
        updated_at=standing.updated_at if standing else None,
    )


def _bucket_answer(use: KeyUse, now: datetime) -> api.Bucket:
    rule, at = use.state.rule, micros(now)
    assert isinstance(rule, Rate), "only rates have buckets"
    bucket = use.state.bucket_of(rule, at)
    ready = bucket.foreseen_at(1, at)
    return api.Bucket(
        tokens=max(int(bucket.level_at(at)), 0),
        next_token_at=instant(ready) if ready is not None and ready > at else None,
        queued=use.state.queued,
        waiting=use.waiting,
    )


def _use_answer(use: KeyUse, *, is_group: bool = False) -> api.Use:
    held, queued = use.state.held, use.state.queued
    return api.Use(
        held=_members(held) if is_group else held,
        queued=_members(queued) if is_group else queued,
        waiting=use.waiting,
        holders=tuple(use.holders),
    )


def _members(amount: int) -> int:
    writers, readers = divmod(amount, READERS)
    return writers + readers


async def _list_declared(
    engine: Engine,
    kind: type[D],
    answer: Callable[[Standing[D]], A],
    project: str,
    *,
    cursor: str | None,
    limit: int,
) -> Page[A]:
    """Return a page of the declarations of one kind, by name."""
    word = f"{kind.__name__.lower()}s"
    after = decode_cursor(word, cursor, "")
    found = await list_standings(engine, kind, project, after=after, limit=limit + 1)
    return page(found, limit, answer, lambda it: encode_cursor(word, it.declaration.name))


async def _declare(
    engine: Engine, new: Declaration, response: Response, *, actor: str, plan: bool
) -> api.DeclarationChange:
    """Save a declaration, or with `plan` only return what would change."""
    if plan:
        change = await plan_declaration(engine, new)
    else:
        change = await save_declaration(engine, new, actor=actor)
        if change.change is Change.NEW:
            response.status_code = 201
    return fill(api.DeclarationChange, change, applied=not plan)


@router.get("/limits")
async def list_limits(
    caller: Viewer,
    engine: UsedEngine,
    project: Project,
    limit: filters.Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Limit]:
    """Rate limits by name, with the tokens that are there."""
    return await _list_declared(engine, Limit, limit_answer, project, cursor=cursor, limit=limit)


@router.get("/limits/{name}")
async def show_limit(
    caller: Viewer, engine: UsedEngine, project: Project, name: DeclaredName
) -> api.Limit:
    """A rate limit, with the tokens that are there."""
    return limit_answer(await find_standing(engine, Limit, project, name))


@router.put("/limits/{name}", responses={201: {"model": api.DeclarationChange}})
async def put_limit(
    actor: Editor,
    engine: UsedEngine,
    project: Project,
    name: DeclaredName,
    body: LimitBody,
    response: Response,
    plan: IsPlan = False,
) -> api.DeclarationChange:
    """Create or change a rate limit; runs that wait for it follow it at once."""
    new = body.limit(project, name)
    return await _declare(engine, new, response, actor=actor.name, plan=plan)


@router.delete("/limits/{name}", status_code=204)
async def delete_limit(
    actor: Editor, engine: UsedEngine, project: Project, name: DeclaredName
) -> None:
    """Forget a rate limit, and let go the runs that wait for it."""
    await delete_declaration(engine, Limit, project, name, actor=actor.name)


@resource_router.get("/resources")
async def list_resources(
    caller: Viewer,
    engine: UsedEngine,
    project: Project,
    limit: filters.Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Resource]:
    """Named resources by name, and the runs that hold them."""
    return await _list_declared(
        engine, Resource, resource_answer, project, cursor=cursor, limit=limit
    )


@resource_router.get("/resources/{name}")
async def show_resource(
    caller: Viewer, engine: UsedEngine, project: Project, name: DeclaredName
) -> api.Resource:
    """A named resource, and the runs that hold it."""
    return resource_answer(await find_standing(engine, Resource, project, name))


@resource_router.put("/resources/{name}", responses={201: {"model": api.DeclarationChange}})
async def put_resource(
    actor: Editor,
    engine: UsedEngine,
    project: Project,
    name: DeclaredName,
    body: ResourceBody,
    response: Response,
    plan: IsPlan = False,
) -> api.DeclarationChange:
    """Create or change a named resource; runs that wait for it follow it at once."""
    new = body.resource(project, name)
    return await _declare(engine, new, response, actor=actor.name, plan=plan)


@resource_router.delete("/resources/{name}", status_code=204)
async def delete_resource(
    actor: Editor, engine: UsedEngine, project: Project, name: DeclaredName
) -> None:
    """Forget a named resource that no job uses."""
    await delete_declaration(engine, Resource, project, name, actor=actor.name)


@quota_router.get("/quota")
async def show_quota(caller: Viewer, engine: UsedEngine, project: Project) -> api.Quota:
    """The quota of the project, and what it has of it."""
    counts = await engine.store.project_counts(project)
    file_bytes = await engine.store.bytes_of_files(project)
    standing = await find_quota(engine, project)
    return _quota_answer(project, counts, file_bytes, standing)


@quota_router.put("/quota", responses={201: {"model": api.DeclarationChange}})
async def put_quota(
    caller: Viewer,
    actor: InstallationAdmin,
    engine: UsedEngine,
    project: Project,
    body: QuotaBody,
    response: Response,
    plan: IsPlan = False,
) -> api.DeclarationChange:
    """Set the whole quota of the project; runs that wait for it follow it at once."""
    new = body.quota(project)
    return await _declare(engine, new, response, actor=actor.name, plan=plan)


@quota_router.delete("/quota", status_code=204)
async def delete_quota(
    caller: Viewer, actor: InstallationAdmin, engine: UsedEngine, project: Project
) -> None:
    """Let the project have as much as it likes, and let go the runs that wait for it."""
    await delete_declaration(engine, Quota, project, Quota.name, actor=actor.name)


@share_router.get("/shares")
async def list_shares(caller: Member, engine: UsedEngine) -> Page[api.Share]:
    """Shares whose weight somebody has set; all others have 1.

    Without a role in the installation, those of your projects and of users in them.
    """
    sight = await sight_of(engine, caller.projects)
    found = seen_weights(sight, await engine.store.share_weights())
    return Page(items=tuple(fill(api.Share, share) for share in found))


@share_router.put("/shares/{share:path}")
async def put_share(
    actor: InstallationAdmin, engine: UsedEngine, share: _Share, body: ShareBody
) -> api.Share:
    """Set the weight of a share; the next claim goes by it."""
    saved = await set_weight(engine, share, body.weight, actor=actor.name)
    return fill(api.Share, saved)

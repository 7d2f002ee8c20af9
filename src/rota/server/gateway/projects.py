"""Projects and pools: list, show, create, change, delete, give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from rota.api import projects as api
from rota.api.answers import Page
from rota.domain.errors import Invalid, Problem
from rota.domain.resources import Vector, format_amount, parse_named_amount
from rota.domain.spec import Isolation, Network
from rota.operations import projects
from rota.operations.projects import ProjectEdit
from rota.operations.tenants import EVERYTHING, Sight, sight_of
from rota.operations.tokens import Caller
from rota.ports.projects import Pool, Project
from rota.ports.work import MAX_LABELS
from rota.server.gateway import filters
from rota.server.gateway.auth import (
    InstallationAdmin,
    Member,
    ProjectName,
    Reader,
    ViewerOfNamed,
)
from rota.server.gateway.filters import Cursor, decode_cursor, encode_cursor, page
from rota.server.gateway.parameters import (
    NAME,
    Body,
    IfMatch,
    UsedEngine,
    api_router,
    quote,
    unquote,
)
from rota.server.gateway.routing import fill

router = api_router("projects")
pool_router = api_router("pools")
defaults_router = api_router("defaults")

_CURSOR = "projects"
PoolName = Annotated[str, Path(pattern=NAME, description="name")]
Title = Annotated[str, Field(max_length=200)]
Document = dict[str, Any]


class NewProjectBody(Body):
    """Policy and defaults are read by the job file's own rules."""

    name: Annotated[str, Field(pattern=NAME)]
    title: Title = ""
    policy: Document | None = None
    defaults: Document | None = None


class ProjectBody(Body):
    """What is to be different: a merge patch (RFC 7396), where null takes a field away."""

    title: Title | None = None
    policy: Document | None = None
    defaults: Document | None = None


class PoolBody(Body):
    """What is missing stays; at least one of the three must be there."""

    projects: (
        Annotated[list[Annotated[str, Field(pattern=NAME)]], Field(max_length=1_000)] | None
    ) = None
    private: bool | None = None
    # The most that one run may ask for, as `{"cpu": "16", "memory": "64GiB"}`; `{}`: any.
    max: Annotated[dict[str, str], Field(max_length=MAX_LABELS)] | None = None


class DefaultsBody(Body):
    """What is missing stays."""

    isolation: Literal["process", "sandbox"] | None = None
    network: Literal["none", "outbound", "host"] | None = None


def project_answer(project: Project) -> api.Project:
    return fill(api.Project, project)


@router.get("/projects")
async def list_projects(
    caller: Reader, engine: UsedEngine, limit: filters.Limit = 100, cursor: Cursor = None
) -> Page[api.Project]:
    """Projects by name, those in which the caller has a role."""
    after = decode_cursor(_CURSOR, cursor, "")
    mine = caller.rights.projects()
    if mine is None:
        found = await engine.store.projects(after=after, limit=limit + 1)
    else:
        names = [name for name in mine if name > after][: limit + 1]
        found = await engine.store.projects(names)
    return page(found, limit, project_answer, lambda it: encode_cursor(_CURSOR, it.name))


@router.post("/projects", status_code=201)
async def create_project(
    actor: InstallationAdmin, engine: UsedEngine, body: NewProjectBody, response: Response
) -> api.Project:
    """A new project. A name is never given twice, not even after its project was deleted."""
    said = ProjectEdit(body.title, body.defaults, body.policy)
    made = await projects.create_project(engine, body.name, said, actor=actor.name)
    response.headers["ETag"] = quote(str(made.version))
    return project_answer(made)


@router.get("/projects/{name}")
async def show_project(
    caller: ViewerOfNamed, engine: UsedEngine, name: ProjectName, response: Response
) -> api.Project:
    """A project with its policy and its defaults."""
    found = await projects.find_project(engine, name)
    response.headers["ETag"] = quote(str(found.version))
    return project_answer(found)


@router.patch("/projects/{name}")
async def change_project(
    actor: InstallationAdmin,
    engine: UsedEngine,
    name: ProjectName,
    body: ProjectBody,
    response: Response,
    plan: Annotated[bool, Query(description="only say what would be changed")] = False,
    if_match: IfMatch = "",
) -> api.ProjectChange:
    """Change a project; a policy counts at once, defaults when jobs are applied next."""
    edit = ProjectEdit(body.title, body.defaults, body.policy, _version(if_match))
    if plan:
        change = await projects.plan_project(engine, name, edit)
    else:
        change = await projects.change_project(engine, name, edit, actor=actor.name)
    response.headers["ETag"] = quote(str(change.version))
    return fill(api.ProjectChange, change, applied=not plan)


def _version(if_match: str) -> int | None:
    tag = unquote(if_match)
    if not tag:
        return None
    return int(tag) if tag.isdecimal() else -1  # the tag of something else: never right


@router.delete("/projects/{name}", status_code=204)
async def delete_project(actor: InstallationAdmin, engine: UsedEngine, name: ProjectName) -> None:
    """Delete a project in which nothing lives; its tokens and roles end with it."""
    await projects.delete_project(engine, name, actor=actor.name)


def _pool_answer(pool: Pool, caller: Caller, sight: Sight) -> api.Pool | None:
    """Build the answer of a pool; None: the caller has no project that may use it."""
    seen = tuple(name for name in pool.projects if caller.rights.role_in(name) is not None)
    if not sight.sees_pool(pool.name):
        return None
    return api.Pool(
        name=pool.name,
        workers=pool.workers,
        is_shared=not pool.projects,
        projects=seen,
        other_projects=len(pool.projects) - len(seen),
        is_private=pool.is_private,
        refuses_processes=pool.refuses_processes,
        max={name: format_amount(name, pool.most[name]) for name in sorted(pool.most)},
    )


@pool_router.get("/pools")
async def list_pools(caller: Member, engine: UsedEngine) -> Page[api.Pool]:
    """Pools that the caller's projects may use, and who else may."""
    sight = await sight_of(engine, caller.projects)
    answers = (_pool_answer(pool, caller, sight) for pool in await engine.store.pools())
    return Page(items=tuple(filter(None, answers)))


@pool_router.get("/pools/{name}")
async def show_pool(caller: Member, engine: UsedEngine, name: PoolName) -> api.Pool:
    """A pool, and who may use it."""
    sight = await sight_of(engine, caller.projects)
    answer = _pool_answer(await projects.find_pool(engine, name), caller, sight)
    if answer is None:
        raise projects.no_such_pool(name)
    return answer


def _vector(amounts: Mapping[str, str]) -> Vector:
    """Parse amounts by resource; `Invalid` with what is wrong with each."""
    problems: list[Problem] = []
    found: dict[str, int] = {}
    for name, text in amounts.items():
        try:
            found[name] = parse_named_amount(name, text)
        except ValueError as error:
            problems.append(Problem(str(error), f"max.{name}"))
    if problems:
        raise Invalid("the most that a run may ask for is wrong", problems)
    return found


@pool_router.put("/pools/{name}")
async def put_pool(
    actor: InstallationAdmin, engine: UsedEngine, name: PoolName, body: PoolBody
) -> api.Pool:
    """Let only these projects use a pool; none: all may. `max` bounds what one run may ask for.

    Jobs of other projects start nothing there, and jobs that ask for more are refused. A private
    pool keeps plain processes out while several projects may use it.
    """
    pool = await projects.give_pool(
        engine,
        name,
        body.projects,
        actor=actor.name,
        is_private=body.private,
        most=None if body.max is None else _vector(body.max),
    )
    answer = _pool_answer(pool, actor, EVERYTHING)
    assert answer is not None, "an admin of the installation sees all pools"
    return answer


@defaults_router.get("/defaults")
async def show_defaults(caller: Member, engine: UsedEngine) -> api.Defaults:
    """The walls of jobs that name none."""
    return fill(api.Defaults, await engine.store.wall_defaults())


@defaults_router.patch("/defaults")
async def change_defaults(
    actor: InstallationAdmin, engine: UsedEngine, body: DefaultsBody
) -> api.Defaults:
    """Change the walls of jobs that name none. Jobs that are there keep theirs until applied."""
    isolation = None if body.isolation is None else Isolation(body.isolation)
    network = None if body.network is None else Network(body.network)
    changed = await engine.store.change_walls(isolation, network, actor=actor.name)
    return fill(api.Defaults, changed)

"""Principals and roles: list, grant, revoke, disable."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from rota.api import principals as api
from rota.api.answers import Page
from rota.domain.access import INSTALLATION, Role
from rota.operations import principals
from rota.operations.principals import Who, read_principal
from rota.ports.projects import Binding, Principal
from rota.server.gateway import filters
from rota.server.gateway.auth import AdminOfNamed, InstallationAdmin, ProjectName, Tokens
from rota.server.gateway.filters import Cursor, decode_cursor, encode_cursor, page
from rota.server.gateway.parameters import (
    Body,
    Settings,
    UsedEngine,
    api_router,
)
from rota.server.gateway.routing import fill

router = api_router("principals")
role_router = api_router("roles")

_CURSOR = "principals"
Handle = Annotated[str, Path(pattern=r"^[^\x00-\x1f\x7f:]{1,200}$", description="handle")]
_Named = Annotated[
    str,
    Path(
        pattern=r"^[^\x00-\x1f\x7f]{1,1010}$",
        description="a handle, or as an identity provider knows them: `group:NAME`, "
        "`email:ADDRESS`, `user:SUB`",
    ),
]
_Issuer = Annotated[
    str | None,
    Query(max_length=500, description="who knows them so; the configured provider, unless given"),
]


async def _meant(settings: Settings, principal: _Named, issuer: _Issuer = None) -> Who:
    return read_principal(principal, settings.issuer if issuer is None else issuer)


Meant = Annotated[Who, Depends(_meant)]


class RoleBody(Body):
    role: Role


def binding_answer(binding: Binding) -> api.Binding:
    principal = binding.principal
    return api.Binding(
        principal=principal.handle,
        kind=principal.kind,
        title=principal.title,
        email=principal.email,
        project=None if binding.scope == INSTALLATION else binding.scope,
        role=binding.role,
        is_disabled=principal.disabled_at is not None,
        created_by=binding.created_by,
        created_at=binding.created_at,
    )


def principal_answer(principal: Principal) -> api.Principal:
    return fill(api.Principal, principal)


@role_router.get("/projects/{name}/roles")
async def list_roles(
    actor: AdminOfNamed, engine: UsedEngine, name: ProjectName
) -> Page[api.Binding]:
    """Who has a role in a project; those with a role in the installation have it here, too."""
    found = await engine.store.bindings(scope=name)
    return Page(items=tuple(map(binding_answer, found)))


@role_router.put("/projects/{name}/roles/{principal:path}")
async def put_role(
    actor: AdminOfNamed,
    engine: UsedEngine,
    trusted: Tokens,
    name: ProjectName,
    who: Meant,
    body: RoleBody,
) -> api.Binding:
    """Give somebody a role in a project, in place of the one that they had there."""
    bound = await principals.grant_role(
        engine, who, name, body.role, by=actor.rights, actor=actor.name
    )
    trusted.forget()
    return binding_answer(bound)


@role_router.delete("/projects/{name}/roles/{principal:path}", status_code=204)
async def delete_role(
    actor: AdminOfNamed,
    engine: UsedEngine,
    trusted: Tokens,
    name: ProjectName,
    who: Meant,
) -> None:
    """Take the role that somebody has in a project; what they have elsewhere stays."""
    await principals.revoke_role(engine, who, name, actor=actor.name)
    trusted.forget()


@role_router.get("/roles")
async def list_installation_roles(
    actor: InstallationAdmin,
    engine: UsedEngine,
    principal: Annotated[str | None, Query(max_length=200, description="only of this one")] = None,
    everywhere: Annotated[bool, Query(description="in all projects, too")] = False,
) -> Page[api.Binding]:
    """Who has a role in the installation, and with it in every project."""
    scope = None if everywhere else INSTALLATION
    found = await engine.store.bindings(scope=scope, principal=principal)
    return Page(items=tuple(map(binding_answer, found)))


@role_router.put("/roles/{principal:path}")
async def put_installation_role(
    actor: InstallationAdmin,
    engine: UsedEngine,
    trusted: Tokens,
    who: Meant,
    body: RoleBody,
) -> api.Binding:
    """Give somebody a role in the installation, and with it in every project."""
    bound = await principals.grant_role(
        engine, who, INSTALLATION, body.role, by=actor.rights, actor=actor.name
    )
    trusted.forget()
    return binding_answer(bound)


@role_router.delete("/roles/{principal:path}", status_code=204)
async def delete_installation_role(
    actor: InstallationAdmin,
    engine: UsedEngine,
    trusted: Tokens,
    who: Meant,
) -> None:
    """Take the role that somebody has in the installation; the last admin stays."""
    await principals.revoke_role(engine, who, INSTALLATION, actor=actor.name)
    trusted.forget()


@router.get("/principals")
async def list_principals(
    actor: InstallationAdmin,
    engine: UsedEngine,
    limit: filters.Limit = 100,
    cursor: Cursor = None,
) -> Page[api.Principal]:
    """Users, groups and programs, by handle."""
    after = decode_cursor(_CURSOR, cursor, "")
    found = await engine.store.principals(after=after, limit=limit + 1)
    return page(found, limit, principal_answer, lambda it: encode_cursor(_CURSOR, it.handle))


@router.post("/principals/{handle}:disable")
async def disable_principal(
    actor: InstallationAdmin, engine: UsedEngine, trusted: Tokens, handle: Handle
) -> api.Principal:
    """Let somebody do nothing any more: their sessions and tokens are refused. Their jobs go on."""
    found = await principals.disable_principal(engine, handle, disabled=True, actor=actor.name)
    trusted.forget()
    return principal_answer(found)


@router.post("/principals/{handle}:enable")
async def enable_principal(
    actor: InstallationAdmin, engine: UsedEngine, trusted: Tokens, handle: Handle
) -> api.Principal:
    """Let somebody do again what their roles allow."""
    found = await principals.disable_principal(engine, handle, disabled=False, actor=actor.name)
    trusted.forget()
    return principal_answer(found)


@router.get("/advice")
async def list_advice(actor: InstallationAdmin, engine: UsedEngine) -> Page[api.Advice]:
    """What an admin may want to tighten: old tokens, jobs of people who left, shared pools."""
    found = await principals.advice(engine)
    return Page(items=tuple(fill(api.Advice, each) for each in found))

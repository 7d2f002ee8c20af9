"""Calls about principals and their roles.

A principal is named by its handle, or as an identity provider knows it: `group:NAME`,
`email:ADDRESS`, `user:SUB`. `issuer` is the address of that provider; the configured one, unless
given.
"""

from __future__ import annotations

from rota.api.answers import Page
from rota.api.principals import Advice, Binding, Principal
from rota.sdk.exchange import Call, get, path_of, post, put
from rota.sdk.verbs import Verb


def list_roles(project: str) -> Call[Page[Binding]]:
    """List who has a role in a project."""
    return get(Page[Binding], path_of("projects", project, "roles"))


def grant_role(
    project: str, principal: str, role: str, *, issuer: str | None = None
) -> Call[Binding]:
    """Give somebody a role in a project, in place of the one that they had there."""
    path = path_of("projects", project, "roles", principal)
    return put(Binding, path, {"role": role}, issuer=issuer)


def revoke_role(project: str, principal: str, *, issuer: str | None = None) -> Call[None]:
    """Take the role that somebody has in a project."""
    path = path_of("projects", project, "roles", principal)
    return Call(type(None), "DELETE", path, {"issuer": issuer})


def list_installation_roles(
    *, principal: str | None = None, everywhere: bool = False
) -> Call[Page[Binding]]:
    """List who has a role in the installation; with `everywhere`, in all projects, too."""
    return get(Page[Binding], "/roles", principal=principal, everywhere=everywhere or None)


def grant_installation_role(
    principal: str, role: str, *, issuer: str | None = None
) -> Call[Binding]:
    """Give somebody a role in the installation, and with it in every project."""
    return put(Binding, path_of("roles", principal), {"role": role}, issuer=issuer)


def revoke_installation_role(principal: str, *, issuer: str | None = None) -> Call[None]:
    """Take the role that somebody has in the installation; the last admin stays."""
    return Call(type(None), "DELETE", path_of("roles", principal), {"issuer": issuer})


def list_principals(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Principal]]:
    """List users, groups and programs, by handle."""
    return get(Page[Principal], "/principals", limit=limit, cursor=cursor)


def disable_principal(handle: str) -> Call[Principal]:
    """Let somebody do nothing any more; their jobs go on."""
    return post(Principal, f"{path_of('principals', handle)}:disable")


def enable_principal(handle: str) -> Call[Principal]:
    """Let somebody do again what their roles allow."""
    return post(Principal, f"{path_of('principals', handle)}:enable")


def list_advice() -> Call[Page[Advice]]:
    """List what an admin of the installation may want to tighten."""
    return get(Page[Advice], "/advice")


class PrincipalVerbs:
    disable_principal = Verb(disable_principal)
    enable_principal = Verb(enable_principal)
    grant_installation_role = Verb(grant_installation_role)
    grant_role = Verb(grant_role)
    list_advice = Verb(list_advice)
    list_installation_roles = Verb(list_installation_roles)
    list_principals = Verb(list_principals)
    list_roles = Verb(list_roles)
    revoke_installation_role = Verb(revoke_installation_role)
    revoke_role = Verb(revoke_role)

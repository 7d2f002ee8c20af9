"""Calls about projects and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.api.answers import Page
from rota.api.projects import Defaults, Pool, Project, ProjectChange
from rota.sdk.exchange import Call, get, patch, path_of, post, put
from rota.sdk.verbs import Verb

Document = Mapping[str, Any]


def list_projects(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Project]]:
    """List the projects in which the caller has a role, by name."""
    return get(Page[Project], "/projects", limit=limit, cursor=cursor)


def get_project(name: str) -> Call[Project]:
    """Get a project with its policy and its defaults."""
    return get(Project, path_of("projects", name))


def create_project(
    name: str,
    *,
    title: str = "",
    policy: Document | None = None,
    defaults: Document | None = None,
) -> Call[Project]:
    """Create a project. `policy={"timeout": "1h", "pools": ["default"]}` bounds what jobs ask for,
    `defaults` are fields of jobs that neither they nor their file set."""
    document = {"name": name, "title": title, "policy": policy, "defaults": defaults}
    return post(Project, "/projects", document)


def change_project(
    name: str,
    *,
    title: str | None = None,
    policy: Document | None = None,
    defaults: Document | None = None,
    plan: bool = False,
    etag: str | None = None,
) -> Call[ProjectChange]:
    """Change a project: what is None stays, and a field that is None in a document is taken away.

    With `plan`, only return the change.
    """
    given = {"title": title, "policy": policy, "defaults": defaults}
    document = {key: value for key, value in given.items() if value is not None}
    call = patch(ProjectChange, path_of("projects", name), document)
    return call.with_query(plan=plan or None).if_match(etag)


def delete_project(name: str) -> Call[None]:
    """Delete a project in which nothing lives; its name is never given again."""
    return Call(type(None), "DELETE", path_of("projects", name))


def list_pools() -> Call[Page[Pool]]:
    """List the pools that the caller's projects may use."""
    return get(Page[Pool], "/pools")


def get_pool(name: str) -> Call[Pool]:
    """Get a pool, and who may use it."""
    return get(Pool, path_of("pools", name))


def put_pool(
    name: str,
    projects: Sequence[str] | None = None,
    *,
    private: bool | None = None,
    max: Mapping[str, str] | None = None,  # noqa: A002 - the word of the API
) -> Call[Pool]:
    """Let only these projects use a pool; none: all may. `private` keeps plain processes out while
    several projects may use it; `max={"cpu": "16"}` refuses runs that ask for more. What is None
    stays."""
    names = None if projects is None else list(projects)
    given = {"projects": names, "private": private, "max": max}
    document = {key: value for key, value in given.items() if value is not None}
    return put(Pool, path_of("pools", name), document)


def get_defaults() -> Call[Defaults]:
    """Get the walls of jobs that name none."""
    return get(Defaults, "/defaults")


def change_defaults(*, isolation: str | None = None, network: str | None = None) -> Call[Defaults]:
    """Change the walls of jobs that name none, from their next apply on; what is None stays."""
    given = {"isolation": isolation, "network": network}
    return patch(Defaults, "/defaults", {key: it for key, it in given.items() if it is not None})


class ProjectVerbs:
    change_defaults = Verb(change_defaults)
    change_project = Verb(change_project)
    create_project = Verb(create_project)
    delete_project = Verb(delete_project)
    get_defaults = Verb(get_defaults)
    get_pool = Verb(get_pool)
    get_project = Verb(get_project)
    list_pools = Verb(list_pools)
    list_projects = Verb(list_projects)
    put_pool = Verb(put_pool)

"""Calls about rate limits, named resources, quotas and shares."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from rota.api.answers import Page
from rota.api.limits import DeclarationChange, Limit, Quota, Resource, Share
from rota.sdk.exchange import Call, get, path_of, put
from rota.sdk.verbs import Verb

Each = Literal["job", "user", "project"]
Kind = Literal["counted", "mutex", "read_write"]


def list_limits(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Limit]]:
    """List rate limits by name, with their available tokens."""
    return get(Page[Limit], "/limits", limit=limit, cursor=cursor)


def get_limit(name: str) -> Call[Limit]:
    """Get a rate limit, with its available tokens."""
    return get(Limit, path_of("limits", name))


def put_limit(
    name: str,
    *,
    tokens: int,
    per: timedelta | str,
    burst: int | None = None,
    each: Each | None = None,
    plan: bool = False,
) -> Call[DeclarationChange]:
    """Create or change a rate limit; with `plan`, only return the change.

    `burst` is how many tokens may be taken at once: as many as `tokens`, unless given. With `each`
    every run of the project takes a token, and each job, user or the project has its own.
    """
    document = {"tokens": tokens, "per": per, "burst": burst, "each": each}
    return _put(path_of("limits", name), document, plan)


def delete_limit(name: str) -> Call[None]:
    """Delete a rate limit, and release the runs that wait for it."""
    return Call(type(None), "DELETE", path_of("limits", name))


def list_resources(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Resource]]:
    """List named resources by name, and the runs that hold them."""
    return get(Page[Resource], "/resources", limit=limit, cursor=cursor)


def get_resource(name: str) -> Call[Resource]:
    """Get a named resource, and the runs that hold it."""
    return get(Resource, path_of("resources", name))


def put_resource(
    name: str, *, total: int | None = None, kind: Kind = "counted", plan: bool = False
) -> Call[DeclarationChange]:
    """Create or change a named resource, of a `total` or of a kind that needs none."""
    return _put(path_of("resources", name), {"total": total, "kind": kind}, plan)


def delete_resource(name: str) -> Call[None]:
    """Delete a named resource that no job uses."""
    return Call(type(None), "DELETE", path_of("resources", name))


def get_quota() -> Call[Quota]:
    """Get the quota of the project, and its usage."""
    return get(Quota, "/quota")


def put_quota(
    *,
    jobs: int | None = None,
    queued: int | None = None,
    running: int | None = None,
    runs_per_minute: int | None = None,
    output_bytes_per_day: int | None = None,
    file_bytes: int | None = None,
    plan: bool = False,
) -> Call[DeclarationChange]:
    """Set the whole quota of the project: what is None is not limited."""
    document = {
        "jobs": jobs,
        "queued": queued,
        "running": running,
        "runs_per_minute": runs_per_minute,
        "output_bytes_per_day": output_bytes_per_day,
        "file_bytes": file_bytes,
    }
    return _put("/quota", document, plan)


def delete_quota() -> Call[None]:
    """Delete the quota: the project is not limited."""
    return Call(type(None), "DELETE", "/quota")


def list_shares() -> Call[Page[Share]]:
    """List shares with a weight that was set; all others have 1."""
    return get(Page[Share], "/shares")


def put_share(share: str, weight: float) -> Call[Share]:
    """Set the weight of a share: a project, a user in it (project/user), or a key of jobs."""
    return put(Share, path_of("shares", share), {"weight": weight})


def _put(path: str, document: Mapping[str, object], plan: bool) -> Call[DeclarationChange]:
    return put(DeclarationChange, path, document, plan=plan or None)


class LimitVerbs:
    delete_limit = Verb(delete_limit)
    delete_quota = Verb(delete_quota)
    delete_resource = Verb(delete_resource)
    get_limit = Verb(get_limit)
    get_quota = Verb(get_quota)
    get_resource = Verb(get_resource)
    list_limits = Verb(list_limits)
    list_resources = Verb(list_resources)
    list_shares = Verb(list_shares)
    put_limit = Verb(put_limit)
    put_quota = Verb(put_quota)
    put_resource = Verb(put_resource)
    put_share = Verb(put_share)

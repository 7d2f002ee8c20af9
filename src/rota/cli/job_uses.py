"""What jobs use that is defined beside them, as a job file has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rota.sdk import limit_calls
from rota.sdk.client import Client
from rota.sdk.limit_answers import Limit, Resource

_PAGE = 1_000


def used_by(client: Client, jobs: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The calendars, limits and named resources of these jobs, by field of the file."""
    calendars = {name for job in jobs for name in job.get("calendars", ())}
    limits = {limit["name"] for job in jobs for limit in job.get("rate_limits", ())}
    resources = {name for job in jobs for name in job.get("resources", {})}
    return {
        "calendars": [dict(client.get_calendar(name).document) for name in sorted(calendars)],
        "limits": _limits(client, limits) if limits else [],
        "resources": _resources(client, resources) if resources else [],
    }


def _limits(client: Client, names: Collection[str]) -> list[dict[str, Any]]:
    found = client.each(limit_calls.list_limits(limit=_PAGE))
    return [_limit_document(limit) for limit in found if limit.name in names]


def _resources(client: Client, names: Collection[str]) -> list[dict[str, Any]]:
    """Those that are shared; others of these names are what workers offer."""
    found = client.each(limit_calls.list_resources(limit=_PAGE))
    return [_resource_document(resource) for resource in found if resource.name in names]


def _limit_document(limit: Limit) -> dict[str, Any]:
    each = {"each": limit.each} if limit.each else {}
    rate = {"tokens": limit.tokens, "per": limit.per, "burst": limit.burst}
    return {"name": limit.name, **rate, **each}


def _resource_document(resource: Resource) -> dict[str, Any]:
    is_counted = resource.kind == "counted"
    return {
        "name": resource.name,
        **({"total": resource.total} if is_counted else {"kind": resource.kind}),
    }

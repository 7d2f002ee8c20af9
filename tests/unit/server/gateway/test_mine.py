"""Jobs, runs, carts and coming runs of one user."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rota.domain.access import Role
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio

LISTS = ["jobs", "runs", "carts", "forecast"]


async def as_user(served: Served, user: Role, path: str, **kwargs: Any) -> Any:
    answer = await served.post(path, user, **kwargs)
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()


async def make(served: Served, user: Role, name: str) -> None:
    """A job of a user that is due soon, one without a schedule, and a cart."""
    soon, tidy = job(f"{name}-often", schedule="every 10m"), job(name)
    text = job_file(soon, tidy)
    await as_user(served, user, "jobs:apply", content=text, headers=YAML, params={"name": name})
    cart = {"name": f"{name}-cart", "job": name, "items": [{"key": "one"}]}
    await as_user(served, user, "carts", json=cart)


async def listed(
    served: Served, user: Role, path: str, **params: str
) -> tuple[int, list[dict[str, Any]]]:
    answer: httpx.Response = await served.get(path, user, params=params)
    document = answer.json()
    return answer.status_code, document.get("items", document.get("jobs", []))


async def names(served: Served, user: Role, path: str, **params: str) -> set[str]:
    status, items = await listed(served, user, path, **params)
    assert status == 200, items
    return {item.get("name") or item["job"] for item in items}


async def test_whoever_asks_for_theirs_gets_theirs(served: Served) -> None:
    await make(served, Role.EDITOR, "ed")
    await make(served, Role.ADMIN, "ad")
    for user in (Role.EDITOR, Role.ADMIN):
        for name in ("ed", "ad"):
            await as_user(served, user, f"jobs/{name}/runs", json={})

    mine = {path: await names(served, Role.EDITOR, path, created_by="me") for path in LISTS}
    by_handle = await names(served, Role.EDITOR, "jobs", created_by="editor")
    everybody = {path: await names(served, Role.EDITOR, path) for path in LISTS}

    assert mine["jobs"] == by_handle == {"ed", "ed-often"}
    assert mine["runs"] == {"ed", "ad"}  # runs of both jobs that the editor asked for
    assert mine["carts"] == {"ed-cart"}
    assert everybody["jobs"] == {"ed", "ed-often", "ad", "ad-often"}
    coming = {"ed-often", "ad-often"}  # what waits already comes now, or has just come
    assert mine["forecast"] & coming == {"ed-often"}
    assert everybody["forecast"] & coming == coming


@pytest.mark.parametrize("path", LISTS)
async def test_only_admins_ask_for_others(served: Served, path: str) -> None:
    await make(served, Role.EDITOR, "ed")

    refused = [await listed(served, role, path, created_by="admin") for role in list(Role)[:-1]]
    allowed = await names(served, Role.ADMIN, path, created_by="editor")
    nobody = await names(served, Role.ADMIN, path, created_by="nobody")

    assert [status for status, _ in refused] == [403] * 3
    assert allowed or path == "runs"
    assert nobody == set()


@pytest.mark.parametrize("state", ["queued", "blocked,queued"])
async def test_waiting_runs_of_one_user_can_be_asked_for(served: Served, state: str) -> None:
    await make(served, Role.EDITOR, "ed")
    await served.worker()
    for user in (Role.EDITOR, Role.ADMIN):
        await as_user(served, user, "jobs/ed/runs", json={})

    mine = await listed(served, Role.EDITOR, "runs", created_by="me", state=state)

    assert [run["created_by"] for run in mine[1]] == ["editor"]


async def test_filters_and_pages_hold_beside_it(served: Served) -> None:
    await make(served, Role.EDITOR, "ed")
    for _ in range(3):
        await as_user(served, Role.EDITOR, "jobs/ed/runs", json={})
        await as_user(served, Role.ADMIN, "jobs/ed/runs", json={})
    mine = {"created_by": "me", "limit": "2", "project": "*"}

    first = (await served.get("runs", Role.EDITOR, params=mine)).json()
    cursor = first["next_cursor"]
    second = (await served.get("runs", Role.EDITOR, params={**mine, "cursor": cursor})).json()

    assert [len(each["items"]) for each in (first, second)] == [2, 1]
    assert second["next_cursor"] is None

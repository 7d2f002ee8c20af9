"""Two tenants on the same workers: one that asks, and one whose every name has a mark in it."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from rota.domain.access import Role, TokenTerms
from rota.operations.tokens import create_token
from rota.ports.work import Hello, Offer
from tests.unit.server.gateway.served import YAML, Served, Worker, job, job_file

MARK = "zq7v"
OURS, THEIRS = "alpha", f"{MARK}-project"
HIDDEN_POOL = f"{MARK}-pool"
_GPUS = 8
# What an admin of the shared machine calls after a tenant, beside what is the machine's own.
OFFERS = (
    Offer("wall", "sandbox", "bubblewrap is not installed"),
    Offer("run_as", f"{MARK}-user"),
    Offer("registry", f"{MARK}-registry"),
    Offer("mount", f"/srv/{MARK}"),
)


@dataclass(frozen=True, slots=True)
class Tenants:
    served: Served
    member: httpx.AsyncClient  # an editor of our project alone
    secret: str  # theirs, that is the member's
    ours: dict[str, str]  # ids and names of our things, by what a path calls them
    theirs: dict[str, str]  # of theirs
    marked: frozenset[str]  # whatever must not be seen: the mark, and ids of theirs


def make_project(database: Path, *names: str) -> None:
    """Add projects as they are made by an admin of the installation."""
    with sqlite3.connect(database) as connection:
        for name in names:
            connection.execute("CREATE TEMP TABLE made AS SELECT * FROM project LIMIT 1")
            connection.execute("UPDATE made SET name = ?", (name,))
            connection.execute("INSERT INTO project SELECT * FROM made")
            connection.execute("DROP TABLE made")
    connection.close()


def give_pool(database: Path, pool: str, project: str) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO pool_project VALUES (?, ?)", (pool, project))
    connection.close()


async def as_member(
    served: Served, name: str, project: str, role: Role
) -> tuple[httpx.AsyncClient, str]:
    """A caller with a role in one project, and its secret."""
    terms = TokenTerms(project=project)
    _, secret = await create_token(
        served.engine.store, name=name, role=role, actor="x", terms=terms
    )
    headers = {"Authorization": f"Bearer {secret}"}
    return await served.browser(headers), secret


async def settle(served: Served, database: Path) -> Tenants:
    """Let both be busy on the same workers, and ask for the same things by the same names."""
    make_project(database, OURS, THEIRS)
    give_pool(database, HIDDEN_POOL, THEIRS)
    admin = await served.client()
    for share in (OURS, THEIRS, f"{THEIRS}/{MARK}-user", f"{MARK}-share"):
        answer = await admin.put(f"/api/v1/shares/{share}", json={"weight": 2.0})
        assert answer.status_code == 200, answer.text
    them, _ = await as_member(served, f"{MARK}-user", THEIRS, Role.ADMIN)
    us, secret = await as_member(served, "alice", OURS, Role.EDITOR)
    worker = await served.worker("shared", resources={"gpu": _GPUS * 1_000}, offers=OFFERS)
    hidden = await _hidden_worker(served)
    theirs = await _busy(_Tenant(them, THEIRS, f"{MARK}-", worker))
    ours = await _busy(_Tenant(us, OURS, "", worker))
    ids = {each for each in theirs.values() if len(each) > 20}
    return Tenants(served, us, secret, ours, theirs, frozenset({MARK, hidden, *ids}))


async def _hidden_worker(served: Served) -> str:
    """A worker of a pool that is theirs alone, with a label, a function and a resource."""
    hello = Hello(
        worker=f"{MARK}-worker",
        pool=HIDDEN_POOL,
        slots=1,
        labels={f"{MARK}-label": "x"},
        functions=(f"{MARK}.function",),
        resources={f"{MARK}-gpu": 1_000},
    )
    session = await served.engine.store.register(hello, timedelta(seconds=30))
    return session.id


@dataclass(frozen=True, slots=True)
class _Tenant:
    client: httpx.AsyncClient
    project: str
    mark: str  # before each name
    worker: Worker

    async def put(self, path: str, body: dict[str, Any]) -> None:
        answer = await self.client.put(f"/api/v1/{path}", json=body, params=self._params)
        assert answer.status_code in (200, 201), answer.text

    async def post(self, path: str, **kwargs: Any) -> dict[str, Any]:
        answer = await self.client.post(f"/api/v1/{path}", params=self._params, **kwargs)
        assert answer.status_code in (200, 201, 202), answer.text
        return dict(answer.json())

    async def trigger(self, name: str) -> str:
        return str((await self.post(f"jobs/{self.mark}{name}/runs", json={}))["id"])

    @property
    def _params(self) -> dict[str, str]:
        return {"project": self.project}


async def _busy(tenant: _Tenant) -> dict[str, str]:
    """Runs that go on, wait for keys, for room, for their time and for a pool without workers."""
    mark = tenant.mark
    await tenant.put(f"limits/{mark}rate", {"tokens": 1, "per": "1h"})
    await tenant.put(f"resources/{mark}licence", {"total": 1})
    await tenant.put(f"calendars/{mark}nights", {"windows": ["daily 22:00-06:00"]})
    jobs = [
        job(f"{mark}tidy", description=f"{mark}text", labels={"team": f"{mark}team"}),
        job(f"{mark}often", schedule="every 10m", expect="2m", overlap="allow"),
        job(f"{mark}keyed", resources={f"{mark}licence": 1}, max_concurrency=9),
        job(f"{mark}rated", rate_limits=[f"{mark}rate"], max_concurrency=9),
        job(f"{mark}small", resources={"gpu": 1}),
        job(f"{mark}large", resources={"gpu": _GPUS}),
        job(f"{mark}lost", pool=f"{mark}nowhere"),
    ]
    if mark:
        jobs.append(job(f"{mark}hidden", pool=HIDDEN_POOL, share=f"{mark}share"))
    carts = [{"name": f"{mark}fleet", "job": f"{mark}tidy", "items": [{"key": f"{mark}item"}]}]
    document = job_file(*jobs).removesuffix("}") + f', "carts": {json.dumps(carts)}}}'
    await tenant.post("jobs:apply", content=document, headers=YAML)
    runs = {name: await tenant.trigger(name) for name in ("small", "keyed", "rated", "tidy")}
    await tenant.worker.claim()
    for name in ("keyed", "rated", "large"):  # the first of these have what these wait for
        runs[f"{name} that waits"] = await tenant.trigger(name)
    await tenant.worker.claim()
    for name in ("small", "lost"):
        runs[f"{name} that waits"] = await tenant.trigger(name)
    cart = await tenant.post("carts", json={**carts[0], "name": f"{mark}rollout"})
    shown = await tenant.client.get(f"/api/v1/jobs/{mark}tidy", params={"project": tenant.project})
    return {
        **{f"run {name}": run for name, run in runs.items()},
        "run": runs["small that waits"],
        "project": tenant.project,
        "pool": f"{mark}pool" if mark else "default",
        "job": f"{mark}tidy",
        "job id": str(shown.json()["id"]),
        "cart": str(cart["id"]),
        "template": f"{mark}fleet",
        "calendar": f"{mark}nights",
        "limit": f"{mark}rate",
        "resource": f"{mark}licence",
    }

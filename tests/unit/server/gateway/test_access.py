"""Every operation, by every caller, in their own, a foreign and a missing project.

The operations come from the routes themselves, and what each has to answer from what it declares.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from rota.domain.access import INSTALLATION, Rights, Role, TokenTerms, Verb, combined, is_in
from rota.operations.tokens import create_token
from rota.server.gateway.app import api_routers
from rota.server.gateway.auth import OPEN, Need, Where, needs_of
from rota.server.gateway.parameters import GatewaySettings
from rota.store.script import MakeScript, Script, Urgency
from testkit.identity import disable, make_project
from tests.unit.server.gateway.served import YAML, Served, job, job_file, serving_gateway

pytestmark = pytest.mark.anyio

OWN, FOREIGN, MISSING = "etl", "web", "nope"
CALLS = [
    (method, route)
    for router in api_routers()
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
    if (method, route.path) not in OPEN
]
UNENDING = "/api/v1/events/stream"
NAMES = (
    *("job", "run", "cart", "template", "calendar", "worker", "token_id", "name", "share"),
    *("principal", "handle", "digest", "path"),
)
OF_NAMED = "/api/v1/projects/{name}"  # paths that name the project of the request themselves


@dataclass(frozen=True, slots=True)
class Somebody:
    """A caller, and what the test expects them to have."""

    role: Role
    scope: str
    verbs: frozenset[Verb] | None = None
    is_disabled: bool = False

    @property
    def name(self) -> str:
        narrowed = "".join(f" to {verb}" for verb in sorted(self.verbs or ()))
        ended = " disabled" if self.is_disabled else ""
        where = "all" if self.scope == INSTALLATION else self.scope
        return f"{self.role} of {where}{narrowed}{ended}"

    @property
    def terms(self) -> TokenTerms:
        return TokenTerms(None if self.scope == INSTALLATION else self.scope, self.verbs)

    @property
    def rights(self) -> Rights:
        return Rights(
            combined([(self.scope, self.role)]), self.role, self.terms.project, self.verbs
        )


CALLERS = [
    *(Somebody(role, scope) for scope in (OWN, FOREIGN, INSTALLATION) for role in Role),
    Somebody(Role.ADMIN, OWN, frozenset({Verb.READ})),
    Somebody(Role.ADMIN, OWN, frozenset({Verb.TRIGGER, Verb.APPLY})),
    Somebody(Role.ADMIN, INSTALLATION, frozenset({Verb.METRICS})),
    Somebody(Role.ADMIN, INSTALLATION, is_disabled=True),
]


@dataclass
class Tenants:
    """Two projects with the same things in each, and callers of both."""

    served: Served
    secrets: dict[str, str]
    things: dict[str, dict[str, str]]  # by project, then by the name of the path's parameter

    async def client(self, name: str) -> httpx.AsyncClient:
        return await self.served.browser({"Authorization": f"Bearer {self.secrets[name]}"})


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    async with serving_gateway(tmp_path, GatewaySettings(wrong_secrets=10_000)) as served:
        store = served.engine.store
        await make_project(store, OWN, FOREIGN)
        secrets = {}
        for caller in CALLERS:
            _, secrets[caller.name] = await create_token(
                store, name=caller.name, role=caller.role, actor="test", terms=caller.terms
            )
            if caller.is_disabled:
                await disable(store, caller.name)
        things = {project: await furnish(served, project) for project in (OWN, FOREIGN)}
        yield Tenants(served, secrets, things)


async def furnish(served: Served, project: str) -> dict[str, str]:
    """Have one of everything in a project; returns how paths name them."""
    client = await served.client()
    params = {"project": project}
    file = {
        "jobs": [job("tidy"), job("undo")],
        "calendars": [{"name": "holidays", "windows": ["daily 22:00-06:00"]}],
        "limits": [{"name": "calls", "tokens": 5, "per": "1m"}],
        "resources": [{"name": "license", "total": 2}],
    }
    text = json.dumps(file)
    applied = await client.post(
        "/api/v1/jobs:apply", content=text, headers=YAML, params={**params, "name": "all"}
    )
    assert applied.status_code == 200, applied.text
    run = await client.post("/api/v1/jobs/tidy/runs", params=params, json={})
    assert run.status_code == 202, run.text
    body = {"name": "fleet", "job": "tidy", "items": [{"key": "a"}]}
    cart = await client.post("/api/v1/carts", params=params, json=body)
    assert cart.status_code == 202, cart.text
    shown = await client.get("/api/v1/jobs/tidy", params=params)
    return {
        "job": str(shown.json()["id"]),
        "run": str(run.json()["id"]),
        "cart": str(cart.json()["id"]),
        "etag": shown.headers["etag"],
    }


def expected(needs: list[Need], caller: Somebody, project: str) -> tuple[int, str] | None:
    """How the call is refused before anything is looked for; None: it is not."""
    if caller.is_disabled:
        return 401, "unauthenticated"
    rights = caller.rights
    for need in needs:
        has: Role | None = Role.ADMIN
        if need.where is Where.INSTALLATION:
            has = rights.installation_role
        elif need.where is Where.FILE and _may_somewhere(rights, need):
            return None
        elif need.where in (Where.PROJECT, Where.FILE):
            has = rights.role_in(project)
            if has is None or project == MISSING:
                return 404, "project_not_found"
        is_narrowed = caller.verbs is not None and need.verb not in caller.verbs
        if need.where is Where.NOWHERE:
            if need.verb is not None and is_narrowed:
                return 403, "forbidden"
            continue
        if has is None or not has.includes(need.role) or is_narrowed:
            return 403, "forbidden"
    return None


def _may_somewhere(rights: Rights, need: Need) -> bool:
    return rights.projects(need.role) != () and rights.allows(need.verb)


def path_of(route: APIRoute, things: Mapping[str, str], project: str = "nothing") -> str:
    named = {name: things.get(name, "nothing") for name in NAMES}
    if route.path.startswith(OF_NAMED) and needs_of(route)[0].where is Where.PROJECT:
        named["name"] = project
    return route.path_format.format(**named)


async def ask(client: httpx.AsyncClient, method: str, path: str, project: str) -> httpx.Response:
    return await client.request(method, path, params={"project": project})


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
async def test_every_operation_is_for_those_whom_it_declares(
    tenants: Tenants, caller: Somebody
) -> None:
    client = await tenants.client(caller.name)
    wrong = {}
    for method, route in CALLS:
        for project in (OWN, FOREIGN, MISSING):
            refused = expected(needs_of(route), caller, project)
            if route.path == UNENDING and caller.rights.role_in(project):
                continue
            # Things that are not there: a call that is allowed changes nothing for the next one.
            answer = await ask(client, method, path_of(route, {}, project), project)
            told = refusal(answer) if answer.status_code >= 400 else (answer.status_code, "")
            is_of_named = route.path.startswith(OF_NAMED)
            is_let_in = told[0] not in {401, 403, 500} and (
                told[1] != "project_not_found" or is_of_named
            )
            if told != refused if refused else not is_let_in:
                wrong[f"{method} {route.path} in {project}"] = (told, refused)

    assert not wrong


def named(text: str, *names: str) -> str:
    """An answer without what the asker has said themselves, and what is another each time."""
    for name in names:
        text = text.replace(name, "NAME")
    return re.sub(r'"(instance|trace_id|request_id)":\s*"[^"]*"', "", text)


async def test_a_foreign_project_answers_as_one_that_is_not_there(tenants: Tenants) -> None:
    client = await tenants.client(f"admin of {OWN}")
    there = tenants.things[FOREIGN]
    told = {}
    for method, route in CALLS:
        if any(need.where is Where.PROJECT for need in needs_of(route)):
            answers = [
                await ask(client, method, path_of(route, things, project), project)
                for project, things in ((FOREIGN, there), (MISSING, {}))
            ]
            texts = [
                named(answer.text, project, *there.values(), "nothing")
                for answer, project in zip(answers, (FOREIGN, MISSING), strict=True)
            ]
            heads = [sorted(answer.headers) for answer in answers]
            if (texts[0], heads[0], answers[0].status_code) != (texts[1], heads[1], 404):
                told[f"{method} {route.path}"] = texts

    assert len(CALLS) > 50
    assert not told


async def test_ids_of_another_project_are_as_unknown_as_any_that_were_never_given(
    tenants: Tenants,
) -> None:
    client = await tenants.client(f"admin of {OWN}")
    theirs = tenants.things[FOREIGN]
    never = {"job": "j_" + "z" * 12, "run": "r_" + "z" * 24, "cart": "c_" + "z" * 12}
    told = {}
    for method, route in CALLS:
        wanted = [name for name in never if f"{{{name}}}" in route.path_format]
        if not wanted or needs_of(route)[0].where is not Where.PROJECT:
            continue
        answers = [
            await client.request(
                method,
                path_of(route, things),
                params={"project": OWN},
                json=BODIES.get(route.path_format),
                headers={"If-Match": theirs["etag"]} if method in {"DELETE", "PATCH"} else {},
            )
            for things in (theirs, never)
        ]
        texts = [
            named(answer.text, *(things[name] for name in wanted))
            for answer, things in zip(answers, (theirs, never), strict=True)
        ]
        if texts[0] != texts[1] or answers[0].status_code != 404:
            told[f"{method} {route.path}"] = [answer.text for answer in answers]

    assert not told


BODIES: dict[str, Any] = {
    "/api/v1/runs/{run}": {"state": "completed"},
    "/api/v1/runs/{run}:resolve": {"state": "COMPLETED"},
    "/api/v1/runs/{run}:reprioritise": {"priority": 3},
    "/api/v1/jobs/{job}/runs:batch": {"inputs": [{}]},
    "/api/v1/carts/{cart}": {"max_parallel": 2},
    "/api/v1/jobs/{job}:backfill": {"from": "1h"},
}


@pytest.mark.parametrize("way", [{"cart": "{cart}"}, {"where": "cart:{cart}"}])
async def test_a_filter_by_something_foreign_finds_nothing(
    tenants: Tenants, way: dict[str, str]
) -> None:
    client = await tenants.client(f"viewer of {OWN}")
    name, pattern = next(iter(way.items()))

    answers = [
        await client.get(
            "/api/v1/runs", params={"project": project, name: pattern.format(cart=cart)}
        )
        for cart in (tenants.things[FOREIGN]["cart"], "c_" + "z" * 12)
        for project in (OWN, "*")
    ]

    assert {refusal(answer) for answer in answers} == {(404, "cart_not_found")}


async def test_an_idempotency_key_of_another_project_gives_nothing_away(tenants: Tenants) -> None:
    ours, theirs = [await tenants.client(f"operator of {each}") for each in (OWN, FOREIGN)]
    headers = {"Idempotency-Key": "one"}

    first, second = [
        await client.post(
            "/api/v1/jobs/tidy/runs", params={"project": project}, headers=headers, json={}
        )
        for client, project in ((theirs, FOREIGN), (ours, OWN))
    ]

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] != second.json()["id"]


async def test_a_job_file_reaches_no_project_but_the_author_s(tenants: Tenants) -> None:
    client = await tenants.client(f"editor of {OWN}")

    answers = []
    for path in ("jobs:apply", "submit_job"):
        for project in (FOREIGN, MISSING):
            file = job_file(job("mine"), job("theirs", project=project))
            answer = await client.post(
                f"/api/v1/{path}", params={"project": OWN}, content=file, headers=YAML
            )
            answers.append((refusal(answer), named(answer.text, project, path)))

    assert {each[0] for each in answers} == {(404, "project_not_found")}
    assert len({each[1] for each in answers}) == 1
    assert await jobs_of(client) == {"tidy", "undo"}


async def jobs_of(client: httpx.AsyncClient) -> set[str]:
    listed = await client.get("/api/v1/jobs", params={"project": OWN})
    return {each["name"] for each in listed.json()["items"]}


@pytest.mark.parametrize("path", ["jobs:apply", "submit_job"])
@pytest.mark.parametrize("project", [FOREIGN, MISSING, "default"])
async def test_only_projects_count_in_which_a_file_changes_something(
    tenants: Tenants, path: str, project: str
) -> None:
    client = await tenants.client(f"editor of {OWN}")

    file = job_file(job("mine", project=OWN))
    answer = await client.post(
        f"/api/v1/{path}", params={"project": project}, content=file, headers=YAML
    )

    assert answer.status_code in (200, 201), answer.text
    assert await jobs_of(client) == {"tidy", "undo", "mine"}


CHANGES_THERE: dict[str, dict[str, Any]] = {
    "nothing": {"jobs": []},
    "calendar": {"calendars": [{"name": "x", "windows": ["Sat"]}]},
    "limit": {"limits": [{"name": "x", "tokens": 1, "per": "1s"}]},
    "resource": {"resources": [{"name": "x", "total": 1}]},
    "cart": {"carts": [{"name": "x", "job": "tidy", "items": [{"key": "a"}]}]},
    "job": {"jobs": [job("theirs")]},
}


@pytest.mark.parametrize("what", CHANGES_THERE)
async def test_whatever_a_file_changes_in_the_project_of_the_request_counts(
    tenants: Tenants, what: str
) -> None:
    client = await tenants.client(f"editor of {OWN}")
    document = CHANGES_THERE[what]
    others = [] if what == "nothing" else [job("mine", project=OWN)]
    file = json.dumps(document | {"jobs": [*document.get("jobs", []), *others]})

    answers = [
        await client.post(
            "/api/v1/jobs:apply", params={"project": project}, content=file, headers=YAML
        )
        for project in (FOREIGN, MISSING)
    ]

    assert {refusal(answer) for answer in answers} == {(404, "project_not_found")}
    assert named(answers[0].text, FOREIGN) == named(answers[1].text, MISSING)
    assert await jobs_of(client) == {"tidy", "undo"}


@pytest.mark.parametrize("project", [FOREIGN, MISSING])
async def test_nothing_is_pruned_in_a_project_of_another(tenants: Tenants, project: str) -> None:
    client = await tenants.client(f"editor of {OWN}")

    answer = await client.post(
        "/api/v1/jobs:apply",
        params={"project": project, "prune": True, "name": "all"},
        content=job_file(job("mine", project=OWN)),
        headers=YAML,
    )

    assert refusal(answer) == (404, "project_not_found")
    assert await jobs_of(client) == {"tidy", "undo"}


async def test_no_file_is_read_for_those_who_may_change_nothing_anywhere(tenants: Tenants) -> None:
    told = {}
    for project in (OWN, FOREIGN):
        client = await tenants.client(f"operator of {OWN}")
        answer = await client.post(
            "/api/v1/jobs:apply", params={"project": project}, content="jobs: [", headers=YAML
        )
        told[project] = refusal(answer)

    assert told == {OWN: (403, "forbidden"), FOREIGN: (404, "project_not_found")}


@pytest.mark.parametrize("noun", ["jobs", "runs", "carts"])
@pytest.mark.parametrize("caller", CALLERS[:12:3], ids=lambda caller: caller.name)
async def test_a_list_of_all_projects_has_those_of_the_caller(
    tenants: Tenants, caller: Somebody, noun: str
) -> None:
    client = await tenants.client(caller.name)

    found: list[tuple[str, str]] = []
    cursor = None
    while cursor is not None or not found:
        page = await client.get(
            f"/api/v1/{noun}",
            params={"project": "*", "limit": 1, **({"cursor": cursor} if cursor else {})},
        )
        found += [(each["project"], each["id"]) for each in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            break

    mine = caller.rights.projects()
    assert {project for project, _ in found} == {
        project for project in (OWN, FOREIGN) if is_in(project, mine)
    }
    assert len(found) == len(set(found))


async def test_a_list_of_all_projects_is_complete_and_in_order(tenants: Tenants) -> None:
    client = await tenants.client("viewer of all")

    jobs = (await client.get("/api/v1/jobs", params={"project": "*"})).json()["items"]
    runs = (await client.get("/api/v1/runs", params={"project": "*"})).json()["items"]
    active = await client.get("/api/v1/runs", params={"project": "*", "active": "true"})

    assert [(each["project"], each["name"]) for each in jobs] == [
        (project, name) for project in (OWN, FOREIGN) for name in ("tidy", "undo")
    ]
    assert [each["created_at"] for each in runs] == sorted(
        (each["created_at"] for each in runs), reverse=True
    )
    assert [each["id"] for each in active.json()["items"]] == [each["id"] for each in runs]
    assert {each["project"] for each in runs} == {OWN, FOREIGN}


async def test_a_link_to_a_run_or_cart_leads_to_the_project_that_has_it(tenants: Tenants) -> None:
    for project, caller in ((OWN, f"viewer of {OWN}"), (FOREIGN, "viewer of all")):
        things, client = tenants.things[project], await tenants.client(caller)
        for noun in ("run", "cart"):
            page = await client.get(f"/{noun}s/{things[noun]}")
            shown = await client.get(page.headers["location"])

            assert (shown.status_code, shown.json()["project"]) == (200, project)


async def test_a_link_to_what_is_foreign_leads_where_any_other_does(tenants: Tenants) -> None:
    client = await tenants.client(f"admin of {OWN}")

    for noun in ("run", "cart"):
        theirs, never = tenants.things[FOREIGN][noun], f"{noun[0]}_{'z' * 12}"
        pages = [await client.get(f"/{noun}s/{name}") for name in (theirs, never)]

        assert [page.headers["location"] for page in pages] == [
            f"/api/v1/{noun}s/{theirs}",
            f"/api/v1/{noun}s/{never}",
        ]


async def test_what_was_made_is_found_where_the_answer_says(tenants: Tenants) -> None:
    client = await tenants.client(f"operator of {OWN}")
    params = {"project": OWN}
    cart = {"name": "another", "job": "tidy", "items": [{"key": "a"}]}

    for path, body in (("jobs/tidy/runs", {}), ("carts", cart)):
        made = await client.post(f"/api/v1/{path}", params=params, json=body)
        found = await client.get(made.headers["location"])

        assert (found.status_code, found.json()["id"]) == (200, made.json()["id"])


@pytest.fixture
def statements(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the statements that only read, as they are run."""
    driver = vars(tenants.served.engine.store)["_driver"]
    read, names = driver.read, list[str]()

    async def counting(make: MakeScript[Any], urgency: Urgency = Urgency.API) -> Any:
        return await read(lambda now: counted(make(now)), urgency)

    def counted(script: Script[Any]) -> Script[Any]:
        rows: Any = None
        while True:
            try:
                step = script.send(rows)
            except StopIteration as end:
                return end.value
            names.append(getattr(step, "name", ""))
            rows = yield step

    monkeypatch.setattr(driver, "read", counting)
    tenants.served.app.state.tokens.forget()
    return names


@pytest.mark.parametrize(
    ("caller", "project", "reads"),
    [
        (f"viewer of {OWN}", OWN, ["token_by_digest"]),
        ("viewer of all", "default", ["token_by_digest"]),
        ("viewer of all", OWN, ["token_by_digest", "existing_projects"]),
        (f"viewer of {OWN}", FOREIGN, ["token_by_digest"]),
        (f"viewer of {OWN}", MISSING, ["token_by_digest"]),
    ],
)
async def test_the_gate_reads_at_most_once_more_than_the_token_and_then_nothing_for_a_while(
    tenants: Tenants, statements: list[str], caller: str, project: str, reads: list[str]
) -> None:
    client = await tenants.client(caller)
    params = {"project": project}

    await client.get("/api/v1/limits/nothing", params=params)
    first = [name for name in statements if name in {"token_by_digest", "existing_projects"}]
    statements.clear()
    await client.get("/api/v1/limits/nothing", params=params)

    assert first == reads
    assert not {"token_by_digest", "existing_projects"} & set(statements)

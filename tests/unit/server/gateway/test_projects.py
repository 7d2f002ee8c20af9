"""Projects, pools and roles as callers of the API meet them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rota.domain.access import Role, TokenTerms
from rota.domain.walls import NEW_CLUSTER
from rota.operations.tokens import create_token
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio

ISSUER = {"issuer": "https://login.example.org/"}


async def made(served: Served, name: str = "shop", **said: object) -> dict[str, Any]:
    answer = await served.post("projects", json={"name": name, **said})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def member(served: Served, role: Role = Role.ADMIN, project: str = "shop") -> Any:
    """A caller with a role in one project, bound to it."""
    _, secret = await create_token(
        served.engine.store,
        name=f"{project}-{role}",
        role=role,
        actor="test",
        terms=TokenTerms(project=project),
    )
    return await served.browser({"Authorization": f"Bearer {secret}"})


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class TestProjects:
    async def test_one_is_made_changed_and_deleted(self, served: Served) -> None:
        new = await made(served, title="Web shop", policy={"timeout": "60m"})
        shown = await served.get("projects/shop")
        changed = await served.patch(
            "projects/shop", json={"policy": {"priority": 7}}, headers={"If-Match": '"1"'}
        )
        stale = await served.patch("projects/shop", json={}, headers={"If-Match": '"1"'})
        gone = await served.delete("projects/shop")
        after = await served.get("projects/shop")

        assert (new["title"], new["policy"], new["version"]) == ("Web shop", {"timeout": "1h"}, 1)
        assert (shown.json(), shown.headers["etag"]) == (new, '"1"')
        assert changed.json()["differences"] == ["policy.priority  (none) → 7"]
        assert (changed.json()["applied"], changed.headers["etag"]) == (True, '"2"')
        assert code(stale) == (412, "etag_mismatch")
        assert gone.status_code == 204
        assert code(after) == (404, "project_not_found")

    async def test_a_plan_changes_nothing(self, served: Served) -> None:
        await made(served)

        planned = await served.patch("projects/shop?plan=true", json={"title": "x"})

        assert (planned.json()["change"], planned.json()["applied"]) == ("changed", False)
        assert (await served.get("projects/shop")).json()["title"] == ""

    async def test_what_is_wrong_with_a_policy_is_told_by_field(self, served: Served) -> None:
        answer = await served.post(
            "projects",
            json={"name": "shop", "policy": {"priority": 12, "network": True}},
        )

        assert answer.status_code == 422
        assert [error["path"] for error in answer.json()["errors"]] == ["priority", "network"]

    async def test_a_member_sees_only_its_own(self, served: Served) -> None:
        for name in ("shop", "web"):
            await made(served, name)
        shop = await member(served)

        listed = await shop.get("/api/v1/projects")
        own = await shop.get("/api/v1/projects/shop")
        foreign = await shop.get("/api/v1/projects/web")
        missing = await shop.get("/api/v1/projects/nothing")

        assert [item["name"] for item in listed.json()["items"]] == ["shop"]
        assert own.status_code == 200
        assert code(foreign) == code(missing) == (404, "project_not_found")
        assert foreign.json()["detail"].replace("web", "nothing") == missing.json()["detail"]

    async def test_members_change_no_project_not_even_their_own(self, served: Served) -> None:
        await made(served)
        shop = await member(served)

        answers = [
            await shop.post("/api/v1/projects", json={"name": "mine"}),
            await shop.patch("/api/v1/projects/shop", json={"policy": {}}),
            await shop.delete("/api/v1/projects/shop"),
            await shop.put("/api/v1/pools/default", json={"projects": ["shop"]}),
        ]

        assert {code(answer) for answer in answers} == {(403, "forbidden")}

    async def test_they_are_listed_in_parts(self, served: Served) -> None:
        for name in ("shop", "web"):
            await made(served, name)

        first = (await served.get("projects?limit=2")).json()
        rest = (await served.get(f"projects?cursor={first['next_cursor']}")).json()

        assert [item["name"] for item in first["items"]] == ["default", "other"]
        assert [item["name"] for item in rest["items"]] == ["shop", "web"]

    @pytest.mark.parametrize("verb", ["jobs:apply", "jobs:apply?plan=true", "jobs:validate"])
    async def test_a_file_of_an_unknown_project_is_a_404(self, served: Served, verb: str) -> None:
        answer = await served.post(verb, content=job_file(job(project="etl")), headers=YAML)

        assert code(answer) == (404, "project_not_found")
        assert answer.json()["hint"] == "an installation admin makes it: rota project create etl"

    async def test_other_things_of_an_unknown_project_are_refused_alike(
        self, served: Served
    ) -> None:
        client = await served.client()

        answers = [
            await client.get("/api/v1/jobs?project=etl"),
            await client.get("/api/v1/quota?project=etl"),
            await client.put("/api/v1/limits/a?project=etl", json={"tokens": 1, "per": "1s"}),
            await client.put(
                "/api/v1/calendars/a?project=etl", content='windows: ["Sat"]', headers=YAML
            ),
            await client.post("/api/v1/carts?project=etl", json={"name": "a", "job": "b"}),
        ]

        assert {code(answer) for answer in answers} == {(404, "project_not_found")}


class TestPools:
    async def test_members_see_those_that_they_may_use(self, served: Served) -> None:
        for name in ("shop", "web"):
            await made(served, name)
        for pool in ("default", "gpu", "arm"):
            await served.worker(f"w-{pool}", pool=pool)
        client, shop = await served.client(), await member(served)

        given = await client.put("/api/v1/pools/gpu", json={"projects": ["shop", "web"]})
        await client.put("/api/v1/pools/arm", json={"projects": ["web"]})
        listed = (await shop.get("/api/v1/pools")).json()["items"]
        foreign, missing = [await shop.get(f"/api/v1/pools/{name}") for name in ("arm", "none")]
        shared = await client.put("/api/v1/pools/gpu", json={"projects": []})

        assert given.json()["projects"] == ["shop", "web"]
        assert [
            (it["name"], it["is_shared"], it["projects"], it["other_projects"]) for it in listed
        ] == [("default", True, [], 0), ("gpu", False, ["shop"], 1)]
        assert code(foreign) == code(missing) == (404, "pool_not_found")
        assert shared.json()["is_shared"]


class TestRoles:
    async def test_an_admin_of_a_project_gives_roles_there_and_nowhere_else(
        self, served: Served
    ) -> None:
        for name in ("shop", "web"):
            await made(served, name)
        shop = await member(served)
        body = {"role": "editor"}

        given = await shop.put("/api/v1/projects/shop/roles/viewer", json=body)
        listed = await shop.get("/api/v1/projects/shop/roles")
        elsewhere = await shop.put("/api/v1/projects/web/roles/viewer", json=body)
        everywhere = await shop.put("/api/v1/roles/viewer", json=body)
        taken = await shop.delete("/api/v1/projects/shop/roles/viewer")
        again = await shop.delete("/api/v1/projects/shop/roles/viewer")

        assert (given.json()["principal"], given.json()["project"]) == ("viewer", "shop")
        assert {(it["principal"], it["role"]) for it in listed.json()["items"]} == {
            ("shop-admin", "admin"),
            ("viewer", "editor"),
        }
        assert code(elsewhere) == (404, "project_not_found")
        assert code(everywhere) == (403, "forbidden")
        assert taken.status_code == 204
        assert code(again) == (404, "role_not_found")

    async def test_editors_give_no_roles(self, served: Served) -> None:
        await made(served)
        editor = await member(served, Role.EDITOR)

        answers = [
            await editor.get("/api/v1/projects/shop/roles"),
            await editor.put("/api/v1/projects/shop/roles/viewer", json={"role": "viewer"}),
        ]

        assert {code(answer) for answer in answers} == {(403, "forbidden")}

    async def test_a_role_counts_at_once(self, served: Served) -> None:
        await made(served)
        await made(served, "web")
        store = served.engine.store
        _, secret = await create_token(store, name="ann", role=Role.ADMIN, actor="test")
        client = await served.client()
        await client.delete("/api/v1/roles/ann")
        ann = await served.browser({"Authorization": f"Bearer {secret}"})

        before = await ann.get("/api/v1/jobs?project=shop")
        await client.put("/api/v1/projects/shop/roles/ann", json={"role": "viewer"})
        during = await ann.get("/api/v1/jobs?project=shop")
        await client.delete("/api/v1/projects/shop/roles/ann")
        after = await ann.get("/api/v1/jobs?project=shop")

        assert code(before) == code(after) == (404, "project_not_found")
        assert during.status_code == 200

    @pytest.mark.parametrize(
        ("who", "handle", "kind"),
        [
            ("group:/teams/Web Shop", "teams-web-shop", "group"),
            ("email:Ann@Example.org", "ann", "user"),
            ("user:auth0|77", "auth0-77", "user"),
        ],
    )
    async def test_people_are_named_as_their_provider_knows_them(
        self, served: Served, who: str, handle: str, kind: str
    ) -> None:
        client = await served.client()
        path = f"/api/v1/projects/default/roles/{who}"

        bound = await client.put(path, json={"role": "viewer"}, params=ISSUER)
        taken = await client.delete(path, params=ISSUER)

        assert bound.status_code == 200, bound.text
        assert (bound.json()["principal"], bound.json()["kind"]) == (handle, kind)
        assert taken.status_code == 204

    @pytest.mark.parametrize(
        ("who", "expected"),
        [
            ("group:shop", (422, "no_issuer")),
            ("email:ann", (422, "bad_principal")),
            ("team:shop", (422, "bad_principal")),
            ("nobody", (404, "principal_not_found")),
        ],
    )
    async def test_nobody_is_made_up(
        self, served: Served, who: str, expected: tuple[int, str]
    ) -> None:
        client = await served.client()

        answer = await client.put(f"/api/v1/roles/{who}", json={"role": "viewer"})

        assert code(answer) == expected

    async def test_the_last_admin_of_the_installation_stays(self, served: Served) -> None:
        client = await served.client()

        answers = [
            await client.delete("/api/v1/roles/admin"),
            await client.put("/api/v1/roles/admin", json={"role": "viewer"}),
            await client.post("/api/v1/principals/admin:disable"),
        ]

        assert {code(answer) for answer in answers} == {(409, "last_admin")}

    async def test_a_disabled_principal_is_refused_until_it_is_enabled(
        self, served: Served
    ) -> None:
        client, viewer = await served.client(), await served.client(Role.VIEWER)

        off = await client.post("/api/v1/principals/viewer:disable")
        refused = await viewer.get("/api/v1/jobs")
        on = await client.post("/api/v1/principals/viewer:enable")
        back = await viewer.get("/api/v1/jobs")

        assert off.json()["disabled_at"] is not None
        assert code(refused) == (401, "unauthenticated")
        assert on.json()["disabled_at"] is None
        assert back.status_code == 200

    async def test_all_roles_and_principals_are_listed_for_admins(self, served: Served) -> None:
        await made(served)
        await member(served)

        own = (await served.get("roles")).json()["items"]
        every = (await served.get("roles?everywhere=true")).json()["items"]
        one = (await served.get("roles?everywhere=true&principal=shop-admin")).json()["items"]
        people = (await served.get("principals?limit=3")).json()

        assert {it["project"] for it in own} == {None}
        assert len(every) == len(own) + 1
        assert [(it["project"], it["role"]) for it in one] == [("shop", "admin")]
        assert [it["handle"] for it in people["items"]] == ["admin", "editor", "operator"]
        assert people["next_cursor"] is not None


async def test_advice_names_what_to_tighten(served: Served) -> None:
    await made(served)
    await served.worker()
    await served.apply(job())
    client = await served.client()
    store = served.engine.store
    _, secret = await create_token(store, name="leaver", role=Role.EDITOR, actor="test")
    leaver = await served.browser({"Authorization": f"Bearer {secret}"})
    await leaver.post("/api/v1/jobs:apply", content=job_file(job("left")), headers=YAML)
    await client.delete("/api/v1/roles/leaver")

    found = (await client.get("/api/v1/advice")).json()["items"]

    assert [(it["subject"], it["is_note"]) for it in found] == [
        ("job", False),
        ("isolation", True),
        ("pool", False),
    ]
    assert found[0]["message"].startswith("left of project default: leaver, who made it")
    assert "run as plain processes" in found[1]["message"]
    assert found[2]["message"].startswith("default is shared by all projects, and plain processes")
    assert found[2]["action"].startswith("rota pool set default --private")


async def test_defaults_are_shown_to_members_and_changed_by_admins(served: Served) -> None:
    await served.engine.store.settle_walls(NEW_CLUSTER)
    client = await served.client()
    viewer = await served.client(Role.VIEWER)

    shown = await viewer.get("/api/v1/defaults")
    refused = await viewer.patch("/api/v1/defaults", json={"isolation": "process"})
    wrong = await client.patch("/api/v1/defaults", json={"isolation": "container"})
    changed = await client.patch("/api/v1/defaults", json={"network": "none"})

    assert shown.json() == {
        "isolation": "sandbox",
        "network": "outbound",
        "has_shared_process": False,
    }
    assert (refused.status_code, wrong.status_code) == (403, 422)
    assert changed.json()["network"] == "none"


async def test_a_pool_is_told_as_one_that_refuses_processes(served: Served) -> None:
    await made(served)
    client = await served.client()

    nothing = await client.put("/api/v1/pools/default", json={})
    private = await client.put("/api/v1/pools/default", json={"private": True})
    given = await client.put("/api/v1/pools/default", json={"projects": ["default"]})

    assert nothing.status_code == 422
    assert (private.json()["is_private"], private.json()["refuses_processes"]) == (True, True)
    assert (given.json()["is_private"], given.json()["refuses_processes"]) == (True, False)


async def test_a_pool_says_how_large_its_runs_may_be(served: Served) -> None:
    client = await served.client()

    set_so = await client.put("/api/v1/pools/linux", json={"max": {"cpu": "16", "memory": "64GiB"}})
    assert set_so.json()["max"] == {"cpu": "16", "memory": "64GiB"}
    shown = await client.get("/api/v1/pools/linux")
    assert shown.json() == set_so.json()

    taken_off = await client.put("/api/v1/pools/linux", json={"max": {}})
    assert taken_off.json()["max"] == {}


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"memory": "64"}, "memory=64 has no unit: write a size such as 64GiB"),
        ({"cpu": "many"}, "cpu=many is not an amount: write 2, 0.5 or 4GiB"),
        ({"slots": "4"}, "slots are not among the resources: the setting slots says how many"),
    ],
)
async def test_a_wrong_amount_of_a_pool_is_told_with_its_place(
    served: Served, amounts: dict[str, str], message: str
) -> None:
    client = await served.client()

    answer = await client.put("/api/v1/pools/linux", json={"max": amounts})

    assert answer.status_code == 422
    [problem] = answer.json()["errors"]
    assert (problem["message"], problem["path"]) == (message, f"max.{next(iter(amounts))}")


async def test_a_job_beyond_the_walls_of_its_project_is_refused_where_it_says_so(
    served: Served,
) -> None:
    client = await served.client()
    policy = {"isolation": ["sandbox"], "limits": {"memory": "1GiB"}}
    await client.patch("/api/v1/projects/default", json={"policy": policy})
    file = "jobs:\n  - name: tidy\n    isolation: process\n    steps: [{run: x}]\n"

    answer = await client.post("/api/v1/jobs:apply", content=file, headers=YAML)

    assert answer.status_code == 422
    told = [(it["line"], it["message"]) for it in answer.json()["errors"]]
    assert told == [
        (
            2,
            "tidy: limits.memory must be set, to at most 1GiB by the policy of project default",
        ),
        (3, "tidy: isolation process is not allowed by the policy of project default"),
    ]

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.access import INSTALLATION, ProjectSet, Rights, Role, Verb, everywhere
from rota.domain.errors import Conflict
from rota.ports.queue import Wakes
from rota.ports.records import NewToken, Token
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene
from testkit.identity import (
    bind,
    disable,
    end_project,
    make_principal,
    make_project,
    tell_groups,
    unbind,
)

pytestmark = pytest.mark.anyio


def token(name: str = "ci", *, kind: str = "api", lifetime: timedelta | None = None) -> NewToken:
    return NewToken(f"t_{name}", name, Role.EDITOR, f"digest of {name}", kind, "admin", lifetime)


async def test_a_token_is_found_by_its_digest(scene: Scene) -> None:
    await scene.store.add_token(token())

    found = await scene.store.token_by_digest("digest of ci")

    assert found is not None
    assert (found.token.name, found.token.role, found.token.kind) == ("ci", Role.EDITOR, "api")
    assert await scene.store.token_by_digest("ci") is None


async def test_a_token_expires_by_the_store_s_clock(scene: Scene) -> None:
    await scene.store.add_token(token(lifetime=MINUTE))
    scene.advance(MINUTE - timedelta(microseconds=1))
    in_time = await scene.store.token_by_digest("digest of ci")

    scene.advance(timedelta(microseconds=1))

    assert in_time is not None
    assert await scene.store.token_by_digest("digest of ci") is None


async def test_a_revoked_token_is_worth_nothing(scene: Scene) -> None:
    await scene.store.add_token(token())

    revoked = [await scene.store.revoke_token("t_ci", actor="admin") for _ in range(2)]

    assert revoked == [True, False]
    assert await scene.store.token_by_digest("digest of ci") is None
    assert not await scene.store.revoke_token("t_nope", actor="admin")


async def test_the_clock_is_not_asked_twice_for_a_token(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.store.add_token(token())
    monkeypatch.delattr(SqlStore, "now")

    found = await scene.store.token_by_digest("digest of ci")

    assert found is not None


async def test_a_login_works_once(scene: Scene) -> None:
    await scene.store.add_token(token("link", kind="login", lifetime=MINUTE))

    uses = [
        await scene.store.token_by_digest("digest of link", uses_up_login=True) for _ in range(2)
    ]

    assert uses[0] is not None
    assert uses[1] is None


async def test_only_a_login_can_be_used_up(scene: Scene) -> None:
    await scene.store.add_token(token())

    assert await scene.store.token_by_digest("digest of ci", uses_up_login=True) is None
    assert await scene.store.token_by_digest("digest of ci") is not None


async def test_the_last_use_is_known_to_the_minute(scene: Scene) -> None:
    await scene.store.add_token(token())
    first_use = scene.clock.instant
    for _ in range(2):
        await scene.store.token_by_digest("digest of ci")
        scene.advance(MINUTE / 2)

    [shown] = await scene.store.tokens()

    assert shown.last_used_at == first_use


async def test_only_api_tokens_are_listed(scene: Scene) -> None:
    await scene.store.add_token(token())
    await scene.store.add_token(token("browser", kind="session", lifetime=MINUTE))

    assert [shown.name for shown in await scene.store.tokens()] == ["ci"]


async def test_a_token_that_exists_is_a_conflict(scene: Scene) -> None:
    await scene.store.add_token(token())

    with pytest.raises(Conflict):
        await scene.store.add_token(token())


async def test_a_session_ends_with_the_token_that_opened_it(scene: Scene) -> None:
    await scene.store.add_token(token("opener", lifetime=2 * MINUTE))
    session = replace(token("session", kind="session", lifetime=10 * MINUTE), parent="t_opener")
    await scene.store.add_token(session)
    while_valid = await scene.store.token_by_digest("digest of session")

    await scene.store.revoke_token("t_opener", actor="admin")

    assert while_valid is not None
    assert await scene.store.token_by_digest("digest of session") is None


async def test_a_session_expires_with_the_token_that_opened_it(scene: Scene) -> None:
    await scene.store.add_token(token("opener", lifetime=MINUTE))
    session = replace(token("session", kind="session", lifetime=10 * MINUTE), parent="t_opener")
    await scene.store.add_token(session)

    scene.advance(MINUTE)

    assert await scene.store.token_by_digest("digest of session") is None


async def test_a_worker_s_token_has_its_pool_and_a_list_of_its_own(scene: Scene) -> None:
    await scene.store.add_token(token("ci"))
    await scene.store.add_token(replace(token("node", kind="worker"), pool="gpu"))

    found = await scene.store.token_by_digest("digest of node")

    assert found is not None
    assert (found.token.pool, found.token.kind) == ("gpu", "worker")
    assert [each.name for each in await scene.store.tokens("worker")] == ["node"]
    assert [each.name for each in await scene.store.tokens()] == ["ci"]


ALL = everywhere(Role.ADMIN)


def given(
    name: str = "ci", project: str | None = "etl", by: Rights = ALL, **fields: object
) -> NewToken:
    """A token that makes its service."""
    plain = replace(token(name), principal=name, project=project, given_by=by)
    return replace(plain, **fields)  # type: ignore[arg-type]


async def rights_of(scene: Scene, name: str = "ci") -> Rights | None:
    found = await scene.store.token_by_digest(f"digest of {name}")
    return None if found is None else found.rights


async def test_a_token_without_a_principal_has_its_role_everywhere(scene: Scene) -> None:
    await scene.store.add_token(token())

    assert await rights_of(scene) == everywhere(Role.EDITOR)


async def test_a_token_makes_its_service_with_its_role_where_it_is_for(scene: Scene) -> None:
    await make_project(scene.store, "etl")

    await scene.store.add_token(given(verbs=frozenset({Verb.READ}), shown="rotat_1234"))

    found = await scene.store.token_by_digest("digest of ci")
    assert found is not None
    assert found.principal_kind == "service"
    assert found.rights == Rights({"etl": Role.EDITOR}, Role.EDITOR, "etl", frozenset({Verb.READ}))
    [shown] = await scene.store.tokens()
    assert (shown.principal, shown.project, shown.verbs, shown.shown) == (
        "ci",
        "etl",
        frozenset({Verb.READ}),
        "rotat_1234",
    )


async def test_a_second_token_of_a_service_raises_its_role_and_tells_all_servers(
    scene: Scene, published: list[Wakes]
) -> None:
    await make_project(scene.store, "etl")
    await scene.store.add_token(given())
    is_told_of_a_new_one = published[-1].callers

    await scene.store.add_token(given(id="t_new", digest="digest of new", role=Role.ADMIN))

    assert (is_told_of_a_new_one, published[-1].callers) == (False, True)
    old, new = await rights_of(scene), await rights_of(scene, "new")
    assert old is not None
    assert new is not None
    assert (old.role_in("etl"), new.role_in("etl")) == (Role.EDITOR, Role.ADMIN)


async def test_a_second_token_takes_nothing_from_the_first(scene: Scene) -> None:
    await make_project(scene.store, "etl")
    await scene.store.add_token(given())

    await scene.store.add_token(given(id="t_new", digest="digest of new", role=Role.VIEWER))

    old, new = await rights_of(scene), await rights_of(scene, "new")
    assert old is not None
    assert new is not None
    assert (old.role_in("etl"), new.role_in("etl")) == (Role.EDITOR, Role.VIEWER)


@pytest.mark.parametrize(
    "by", [Rights({"web": Role.ADMIN}), Rights({"etl": Role.EDITOR, "web": Role.ADMIN})]
)
async def test_nobody_takes_over_a_service_of_a_project_that_is_not_theirs(
    scene: Scene, by: Rights
) -> None:
    await make_project(scene.store, "etl", "web")
    await scene.store.add_token(given())

    with pytest.raises(Conflict) as refusal:
        await scene.store.add_token(given(project="web", by=by, id="t_2", digest="digest of 2"))

    assert refusal.value.code == "name_taken"
    assert await rights_of(scene, "2") is None


async def test_the_name_of_a_person_is_taken_even_for_admins_of_all(scene: Scene) -> None:
    await make_principal(scene.store, "ann", "user", issuer="https://idp", subject="1")

    with pytest.raises(Conflict):
        await scene.store.add_token(given("ann", project=None))


async def test_whoever_is_disabled_is_as_unknown_as_a_wrong_token(scene: Scene) -> None:
    await make_project(scene.store, "etl")
    await scene.store.add_token(given())

    await disable(scene.store, "ci")

    assert await rights_of(scene) is None


async def test_roles_in_a_project_that_was_deleted_count_no_more(scene: Scene) -> None:
    await make_project(scene.store, "etl")
    await scene.store.add_token(given())

    await end_project(scene.store, "etl")

    found = await rights_of(scene)
    assert found is not None
    assert found.role_in("etl") is None
    assert await scene.store.existing_projects(["etl", "default", "nope"]) == {"default"}


async def test_the_roles_of_a_person_and_of_their_groups_add_up(scene: Scene) -> None:
    await make_project(scene.store, "etl", "web", "other")
    await make_principal(scene.store, "ann", "user", issuer="https://idp", subject="1")
    for number, (issuer, group) in enumerate(
        [("https://idp", "data"), ("https://idp", "ops"), ("https://other", "ops")]
    ):
        await make_principal(scene.store, f"g{number}", "group", issuer=issuer, subject=group)
    await bind(scene.store, "ann", Role.VIEWER, "etl")
    await bind(scene.store, "g0", Role.EDITOR, "etl")
    await bind(scene.store, "g1", Role.OPERATOR, "web")
    await bind(scene.store, "g2", Role.ADMIN, "other")
    session = replace(token("s", kind="session"), principal="ann", role=Role.ADMIN)
    await scene.store.add_token(session)
    await tell_groups(scene.store, "t_s", "https://idp", ["data", "ops", "unbound"])

    found = await rights_of(scene, "s")

    assert found is not None
    assert found.by_scope() == {"etl": Role.EDITOR, "web": Role.OPERATOR}
    await disable(scene.store, "g0")
    assert (await rights_of(scene, "s") or found).by_scope() == {
        "etl": Role.VIEWER,
        "web": Role.OPERATOR,
    }


async def test_a_role_that_was_taken_is_gone_at_the_next_look(scene: Scene) -> None:
    await scene.store.add_token(given(project=None))
    await unbind(scene.store, "ci", INSTALLATION)

    found = await rights_of(scene)

    assert found is not None
    assert (found.projects(), found.installation_role) == ((), None)


async def test_tokens_of_a_project_are_listed_and_revoked_by_itself(scene: Scene) -> None:
    await make_project(scene.store, "etl", "web")
    await scene.store.add_token(given())
    await scene.store.add_token(given("site", "web"))
    await scene.store.add_token(given("all", None))

    listed = {
        wanted: {each.name for each in await scene.store.tokens(project=wanted)}
        for wanted in (None, "etl", ("etl", "web"), ())
    }

    assert listed == {
        None: {"ci", "site", "all"},
        "etl": {"ci"},
        ("etl", "web"): {"ci", "site"},
        (): set(),
    }
    assert not await scene.store.revoke_token("t_site", actor="ann", project="etl")
    assert not await scene.store.revoke_token("t_all", actor="ann", project=("etl", "web"))
    assert await scene.store.revoke_token("t_site", actor="ann", project="web")


@pytest.mark.parametrize("project", [None, "etl", ("etl",)], ids=str)
async def test_tokens_are_listed_in_parts_by_age(scene: Scene, project: ProjectSet) -> None:
    await make_project(scene.store, "etl")
    names = [f"n{number}" for number in range(5)]
    for number, name in enumerate(names):
        await scene.store.add_token(given(name, "etl"))
        scene.advance(timedelta(seconds=number % 2))  # some at the same instant

    listed: list[Token] = []
    while part := await scene.store.tokens(
        project=project, limit=2, before=(listed[-1].created_at, listed[-1].id) if listed else None
    ):
        assert len(part) <= 2
        listed += part

    assert len(listed) == len({each.id for each in listed}) == len(names)
    ages = [(each.created_at, each.id) for each in listed]
    assert ages == sorted(ages, reverse=True)

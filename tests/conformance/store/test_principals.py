"""Principals and the roles that they have."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rota.domain.access import INSTALLATION, Role, TokenTerms, Verb
from rota.domain.errors import Conflict, NotFound
from rota.domain.identity import Person
from rota.operations.tokens import create_token, create_worker_token
from rota.ports.projects import PrincipalKind, PrincipalRef
from rota.ports.records import NewToken
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene
from tests.conformance.store.conftest import every_way

pytestmark = pytest.mark.anyio

ISSUER = "https://login.example.org/"
TEAM = PrincipalRef(PrincipalKind.GROUP, ISSUER, "team-shop", "team-shop", "team-shop")
ANN = PrincipalRef(PrincipalKind.USER, ISSUER, "✉ ann@example.org", "ann", email="ann@example.org")


async def admin(scene: Scene, name: str) -> str:
    """A program with a token, admin of the installation."""
    await create_token(scene.store, name=name, role=Role.ADMIN, actor="machine")
    return name


async def roles(scene: Scene, principal: str) -> dict[str, Role]:
    found = await scene.store.bindings(principal=principal)
    return {binding.scope: binding.role for binding in found}


class TestBinding:
    async def test_a_role_replaces_the_one_that_was_there(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.store.bind(TEAM, "shop", Role.VIEWER, actor="root")
        scene.advance(MINUTE)

        bound = await scene.store.bind(TEAM, "shop", Role.EDITOR, actor="ann")

        assert (bound.role, bound.created_by) == (Role.EDITOR, "ann")
        assert bound.created_at == scene.clock.instant
        assert await roles(scene, "team-shop") == {"shop": Role.EDITOR}

    async def test_a_group_is_known_from_its_first_role_on(self, scene: Scene) -> None:
        first = await scene.store.bind(TEAM, INSTALLATION, Role.VIEWER, actor="root")
        again = await scene.store.bind(TEAM, "default", Role.EDITOR, actor="root")

        assert first.principal == again.principal
        assert (first.principal.handle, first.principal.kind) == ("team-shop", PrincipalKind.GROUP)
        assert await roles(scene, "team-shop") == {"*": Role.VIEWER, "default": Role.EDITOR}

    async def test_handles_are_made_unique(self, scene: Scene) -> None:
        user = PrincipalRef(PrincipalKind.USER, ISSUER, "1", "team-shop")
        other = PrincipalRef(PrincipalKind.GROUP, "https://other/", "team-shop", "team-shop")

        found = [
            (await scene.store.bind(who, "default", Role.VIEWER, actor="root")).principal.handle
            for who in (TEAM, user, other)
        ]

        assert found == ["team-shop", "team-shop-2", "team-shop-3"]

    async def test_nobody_and_nowhere_are_not_found(self, scene: Scene) -> None:
        with pytest.raises(NotFound) as nobody:
            await scene.store.bind("nobody", "default", Role.VIEWER, actor="root")
        with pytest.raises(NotFound) as nowhere:
            await scene.store.bind(TEAM, "shop", Role.VIEWER, actor="root")

        assert nobody.value.code == "principal_not_found"
        assert nowhere.value.code == "project_not_found"
        assert await scene.store.principals() == []

    async def test_taking_a_role_leaves_the_others(self, scene: Scene) -> None:
        await scene.store.bind(TEAM, "default", Role.VIEWER, actor="root")
        await scene.store.bind(TEAM, INSTALLATION, Role.VIEWER, actor="root")

        assert await scene.store.unbind(TEAM, "default", actor="root")
        assert not await scene.store.unbind(TEAM, "default", actor="root")
        assert not await scene.store.unbind("nobody", "default", actor="root")
        assert await roles(scene, "team-shop") == {"*": Role.VIEWER}

    async def test_events_tell_who_got_which_role_where(self, scene: Scene) -> None:
        await scene.store.bind(TEAM, "default", Role.VIEWER, actor="root")
        await scene.store.bind(TEAM, "default", Role.VIEWER, actor="root")
        await scene.store.bind(TEAM, "default", Role.ADMIN, actor="root")
        await scene.store.unbind(TEAM, "default", actor="root")

        told = [
            (event.kind, event.project, event.ids, event.data.get("before"))
            for event in await scene.store.events(0, 100)
            if event.kind.startswith("role.")
        ]

        assert told == [
            ("role.granted", "default", ("team-shop",), None),
            ("role.granted", "default", ("team-shop",), "viewer"),
            ("role.revoked", "default", ("team-shop",), "admin"),
        ]


class TestAddresses:
    """Roles of people who are known by their e-mail address only, until they log in."""

    async def test_they_are_theirs_once_they_log_in(self, scene: Scene) -> None:
        await scene.project("shop")
        await scene.store.bind(ANN, "shop", Role.EDITOR, actor="root")
        await scene.store.bind(ANN, "default", Role.VIEWER, actor="root")
        sub = PrincipalRef(PrincipalKind.USER, ISSUER, "sub-1", "ann", email="ann@example.org")
        user = (await scene.store.bind(sub, "default", Role.ADMIN, actor="root")).principal

        await scene.store.sign_in(Person(ISSUER, "sub-1", "ann", email="ann@example.org"))

        assert user.handle == "ann-2"
        assert await roles(scene, "ann-2") == {"default": Role.ADMIN, "shop": Role.EDITOR}
        assert await roles(scene, "ann") == {}

    async def test_an_address_of_another_issuer_or_none_is_worth_nothing(
        self, scene: Scene
    ) -> None:
        await scene.store.bind(ANN, "default", Role.ADMIN, actor="root")
        sub = PrincipalRef(PrincipalKind.USER, ISSUER, "sub-1", "eve")
        await scene.store.bind(sub, "default", Role.VIEWER, actor="root")

        others = "https://evil.example/"
        await scene.store.sign_in(Person(others, "sub-1", "eve", email="ann@example.org"))
        await scene.store.sign_in(Person(ISSUER, "sub-1", "eve"))

        assert await roles(scene, "eve") == {"default": Role.VIEWER}

    async def test_an_address_that_is_known_means_its_user(self, scene: Scene) -> None:
        sub = PrincipalRef(PrincipalKind.USER, ISSUER, "sub-1", "ann", email="ann@example.org")
        await scene.store.bind(sub, "default", Role.VIEWER, actor="root")

        bound = await scene.store.bind(ANN, "default", Role.EDITOR, actor="root")

        assert (bound.principal.handle, bound.principal.subject) == ("ann", "sub-1")

    async def test_an_address_of_several_users_is_refused(self, scene: Scene) -> None:
        for number in (1, 2):
            sub = PrincipalRef(
                PrincipalKind.USER, ISSUER, f"sub-{number}", "ann", email="ann@example.org"
            )
            await scene.store.bind(sub, "default", Role.VIEWER, actor="root")

        with pytest.raises(Conflict) as refused:
            await scene.store.bind(ANN, "default", Role.EDITOR, actor="root")

        assert refused.value.code == "principal_ambiguous"
        assert refused.value.hint == "name one by its handle: ann, ann-2"


class TestLastAdmin:
    async def refusal(self, scene: Scene, name: str, issuer: str = "") -> set[str]:
        """Codes by which all ways are refused to make somebody admin no more."""
        store, codes = scene.store, set()
        for act in (
            store.unbind(name, INSTALLATION, actor=name, issuer=issuer),
            store.bind(name, INSTALLATION, Role.EDITOR, actor=name, issuer=issuer),
            store.disable_principal(name, disabled=True, actor=name, issuer=issuer),
        ):
            with pytest.raises(Conflict) as refused:
                await act
            codes.add(refused.value.code)
        return codes

    async def test_the_last_one_stays(self, scene: Scene) -> None:
        await admin(scene, "root")

        assert await self.refusal(scene, "root") == {"last_admin"}
        assert await roles(scene, "root") == {"*": Role.ADMIN}

    async def test_one_who_is_disabled_does_not_count(self, scene: Scene) -> None:
        await admin(scene, "root")
        await admin(scene, "other")
        await scene.store.disable_principal("other", disabled=True, actor="root")

        assert await self.refusal(scene, "root") == {"last_admin"}

    async def test_one_whose_tokens_are_over_or_narrowed_does_not_count(self, scene: Scene) -> None:
        await admin(scene, "root")
        revoked, _ = await create_token(scene.store, name="gone", role=Role.ADMIN, actor="root")
        await scene.store.revoke_token(revoked, actor="root")
        short = TokenTerms(lifetime=MINUTE)
        await create_token(scene.store, name="old", role=Role.ADMIN, actor="root", terms=short)
        scene.advance(2 * MINUTE)
        for number, terms in enumerate(
            (TokenTerms(verbs=frozenset({Verb.READ})), TokenTerms("default"))
        ):
            name = f"narrow-{number}"
            await create_token(scene.store, name=name, role=Role.ADMIN, actor="root", terms=terms)
            await scene.store.bind(name, INSTALLATION, Role.ADMIN, actor="root")
        await create_token(scene.store, name="low", role=Role.VIEWER, actor="root")
        await scene.store.bind("low", INSTALLATION, Role.ADMIN, actor="root")

        assert await self.refusal(scene, "root") == {"last_admin"}

    async def test_a_worker_does_not_count(self, scene: Scene) -> None:
        await admin(scene, "root")
        await create_worker_token(scene.store, name="node", pool=None, actor="root")
        await scene.store.bind("node", INSTALLATION, Role.ADMIN, actor="root")

        assert await self.refusal(scene, "root") == {"last_admin"}

    async def test_one_with_a_session_of_a_link_does_not_count(self, scene: Scene) -> None:
        await admin(scene, "root")
        owner, _ = await create_token(scene.store, name="owner", role=Role.ADMIN, actor="root")
        await scene.store.revoke_token(owner, actor="root")
        session = NewToken(
            *("t_link", "owner", Role.ADMIN, "digest", "session", "owner", 60 * MINUTE),
            principal="owner",
        )
        await scene.store.add_token(session)

        assert await self.refusal(scene, "root") == {"last_admin"}

    @pytest.mark.parametrize("issuer", ["", "https://other.example.org/"], ids=["none", "another"])
    async def test_people_whom_no_provider_lets_in_do_not_count(
        self, scene: Scene, issuer: str
    ) -> None:
        await admin(scene, "root")
        await scene.store.bind(replace(ANN, subject="s"), INSTALLATION, Role.ADMIN, actor="root")

        assert await self.refusal(scene, "root", issuer) == {"last_admin"}

    async def test_people_who_were_never_here_do_not_count(self, scene: Scene) -> None:
        await admin(scene, "root")
        await scene.store.bind(ANN, INSTALLATION, Role.ADMIN, actor="root")  # an address
        await scene.store.bind(TEAM, INSTALLATION, Role.ADMIN, actor="root")  # of nobody known

        assert await self.refusal(scene, "root", ISSUER) == {"last_admin"}

        await scene.store.sign_in(Person(ISSUER, "s", "ann", email="ann@example.org"))
        assert await scene.store.unbind("root", INSTALLATION, actor="root", issuer=ISSUER)

    async def test_the_only_member_of_a_group_of_admins_stays(self, scene: Scene) -> None:
        await admin(scene, "root")
        await scene.store.bind(TEAM, INSTALLATION, Role.ADMIN, actor="root")
        bob = await scene.store.sign_in(Person(ISSUER, "b", "bob", groups=("team-shop",)))

        assert await scene.store.unbind("root", INSTALLATION, actor="bob", issuer=ISSUER)
        assert await self.refusal(scene, "team-shop", ISSUER) == {"last_admin"}
        with pytest.raises(Conflict):
            await scene.store.disable_principal(bob, disabled=True, actor="bob", issuer=ISSUER)

        await scene.store.sign_in(Person(ISSUER, "c", "cyd", groups=("team-shop",)))
        off = await scene.store.disable_principal(bob, disabled=True, actor="cyd", issuer=ISSUER)
        assert off.disabled_at is not None

    async def test_one_who_cannot_act_may_go(self, scene: Scene) -> None:
        await admin(scene, "root")
        await scene.store.bind(TEAM, INSTALLATION, Role.ADMIN, actor="root")

        assert await scene.store.unbind("team-shop", INSTALLATION, actor="root")

    async def test_one_of_two_may_go(self, scene: Scene) -> None:
        await admin(scene, "root")
        await admin(scene, "other")

        assert await scene.store.unbind("other", INSTALLATION, actor="root")

    @every_way
    async def test_two_who_go_at_once_leave_one(self, scene: Scene, store: SqlStore) -> None:
        for round_ in range(5):
            pair = [await admin(scene, f"{name}-{round_}") for name in ("a", "b")]
            for old in await store.bindings(scope=INSTALLATION):
                if old.principal.handle not in pair:
                    await store.unbind(old.principal.handle, INSTALLATION, actor="root")

            await asyncio.gather(
                *(store.unbind(name, INSTALLATION, actor=name) for name in pair),
                return_exceptions=True,
            )

            assert len(await store.bindings(scope=INSTALLATION)) == 1


class TestDisabling:
    async def test_it_is_told_once_and_can_be_undone(self, scene: Scene) -> None:
        await admin(scene, "root")
        await scene.store.bind(TEAM, "default", Role.VIEWER, actor="root")

        off = await scene.store.disable_principal("team-shop", disabled=True, actor="root")
        await scene.store.disable_principal("team-shop", disabled=True, actor="root")
        on = await scene.store.disable_principal("team-shop", disabled=False, actor="root")

        assert (off.disabled_at, on.disabled_at) == (scene.clock.instant, None)
        kinds = [event.kind for event in await scene.store.events(0, 100)]
        assert [kind for kind in kinds if kind.startswith("principal.")][-2:] == [
            "principal.disabled",
            "principal.enabled",
        ]

    async def test_nobody_is_not_found(self, scene: Scene) -> None:
        with pytest.raises(NotFound):
            await scene.store.disable_principal("nobody", disabled=True, actor="root")


async def test_jobs_of_people_without_a_role_are_named(scene: Scene) -> None:
    await admin(scene, "root")
    await scene.store.bind(TEAM, "default", Role.EDITOR, actor="root")
    await scene.job("kept")  # by "editor", who was never seen
    assert await scene.store.orphaned_jobs(10) == [("default", "kept", "editor")]

    await create_token(scene.store, name="editor", role=Role.EDITOR, actor="root")
    held = await scene.store.orphaned_jobs(10)
    await scene.store.disable_principal("editor", disabled=True, actor="root")

    assert held == []
    assert await scene.store.orphaned_jobs(10) == [("default", "kept", "editor")]


async def test_who_has_a_role_by_a_group_has_not_left(scene: Scene) -> None:
    await scene.project("shop")
    person = Person(ISSUER, "u1", "editor", groups=("team-shop", "others"))
    await scene.store.sign_in(person)
    await scene.job("kept")  # by "editor"
    ours = await scene.store.orphaned_jobs(10)

    elsewhere = PrincipalRef(PrincipalKind.GROUP, "https://other/", "others", "others")
    await scene.store.bind(elsewhere, "default", Role.EDITOR, actor="root")
    await scene.store.bind(TEAM, "shop", Role.EDITOR, actor="root")
    foreign = await scene.store.orphaned_jobs(10)
    await scene.store.bind(TEAM, "default", Role.EDITOR, actor="root")
    by_group = await scene.store.orphaned_jobs(10)
    await scene.store.sign_in(replace(person, groups=()))

    left = [("default", "kept", "editor")]
    assert (ours, foreign, by_group) == (left, left, [])
    assert await scene.store.orphaned_jobs(10) == left


async def test_a_group_or_person_who_is_disabled_gives_no_role(scene: Scene) -> None:
    await admin(scene, "root")
    await scene.store.sign_in(Person(ISSUER, "u1", "editor", groups=("team-shop",)))
    await scene.store.bind(TEAM, "default", Role.EDITOR, actor="root")
    await scene.job("kept")  # by "editor"
    found = []

    for disabled in ("team-shop", "editor"):
        await scene.store.disable_principal(disabled, disabled=True, actor="root")
        found.append(await scene.store.orphaned_jobs(10))
        await scene.store.disable_principal(disabled, disabled=False, actor="root")

    assert found == [[("default", "kept", "editor")]] * 2
    assert await scene.store.orphaned_jobs(10) == []

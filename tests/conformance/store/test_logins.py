from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.access import Role
from rota.domain.errors import Denied
from rota.domain.identity import EndedSession, Person
from rota.ports.logins import (
    DeviceGrant,
    LoginAttempt,
    Polled,
    ProviderFacts,
    Resealed,
    TakenRefresh,
)
from rota.ports.projects import AWAITED, PrincipalKind, PrincipalRef
from rota.ports.records import FoundToken, NewToken
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio

ISSUER = "https://login.example.org"
ANN = Person(ISSUER, "u1", "ann", "Ann", "ann@example.org", "s1", ("ops",))
ATTEMPT = LoginAttempt("state", "browser", "nonce", "verifier", "/jobs")
GRANT = DeviceGrant("device", "BCDFGHJK", "laptop", "192.0.2.7")
TEN_MINUTES, HOUR, DAY = timedelta(minutes=10), timedelta(hours=1), timedelta(days=1)
EVERY = timedelta(seconds=5)
TICK = timedelta(microseconds=1)
QUARTER = timedelta(minutes=15)


AWAITED_ANN = PrincipalRef(
    PrincipalKind.USER, ISSUER, f"{AWAITED}ann@example.org", "ann-x", email="ann@example.org"
)


def session(name: str = "t_s", lifetime: timedelta = DAY, handle: str = "ann") -> NewToken:
    return NewToken(
        name, handle, Role.ADMIN, f"digest of {name}", "session", handle, lifetime, principal=handle
    )


def terminal(name: str = "t_c") -> NewToken:
    return NewToken(name, "", Role.VIEWER, f"digest of {name}", "terminal", "", 12 * HOUR)


async def log_in(
    scene: Scene, person: Person = ANN, token: str = "t_s", refresh: str | None = "sealed"
) -> str:
    handle = await scene.store.sign_in(person)
    told = ProviderFacts(person, refresh, "sealed id")
    await scene.store.open_login(session(token, handle=handle), told, 2 * HOUR)
    return handle


async def found(scene: Scene, token: str = "t_s") -> FoundToken | None:
    return await scene.store.token_by_digest(f"digest of {token}")


async def roles(scene: Scene, token: str = "t_s") -> dict[str, Role]:
    there = await found(scene, token)
    assert there is not None
    return there.rights.by_scope()


class TestAttempts:
    async def test_a_login_is_finished_once_in_the_browser_that_began_it(
        self, scene: Scene
    ) -> None:
        await scene.store.begin_login(ATTEMPT, TEN_MINUTES)

        foreign = await scene.store.finish_login("state", "another browser")
        first = await scene.store.finish_login("state", "browser")
        second = await scene.store.finish_login("state", "browser")

        assert (foreign, first, second) == (None, ATTEMPT, None)

    async def test_a_login_that_takes_too_long_is_over(self, scene: Scene) -> None:
        await scene.store.begin_login(ATTEMPT, TEN_MINUTES)
        scene.advance(TEN_MINUTES)

        assert await scene.store.finish_login("state", "browser") is None

    async def test_logins_that_nobody_finished_are_forgotten(self, scene: Scene) -> None:
        await scene.store.begin_login(ATTEMPT, TEN_MINUTES)
        scene.advance(TEN_MINUTES)

        await scene.store.begin_login(ATTEMPT, TEN_MINUTES)

        assert await scene.store.finish_login("state", "browser") == ATTEMPT


class TestPeople:
    async def test_a_person_keeps_the_handle_of_the_first_login(self, scene: Scene) -> None:
        first = await scene.store.sign_in(ANN)

        again = await scene.store.sign_in(replace(ANN, username="anna", title="Anna"))

        assert (first, again) == ("ann", "ann")

    async def test_nobody_gets_the_handle_of_another(self, scene: Scene) -> None:
        handles = [
            await scene.store.sign_in(ANN),
            await scene.store.sign_in(replace(ANN, subject="u2", email="")),
            await scene.store.sign_in(replace(ANN, issuer="https://other.example", email="")),
        ]

        assert handles == ["ann", "ann-2", "ann-3"]

    async def test_whoever_is_disabled_is_not_let_in(self, scene: Scene) -> None:
        await scene.store.sign_in(ANN)
        await scene.store.disable_principal("ann", disabled=True, actor="root")

        with pytest.raises(Denied, match="disabled"):
            await scene.store.sign_in(ANN)

    async def test_a_person_has_the_roles_of_their_groups_of_this_issuer(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        ops = PrincipalRef(PrincipalKind.GROUP, ISSUER, "ops", "group-ops", "ops")
        foreign = PrincipalRef(PrincipalKind.GROUP, "https://evil.example", "ops", "evil-ops", "")
        await scene.store.bind(ops, "default", Role.EDITOR, actor="root")
        await scene.store.bind(foreign, "*", Role.ADMIN, actor="root")

        assert await roles(scene) == {"default": Role.EDITOR}
        person = await scene.store.find_person(ANN)
        assert person is not None
        assert person.rights.by_scope() == {"default": Role.EDITOR}
        stranger = await scene.store.find_person(replace(ANN, groups=()))
        assert stranger is not None
        assert stranger.rights.by_scope() == {}
        assert await scene.store.find_person(replace(ANN, subject="u2")) is None

    async def test_groups_of_the_settings_are_admins_for_as_long_as_they_are_there(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        await scene.store.bind_admin_groups(ISSUER, frozenset({"ops", "others"}))
        await scene.store.bind_admin_groups(ISSUER, frozenset({"ops"}))
        with_it = await roles(scene)

        await scene.store.bind_admin_groups(ISSUER, frozenset({"others"}))

        assert with_it == {"*": Role.ADMIN}
        assert await roles(scene) == {}

    async def test_a_role_that_somebody_gave_is_not_taken_by_the_settings(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        ops = PrincipalRef(PrincipalKind.GROUP, ISSUER, "ops", "group-ops", "ops")
        await scene.store.bind(ops, "*", Role.ADMIN, actor="root")
        await scene.store.bind_admin_groups(ISSUER, frozenset({"ops"}))

        await scene.store.bind_admin_groups(ISSUER, frozenset())

        assert await roles(scene) == {"*": Role.ADMIN}

    async def test_what_was_bound_to_an_address_is_theirs_once_they_log_in(
        self, scene: Scene
    ) -> None:
        await scene.store.bind(AWAITED_ANN, "default", Role.OPERATOR, actor="root")

        await log_in(scene)

        assert await roles(scene) == {"default": Role.OPERATOR}

    async def test_whoever_is_awaited_comes_under_the_name_that_the_admin_was_told(
        self, scene: Scene
    ) -> None:
        bound = await scene.store.bind(AWAITED_ANN, "default", Role.OPERATOR, actor="root")

        handle = await scene.store.sign_in(ANN)

        principals = [each for each in await scene.store.principals() if each.kind == "user"]
        assert handle == bound.principal.handle == "ann-x"
        assert [(each.handle, each.subject) for each in principals] == [("ann-x", "u1")]
        assert await scene.store.sign_in(replace(ANN, email="ann@elsewhere.org")) == "ann-x"

    async def test_whoever_is_disabled_before_they_come_is_not_let_in(self, scene: Scene) -> None:
        await scene.store.bind(AWAITED_ANN, "default", Role.OPERATOR, actor="root")
        await scene.store.disable_principal("ann-x", disabled=True, actor="root")

        with pytest.raises(Denied, match="disabled"):
            await scene.store.sign_in(ANN)

    @pytest.mark.parametrize(
        "other",
        [
            replace(ANN, email=""),
            replace(ANN, email="bob@example.org"),
            replace(ANN, issuer="https://other.example"),
        ],
        ids=["not verified", "another address", "another issuer"],
    )
    async def test_nobody_else_comes_under_that_name(self, scene: Scene, other: Person) -> None:
        await scene.store.bind(AWAITED_ANN, "default", Role.OPERATOR, actor="root")

        assert await scene.store.sign_in(other) == "ann"

    async def test_two_logins_at_once_of_whoever_is_awaited_are_one_person(
        self, scene: Scene
    ) -> None:
        await scene.store.bind(AWAITED_ANN, "default", Role.OPERATOR, actor="root")

        handles = await asyncio.gather(*(scene.store.sign_in(ANN) for _ in range(4)))

        assert {*handles} == {"ann-x"}

    async def test_roles_of_an_address_go_to_whoever_is_there_already(self, scene: Scene) -> None:
        await log_in(scene, replace(ANN, email=""))
        await scene.store.bind(AWAITED_ANN, "default", Role.OPERATOR, actor="root")

        await scene.store.sign_in(ANN)

        assert await roles(scene) == {"default": Role.OPERATOR}


class TestSessions:
    async def test_a_session_ends_when_it_is_idle_unless_it_is_used(self, scene: Scene) -> None:
        await log_in(scene)
        scene.advance(HOUR)
        await scene.store.keep_login("t_s", 2 * HOUR, 12 * HOUR, 30 * DAY)
        scene.advance(2 * HOUR - MINUTE)
        in_time = await found(scene)

        scene.advance(MINUTE)

        assert in_time is not None
        assert await found(scene) is None

    async def test_a_session_ends_at_its_absolute_end_however_much_it_is_used(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        scene.advance(DAY - MINUTE)
        await scene.store.keep_login("t_s", 2 * HOUR, 12 * HOUR, 30 * DAY)

        scene.advance(MINUTE)

        assert await found(scene) is None

    async def test_one_server_at_a_time_refreshes_a_session(self, scene: Scene) -> None:
        await log_in(scene)
        too_early = await scene.store.take_refresh("t_s", QUARTER, MINUTE)
        scene.advance(QUARTER)

        first = await scene.store.take_refresh("t_s", QUARTER, MINUTE)
        second = await scene.store.take_refresh("t_s", QUARTER, MINUTE)
        scene.advance(MINUTE)
        after_a_crash = await scene.store.take_refresh("t_s", QUARTER, MINUTE)
        await scene.store.refresh_login("t_s", ProviderFacts(refresh_token="renewed"))
        afterwards = await scene.store.take_refresh("t_s", QUARTER, MINUTE)
        scene.advance(QUARTER)

        taken = TakenRefresh("t_s", "sealed")
        assert (too_early, first, second) == (None, taken, None)
        assert (after_a_crash, afterwards) == (taken, None)
        renewed = TakenRefresh("t_s", "renewed")
        assert await scene.store.take_refresh("t_s", QUARTER, MINUTE) == renewed

    async def test_a_session_without_a_refresh_token_is_not_refreshed(self, scene: Scene) -> None:
        await log_in(scene, refresh=None)
        scene.advance(HOUR)

        there = await found(scene)

        assert there is not None
        assert there.session is not None
        assert not there.session.is_refreshable
        assert await scene.store.take_refresh("t_s", QUARTER, MINUTE) is None

    async def test_what_the_provider_does_not_renew_stays(self, scene: Scene) -> None:
        await log_in(scene)
        await scene.store.refresh_login("t_s", ProviderFacts(ANN))
        scene.advance(QUARTER)

        assert await scene.store.id_token_of("t_s") == (ANN.issuer, "sealed id")
        sealed = TakenRefresh("t_s", "sealed")
        assert await scene.store.take_refresh("t_s", QUARTER, MINUTE) == sealed

    async def test_all_sessions_of_a_person_learn_of_their_groups(self, scene: Scene) -> None:
        await log_in(scene)
        await log_in(scene, token="t_other")
        await scene.store.bind_admin_groups(ISSUER, frozenset({"ops"}))

        await scene.store.refresh_login("t_other", ProviderFacts(replace(ANN, groups=())))

        assert await roles(scene) == {}

    @pytest.mark.parametrize(
        ("ended", "left"),
        [
            ((ISSUER, "s1", "u1"), ["t_two", "t_bob"]),
            ((ISSUER, "s1", ""), ["t_two", "t_bob"]),
            ((ISSUER, "", "u1"), ["t_bob"]),
            (("https://evil.example", "s1", "u1"), ["t_one", "t_two", "t_bob"]),
            ((ISSUER, "s9", "u9"), ["t_one", "t_two", "t_bob"]),
        ],
    )
    async def test_the_provider_ends_a_session_or_all_of_a_person(
        self, scene: Scene, ended: tuple[str, str, str], left: list[str]
    ) -> None:
        await log_in(scene, token="t_one")
        await log_in(scene, replace(ANN, sid="s2"), token="t_two")
        await log_in(scene, Person(ISSUER, "u2", "bob"), token="t_bob")

        count = await scene.store.end_logins(EndedSession(*ended, scene.clock.instant))

        tokens = ["t_one", "t_two", "t_bob"]
        assert [token for token in tokens if await found(scene, token)] == left
        assert count == 3 - len(left)

    async def test_a_session_whose_name_at_the_provider_is_unknown_ends_with_its_person(
        self, scene: Scene
    ) -> None:
        await log_in(scene, replace(ANN, sid=""))
        ended = EndedSession(ISSUER, "s1", "u1", scene.clock.instant)

        assert await scene.store.end_logins(ended) == 1

    async def test_what_the_provider_says_again_does_not_end_later_sessions(
        self, scene: Scene
    ) -> None:
        ended = EndedSession(ISSUER, "", "u1", scene.clock.instant)
        await log_in(scene, token="t_one")
        await scene.store.end_logins(ended)
        scene.advance(TICK)
        await log_in(scene, token="t_later")

        again = await scene.store.end_logins(ended)

        assert again == 0
        assert await found(scene, "t_later") is not None

    async def test_sessions_of_yesterday_are_forgotten(self, scene: Scene) -> None:
        await log_in(scene)
        scene.advance(3 * DAY)

        await log_in(scene, token="t_new")
        await log_in(scene, token="t_newer")

        assert await scene.store.id_token_of("t_s") is None


class TestTerminals:
    async def test_a_terminal_waits_until_somebody_lets_it_in_once(self, scene: Scene) -> None:
        await log_in(scene)
        await scene.store.bind_admin_groups(ISSUER, frozenset({"ops"}))
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)
        waiting = await scene.store.poll_device("device", terminal())
        shown = await scene.store.device_by_code("BCDFGHJK")

        decided = await scene.store.decide_device("BCDFGHJK", "t_s", is_approved=True)
        scene.advance(EVERY)
        let_in = await scene.store.poll_device("device", terminal())
        again = await scene.store.poll_device("device", terminal("t_c2"))

        assert (waiting, shown, decided) == (Polled.PENDING, GRANT, True)
        assert (let_in, again) == (Polled.GRANTED, Polled.EXPIRED)
        there = await found(scene, "t_c")
        assert there is not None
        assert (there.token.kind, there.token.principal) == ("terminal", "ann")
        assert there.rights.by_scope() == {"*": Role.ADMIN}

    async def test_a_terminal_that_asks_too_often_has_to_wait_longer(self, scene: Scene) -> None:
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)
        told = [await scene.store.poll_device("device", terminal()) for _ in range(2)]
        scene.advance(EVERY)
        told.append(await scene.store.poll_device("device", terminal()))
        scene.advance(3 * EVERY)
        told.append(await scene.store.poll_device("device", terminal()))

        assert told == [Polled.PENDING, Polled.TOO_SOON, Polled.TOO_SOON, Polled.PENDING]

    async def test_a_refused_terminal_is_told_so(self, scene: Scene) -> None:
        await log_in(scene)
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)

        await scene.store.decide_device("BCDFGHJK", "t_s", is_approved=False)

        assert await scene.store.poll_device("device", terminal()) is Polled.DENIED
        assert not await scene.store.decide_device("BCDFGHJK", "t_s", is_approved=True)

    async def test_a_code_is_worth_nothing_after_its_time(self, scene: Scene) -> None:
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)
        scene.advance(TEN_MINUTES)

        assert await scene.store.device_by_code("BCDFGHJK") is None
        assert not await scene.store.decide_device("BCDFGHJK", "t_s", is_approved=True)
        assert await scene.store.poll_device("device", terminal()) is Polled.EXPIRED
        assert await scene.store.poll_device("unknown", terminal()) is Polled.EXPIRED

    async def test_a_session_that_has_ended_lets_nobody_in(self, scene: Scene) -> None:
        await log_in(scene)
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)
        await scene.store.decide_device("BCDFGHJK", "t_s", is_approved=True)

        await scene.store.revoke_token("t_s", actor="ann")

        assert await scene.store.poll_device("device", terminal()) is Polled.DENIED

    async def test_a_program_lets_nobody_in(self, scene: Scene) -> None:
        """What it let in would outlive its token."""
        program = NewToken("t_api", "ci", Role.EDITOR, "digest of t_api", "api", "root", None)
        await scene.store.add_token(program)
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)
        await scene.store.decide_device("BCDFGHJK", "t_api", is_approved=True)

        assert await scene.store.poll_device("device", terminal()) is Polled.DENIED

    async def let_in(self, scene: Scene, token: str = "t_c", opener: str = "t_s") -> None:
        grant = replace(GRANT, device=f"device of {token}", code=f"code of {token}")
        await scene.store.begin_device(grant, TEN_MINUTES, EVERY)
        await scene.store.decide_device(grant.code, opener, is_approved=True)
        told = await scene.store.poll_device(grant.device, terminal(token))
        assert told is Polled.GRANTED

    async def test_a_terminal_goes_on_for_thirty_days_while_the_provider_knows_its_person(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        await self.let_in(scene)

        used = 0
        while await found(scene, "t_c"):
            used += 1
            await scene.store.keep_login("t_c", 2 * HOUR, 12 * HOUR, 30 * DAY)
            # The browser is closed, and its session has expired: its refresh token serves on.
            taken = await scene.store.take_refresh("t_c", QUARTER, MINUTE)
            if used > 1:
                assert taken is not None
                await scene.store.refresh_login(taken.token, ProviderFacts(ANN, f"sealed {used}"))
            await scene.store.open_login(
                replace(session(f"t_{used}"), principal="bob"),
                ProviderFacts(Person(ISSUER, "u2", "bob")),
                HOUR,
            )
            scene.advance(11 * HOUR)

        assert timedelta(days=29) < used * 11 * HOUR <= timedelta(days=31)

    async def test_where_nobody_can_ask_the_provider_a_terminal_ends_as_a_browser_would(
        self, scene: Scene
    ) -> None:
        await log_in(scene, refresh=None)
        scene.advance(HOUR)
        await self.let_in(scene)
        for _ in range(2):
            scene.advance(11 * HOUR)
            assert await found(scene, "t_c")
            await scene.store.keep_login("t_c", 2 * HOUR, 12 * HOUR, 30 * DAY)
            assert await scene.store.take_refresh("t_c", QUARTER, MINUTE) is None

        scene.advance(HOUR)

        assert await found(scene, "t_c") is None  # a day after the provider spoke of them

    async def test_who_came_by_a_link_needs_no_provider(self, scene: Scene) -> None:
        await scene.store.open_login(session(), ProviderFacts(), 2 * HOUR)
        await self.let_in(scene)
        for _ in range(5):
            scene.advance(11 * HOUR)
            await scene.store.keep_login("t_c", 2 * HOUR, 12 * HOUR, 30 * DAY)

        there = await found(scene, "t_c")

        assert there is not None
        assert there.session is not None
        assert not there.session.is_refreshable

    async def test_a_login_in_a_browser_vouches_for_the_terminals_of_that_person(
        self, scene: Scene
    ) -> None:
        await log_in(scene, refresh=None)
        await self.let_in(scene)
        scene.advance(11 * HOUR)
        await scene.store.keep_login("t_c", 2 * HOUR, 12 * HOUR, 30 * DAY)
        scene.advance(11 * HOUR)
        await scene.store.keep_login("t_c", 2 * HOUR, 12 * HOUR, 30 * DAY)

        await log_in(scene, token="t_new", refresh=None)
        scene.advance(11 * HOUR)

        assert await found(scene, "t_c")

    async def test_a_terminal_is_refreshed_by_a_session_of_its_own_person_once(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        await log_in(scene, Person(ISSUER, "u2", "bob"), token="t_bob", refresh="of bob")
        await self.let_in(scene)
        await self.let_in(scene, "t_c2")
        scene.advance(QUARTER)

        taken = [
            await scene.store.take_refresh(token, QUARTER, MINUTE)
            for token in ("t_c", "t_c", "t_c2", "t_s")
        ]
        looked = await found(scene, "t_c")

        assert taken == [TakenRefresh("t_s", "sealed"), None, None, None]
        assert looked is not None
        assert looked.session is not None
        assert not looked.session.is_refreshable  # within the minute

    async def test_groups_that_are_gone_at_a_refresh_are_gone_in_the_terminal(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        await scene.store.bind_admin_groups(ISSUER, frozenset({"ops"}))
        await self.let_in(scene)
        before = await roles(scene, "t_c")

        await scene.store.refresh_login("t_s", ProviderFacts(replace(ANN, groups=())))

        assert (before, await roles(scene, "t_c")) == ({"*": Role.ADMIN}, {})

    async def test_a_session_that_the_provider_refuses_ends_with_the_terminals_of_its_person(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        await log_in(scene, Person(ISSUER, "u2", "bob"), token="t_bob")
        await self.let_in(scene)
        await self.let_in(scene, "t_of_bob", "t_bob")

        await scene.store.end_refused_login("t_s")

        tokens = ("t_s", "t_c", "t_bob", "t_of_bob")
        left = [token for token in tokens if await found(scene, token)]
        assert left == ["t_bob", "t_of_bob"]

    async def test_terminals_go_on_while_another_session_can_be_refreshed(
        self, scene: Scene
    ) -> None:
        await log_in(scene)
        await log_in(scene, token="t_other", refresh="other")
        await self.let_in(scene)

        await scene.store.end_refused_login("t_s")
        scene.advance(QUARTER)

        assert await found(scene, "t_c")
        taken = await scene.store.take_refresh("t_c", QUARTER, MINUTE)
        assert taken == TakenRefresh("t_other", "other")

    async def test_a_logout_in_the_browser_leaves_the_terminal(self, scene: Scene) -> None:
        await log_in(scene)
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)
        await scene.store.decide_device("BCDFGHJK", "t_s", is_approved=True)
        await scene.store.poll_device("device", terminal())

        await scene.store.end_logins(EndedSession(ISSUER, "s1", "u1", scene.clock.instant))

        assert await found(scene, "t_s") is None
        assert await found(scene, "t_c") is not None

    async def test_a_terminal_of_a_session_opened_with_a_token_ends_with_that_token(
        self, scene: Scene
    ) -> None:
        opener = NewToken("t_api", "ci", Role.EDITOR, "digest of t_api", "api", "root", None)
        await scene.store.add_token(opener)
        await scene.store.add_token(
            replace(session(handle="ci"), role=Role.EDITOR, parent="t_api", principal="")
        )
        await scene.store.begin_device(GRANT, TEN_MINUTES, EVERY)
        await scene.store.decide_device("BCDFGHJK", "t_s", is_approved=True)
        await scene.store.poll_device("device", terminal())
        before = await roles(scene, "t_c")

        await scene.store.revoke_token("t_api", actor="root")

        assert before == {"*": Role.EDITOR}
        assert await found(scene, "t_c") is None


class TestSealedValues:
    async def sealed(self, scene: Scene) -> None:
        told = [
            ("rs1:old:a", "rs1:old:b"),
            ("rs1:new:a", None),
            (None, "rs1:older:b"),
            (None, None),
        ]
        for number, (refresh, id_token) in enumerate(told):
            handle = await scene.store.sign_in(ANN)
            token = session(f"t_{number}", handle=handle)
            await scene.store.open_login(token, ProviderFacts(ANN, refresh, id_token), HOUR)

    async def test_those_of_other_keys_than_the_first_are_found_in_parts(
        self, scene: Scene
    ) -> None:
        await self.sealed(scene)

        first = await scene.store.sealed_logins("new", "", 1)
        rest = await scene.store.sealed_logins("new", first[0].token, 9)
        of_another = await scene.store.sealed_logins("ne", "", 9)

        assert [(each.token, [it.sealed for it in each.values]) for each in (*first, *rest)] == [
            ("t_0", ["rs1:old:a", "rs1:old:b"]),
            ("t_2", ["rs1:older:b"]),
        ]
        assert [each.token for each in of_another] == ["t_0", "t_1", "t_2"]

    async def test_they_are_counted_by_key(self, scene: Scene) -> None:
        assert await scene.store.keys_of_logins() == {}

        await self.sealed(scene)

        assert await scene.store.keys_of_logins() == {"new": 1, "old": 2, "older": 1}

    async def test_what_was_written_meanwhile_stays(self, scene: Scene) -> None:
        await self.sealed(scene)
        [first, *_] = await scene.store.sealed_logins("new", "", 9)
        await scene.store.refresh_login("t_0", ProviderFacts(refresh_token="rs1:new:c"))

        await scene.store.reseal_logins(
            [Resealed(value, f"rs1:new:{value.is_refresh_token}") for value in first.values]
        )

        taken = await scene.store.take_refresh("t_0", timedelta(0), MINUTE)
        assert taken == TakenRefresh("t_0", "rs1:new:c")
        assert await scene.store.id_token_of("t_0") == (ANN.issuer, "rs1:new:False")

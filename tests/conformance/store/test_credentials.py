"""Credentials of workers: joining, renewing, and what a revocation ends with its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.access import Role
from rota.domain.errors import Denied
from rota.domain.ids import SessionId
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery
from rota.domain.states import RunState
from rota.operations.tokens import create_token
from rota.ports.credentials import NewCredential, NewJoinToken
from rota.ports.projects import PrincipalKind
from rota.ports.queue import Wakes
from rota.ports.records import NewToken, Session, StoredChunk
from rota.ports.work import ChunkMeta, Fence, Progress
from testkit.builders import LEASE, MINUTE, Scene, hello, outcome, reported

pytestmark = pytest.mark.anyio

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAYS = timedelta(days=30)
JOIN = "digest of join"


def join_token(uses: int = 1, pool: str | None = None, lifetime: timedelta = HOUR) -> NewJoinToken:
    return NewJoinToken("t_join", "join", JOIN, "rotaj_12345678", uses, lifetime, pool)


def wanted(worker: str = "w1", number: int = 1, **fields: bool) -> NewCredential:
    secret = f"digest of {worker} {number}"
    return NewCredential(
        f"t_{worker}_{number}", worker, "default", secret, "rotaw_", DAYS, **fields
    )


def made(worker: str = "w1") -> NewToken:
    """A credential that somebody made by hand."""
    return NewToken(f"t_{worker}", worker, Role.VIEWER, f"made for {worker}", "worker", "ann", None)


async def opens(scene: Scene, digest: str) -> bool:
    return await scene.store.token_by_digest(digest) is not None


async def refused(call: Awaitable[object]) -> str:
    with pytest.raises(Denied) as error:
        await call
    return error.value.code


class TestJoining:
    async def test_a_join_token_is_traded_for_a_credential_of_a_name_and_a_pool(
        self, scene: Scene
    ) -> None:
        await scene.store.add_join_token(join_token(), actor="ann")

        expires_at = await scene.store.join_worker(JOIN, wanted())

        found = await scene.store.token_by_digest("digest of w1 1")
        assert found is not None
        token = found.token
        assert (token.name, token.pool, token.kind, token.is_renewable) == (
            "w1",
            "default",
            "worker",
            True,
        )
        assert (expires_at, token.expires_at) == (scene.clock.instant + DAYS,) * 2

    async def test_a_join_token_is_good_for_so_many_workers(self, scene: Scene) -> None:
        await scene.store.add_join_token(join_token(uses=2), actor="ann")
        await scene.store.join_worker(JOIN, wanted("w1"))
        await scene.store.join_worker(JOIN, wanted("w2"))

        code = await refused(scene.store.join_worker(JOIN, wanted("w3")))

        [token] = await scene.store.tokens("join")
        assert (code, token.uses_left) == ("unauthenticated", 0)
        assert not await opens(scene, "digest of w3 1")

    @pytest.mark.parametrize("names", [("w1", "w2"), ("w1", "w1")], ids=["two names", "one name"])
    async def test_of_two_that_race_one_joins(self, scene: Scene, names: tuple[str, str]) -> None:
        uses = len(set(names)) % 2 + 1  # the last use, or the same name
        await scene.store.add_join_token(join_token(uses=uses), actor="ann")

        joined = await asyncio.gather(
            *(scene.store.join_worker(JOIN, wanted(name, at)) for at, name in enumerate(names)),
            return_exceptions=True,
        )

        valid = [await opens(scene, f"digest of {name} {at}") for at, name in enumerate(names)]
        assert sum(valid) == 1
        if names[0] != names[1]:
            assert sum(isinstance(each, Denied) for each in joined) == 1

    async def test_two_join_tokens_give_one_name_to_one_of_two(self, scene: Scene) -> None:
        other = replace(join_token(), id="t_other", digest="digest of other")
        for token in (join_token(), other):
            await scene.store.add_join_token(token, actor="ann")

        joined = await asyncio.gather(
            scene.store.join_worker(JOIN, wanted(number=1)),
            scene.store.join_worker(other.digest, wanted(number=2)),
            return_exceptions=True,
        )

        assert sum(isinstance(each, Denied) for each in joined) == 1
        valid = [await opens(scene, f"digest of w1 {number}") for number in (1, 2)]
        assert sum(valid) == 1

    async def test_a_join_token_ends_with_its_time_or_when_it_is_revoked(
        self, scene: Scene
    ) -> None:
        await scene.store.add_join_token(join_token(uses=9), actor="ann")
        scene.advance(HOUR - TICK)
        await scene.store.join_worker(JOIN, wanted("w1"))
        scene.advance(TICK)
        late = await refused(scene.store.join_worker(JOIN, wanted("w2")))
        again = replace(join_token(uses=9), id="t_again", digest="digest of again")
        await scene.store.add_join_token(again, actor="ann")
        await scene.store.revoke_token("t_again", actor="ann")

        revoked = await refused(scene.store.join_worker(again.digest, wanted("w3")))

        assert {late, revoked} == {"unauthenticated"}
        assert await opens(scene, "digest of w1 1")

    async def test_a_join_token_of_a_pool_is_for_its_workers(self, scene: Scene) -> None:
        await scene.store.add_join_token(join_token(pool="gpu"), actor="ann")

        code = await refused(scene.store.join_worker(JOIN, wanted()))
        await scene.store.join_worker(JOIN, replace(wanted(), pool="gpu"))

        assert code == "foreign_pool"

    async def test_a_join_token_opens_nothing_itself(self, scene: Scene) -> None:
        await scene.store.add_join_token(join_token(), actor="ann")

        found = await scene.store.token_by_digest(JOIN)

        assert found is None or found.token.kind == "join"

    @pytest.mark.parametrize("is_made", [True, False], ids=["made by hand", "joined"])
    async def test_a_name_with_a_live_credential_is_taken_unless_it_is_replaced(
        self, scene: Scene, is_made: bool
    ) -> None:
        await scene.store.add_join_token(join_token(uses=3), actor="ann")
        former = "made for w1" if is_made else "digest of w1 1"
        if is_made:
            await scene.store.add_token(made())
        else:
            await scene.store.join_worker(JOIN, wanted())
        assert await opens(scene, former)
        session = await scene.store.register(
            hello("w1"), LEASE, credential="t_w1" if is_made else "t_w1_1"
        )

        code = await refused(scene.store.join_worker(JOIN, wanted(number=2)))
        is_untouched = await opens(scene, former)
        await scene.store.join_worker(JOIN, wanted(number=3, replaces=True))

        assert (code, is_untouched) == ("name_taken", True)
        assert not await opens(scene, former)
        assert await opens(scene, "digest of w1 3")
        assert not (await scene.store.renew(session.id, stopping=False)).alive

    @pytest.mark.parametrize("other", ["gpu", None], ids=["another pool", "any pool"])
    async def test_a_join_token_of_a_pool_takes_no_name_of_another(
        self, scene: Scene, other: str | None
    ) -> None:
        await scene.store.add_join_token(join_token(uses=3, pool="default"), actor="ann")
        await scene.store.add_token(replace(made(), pool=other))
        assert await opens(scene, "made for w1")
        session = await scene.store.register(hello("w1"), LEASE, credential="t_w1")

        code = await refused(scene.store.join_worker(JOIN, wanted(replaces=True)))

        [token] = await scene.store.tokens("join")
        assert (code, token.uses_left) == ("foreign_pool", 3)
        assert await opens(scene, "made for w1")
        assert (await scene.store.renew(session.id, stopping=False)).alive

    async def test_a_name_of_another_pool_is_free_once_that_one_is_revoked(
        self, scene: Scene
    ) -> None:
        await scene.store.add_join_token(join_token(pool="default"), actor="ann")
        await scene.store.add_token(replace(made(), pool="gpu"))
        await scene.store.revoke_worker("w1", actor="ann")

        await scene.store.join_worker(JOIN, wanted())

        assert await opens(scene, "digest of w1 1")

    async def test_a_name_is_free_once_its_credential_has_expired(self, scene: Scene) -> None:
        await scene.store.add_join_token(join_token(uses=2, lifetime=2 * DAYS), actor="ann")
        await scene.store.join_worker(JOIN, wanted())
        assert await opens(scene, "digest of w1 1")
        scene.advance(DAYS)

        await scene.store.join_worker(JOIN, wanted(number=2))

        assert await opens(scene, "digest of w1 2")

    async def test_whoever_lost_the_answer_joins_again_with_the_same_use(
        self, scene: Scene
    ) -> None:
        await scene.store.add_join_token(join_token(), actor="ann")
        await scene.store.join_worker(JOIN, wanted(number=1))

        await scene.store.join_worker(JOIN, wanted(number=2))
        is_in = await opens(scene, "digest of w1 2")
        code = await refused(scene.store.join_worker(JOIN, wanted(number=3)))

        assert is_in
        assert not await opens(scene, "digest of w1 1")
        assert code == "name_taken"


class TestRenewal:
    async def joined(self, scene: Scene) -> str:
        await scene.store.add_join_token(join_token(), actor="ann")
        await scene.store.join_worker(JOIN, wanted())
        return wanted().id

    async def test_the_first_use_of_the_next_secret_ends_the_one_before(self, scene: Scene) -> None:
        credential = await self.joined(scene)
        now = scene.advance(timedelta(days=20))

        expires_at = await scene.store.renew_credential(credential, "the next")
        both = await opens(scene, "digest of w1 1"), await opens(scene, "the next")
        began = await scene.store.begin_renewal("the next")

        assert expires_at == now + DAYS
        assert (both, began) == ((True, False), True)
        assert not await opens(scene, "digest of w1 1")
        found = await scene.store.token_by_digest("the next")
        assert found is not None
        assert (found.token.id, found.token.expires_at) == (credential, expires_at)
        assert not await scene.store.begin_renewal("the next")

    async def test_whoever_lost_the_next_secret_gets_in_with_its_own_and_asks_again(
        self, scene: Scene
    ) -> None:
        credential = await self.joined(scene)
        await scene.store.renew_credential(credential, "lost")
        assert await opens(scene, "digest of w1 1")

        await scene.store.renew_credential(credential, "the next")

        assert not await scene.store.begin_renewal("lost")
        assert await scene.store.begin_renewal("the next")

    async def test_the_next_secret_lives_on_when_the_first_has_expired(self, scene: Scene) -> None:
        credential = await self.joined(scene)
        scene.advance(DAYS - TICK)
        await scene.store.renew_credential(credential, "the next")
        scene.advance(2 * TICK)

        assert not await opens(scene, "digest of w1 1")
        assert await scene.store.begin_renewal("the next")
        assert await opens(scene, "the next")

    @pytest.mark.parametrize("how", ["revoked", "expired"])
    async def test_what_is_no_longer_valid_is_not_renewed(self, scene: Scene, how: str) -> None:
        credential = await self.joined(scene)
        await scene.store.renew_credential(credential, "the next")
        if how == "revoked":
            await scene.store.revoke_token(credential, actor="ann")
        else:
            scene.advance(DAYS)

        assert await scene.store.renew_credential(credential, "another") is None
        assert not await scene.store.begin_renewal("the next")

    async def test_what_somebody_made_lasts_as_long_as_was_said_then(self, scene: Scene) -> None:
        await scene.store.add_token(replace(made(), lifetime=MINUTE))

        assert await scene.store.renew_credential("t_w1", "the next") is None


class TestRevocation:
    """After its commit nothing is given to the worker, whatever its server believes."""

    async def worker(self, scene: Scene, name: str = "w1") -> SessionId:
        await scene.store.add_token(made(name))
        session = await scene.store.register(hello(name), LEASE, credential=f"t_{name}")
        return session.id

    async def test_no_claim_succeeds(self, scene: Scene) -> None:
        await scene.trigger(await scene.job("first"))
        await scene.trigger(await scene.job("second"))
        revoked, other = await self.worker(scene), await self.worker(scene, "w2")
        [work] = await scene.claim(revoked, 1)

        await scene.store.revoke_token("t_w1", actor="ann")

        assert await scene.claim(revoked) == []
        report = reported(outcome(work))
        finished = await scene.store.finish(revoked, report, claim=5)
        assert (len(finished.claimed), finished.refused) == (0, (work.fence,))
        assert len(await scene.claim(other)) == 1

    async def test_no_run_that_falls_due_is_given_to_it(self, scene: Scene) -> None:
        job = await scene.job(next_at=scene.clock.instant)
        session = await self.worker(scene)
        await scene.store.revoke_token("t_w1", actor="ann")

        await scene.fire(job)

        assert await scene.claim(session) == []

    async def test_what_it_holds_may_not_begin_and_its_word_does_not_count(
        self, scene: Scene
    ) -> None:
        held = []
        session = await self.worker(scene)
        for name in ("starts", "ends", "fails"):
            await scene.trigger(await scene.job(name, delivery=Delivery.AT_MOST_ONCE))
            held += await scene.claim(session)
        await scene.start(session, [held[1]])

        await scene.store.revoke_token("t_w1", actor="ann")

        fences = tuple(work.fence for work in held)
        failed = outcome(held[2], AttemptResult.FAILED)
        finished = await scene.store.finish(session, reported(outcome(held[1], at=1), failed))
        assert (await scene.start(session, held)).refused == fences
        assert set(finished.refused) == set(fences[1:])
        assert await scene.state(held[1].run) == RunState.PROCESSING
        assert await scene.store.open_outputs(session, [work.run for work in held]) == frozenset()
        chunk = StoredChunk(ChunkMeta(0, 0, 1, 1, 1, 1), "key")
        assert await scene.store.add_chunks(session, [(fences[1], chunk)]) == fences[1:2]

    async def test_what_it_holds_ends_with_its_lease_and_not_before(self, scene: Scene) -> None:
        [run] = await scene.trigger(await scene.job())
        session = await self.worker(scene)
        await scene.claim(session)
        await scene.store.revoke_token("t_w1", actor="ann")
        other = await self.worker(scene, "w2")

        renewal = await scene.store.renew(session, stopping=False)
        await scene.store.end_session(session)  # its word, which does not count
        held = await scene.state(run)
        await scene.vanish(session)
        await scene.release()

        assert (renewal.alive, held) == (False, RunState.CLAIMED)
        again = await scene.store.register(hello("w2"), LEASE, credential="t_w2")
        assert other
        assert [work.run for work in await scene.claim(again.id)] == [run]

    async def test_it_cannot_come_back(self, scene: Scene) -> None:
        session = await self.worker(scene)
        await scene.store.revoke_token("t_w1", actor="ann")
        await scene.store.add_token(replace(made(), id="t_next", digest="made next"))

        codes = [
            await refused(scene.store.register(hello("w1"), LEASE, credential="t_w1")),
            await refused(scene.store.resume(hello("w1", resumes=session), credential="t_w1")),
        ]

        assert codes == ["unauthenticated"] * 2
        resumed = hello("w1", resumes=session)
        assert await scene.store.resume(resumed, credential="t_next") is None
        assert (await scene.store.register(hello("w1"), LEASE, credential="t_next")).alive

    async def test_only_the_sessions_of_that_credential_end(self, scene: Scene) -> None:
        await self.worker(scene)
        by_socket = await scene.worker("w1")
        await scene.store.add_token(replace(made(), id="t_next", digest="made next"))
        moved = await scene.store.register(hello("w1"), LEASE, credential="t_w1")
        await scene.store.resume(hello("w1", resumes=moved.id), credential="t_next")

        await scene.store.revoke_token("t_w1", actor="ann")

        alive = [
            (await scene.store.renew(each, stopping=False)).alive for each in (by_socket, moved.id)
        ]
        assert alive == [True, True]

    async def test_all_credentials_of_a_worker_end_at_once(self, scene: Scene) -> None:
        session = await self.worker(scene)
        await scene.store.add_token(replace(made(), id="t_next", digest="made next"))
        other = await self.worker(scene, "w2")

        revoked = [await scene.store.revoke_worker("w1", actor="ann") for _ in range(2)]

        assert revoked == [2, 0]
        assert not await opens(scene, "made for w1")
        assert not await opens(scene, "made next")
        assert not (await scene.store.renew(session, stopping=False)).alive
        assert (await scene.store.renew(other, stopping=False)).alive

    async def test_its_server_hears_of_it_and_people_see_it(
        self, scene: Scene, published: list[Wakes]
    ) -> None:
        session = await self.worker(scene)
        published.clear()

        before = await scene.store.cancels(session)
        await scene.store.revoke_token("t_w1", actor="ann")

        assert (before, await scene.store.cancels(session)) == ((), None)
        assert [wakes.sessions for wakes in published] == [frozenset({session})]
        [shown] = await scene.store.sessions(alive_only=True)
        assert (shown.barred, shown.credential) == (True, "t_w1")
        kinds = [event.kind for event in await scene.store.events(0, 100)]
        assert kinds[-2:] == ["worker.barred", "token.revoked"]


class TestDisabling:
    """A worker's principal is disabled: after the commit nothing is given to it, as if revoked."""

    async def worker(self, scene: Scene, name: str = "w1") -> SessionId:
        await scene.store.add_join_token(replace(join_token(), id=f"t_j_{name}"), actor="ann")
        await scene.store.join_worker(JOIN, wanted(name))
        return (await self.register(scene, name)).id

    async def register(self, scene: Scene, name: str = "w1") -> Session:
        return await scene.store.register(hello(name), LEASE, credential=f"t_{name}_1")

    async def test_who_joins_or_gets_a_credential_is_a_principal(self, scene: Scene) -> None:
        await self.worker(scene)
        await scene.store.add_token(made("w2"))
        await scene.store.add_token(replace(made("w2"), id="t_again", digest="again"))

        found = await scene.store.principals()

        assert [(each.handle, each.kind) for each in found] == [
            ("w1", PrincipalKind.WORKER),
            ("w2", PrincipalKind.WORKER),
        ]

    async def test_one_of_the_name_of_another_is_somebody_else(self, scene: Scene) -> None:
        await create_token(scene.store, name="w1", role=Role.ADMIN, actor="machine")
        await create_token(scene.store, name="root", role=Role.ADMIN, actor="machine")
        session = await self.worker(scene)

        await scene.store.disable_principal("w1", disabled=True, actor="root")
        is_alive = (await scene.store.renew(session, stopping=False)).alive
        await scene.store.disable_principal("w1-2", disabled=True, actor="root")

        assert is_alive
        assert not (await scene.store.renew(session, stopping=False)).alive

    async def test_nothing_is_given_to_it_and_its_word_does_not_count(self, scene: Scene) -> None:
        session = await self.worker(scene)
        works = []
        for name in ("starts", "ends"):
            await scene.trigger(await scene.job(name))
            works += await scene.claim(session)
        await scene.start(session, [works[1]])
        await scene.trigger(await scene.job("waits"))

        await scene.store.disable_principal("w1", disabled=True, actor="ann")

        finished = await scene.store.finish(session, reported(outcome(works[1], at=1)), claim=5)
        assert await scene.claim(session) == []
        assert (await scene.start(session, works)).refused == tuple(work.fence for work in works)
        assert (len(finished.claimed), finished.refused) == (0, (works[1].fence,))
        progress = [Progress(works[1].run, works[1].number, 1, 2)]
        assert await scene.store.record_progress(session, progress) == (works[1].fence,)
        assert await scene.state(works[1].run) == RunState.PROCESSING
        assert not (await scene.store.renew(session, stopping=False)).alive
        assert await scene.store.cancels(session) is None

    async def test_its_credential_opens_nothing_and_it_cannot_join(self, scene: Scene) -> None:
        session = await self.worker(scene)
        await scene.store.disable_principal("w1", disabled=True, actor="ann")

        is_open = await opens(scene, "digest of w1 1")
        codes = [
            await refused(self.register(scene)),
            await refused(
                scene.store.resume(hello("w1", resumes=session), credential="t_w1_1"),
            ),
            await refused(scene.store.join_worker(JOIN, wanted(number=2, replaces=True))),
        ]

        assert not is_open
        assert codes == ["unauthenticated", "unauthenticated", "worker_disabled"]

    async def test_it_is_let_in_again_and_gets_work(self, scene: Scene) -> None:
        session = await self.worker(scene)
        await scene.store.disable_principal("w1", disabled=True, actor="ann")
        await scene.trigger(await scene.job())

        await scene.store.disable_principal("w1", disabled=False, actor="ann")
        again = await self.register(scene)

        assert await opens(scene, "digest of w1 1")
        assert await scene.claim(session) == []
        assert len(await scene.claim(again.id)) == 1

    @pytest.mark.parametrize("number", range(3))
    async def test_a_session_that_is_opened_meanwhile_is_barred_or_refused(
        self, scene: Scene, number: int
    ) -> None:
        await self.worker(scene)

        opened, _ = await asyncio.gather(
            self.register(scene),
            scene.store.disable_principal("w1", disabled=True, actor="ann"),
            return_exceptions=True,
        )

        if isinstance(opened, Session):
            assert not (await scene.store.renew(opened.id, stopping=False)).alive
        else:
            assert isinstance(opened, Denied)

    async def test_its_server_hears_of_it_and_people_see_it(
        self, scene: Scene, published: list[Wakes]
    ) -> None:
        session = await self.worker(scene)
        published.clear()

        await scene.store.disable_principal("w1", disabled=True, actor="ann")

        assert [wakes.sessions for wakes in published] == [frozenset({session})]
        kinds = [event.kind for event in await scene.store.events(0, 100)]
        assert set(kinds[-2:]) == {"principal.disabled", "worker.barred"}


class TestForgedActs:
    async def test_what_was_never_its_own_is_told_from_what_is_late(self, scene: Scene) -> None:
        [lost], [theirs] = [await scene.trigger(await scene.job(name)) for name in ("a", "b")]
        mine, other = await scene.worker("w1"), await scene.worker("w2")
        await scene.claim(mine, runs=[lost], slots=1)
        await scene.claim(other, runs=[theirs], slots=1)
        await scene.store.lose(mine, [Fence(lost, 1)])
        forged = [Fence(theirs, 1), Fence("r_none", 1), Fence(lost, 2)]

        foreign = await scene.store.foreign_attempts(mine, [Fence(lost, 1), *forged])

        assert foreign == forged

    async def test_refusals_are_in_the_history_with_their_count(self, scene: Scene) -> None:
        worker = await scene.worker("w1")

        await scene.store.record_refusals(worker, "w1", "start", 7, [Fence("r_1", 2)])

        event = (await scene.store.events(0, 100))[-1]
        facts = {"worker": "w1", "act": "start", "count": 7, "attempts": ["r_1/2"]}
        assert (event.kind, event.ids, event.data) == ("worker.refused", (worker,), facts)


async def test_until_when_a_credential_lives_is_known_of_its_session(scene: Scene) -> None:
    await scene.store.add_token(replace(made(), lifetime=HOUR))
    session = await scene.store.register(hello("w1"), LEASE, credential="t_w1")
    by_socket = await scene.store.register(hello("w2"), LEASE)

    assert session.credential_expires_at == scene.clock.instant + HOUR
    assert (by_socket.credential, by_socket.credential_expires_at) == (None, None)

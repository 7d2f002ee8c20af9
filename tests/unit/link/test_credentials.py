"""Who is let in as a worker, and for how long."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.access import Role
from rota.domain.errors import Denied, Invalid, RotaError, Unavailable
from rota.domain.ids import micros
from rota.link.grpc_client import GrpcAccess, GrpcConnector
from rota.operations.tokens import authenticate, create_token, create_worker_token, revoke_token
from rota.operations.wrong_secrets import WrongSecrets
from rota.ports.work import Beat, Credential, JoinWish, Refused
from rota.runtime.credentials import CredentialFile
from rota.worker.attempts import Attempts
from rota.worker.session import WorkerSession
from rota.worker.spool import OutputSpool
from testkit.builders import hello
from testkit.guards import NoGuard
from tests.unit.link.conftest import Cluster, Reception

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("token", ["", "made-up", "x" * 5_000])
async def test_a_worker_without_a_valid_token_is_not_let_in(
    reception: Reception, token: str
) -> None:
    with pytest.raises(Denied) as refused:
        await reception.connect(token)

    assert refused.value.code == "unauthenticated"
    assert "rota worker token create" in refused.value.message


async def test_guessing_gets_slow_and_a_right_token_is_let_in_all_the_same(
    cluster: Cluster,
) -> None:
    cluster.wrong = WrongSecrets(3, timedelta(minutes=1))
    reception = await cluster.open()
    token = await reception.token()
    codes = []

    for number in range(5):
        with pytest.raises(RotaError) as refused:
            await reception.connect(f"rotaw_{number}")
        codes.append(refused.value.code)
    access = GrpcAccess((reception.address,), "rotaj_wrong")
    with pytest.raises(Unavailable, match="too many wrong"):
        await GrpcConnector(access).join(JoinWish("w1", "default"))
    await reception.connect(token)

    assert codes == ["unauthenticated"] * 3 + ["too_many_logins"] * 2


async def test_an_api_token_lets_no_worker_in(reception: Reception) -> None:
    _, token = await create_token(reception.engine.store, name="ci", role=Role.ADMIN, actor="test")

    with pytest.raises(Denied):
        await reception.connect(token)


async def test_a_worker_s_token_opens_nothing_else(reception: Reception) -> None:
    with pytest.raises(Denied):
        await authenticate(reception.engine, await reception.token())


async def test_an_expired_token_lets_nobody_in(reception: Reception) -> None:
    _, token = await create_worker_token(
        reception.engine.store, name="worker", pool=None, actor="test", lifetime=timedelta(0)
    )

    with pytest.raises(Denied):
        await reception.connect(token)


async def test_a_worker_has_the_name_of_its_token(reception: Reception) -> None:
    link = await reception.connect(await reception.token("worker-1"))

    with pytest.raises(Denied) as refused:
        await link.register(hello("worker-2"))

    assert refused.value.code == "foreign_worker"
    assert "--name worker-1" in refused.value.message
    assert await reception.engine.store.sessions(alive_only=True) == []


async def test_a_worker_serves_the_pool_of_its_token(reception: Reception) -> None:
    link = await reception.connect(await reception.token(pool="gpu"))

    with pytest.raises(Denied) as refused:
        await link.register(hello(pool="default"))

    assert refused.value.code == "foreign_pool"
    assert "--pool gpu" in refused.value.message


@pytest.mark.parametrize("pool", ["gpu", None])
async def test_a_token_is_good_for_its_pool_or_for_any(
    reception: Reception, pool: str | None
) -> None:
    link = await reception.connect(await reception.token(pool=pool))

    await link.register(hello(pool="gpu"))

    [session] = await reception.engine.store.sessions(alive_only=True)
    assert (session.worker, session.pool) == ("worker", "gpu")


async def test_a_worker_cannot_take_over_the_session_of_another(reception: Reception) -> None:
    victim = await reception.connect(await reception.token("victim"))
    theirs = await victim.register(hello("victim"))
    link = await reception.connect(await reception.token("thief"))

    welcome = await link.register(hello("thief", resumes=theirs.session))

    assert welcome.session != theirs.session
    assert (await victim.beat(Beat())).alive


async def test_a_refused_hello_is_in_the_history(reception: Reception) -> None:
    link = await reception.connect(await reception.token("worker-1"))

    with pytest.raises(Denied):
        await link.register(hello("worker-2"))

    event = (await reception.engine.store.events(0, 100))[-1]
    assert (event.kind, event.actor, event.data["act"]) == ("worker.refused", "worker-1", "hello")


async def test_a_revoked_token_ends_the_stream_with_the_next_beat(reception: Reception) -> None:
    token_id, token = await create_worker_token(
        reception.engine.store, name="worker", pool=None, actor="test"
    )
    link = await reception.connect(token)
    await link.register(hello())
    before = await link.beat(Beat())
    await revoke_token(reception.engine, token_id, actor="admin")

    with pytest.raises(Denied) as refused:
        await link.beat(Beat())

    assert before.alive
    assert refused.value.code == "unauthenticated"
    with pytest.raises(Denied):
        await link.receive()


@pytest.mark.parametrize(("name", "pool"), [("a/b", None), ("", None), ("worker", "x y")])
async def test_a_token_is_for_a_proper_name_and_pool(
    reception: Reception, name: str, pool: str | None
) -> None:
    with pytest.raises(Invalid):
        await create_worker_token(reception.engine.store, name=name, pool=pool, actor="test")


class TestJoining:
    async def join(
        self, reception: Reception, secret: str, worker: str = "w1", pool: str = "default"
    ) -> Credential:
        access = GrpcAccess((reception.address,), secret)
        return await GrpcConnector(access).join(JoinWish(worker, pool))

    async def joined(self, reception: Reception) -> Credential:
        return await self.join(reception, await reception.join_token())

    async def test_a_join_token_is_traded_for_what_lets_this_worker_in(
        self, reception: Reception
    ) -> None:
        credential = await self.joined(reception)

        link = await reception.connect(credential.token)
        welcome = await link.register(hello("w1"))

        [session] = await reception.engine.store.sessions(alive_only=True)
        assert (session.id, session.worker) == (welcome.session, "w1")
        assert session.credential_expires_at is not None
        assert micros(session.credential_expires_at) == credential.expires_at
        assert welcome.requests[-1] == "credential"

    @pytest.mark.parametrize(("name", "pool"), [("w2", "default"), ("w1", "gpu")])
    async def test_what_it_gives_is_for_that_name_and_that_pool(
        self, reception: Reception, name: str, pool: str
    ) -> None:
        link = await reception.connect((await self.joined(reception)).token)

        with pytest.raises(Denied):
            await link.register(hello(name, pool=pool))

    async def test_a_join_token_is_no_credential_and_no_credential_a_join_token(
        self, reception: Reception
    ) -> None:
        join_token = await reception.join_token()

        for call in (
            reception.connect(join_token),
            self.join(reception, await reception.token()),
            self.join(reception, ""),
            self.join(reception, "made up"),
        ):
            with pytest.raises(Denied) as refused:
                await call
            assert refused.value.code == "unauthenticated"

    @pytest.mark.parametrize(("worker", "pool"), [("a/b", "default"), ("w1", "x y"), ("", "p")])
    async def test_only_a_proper_name_joins(
        self, reception: Reception, worker: str, pool: str
    ) -> None:
        with pytest.raises((Invalid, Unavailable)):
            await self.join(reception, await reception.join_token(), worker, pool)

    async def test_the_other_servers_are_asked_where_one_is_away(
        self, reception: Reception
    ) -> None:
        access = GrpcAccess(("127.0.0.1:1", reception.address), await reception.join_token())

        credential = await GrpcConnector(access).join(JoinWish("w1", "default"))

        assert credential.token.startswith("rotaw_")

    async def test_a_stream_renews_its_credential_and_the_next_one_ends_it(
        self, reception: Reception
    ) -> None:
        first = await self.joined(reception)
        link = await reception.connect(first.token)
        await link.register(hello("w1"))

        second = await link.renew_credential()
        goes_on = (await link.beat(Beat())).alive
        next_link = await reception.connect(second.token)

        assert goes_on
        assert second.expires_at > first.expires_at
        assert second.token != first.token
        with pytest.raises(Denied):
            await link.beat(Beat())
        with pytest.raises(Denied):
            await reception.connect(first.token)
        assert (await next_link.register(hello("w1"))).requests[-1] == "credential"

    async def test_a_token_that_somebody_made_is_not_renewed(self, reception: Reception) -> None:
        link = await reception.connect(await reception.token("w1"))
        welcome = await link.register(hello("w1"))

        with pytest.raises(Refused) as refused:
            await link.renew_credential()

        assert "credential" not in welcome.requests
        assert refused.value.code == "not_offered"
        assert (await link.beat(Beat())).alive


async def test_a_worker_is_sent_away_when_its_server_hears_of_the_revocation(
    reception: Reception,
) -> None:
    token_id, token = await create_worker_token(
        reception.engine.store, name="worker", pool=None, actor="test"
    )
    link = await reception.connect(token)
    await link.register(hello())
    serving = asyncio.create_task(reception.floor.run())

    await revoke_token(reception.engine, token_id, actor="admin")

    async with asyncio.timeout(10):  # no beat comes: it is the server that ends the stream
        with pytest.raises(Unavailable):
            await link.receive()
        with pytest.raises(Denied) as refused:
            await reception.connect(token)
    serving.cancel()
    assert "not valid (any more)" in refused.value.message


async def test_a_worker_renews_its_credential_and_keeps_its_session(
    reception: Reception, tmp_path: Path
) -> None:
    """With all of its parts: the file, the session, the stream and the store."""
    store, clock, file = reception.engine.store, SystemClock(), CredentialFile(tmp_path)
    access = GrpcAccess((reception.address,), await reception.join_token())
    first = await GrpcConnector(access).join(JoinWish("w1", "default"))
    file.keep(first, 0)  # as if it had it for long: it is due
    spool = OutputSpool(tmp_path / "spool")
    spool.open()
    session = WorkerSession(
        GrpcConnector(GrpcAccess((reception.address,), lambda: file.token)).connect,
        Attempts(clock, spool),
        hello("w1"),
        NoGuard(),
        clock,
        credential=file,
    )

    running = asyncio.create_task(session.run())
    async with asyncio.timeout(20):
        while [each.stream for each in await store.sessions(alive_only=False)] != [2]:
            await clock.sleep(timedelta(milliseconds=5))
        session.stop()
        await running

    [shown] = await store.tokens("worker")
    assert file.token != first.token
    assert shown.expires_at is not None
    assert micros(shown.expires_at) == file.expires_at
    assert (await reception.connect(file.token)).server == reception.address
    with pytest.raises(Denied):
        await reception.connect(first.token)

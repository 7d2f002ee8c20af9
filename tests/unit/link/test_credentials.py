"""Who is let in as a worker, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.errors import Denied, Invalid
from rota.operations.tokens import authenticate, create_token, create_worker_token, revoke_token
from rota.ports.records import Role
from rota.ports.work import Beat
from testkit.builders import hello
from tests.unit.link.conftest import Reception

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("token", ["", "made-up", "x" * 5_000])
async def test_a_worker_without_a_valid_token_is_not_let_in(
    reception: Reception, token: str
) -> None:
    with pytest.raises(Denied) as refused:
        await reception.connect(token)

    assert refused.value.code == "unauthenticated"
    assert "rota worker token create" in refused.value.message


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

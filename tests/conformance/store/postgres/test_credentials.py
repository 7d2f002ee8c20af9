"""Revocations beside claims and registrations on PostgreSQL, one step at a time."""

from __future__ import annotations

import asyncio

import pytest

from rota.domain.access import Role
from rota.domain.errors import Denied
from rota.ports.records import NewToken
from rota.store.store import SqlStore
from testkit.builders import LEASE, Scene, hello
from testkit.servers.postgres import PostgresServer
from tests.conformance.store.rivals import Rival, until_somebody_waits

pytestmark = pytest.mark.anyio

TOKEN = NewToken("t_w1", "w1", Role.VIEWER, "digest", "worker", "ann", None)


@pytest.fixture
def store(postgres_store: SqlStore) -> SqlStore:
    return postgres_store


async def test_a_revocation_waits_for_a_claim_under_way(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.store.add_token(TOKEN)
    await scene.store.register(hello("w1"), LEASE, credential="t_w1")
    await rival.execute("BEGIN; SELECT FROM session FOR KEY SHARE")  # as a claim does

    revoking = asyncio.create_task(scene.store.revoke_token("t_w1", actor="ann"))
    await until_somebody_waits(postgres_server)
    is_done_before = revoking.done()
    await rival.execute("COMMIT")

    assert await revoking
    assert not is_done_before


async def test_a_claim_that_waits_for_a_revocation_gets_nothing(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.trigger(await scene.job())
    await scene.store.add_token(TOKEN)
    session = await scene.store.register(hello("w1"), LEASE, credential="t_w1")
    await rival.execute("BEGIN; SELECT FROM session FOR UPDATE")
    await rival.execute("UPDATE session SET barred = 1, stopping = 1")

    claiming = asyncio.create_task(scene.claim(session.id))
    await until_somebody_waits(postgres_server)
    await rival.execute("COMMIT")

    assert await claiming == []


async def test_a_worker_that_registers_while_its_credential_is_revoked_is_refused(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.store.add_token(TOKEN)
    await rival.execute("BEGIN; UPDATE token SET revoked_at = 1")

    registering = asyncio.create_task(scene.store.register(hello("w1"), LEASE, credential="t_w1"))
    await until_somebody_waits(postgres_server)
    await rival.execute("COMMIT")

    with pytest.raises(Denied):
        await registering


async def test_a_session_that_is_opened_while_its_credential_is_revoked_is_barred(
    scene: Scene, rival: Rival, postgres_server: PostgresServer
) -> None:
    await scene.store.add_token(TOKEN)
    session = await scene.store.register(hello("w1"), LEASE)
    await rival.execute("BEGIN; SELECT FROM token FOR SHARE")  # as a registration does
    await rival.execute("UPDATE session SET credential = 't_w1'")

    revoking = asyncio.create_task(scene.store.revoke_token("t_w1", actor="ann"))
    await until_somebody_waits(postgres_server)
    await rival.execute("COMMIT")
    await revoking

    assert not (await scene.store.renew(session.id, stopping=False)).alive

"""PostgreSQL may restart, cut the line or hide behind a pooler: the only effect is lateness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from structlog.testing import capture_logs

from rota.ports.queue import EVENTS
from rota.queue.notify import NotifyQueue, open_notify
from rota.runtime.backends import open_queue
from rota.runtime.settings import Settings
from testkit.servers.pgbouncer import PgBouncer
from testkit.servers.postgres import PostgresServer
from testkit.waiting import PATIENCE
from tests.conformance.queue.conftest import (
    SOON,
    Nodes,
    eventually,
    hear,
    run_id,
    until_connected,
)
from tests.pooler import pooler_before

pytestmark = pytest.mark.anyio


@pytest.fixture
async def nodes(postgres: PostgresServer) -> AsyncIterator[Nodes]:
    opened = Nodes(open_notify(postgres.address()), open_notify(postgres.address()), is_sole=False)
    await until_connected(opened.here, opened.there)
    yield opened
    await opened.here.close()
    await opened.there.close()


async def test_nodes_find_one_another_again_after_a_restart(
    postgres: PostgresServer, nodes: Nodes
) -> None:
    listener = nodes.there.listen(EVENTS)
    with capture_logs() as logs:
        await asyncio.to_thread(postgres.stop, "immediate")
        await asyncio.to_thread(postgres.start)

        assert await hear(listener, lambda: nodes.here.announce(EVENTS, "r_1")) == {"r_1"}

    told = [log["event"] for log in logs if log["log_level"] != "debug"]
    assert sorted(set(told)) == ["queue.away", "queue.back"]
    assert len(told) <= 4  # each of two nodes says each once


@pytest.fixture
def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tries whether a quiet connection still works."""
    seconds = 10 * PATIENCE.total_seconds()
    monkeypatch.setattr("rota.queue.notify._PROBE_SECONDS", seconds)


@pytest.mark.usefixtures("no_probes")
async def test_a_line_that_was_cut_is_mended(postgres: PostgresServer, nodes: Nodes) -> None:
    listener = nodes.there.listen(EVENTS)
    cut = await postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota'"
    )

    assert len(cut) >= 2
    assert await hear(listener, lambda: nodes.here.announce(EVENTS, "r_1")) == {"r_1"}


async def test_malformed_notices_are_ignored_and_logged(
    postgres: PostgresServer, nodes: Nodes
) -> None:
    listener = nodes.there.listen(EVENTS)
    with capture_logs() as logs:
        for nonsense in ("", "x", "x\n", 'x\n["wake"]', 'x\n["?","y",[]]', "x\n[[[["):
            literal = nonsense.replace("\n", "\\n")
            await postgres.execute(f"SELECT pg_notify('rota_queue', E'{literal}')")

        heard = await hear(listener, lambda: nodes.here.announce(EVENTS, "r_1"))

    assert heard == {"r_1"}
    assert {log["event"] for log in logs} == {"queue.malformed"}


async def test_only_runs_are_named_whatever_a_notice_names(
    postgres: PostgresServer, nodes: Nodes
) -> None:
    taker = nodes.there.takes("default")
    notice = f'x\\n["offer","default",["\\\\u0000","r_1","{run_id(1)}"]]'

    await postgres.execute(f"SELECT pg_notify('rota_queue', E'{notice}')")

    ticket = await taker.take(PATIENCE)
    assert ticket is not None
    assert ticket.runs == (run_id(1),)
    taker.close()


async def test_a_node_behind_a_pooler_says_once_that_it_hears_nothing(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.queue.notify._ECHO_SECONDS", 0.1)
    monkeypatch.setattr("rota.queue.notify._PROBE_SECONDS", 0.1)
    # With one connection for all a node is answered by the very one that listens for it.
    with capture_logs() as logs, pooler_before(postgres, connections=1) as pooler:
        pooled = open_notify(pooler.address())
        await until_connected(pooled)
        monkeypatch.undo()
        direct = await open_queue(Settings(store=pooler.address(), queue=postgres.address()))
        listener = direct.listen(EVENTS)
        await until_connected(direct)

        heard = await hear(listener, lambda: pooled.announce(EVENTS, "r_1"))
        left_behind = await listening_in(pooler)
        await pooled.close()
        await direct.close()

    assert [log["event"] for log in logs] == ["queue.deaf"]
    assert heard == {"r_1"}  # it can still tell others
    assert left_behind == []


async def listening_in(pooler: PgBouncer) -> list[str]:
    """What connections of a pooler listen to, whoever gets it."""
    connection = await asyncpg.connect(pooler.address(), statement_cache_size=0)
    rows = await connection.fetch("SELECT pg_listening_channels()")
    await connection.close()
    return [channel for (channel,) in rows]


async def test_a_node_that_starts_before_the_database_finds_it_later(
    postgres: PostgresServer,
) -> None:
    await asyncio.to_thread(postgres.stop)
    queue: NotifyQueue = open_notify(postgres.address())
    listener = queue.listen(EVENTS)
    queue.announce(EVENTS, "r_1")
    alone = await listener.wait(SOON)

    await asyncio.to_thread(postgres.start)

    await eventually(lambda: queue.is_connected, listener)
    assert alone == {"r_1"}
    await queue.close()

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rota.domain.errors import Conflict, RotaError, StaleTransition, Unavailable
from rota.store.script import Driver, MakeScript, Many, Row, Script, Urgency, change, query
from rota.store.sqlite.driver import InlineSqliteDriver, SqliteDriver, connect
from rota.store.sqlite.opening import migrate
from testkit.clock import FakeTicker

pytestmark = pytest.mark.anyio


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(tmp_path / "rota.db")) as connection:
        migrate(connection)
        yield connection


@pytest.fixture
async def threaded(tmp_path: Path, connection: sqlite3.Connection) -> AsyncIterator[SqliteDriver]:
    opened = SqliteDriver(tmp_path / "rota.db", FakeTicker())
    yield opened
    await opened.close()


@pytest.fixture
async def inline(connection: sqlite3.Connection) -> AsyncIterator[InlineSqliteDriver]:
    opened = InlineSqliteDriver(connection, FakeTicker())
    yield opened
    await opened.close()


@pytest.fixture(params=["threaded", "inline"])
async def driver(
    request: pytest.FixtureRequest, threaded: SqliteDriver, inline: InlineSqliteDriver
) -> Driver:
    return threaded if request.param == "threaded" else inline


def note(key: str) -> MakeScript[str]:
    """Write a row."""

    def script(_: int) -> Script[str]:
        yield Many("set_meta", [(key, "noted")])
        return key

    return script


def insert_token(key: str) -> MakeScript[None]:
    def script(_: int) -> Script[None]:
        bare = (None, None, "", None, None, "")
        yield Many("insert_token", [(key, key, "viewer", key, "api", None, "test", 0, *bare)])

    return script


def insert_and_fail(key: str) -> MakeScript[None]:
    def script(now: int) -> Script[None]:
        yield from insert_token(key)(now)
        raise ZeroDivisionError

    return script


async def inserted(driver: Driver, *keys: str) -> list[str]:
    """Which of these tokens are there."""

    def script(now: int) -> Script[list[str]]:
        found: list[Row] = []
        for key in keys:
            found += yield query("token_by_digest", digest=key, now=now)
        return [row["id"] for row in found]

    return await driver.read(script)


async def hand_in(
    driver: SqliteDriver, scripts: Iterable[tuple[MakeScript[Any], Urgency]]
) -> list[asyncio.Task[Any]]:
    """Give scripts to the writer, and return before they are done."""
    tasks = [asyncio.create_task(driver.write(make, urgency)) for make, urgency in scripts]
    await asyncio.wait(tasks, timeout=0)
    return tasks


class Gate:
    """Keeps the writer busy until it is opened, so that what comes meanwhile makes one group."""

    def __init__(self, driver: SqliteDriver, urgency: Urgency = Urgency.RENEW) -> None:
        self._driver = driver
        self._urgency = urgency
        self._opened = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def hold(self) -> None:
        entered = asyncio.Event()

        def script(_: int) -> Script[None]:
            self._loop.call_soon_threadsafe(entered.set)
            asyncio.run_coroutine_threadsafe(self._opened.wait(), self._loop).result()
            yield query("last_event")

        self._held = asyncio.ensure_future(self._driver.write(script, self._urgency))
        await entered.wait()

    async def open(self) -> None:
        self._opened.set()
        await self._held


async def test_a_failing_script_harms_none_of_its_group(threaded: SqliteDriver) -> None:
    gate = Gate(threaded)
    await gate.hold()
    scripts = [insert_token("before"), insert_and_fail("doomed"), insert_token("after")]
    tasks = await hand_in(threaded, [(script, Urgency.API) for script in scripts])
    await gate.open()

    answers = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(answer) for answer in answers] == [type(None), ZeroDivisionError, type(None)]
    assert await inserted(threaded, "before", "doomed", "after") == ["before", "after"]


async def test_a_statement_that_sqlite_refuses_undoes_its_script_alone(
    driver: Driver,
) -> None:
    def nonsense(now: int) -> Script[None]:
        yield from insert_token("doomed")(now)
        yield query("token_by_digest")  # its parameters are missing

    with pytest.raises(RotaError):
        await driver.write(nonsense, Urgency.API)

    assert await inserted(driver, "doomed") == []


async def test_what_exists_already_is_a_conflict(driver: Driver) -> None:
    await driver.write(insert_token("same"), Urgency.API)

    with pytest.raises(Conflict):
        await driver.write(insert_token("same"), Urgency.API)


async def test_what_is_due_does_not_wait_for_what_can_wait(threaded: SqliteDriver) -> None:
    gate, slow = Gate(threaded), Gate(threaded, Urgency.API)
    await gate.hold()
    [fired] = await hand_in(threaded, [(insert_token("fired"), Urgency.FIRE)])
    later = asyncio.create_task(slow.hold())
    await gate.open()

    await later

    assert fired.done()
    assert await inserted(threaded, "fired") == ["fired"]
    await slow.open()


async def test_the_most_urgent_goes_first(threaded: SqliteDriver) -> None:
    gate, order = Gate(threaded), list[Urgency]()
    await gate.hold()

    def remember(urgency: Urgency) -> MakeScript[None]:
        def script(_: int) -> Script[None]:
            order.append(urgency)
            yield query("last_event")

        return script

    tasks = await hand_in(threaded, [(remember(u), u) for u in sorted(Urgency, reverse=True)])
    await gate.open()
    await asyncio.gather(*tasks)

    assert order == sorted(Urgency)


async def test_a_script_may_answer_to_a_stale_row(driver: Driver) -> None:
    def script(_: int) -> Script[str]:
        try:
            yield Many("touch_token", [(0, "nobody")])
        except StaleTransition:
            return "stale"
        return "changed"

    assert await driver.write(script, Urgency.API) == "stale"


async def test_a_stale_row_that_nobody_handles_fails_the_script(driver: Driver) -> None:
    def script(_: int) -> Script[None]:
        yield Many("touch_token", [(0, "nobody")])

    with pytest.raises(StaleTransition):
        await driver.write(script, Urgency.API)


async def test_a_set_is_changed_whole_or_the_script_fails(driver: Driver) -> None:
    def forget(keys: Sequence[str], rows: int) -> MakeScript[None]:
        def script(_: int) -> Script[None]:
            yield change("drop_shared_keys", rows, keys=keys)

        return script

    def insert(_: int) -> Script[None]:
        yield Many("add_shared_key", [("one",), ("two",), ("three",)])

    await driver.write(insert, Urgency.API)
    with pytest.raises(StaleTransition, match="drop_shared_keys: 3 rows, 2 changed"):
        await driver.write(forget(["one", "two", "missing"], 3), Urgency.API)

    await driver.write(forget(["one", "two", "three"], 3), Urgency.API)


async def test_readers_cannot_write(threaded: SqliteDriver) -> None:
    with pytest.raises(Unavailable):
        await threaded.read(note("sneaky"))


async def test_a_closed_store_says_so(driver: Driver) -> None:
    await driver.close()

    with pytest.raises(Unavailable):
        await driver.write(note("late"), Urgency.API)
    with pytest.raises(Unavailable):
        await driver.read(note("late"))


async def test_what_was_handed_in_is_done_before_closing(threaded: SqliteDriver) -> None:
    writes = await hand_in(threaded, [(note(str(n)), Urgency.API) for n in range(100)])

    await threaded.close()

    assert await asyncio.gather(*writes) == [str(n) for n in range(100)]


async def test_inline_scripts_are_undone_alone_and_with_the_transaction_around_them(
    inline: InlineSqliteDriver, connection: sqlite3.Connection
) -> None:
    connection.execute("BEGIN")
    await inline.write(insert_token("kept"), Urgency.API)
    with pytest.raises(ZeroDivisionError):
        await inline.write(insert_and_fail("doomed"), Urgency.API)

    assert await inserted(inline, "kept", "doomed") == ["kept"]
    connection.execute("ROLLBACK")
    assert await inserted(inline, "kept", "doomed") == []


async def test_an_inline_reader_that_writes_is_told_so(inline: InlineSqliteDriver) -> None:
    with pytest.raises(AssertionError, match="must only read"):
        await inline.read(note("sneaky"))

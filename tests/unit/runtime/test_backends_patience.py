"""A store that is away while a server starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota.domain.errors import Conflict, RotaError, Unavailable
from rota.runtime.backends import open_with_retries, unless_stopped
from rota.store.sqlite.opening import open_sqlite
from rota.store.store import SqlStore
from testkit.clock import START

pytestmark = pytest.mark.anyio

AWAY = Unavailable("the store at db/rota cannot be used: refused", code="store_away", hint="look")


class NotingClock:
    """Does not wait, and notes for how long it should have."""

    def __init__(self) -> None:
        self.pauses: list[timedelta] = []

    def now(self) -> datetime:
        return START

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, duration: timedelta) -> None:
        self.pauses.append(duration)


class Opening:
    """Fails in these ways, one after another, and succeeds then."""

    def __init__(self, path: Path, errors: Sequence[RotaError]) -> None:
        self._path = path
        self._errors = list(errors)

    async def __call__(self) -> SqlStore:
        if self._errors:
            raise self._errors.pop(0)
        return await open_sqlite(self._path)


async def test_store_is_opened_as_soon_as_it_answers(tmp_path: Path) -> None:
    clock = NotingClock()

    with capture_logs() as told:
        store = await open_with_retries(Opening(tmp_path / "rota.db", [AWAY] * 3), clock)

    await store.check()
    await store.close()
    assert len(clock.pauses) == 3
    assert [each["event"] for each in told] == ["store.away", "store.answers"]
    assert (told[0]["error"], told[0]["hint"]) == (AWAY.message, "look")
    assert "keeps trying" in told[0]["effect"]


async def test_store_that_is_there_is_not_talked_about(tmp_path: Path) -> None:
    with capture_logs() as told:
        store = await open_with_retries(Opening(tmp_path / "rota.db", []), NotingClock())

    await store.close()
    assert told == []


async def test_pauses_grow_to_five_seconds_and_are_not_all_alike(tmp_path: Path) -> None:
    clock = NotingClock()

    await (await open_with_retries(Opening(tmp_path / "rota.db", [AWAY] * 40), clock)).close()

    seconds = [pause.total_seconds() for pause in clock.pauses]
    for pause, longest in zip(seconds, [0.5, 1, 2, 4, *[5] * 36], strict=True):
        assert longest / 2 <= pause <= longest
    assert len(set(seconds[4:])) > 1


@pytest.mark.parametrize(
    "error", [Unavailable("wrong password"), Conflict("newer", code="store_is_newer")], ids=str
)
async def test_what_time_does_not_mend_is_raised_at_once(tmp_path: Path, error: RotaError) -> None:
    clock = NotingClock()

    with pytest.raises(type(error)) as raised:
        await open_with_retries(Opening(tmp_path / "rota.db", [AWAY, error]), clock)

    assert raised.value is error
    assert len(clock.pauses) == 1


class TestStopping:
    async def test_work_is_cancelled(self) -> None:
        stop, began = asyncio.Event(), asyncio.Event()

        async def hang() -> str:
            began.set()
            await asyncio.Event().wait()
            return "never"

        async def stop_it() -> None:
            await began.wait()
            stop.set()

        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(stop_it())
            assert await unless_stopped(hang(), stop) is None

    async def test_what_was_done_by_then_is_not_lost(self) -> None:
        stop = asyncio.Event()

        async def work() -> str:
            stop.set()
            return "done"

        assert await unless_stopped(work(), stop) == "done"

    async def test_errors_come_out_as_themselves(self) -> None:
        async def fail() -> None:
            raise AWAY

        with pytest.raises(Unavailable):
            await unless_stopped(fail(), asyncio.Event())

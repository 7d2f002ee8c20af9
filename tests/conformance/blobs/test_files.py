"""Files in every blob store: taken in, verified, read in parts, left no trace of, collected."""

from __future__ import annotations

import asyncio
import hashlib
import random
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rota.domain.files import PIECE
from rota.domain.keys import Quota
from rota.operations.engine import Engine
from rota.operations.files import Incoming, collect, find_file, read_file, read_part, take_in
from rota.ports.blobs import Blobs
from rota.queue.local import LocalIdleWorkers
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.new_stores import local_queue, open_new_sqlite

pytestmark = pytest.mark.anyio


@pytest.fixture
async def engine(blobs: Blobs, tmp_path: Path, clock: FakeTicker) -> AsyncIterator[Engine]:
    store = await open_new_sqlite(tmp_path / "rota.db", clock=clock)
    yield Engine(store, local_queue(store), blobs, LocalIdleWorkers())
    await store.close()


@pytest.fixture
def clock() -> FakeTicker:
    return FakeTicker()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def sent(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def upload(engine: Engine, data: bytes, size: int | None = None) -> str:
    parts = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
    return (await take_in(engine, "default", digest_of(data), sent(*parts), size)).digest


async def keys(engine: Engine) -> list[str]:
    return [key async for key in engine.blobs.list("p")]


async def left_of(engine: Engine) -> tuple[list[str], int]:
    return await keys(engine), await engine.store.bytes_of_files("default")


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
@pytest.mark.parametrize("is_told", [True, False])
async def test_what_was_uploaded_comes_back_byte_for_byte(
    engine: Engine, size: int, is_told: bool
) -> None:
    data = random.Random(size).randbytes(size)

    digest = await upload(engine, data, size if is_told else None)

    file = await find_file(engine, "default", digest)
    assert file.size == size
    assert b"".join([part async for part in read_file(engine, file)]) == data
    assert len(await keys(engine)) == -(-size // PIECE)


async def test_parts_are_read_from_any_place_and_end_where_the_file_does(engine: Engine) -> None:
    data = random.Random(1).randbytes(PIECE + 1_000)
    file = await find_file(engine, "default", await upload(engine, data))

    assert await read_part(engine, file, PIECE - 10, 100) == data[PIECE - 10 : PIECE]
    assert await read_part(engine, file, PIECE, 100) == data[PIECE : PIECE + 100]
    assert await read_part(engine, file, PIECE + 990, 100) == data[-10:]
    assert await read_part(engine, file, PIECE + 1_000, 100) == b""


async def test_another_digest_leaves_nothing(engine: Engine) -> None:
    data = bytes(PIECE + 1)

    with pytest.raises(Invalid, match="has the digest"):
        await take_in(engine, "default", digest_of(b"else"), sent(data), None)

    assert await left_of(engine) == ([], 0)


@pytest.mark.parametrize("told", [5, 2 * PIECE])
async def test_more_or_less_than_announced_leaves_nothing(engine: Engine, told: int) -> None:
    data = bytes(PIECE + 1)

    with pytest.raises(Invalid, match="as it was announced"):
        await take_in(engine, "default", digest_of(data), sent(data), told)

    assert await left_of(engine) == ([], 0)


async def test_a_cut_upload_leaves_nothing(engine: Engine) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield bytes(PIECE + 1)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await take_in(engine, "default", digest_of(b"x"), cut(), None)

    assert await left_of(engine) == ([], 0)


async def test_a_caller_that_is_cancelled_leaves_nothing(engine: Engine) -> None:
    has_begun, never = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(PIECE + 1)
        has_begun.set()
        await never.wait()

    task = asyncio.create_task(take_in(engine, "default", digest_of(b"x"), endless(), None))
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await left_of(engine) == ([], 0)


async def test_wrong_bytes_are_not_in_the_way_of_the_right_ones(engine: Engine) -> None:
    data = random.Random(2).randbytes(PIECE + 5)
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def wrong() -> AsyncIterator[bytes]:
        yield bytes(PIECE)
        has_begun.set()
        await may_go_on.wait()

    liar = asyncio.create_task(take_in(engine, "default", digest_of(data), wrong(), None))
    await has_begun.wait()
    digest = await upload(engine, data)
    may_go_on.set()
    with pytest.raises(Invalid):
        await liar

    file = await find_file(engine, "default", digest)
    assert b"".join([part async for part in read_file(engine, file)]) == data


async def test_the_same_again_is_kept_once(engine: Engine) -> None:
    first = await find_file(engine, "default", await upload(engine, b"abc"))

    second = await find_file(engine, "default", await upload(engine, b"abc"))

    assert first == second
    assert (len(await keys(engine)), await engine.store.bytes_of_files("default")) == (1, 3)


async def test_beyond_the_quota_nothing_is_kept(engine: Engine) -> None:
    await engine.store.save_declarations([Quota("default", file_bytes=PIECE)], actor="ann")
    data = bytes(PIECE + 1)

    for told in (None, len(data)):
        with pytest.raises(Conflict) as refused:
            await take_in(engine, "default", digest_of(data), sent(data), told)
        assert refused.value.code == "file_quota"

    assert await left_of(engine) == ([], 0)
    await upload(engine, bytes(PIECE))


async def test_a_file_of_another_project_is_the_same_as_none(
    engine: Engine, clock: FakeTicker
) -> None:
    await Scene(engine.store, clock).project("other")
    digest = await upload(engine, b"secret")

    with pytest.raises(NotFound) as foreign:
        await find_file(engine, "other", digest)
    with pytest.raises(NotFound) as missing:
        await find_file(engine, "other", digest_of(b"nothing"))

    of_foreign = foreign.value.message.replace(digest, "")
    assert of_foreign == missing.value.message.replace(digest_of(b"nothing"), "")
    assert foreign.value.code == missing.value.code


async def test_a_file_that_nothing_names_is_collected_with_its_bytes(
    engine: Engine, clock: FakeTicker
) -> None:
    digest = await upload(engine, bytes(PIECE + 1))
    clock.advance(timedelta(hours=23))
    assert await collect(engine) == 0

    clock.advance(timedelta(hours=2))

    assert await collect(engine) == 1
    assert await left_of(engine) == ([], 0)
    with pytest.raises(NotFound):
        await find_file(engine, "default", digest)


async def test_a_file_that_a_live_run_names_stays(engine: Engine, clock: FakeTicker) -> None:
    digest = await upload(engine, b"abc")
    scene = Scene(engine.store, clock)
    job = await scene.job()
    [run] = await scene.trigger(job, inputs={"data": {"file": "a", "digest": digest, "size": 3}})
    clock.advance(timedelta(days=40))
    assert await collect(engine) == 0
    assert (await find_file(engine, "default", digest)).size == 3

    await engine.store.cancel([run], actor="ann")
    clock.advance(timedelta(days=2))

    assert await collect(engine) == 1


async def test_what_a_crash_left_half_written_is_collected(
    engine: Engine, clock: FakeTicker
) -> None:
    incoming = await Incoming.begin(engine, "default", digest_of(b"x"))
    await incoming.feed(bytes(PIECE + 1))  # and then the server dies
    assert len(await keys(engine)) == 1

    clock.advance(timedelta(hours=2))

    assert await collect(engine) == 1
    assert await left_of(engine) == ([], 0)


async def test_a_server_takes_only_so_many_at_a_time(engine: Engine) -> None:
    with ExitStack() as others:
        for number in range(16):
            others.enter_context(engine.files.place(f"project{number}"))

        with pytest.raises(Unavailable, match="as many are coming"):
            await upload(engine, b"abc")

    await upload(engine, b"abc")


async def test_a_project_leaves_some_places_to_others(engine: Engine) -> None:
    with ExitStack() as slow:
        for _ in range(12):
            slow.enter_context(engine.files.place("default"))

        with pytest.raises(Unavailable, match="12 files of a project at a time"):
            await upload(engine, b"abc")
        with engine.files.place("other"):
            pass


@pytest.mark.parametrize("blobs", ["files"], indirect=True)
async def test_a_large_file_takes_no_more_memory_than_a_small_one(engine: Engine) -> None:
    part, count = bytes(1024 * 1024), 100
    found = hashlib.sha256()
    for _ in range(count):
        found.update(part)
    digest = f"sha256:{found.hexdigest()}"

    tracemalloc.start()
    file = await take_in(engine, "default", digest, sent(*[part] * count), None)
    async for _ in read_file(engine, file):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert file.size == 100 * 1024 * 1024
    assert peak < 6 * PIECE

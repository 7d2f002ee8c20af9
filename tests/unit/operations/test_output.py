from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rota.domain.errors import Invalid, NotFound, Unavailable
from rota.domain.ids import SessionId
from rota.domain.output import CHUNK_LIMIT, PACKED_LIMIT, Stream
from rota.operations import output
from rota.operations.output import (
    OutputWindow,
    follow,
    raw,
    read_window,
    search,
    store_chunks,
    tail,
)
from rota.ports.queue import output as output_topic
from rota.ports.work import Fence, OutputChunk
from tests.unit.operations.printing import Printing, printing

pytestmark = pytest.mark.anyio

STRANGER = SessionId("w_stranger")


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[Printing]:
    async with printing(tmp_path) as job:
        yield job


def numbered(first: int, count: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(first, first + count))


def numbers(window: OutputWindow) -> list[int]:
    """Line numbers, checked against the text that was printed there."""
    for line in window.lines:
        assert line.record.text == b"line %d" % line.number
    return [line.number for line in window.lines]


async def whole(job: Printing) -> bytes:
    return b"".join([part async for part in raw(job.engine, job.run, 1)])


async def test_live_output_is_read_as_far_as_it_arrived(job: Printing) -> None:
    await job.prints(numbered(0, 3))
    await job.prints(numbered(3, 2))

    window = await read_window(job.engine, job.run, 1)

    assert numbers(window) == [0, 1, 2, 3, 4]
    assert (window.next_line, window.total_lines, window.is_complete) == (5, 5, False)


async def test_nothing_has_arrived_yet(job: Printing) -> None:
    window = await read_window(job.engine, job.run, 1)

    assert (window.lines, window.total_lines, window.is_last) == ((), 0, False)


async def test_small_output_is_read_from_the_report(job: Printing) -> None:
    job.recorder.feed(1, Stream.STDOUT, 0, numbered(0, 4))
    await job.ends()

    window = await read_window(job.engine, job.run, 1, first_line=1, limit=2)

    assert numbers(window) == [1, 2]
    assert (window.total_lines, window.is_complete, window.is_last) == (4, True, False)
    assert await whole(job) == numbered(0, 4)
    assert job.blobs.fetched == 0


async def test_an_attempt_without_output_is_complete_and_empty(job: Printing) -> None:
    await job.ends()

    window = await read_window(job.engine, job.run, 1)

    assert window.is_last
    assert await whole(job) == b""


@pytest.mark.parametrize(
    ("first", "limit", "expected", "fetches"),
    [
        (0, 5, range(5), 1),
        (55, 3, range(55, 58), 1),
        (58, 4, range(58, 62), 2),
        (60, 10, range(60, 70), 1),
        (97, 50, range(97, 100), 1),
        (100, 50, (), 0),
        (-5, 2, range(2), 1),
        (5, 0, (), 0),
    ],
)
async def test_only_the_chunks_of_a_window_are_fetched(
    job: Printing, first: int, limit: int, expected: range, fetches: int
) -> None:
    for start in range(0, 100, 10):
        await job.prints(numbered(start, 10))

    window = await read_window(job.engine, job.run, 1, first, limit)

    assert numbers(window) == list(expected)
    assert window.next_line == max(first, 0) + len(expected)
    assert job.blobs.fetched == fetches


async def test_a_window_of_long_lines_ends_early(
    job: Printing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_WINDOW_BYTES", 10)
    await job.prints(numbered(0, 4))
    await job.prints(numbered(4, 4))

    window = await read_window(job.engine, job.run, 1, first_line=1)

    assert (numbers(window), window.next_line) == ([1, 2], 3)


async def test_the_tail_is_the_last_lines(job: Printing) -> None:
    await job.prints(numbered(0, 50))
    await job.prints(numbered(50, 3))

    assert numbers(await tail(job.engine, job.run, 1, limit=2)) == [51, 52]
    assert len(numbers(await tail(job.engine, job.run, 1, limit=500))) == 53


async def test_raw_output_is_byte_for_byte(job: Printing) -> None:
    parts = [b"\xff\0bytes", b" and \r\n", b"", b"no end"]
    for part in parts:
        await job.prints(part)
    await job.ends()

    assert await whole(job) == b"".join(parts)


async def test_an_unknown_attempt_is_not_found(job: Printing) -> None:
    with pytest.raises(NotFound, match="no attempt 2"):
        await read_window(job.engine, job.run, 2)


async def test_lost_and_damaged_chunks_are_reported_as_such(job: Printing, tmp_path: Path) -> None:
    await job.prints(numbered(0, 3))
    [file] = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]

    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(Unavailable, match="damaged"):
        await read_window(job.engine, job.run, 1)

    file.unlink()
    with pytest.raises(Unavailable, match="missing"):
        await read_window(job.engine, job.run, 1)


async def test_an_index_that_lies_is_found_out(job: Printing) -> None:
    [chunk] = job.chunks(numbered(0, 3))
    lie = msgspec.structs.replace(chunk, meta=msgspec.structs.replace(chunk.meta, lines=9))
    await store_chunks(job.engine, job.session, [lie])

    with pytest.raises(Unavailable, match="9 lines"):
        await read_window(job.engine, job.run, 1)


class TestStoring:
    async def test_the_same_chunks_twice_are_kept_once(self, job: Printing) -> None:
        chunks = job.chunks(numbered(0, 3))

        for _ in range(2):
            answer = await store_chunks(job.engine, job.session, chunks)
            assert answer.accepted == (Fence(job.run, 1),)

        assert await whole(job) == numbered(0, 3)

    async def test_another_session_is_refused_and_changes_nothing(self, job: Printing) -> None:
        chunks = job.chunks(b"forged\n")

        answer = await store_chunks(job.engine, STRANGER, chunks)

        assert (answer.accepted, answer.fenced) == ((), (Fence(job.run, 1),))
        assert await whole(job) == b""
        assert job.blobs.stored == 0

    async def test_output_after_the_end_is_refused_and_what_was_stored_stays(
        self, job: Printing
    ) -> None:
        chunks = job.chunks(numbered(0, 3))
        await store_chunks(job.engine, job.session, chunks)
        await job.ends()

        answer = await store_chunks(job.engine, job.session, [*chunks, *job.chunks(b"late\n")])

        assert answer.fenced == (Fence(job.run, 1),)
        assert await whole(job) == numbered(0, 3)

    async def test_whoever_listens_is_told_of_accepted_output_only(self, job: Printing) -> None:
        listener = job.engine.queue.listen(output_topic(job.run))

        await store_chunks(job.engine, STRANGER, job.chunks(b"forged\n"))
        assert await listener.wait(timedelta(0)) == frozenset()

        await job.prints(b"text\n")
        assert await listener.wait(timedelta(0)) == {""}
        listener.close()

    @pytest.mark.parametrize("run", ["../../etc", "r_1/1-w_victim/0", "r 1", ""])
    async def test_a_run_id_cannot_reach_into_other_keys(self, job: Printing, run: str) -> None:
        [chunk] = job.chunks(b"text\n")
        forged = msgspec.structs.replace(chunk, run=run)

        answer = await store_chunks(job.engine, job.session, [forged])

        assert (answer.accepted, answer.fenced) == ((), (Fence(run, 1),))

    async def test_a_chunk_that_does_not_compress_is_kept(self, job: Printing) -> None:
        [chunk] = job.chunks(b"text\n")
        large = msgspec.structs.replace(chunk, data=b"x" * PACKED_LIMIT)

        answer = await store_chunks(job.engine, job.session, [large])

        assert answer.accepted == (Fence(job.run, 1),)

    @pytest.mark.parametrize(
        ("data", "meta"),
        [
            (b"x" * (PACKED_LIMIT + 1), {}),
            (b"x", {"lines": 0}),
            (b"x", {"lines": CHUNK_LIMIT + 1}),
            (b"x", {"bytes": CHUNK_LIMIT + 1}),
        ],
    )
    async def test_an_attempt_with_a_chunk_that_cannot_be_is_refused(
        self, job: Printing, data: bytes, meta: dict[str, int]
    ) -> None:
        fine, chunk = job.chunks(b"text\n")[0], job.chunks(b"more\n")[0]
        wrong = msgspec.structs.replace(
            chunk, data=data, meta=msgspec.structs.replace(chunk.meta, **meta)
        )

        answer = await store_chunks(job.engine, job.session, [fine, wrong])

        assert (answer.accepted, answer.fenced) == ((), (Fence(job.run, 1),))
        assert await job.engine.store.chunks(job.run, 1) == []


class TestSearching:
    async def test_hits_come_with_their_lines(self, job: Printing) -> None:
        await job.prints(numbered(0, 20))
        await job.prints(numbered(20, 20))

        page = await search(job.engine, job.run, 1, "line 2")

        assert [hit.number for hit in page.hits] == [2, *range(20, 30)]
        assert page.is_exhausted
        assert page.next_line == 40

    async def test_a_page_of_hits_leads_to_the_next(self, job: Printing) -> None:
        await job.prints(numbered(0, 30))
        found: list[int] = []
        cursor = 0

        while True:
            page = await search(job.engine, job.run, 1, "1", first_line=cursor, limit=4)
            found += [hit.number for hit in page.hits]
            cursor = page.next_line
            if page.is_exhausted:
                break

        assert found == [n for n in range(30) if "1" in str(n)]

    async def test_one_call_looks_through_a_bounded_part(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_SEARCH_PIECES", 2)
        for start in range(0, 50, 10):
            await job.prints(numbered(start, 10))

        first = await search(job.engine, job.run, 1, "line 39")
        second = await search(job.engine, job.run, 1, "line 39", first_line=first.next_line)

        assert (first.hits, first.next_line, first.is_exhausted) == ((), 20, False)
        assert [hit.number for hit in second.hits] == [39]
        assert job.blobs.fetched == 4

    @pytest.mark.parametrize("text", ["", "two\nlines"])
    async def test_a_text_that_is_in_no_line_is_refused(self, job: Printing, text: str) -> None:
        with pytest.raises(Invalid):
            await search(job.engine, job.run, 1, text)


class TestFollowing:
    async def test_lines_come_as_they_arrive_until_the_end(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_SLOW_POLL", timedelta(hours=1))
        await job.prints(numbered(0, 2))
        windows = follow(job.engine, job.run, 1)

        assert numbers(await anext(windows)) == [0, 1]
        await job.prints(numbered(2, 1))
        assert numbers(await anext(windows)) == [2]
        await job.ends()
        job.engine.queue.announce(output_topic(job.run))
        assert (await anext(windows)).is_last
        with pytest.raises(StopAsyncIteration):
            await anext(windows)

    async def test_a_lost_wake_up_only_delays(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_SLOW_POLL", timedelta(milliseconds=5))
        monkeypatch.setattr(job.engine.queue, "announce", lambda *_: None)
        windows = follow(job.engine, job.run, 1)
        assert (await anext(windows)).lines == ()

        await job.prints(numbered(0, 1))
        await job.ends()

        found = [number async for window in windows for number in numbers(window)]
        assert found == [0]

    async def test_a_long_log_comes_in_windows_without_waiting(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_SLOW_POLL", timedelta(hours=1))
        await job.prints(numbered(0, 2_500))
        await job.ends()

        windows = [window async for window in follow(job.engine, job.run, 1, from_line=10)]

        assert [number for window in windows for number in numbers(window)] == [*range(10, 2_500)]

    async def test_who_stops_following_is_no_longer_listening(self, job: Printing) -> None:
        windows = follow(job.engine, job.run, 1)
        await anext(windows)
        assert job.engine.queue.is_watched(output_topic(job.run))

        await windows.aclose()

        assert not job.engine.queue.is_watched(output_topic(job.run))

    async def test_a_follower_waiting_for_output_can_be_cancelled(self, job: Printing) -> None:
        windows = follow(job.engine, job.run, 1)
        await anext(windows)
        waiting = asyncio.ensure_future(anext(windows))
        await asyncio.wait([waiting], timeout=0.05)

        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert not job.engine.queue.is_watched(output_topic(job.run))


class TestOutputLeftOnTheWorker:
    async def ended_with_pending_output(self, job: Printing) -> list[OutputChunk]:
        """The attempt has ended; a chunk has arrived, and these have not."""
        await job.prints(numbered(0, 3))
        left = job.chunks(numbered(3, 2))
        await job.ends()
        return left

    async def test_its_size_and_place_are_known(self, job: Printing) -> None:
        await self.ended_with_pending_output(job)

        window = await read_window(job.engine, job.run, 1)

        assert numbers(window) == [0, 1, 2]
        assert (window.is_complete, window.pending_bytes, window.worker) == (False, 14, "w")

    async def test_it_is_complete_once_it_has_arrived(self, job: Printing) -> None:
        left = await self.ended_with_pending_output(job)

        answer = await store_chunks(job.engine, job.session, left)

        assert answer.accepted == (Fence(job.run, 1),)
        window = await read_window(job.engine, job.run, 1)
        assert numbers(window) == [0, 1, 2, 3, 4]
        assert (window.is_last, window.pending_bytes) == (True, 0)

    async def test_a_follower_gets_it_when_it_comes(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_SLOW_POLL", timedelta(hours=1))
        left = await self.ended_with_pending_output(job)
        windows = follow(job.engine, job.run, 1)
        assert numbers(await anext(windows)) == [0, 1, 2]

        await store_chunks(job.engine, job.session, left)

        found = [number async for window in windows for number in numbers(window)]
        assert found == [3, 4]

    async def test_a_follower_does_not_wait_for_ever(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_SLOW_POLL", timedelta(milliseconds=5))
        await self.ended_with_pending_output(job)

        async with asyncio.timeout(10):
            windows = [window async for window in follow(job.engine, job.run, 1)]

        assert numbers(windows[0]) == [0, 1, 2]
        assert not windows[-1].is_complete


class TestBlobStoreAway:
    async def test_a_failure_keeps_nothing_and_can_be_repeated(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chunks = job.chunks(numbered(0, 3))
        with monkeypatch.context() as away:
            away.setattr(job.blobs, "put", _refuse)
            with pytest.raises(Unavailable):
                await store_chunks(job.engine, job.session, chunks)
            assert await whole(job) == b""

        await store_chunks(job.engine, job.session, chunks)

        assert await whole(job) == numbered(0, 3)

    async def test_a_store_that_hangs_is_given_up(
        self, job: Printing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_STORING", timedelta(milliseconds=20))
        monkeypatch.setattr(job.blobs, "put", _hang)

        with pytest.raises(Unavailable, match="does not answer"):
            await store_chunks(job.engine, job.session, job.chunks(b"text\n"))


async def _refuse(key: str, data: bytes) -> None:
    raise Unavailable("away")


async def _hang(key: str, data: bytes) -> None:
    await asyncio.Event().wait()

from __future__ import annotations

import asyncio
import gzip
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
    OutputPage,
    OutputWindow,
    follow,
    raw,
    read_page,
    read_window,
    search,
    store_chunks,
    tail,
)
from rota.ports.queue import output as output_topic
from rota.ports.work import Fence, OutputChunk, ReportAnswer
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


CHUNK_LINES = 10_000


async def prints_chunks(job: Printing, count: int) -> None:
    """Chunks of equal size, as compressed too: the lines are equally long, and the same in each."""
    for _ in range(count):
        await job.prints(b"".join(b"%015d\n" % n for n in range(CHUNK_LINES)))


async def pages(job: Printing, first_line: int = 0) -> AsyncIterator[OutputPage]:
    """All pages, asked for one by one as a client does."""
    while True:
        page = await read_page(job.engine, job.run, 1, first_line)
        yield page
        first_line = page.next_line
        if first_line >= page.total_lines:
            return


def lines_of(page: OutputPage) -> list[tuple[int, bytes]]:
    return [
        numbered
        for first, block in page.blocks
        for numbered in enumerate(block.text.split(b"\n"), first)
    ]


class TestCosts:
    """What is read is counted, not timed."""

    @pytest.mark.parametrize("place", ["begin", "middle", "end", "tail"])
    async def test_a_window_costs_the_same_in_small_and_large_output(
        self, job: Printing, place: str
    ) -> None:
        costs = []
        for more, total in ((4, 4), (28, 32)):
            await prints_chunks(job, more)
            first = {"begin": 5, "middle": total // 2 * CHUNK_LINES + 5}.get(
                place, total * CHUNK_LINES - 100
            )
            fetched, size = job.blobs.fetched, job.blobs.fetched_bytes
            if place == "tail":
                window = await tail(job.engine, job.run, 1, 100)
            else:
                window = await read_window(job.engine, job.run, 1, first, 100)
            assert [line.number for line in window.lines] == [*range(first, first + 100)]
            costs.append((job.blobs.fetched - fetched, job.blobs.fetched_bytes - size))

        assert costs[0] == costs[1]
        assert costs[0][0] == 1

    @pytest.mark.parametrize("place", ["middle", "tail"])
    async def test_places_of_chunks_are_read_for_the_window_only(
        self, job: Printing, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        places: list[int] = []
        look_up = job.engine.store.chunks

        async def counting(*args: int, **named: int) -> object:
            found = await look_up(*args, **named)  # type: ignore[arg-type]  # as they come
            places.append(len(found))
            return found

        monkeypatch.setattr(job.engine.store, "chunks", counting)
        for start in range(0, 1_000, 10):
            await job.prints(numbered(start, 10))

        if place == "tail":
            await tail(job.engine, job.run, 1, 10)
        else:
            await read_window(job.engine, job.run, 1, 500, 10)

        assert len(places) == 1
        assert places[0] <= 16

    async def test_whole_output_is_fetched_once_by_pages_that_grow_with_its_size(
        self, job: Printing
    ) -> None:
        requests = []
        for more, total in ((8, 8), (24, 32)):
            await prints_chunks(job, more)
            fetched = job.blobs.fetched
            found = [page async for page in pages(job)]
            assert job.blobs.fetched - fetched == total
            assert [n for page in found for n, _ in lines_of(page)] == [*range(total * CHUNK_LINES)]
            requests.append(len(found))

        assert requests == [1, 4]

    async def test_follower_fetches_each_chunk_once(self, job: Printing) -> None:
        await prints_chunks(job, 3)
        await job.ends()

        windows = [window async for window in follow(job.engine, job.run, 1)]

        assert sum(len(window.lines) for window in windows) == 3 * CHUNK_LINES
        assert job.blobs.fetched == 3

    @pytest.mark.parametrize(
        "printed", [b"\n" * 3_000_000, b"x" * 6_000_000], ids=["empty lines", "one line"]
    )
    async def test_pages_of_hostile_output_stay_small(self, job: Printing, printed: bytes) -> None:
        await job.prints(printed)
        await job.ends()
        texts = []

        async for page in pages(job):
            sizes = [len(block.text) + 1 for _, block in page.blocks]
            assert sum(sizes) <= output._PAGE_BYTES + output._AT_ONCE * CHUNK_LIMIT
            assert len(sizes) <= 100
            texts += [block.text + b"\n" * block.ends_line for _, block in page.blocks]

        assert b"".join(texts) == printed


class TestPages:
    async def test_page_begins_at_a_line_and_ends_with_a_chunk(self, job: Printing) -> None:
        for start in range(0, 100, 10):
            await job.prints(numbered(start, 10))

        page = await read_page(job.engine, job.run, 1, 35)

        assert lines_of(page) == [(n, b"line %d" % n) for n in range(35, 100)]
        assert (page.next_line, page.total_lines, page.is_complete) == (100, 100, False)

    @pytest.mark.parametrize(("last", "first"), [(1, 99), (12, 88), (100, 0), (5_000, 0)])
    async def test_page_begins_so_many_lines_before_the_end(
        self, job: Printing, last: int, first: int
    ) -> None:
        for start in range(0, 100, 10):
            await job.prints(numbered(start, 10))

        page = await read_page(job.engine, job.run, 1, last=last)

        assert lines_of(page) == [(n, b"line %d" % n) for n in range(first, 100)]
        assert job.blobs.fetched == 10 - first // 10

    async def test_page_of_small_output_is_read_from_the_report(self, job: Printing) -> None:
        job.recorder.feed(1, Stream.STDOUT, 0, numbered(0, 4))
        await job.ends()

        page = await read_page(job.engine, job.run, 1, 2)

        assert lines_of(page) == [(2, b"line 2"), (3, b"line 3")]
        assert page.is_complete

    async def test_page_past_the_end_is_empty(self, job: Printing) -> None:
        await job.prints(numbered(0, 3))

        page = await read_page(job.engine, job.run, 1, 50)

        assert (page.blocks, page.next_line, page.total_lines) == ((), 50, 3)

    async def test_lost_chunk_of_a_page_is_reported(self, job: Printing, tmp_path: Path) -> None:
        for start in range(0, 30, 10):
            await job.prints(numbered(start, 10))
        files = sorted(path for path in (tmp_path / "blobs").rglob("*") if path.is_file())
        files[1].unlink()

        with pytest.raises(Unavailable, match="missing"):
            await read_page(job.engine, job.run, 1)


class TestStoring:
    async def test_the_same_chunks_twice_are_kept_once(self, job: Printing) -> None:
        chunks = job.chunks(numbered(0, 3))

        for _ in range(2):
            answer = await store_chunks(job.engine, job.session, chunks)
            assert answer == ReportAnswer()

        assert await whole(job) == numbered(0, 3)

    async def test_a_gap_does_not_replace_a_chunk_that_had_arrived(self, job: Printing) -> None:
        [chunk] = job.chunks(numbered(0, 3))
        await store_chunks(job.engine, job.session, [chunk])
        gap = msgspec.structs.replace(chunk, data=gzip.compress(b"1 rota 0|cut\n"))

        answer = await store_chunks(job.engine, job.session, [gap])

        assert answer == ReportAnswer()
        assert await whole(job) == numbered(0, 3)

    async def test_another_session_is_refused_and_changes_nothing(self, job: Printing) -> None:
        chunks = job.chunks(b"forged\n")

        answer = await store_chunks(job.engine, STRANGER, chunks)

        assert answer.refused == (Fence(job.run, 1),)
        assert await whole(job) == b""
        assert job.blobs.stored == 0

    async def test_output_after_the_end_is_refused_and_what_was_stored_stays(
        self, job: Printing
    ) -> None:
        chunks = job.chunks(numbered(0, 3))
        await store_chunks(job.engine, job.session, chunks)
        await job.ends()

        answer = await store_chunks(job.engine, job.session, [*chunks, *job.chunks(b"late\n")])

        assert answer.refused == (Fence(job.run, 1),)
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

        assert answer.refused == (Fence(run, 1),)

    async def test_a_chunk_that_does_not_compress_is_kept(self, job: Printing) -> None:
        [chunk] = job.chunks(b"text\n")
        large = msgspec.structs.replace(chunk, data=b"x" * PACKED_LIMIT)

        answer = await store_chunks(job.engine, job.session, [large])

        assert answer == ReportAnswer()

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

        assert answer.refused == (Fence(job.run, 1),)
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
        assert job.engine.queue.watched(output_topic(job.run))

        await windows.aclose()

        assert not job.engine.queue.watched(output_topic(job.run))

    async def test_a_follower_waiting_for_output_can_be_cancelled(self, job: Printing) -> None:
        windows = follow(job.engine, job.run, 1)
        await anext(windows)
        waiting = asyncio.ensure_future(anext(windows))
        await asyncio.wait([waiting], timeout=0.05)

        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert not job.engine.queue.watched(output_topic(job.run))


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

        assert answer == ReportAnswer()
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

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rota.domain.output import Chunk, OutputRecorder, Stream, to_raw, unpack
from rota.ports.work import MAX_PARCEL, Fence, OutputChunk
from rota.worker.spool import Outbox, OutputSpool, SpoolLimits

FIRST, SECOND = Fence("r_1", 1), Fence("r_2", 1)


def chunks(count: int, *, lines: int = 3) -> list[Chunk]:
    """Chunks in a row; each has its lines, and data of about the same size."""
    recorder = OutputRecorder(1 << 40)
    taken: list[Chunk] = []
    for number in range(count * lines):
        recorder.feed(1_000 + number, Stream.STDOUT, 0, b"line %d\n" % number)
        if number % lines == lines - 1:
            taken += recorder.take_chunks(force=True)
    return taken


def text(sent: list[OutputChunk]) -> list[str]:
    printed = b"".join(to_raw(unpack(chunk.data)) for chunk in sent)
    return printed.decode().splitlines()


def lines(first: int, after_last: int) -> list[str]:
    return [f"line {number}" for number in range(first, after_last)]


def large_chunks(count: int) -> list[Chunk]:
    """Chunks of nearly the largest size."""
    recorder = OutputRecorder(1 << 40)
    source = random.Random(1)
    while True:
        recorder.feed(1_000, Stream.STDOUT, 0, source.randbytes(60_000).replace(b"\n", b"") + b"\n")
        if recorder.buffered_bytes > (count + 1) * MAX_PARCEL:
            return recorder.take_chunks(force=False)[:count]


class Spool:
    """A spool with room for so many of these chunks."""

    def __init__(self, folder: Path, *, in_memory: int = 100, in_all: int = 1_000) -> None:
        size = max(len(chunk.data) for chunk in chunks(50))
        self.folder = folder
        self.spool = OutputSpool(folder, SpoolLimits(in_memory * size, in_all * size))
        self.spool.open()

    def outbox(self, fence: Fence = FIRST) -> Outbox:
        return self.spool.outbox(fence)

    def files(self) -> int:
        return len(list(self.folder.iterdir()))

    def drain(self) -> list[OutputChunk]:
        """Deliver everything."""
        sent: list[OutputChunk] = []
        while (batch := self.spool.next_batch()).chunks:
            sent += batch.chunks
            self.spool.mark_delivered(batch)
        return sent


def test_what_is_little_stays_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")

    spool.outbox().add(chunks(10))

    assert spool.files() == 0
    assert text(spool.drain()) == lines(0, 30)


def test_what_is_more_goes_to_disk_and_comes_back_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", in_memory=4)

    spool.outbox().add(chunks(40))

    assert spool.files() >= 30
    assert text(spool.drain()) == lines(0, 120)
    assert (spool.files(), spool.spool.is_empty) == (0, True)


def test_what_an_earlier_life_left_is_thrown_away(tmp_path: Path) -> None:
    Spool(tmp_path / "spool", in_memory=0).outbox().add(chunks(3))

    assert Spool(tmp_path / "spool").files() == 0


def test_a_batch_that_was_not_answered_is_sent_again_unchanged(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", in_memory=4)
    spool.outbox().add(chunks(20))

    first = spool.spool.next_batch()
    spool.spool.mark_failed(first, "away", connection=1, is_alone=True)
    again = spool.spool.next_batch()

    assert again.chunks == first.chunks
    assert len(first.chunks) == 16


def test_no_attempt_waits_behind_a_long_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.outbox(FIRST).add(chunks(100))
    spool.outbox(SECOND).add(chunks(1))

    batches = [spool.spool.next_batch() for _ in range(2)]

    assert SECOND.run in {chunk.run for batch in batches for chunk in batch.chunks}


def test_refused_output_is_forgotten_and_its_neighbour_stays(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", in_memory=0)
    refused, kept = spool.outbox(FIRST), spool.outbox(SECOND)
    refused.add(chunks(2))
    kept.add(chunks(2))

    spool.spool.mark_delivered(spool.spool.next_batch(), refused=[FIRST])
    refused.add(chunks(2))

    assert refused.is_refused
    assert (spool.files(), spool.spool.is_empty) == (0, True)


def test_a_message_is_bounded_by_its_bytes_and_small_chunks_share_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", in_memory=100_000, in_all=100_000)
    for number in range(5):
        spool.outbox(Fence(f"r_{number}", 1)).add(large_chunks(2))

    sizes = []
    while (batch := spool.spool.next_batch()).chunks:
        sizes.append(sum(len(chunk.data) for chunk in batch.chunks))
        spool.spool.mark_delivered(batch)
    spool.outbox(FIRST).add(chunks(1))
    spool.outbox(SECOND).add(chunks(1))
    shared = spool.spool.next_batch()

    assert len(sizes) == 10
    assert max(sizes) <= MAX_PARCEL
    assert [chunk.run for chunk in shared.chunks] == [FIRST.run, SECOND.run]


def test_a_chunk_is_not_on_its_way_while_an_earlier_one_is_unanswered(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", in_memory=100_000, in_all=100_000)
    spool.outbox(FIRST).add(large_chunks(3))
    spool.outbox(SECOND).add(large_chunks(1))

    under_way = [spool.spool.next_batch() for _ in range(3)]

    assert [[chunk.run for chunk in batch.chunks] for batch in under_way] == [
        [FIRST.run],
        [SECOND.run],
        [],
    ]
    assert not spool.spool.has_parcels.is_set()


def test_what_a_server_could_not_deal_with_yet_is_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.outbox(FIRST).add(chunks(1))
    spool.outbox(SECOND).add(chunks(1))

    spool.spool.mark_delivered(spool.spool.next_batch(), again=[FIRST])

    assert [chunk.run for chunk in spool.drain()] == [FIRST.run]


class TestOverTheLimit:
    def test_the_oldest_is_cut_with_one_mark(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path / "spool", in_memory=2, in_all=10)

        spool.outbox().add(chunks(40))
        sent = spool.drain()

        mark, *rest = text(sent)
        assert mark.startswith("output cut here: ")
        assert "had no room" in mark
        assert rest == lines(120 - len(rest), 120)
        assert 24 <= len(rest) <= 33
        assert f"{120 - len(rest)} lines" in mark

    def test_the_mark_ends_where_the_lines_ended(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path / "spool", in_all=10)
        spool.outbox().add(chunks(40))

        mark, following, *_ = (chunk.meta for chunk in spool.drain())

        assert mark.lines == 1
        assert mark.first_line + mark.lines == following.first_line
        assert mark.number + 1 == following.number

    def test_what_a_server_may_have_does_not_change_any_more(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path / "spool", in_all=20)
        outbox = spool.outbox()
        outbox.add(chunks(60)[:20])
        batch = spool.spool.next_batch()
        sent = batch.chunks

        outbox.add(chunks(60)[20:])
        spool.spool.mark_failed(batch, "away", connection=1, is_alone=True)
        delivered = spool.drain()

        assert delivered[: len(sent)] == sent
        assert text(delivered)[48].startswith("output cut here: ")
        assert text(delivered)[-1] == "line 179"

    def test_the_older_attempt_is_cut_first(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path / "spool", in_all=10)
        spool.outbox(FIRST).add(chunks(8))

        spool.outbox(SECOND).add(chunks(8))

        sent = spool.drain()
        assert text([chunk for chunk in sent if chunk.run == SECOND.run]) == lines(0, 24)
        cut = text([chunk for chunk in sent if chunk.run == FIRST.run])
        assert cut[0].startswith("output cut here: ")
        assert cut[-1] == "line 23"

    def test_a_full_disk_is_a_full_spool(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path / "spool", in_memory=2)
        spool.folder.rmdir()

        spool.outbox().add(chunks(4))

        assert text(spool.drain())[:6] == lines(0, 6)
        assert spool.spool.is_empty


def test_output_that_cannot_be_read_back_is_given_up(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", in_memory=0)
    spool.outbox(FIRST).add(chunks(2))
    for file in spool.folder.iterdir():
        file.unlink()
    spool.outbox(SECOND).add(chunks(1))

    assert text(spool.drain()) == lines(0, 3)
    assert spool.spool.is_empty


@pytest.mark.parametrize("count", [0, 5])
def test_what_nobody_would_take_is_discarded(tmp_path: Path, count: int) -> None:
    spool = Spool(tmp_path / "spool", in_memory=0)
    spool.outbox().add(chunks(count))

    spool.spool.discard()

    assert (spool.files(), spool.spool.is_empty) == (0, True)

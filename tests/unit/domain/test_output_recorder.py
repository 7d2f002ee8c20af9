from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from rota.domain.errors import Unavailable
from rota.domain.output import (
    CHUNK_LIMIT,
    INLINE_LIMIT,
    LINE_LIMIT,
    OutputRecorder,
    Record,
    Stream,
    gap_up_to,
    read_records,
    to_raw,
    unpack,
)

NO_LIMIT = 1 << 40
OUT, ERR, ROTA = Stream.STDOUT, Stream.STDERR, Stream.ROTA


def records_of(recorder: OutputRecorder) -> list[Record]:
    """What it would send now, unfinished lines included."""
    chunks = recorder.take_chunks(force=True)
    return [record for chunk in chunks for record in read_records(unpack(chunk.data))]


def fed(*portions: bytes, limit: int = NO_LIMIT) -> OutputRecorder:
    recorder = OutputRecorder(limit)
    for at_ms, portion in enumerate(portions, 1):
        recorder.feed(at_ms, OUT, 0, portion)
    return recorder


def texts(records: list[Record]) -> list[tuple[bytes, bool]]:
    return [(record.text, record.ends_line) for record in records]


def test_lines_are_joined_from_any_portions() -> None:
    recorder = fed(b"he", b"llo\nwor", b"ld\n", b"\n")

    assert records_of(recorder) == [
        Record(2, OUT, 0, b"hello", ends_line=True),
        Record(3, OUT, 0, b"world", ends_line=True),
        Record(4, OUT, 0, b"", ends_line=True),
    ]


def test_streams_and_steps_keep_their_own_unfinished_lines() -> None:
    recorder = OutputRecorder(NO_LIMIT)
    recorder.feed(1, OUT, 0, b"out ")
    recorder.feed(2, ERR, 0, b"err\n")
    recorder.feed(3, OUT, 1, b"next\n")
    recorder.feed(4, OUT, 0, b"more\n")

    assert [(r.stream, r.step, r.text) for r in records_of(recorder)] == [
        (ERR, 0, b"err"),
        (OUT, 1, b"next"),
        (OUT, 0, b"out more"),
    ]


def test_a_prompt_is_given_out_before_its_line_ends() -> None:
    recorder = fed(b"Continue? ")

    shown = records_of(recorder)
    recorder.feed(9, OUT, 0, b"yes\n")

    assert shown == [Record(1, OUT, 0, b"Continue? ", ends_line=False)]
    assert records_of(recorder) == [Record(9, OUT, 0, b"yes", ends_line=True)]


def test_a_line_feed_that_comes_late_ends_the_line() -> None:
    recorder = fed(b"done")
    assert texts(records_of(recorder)) == [(b"done", False)]

    recorder.feed(9, OUT, 0, b"\n")

    assert texts(records_of(recorder)) == [(b"", True)]


def test_nothing_is_given_out_twice() -> None:
    recorder = fed(b"line\nrest")

    assert len(records_of(recorder)) == 2
    assert records_of(recorder) == []


def test_without_force_only_full_chunks_are_given_out() -> None:
    assert fed(b"line\n").take_chunks(force=False) == []

    [chunk] = fed(b"x" * 1000 + b"\n", *[b"y" * 1000 + b"\n"] * 300).take_chunks(force=False)

    assert CHUNK_LIMIT // 2 < len(unpack(chunk.data)) <= CHUNK_LIMIT


def test_a_line_as_long_as_allowed_is_one_record() -> None:
    assert texts(records_of(fed(b"x" * LINE_LIMIT + b"\n"))) == [(b"x" * LINE_LIMIT, True)]


def test_a_longer_line_is_split() -> None:
    assert texts(records_of(fed(b"x" * (2 * LINE_LIMIT + 1) + b"\n"))) == [
        (b"x" * LINE_LIMIT, False),
        (b"x" * LINE_LIMIT, False),
        (b"x", True),
    ]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\n" * (CHUNK_LIMIT // 4), id="empty lines"),
        pytest.param(b"y\n" * (CHUNK_LIMIT // 4), id="short lines"),
        pytest.param(b"x" * (3 * CHUNK_LIMIT), id="one line"),
        pytest.param(bytes(range(256)) * 1024, id="any bytes"),
    ],
)
def test_chunks_stay_small_and_tell_where_they_lie(data: bytes) -> None:
    chunks = fed(data, data).take_chunks(force=True)

    lines = size = 0
    for number, chunk in enumerate(chunks):
        records = unpack(chunk.data)
        assert len(records) <= CHUNK_LIMIT
        assert (chunk.number, chunk.first_line) == (number, lines)
        assert chunk.lines == len(list(read_records(records)))
        assert chunk.text_bytes == len(to_raw(records))
        lines += chunk.lines
        size += chunk.text_bytes
    assert size == 2 * len(data)
    assert (chunks[0].first_at_ms, chunks[-1].last_at_ms) == (1, 2)


def test_chunks_in_a_row_are_one_gzip_file() -> None:
    data = b"y\n" * CHUNK_LIMIT
    chunks = fed(data).take_chunks(force=True)
    assert len(chunks) > 1

    records = gzip.decompress(b"".join(chunk.data for chunk in chunks))

    assert to_raw(records) == data


def test_output_is_cut_at_the_limit_with_a_mark() -> None:
    recorder = fed(b"0123456789\n", b"more", limit=4)
    recorder.close(at_ms=9)

    assert [(r.stream, r.text) for r in records_of(recorder)] == [
        (OUT, b"0123"),
        (ROTA, b"output cut here: log_limit 4B reached"),
        (ROTA, b"11 bytes printed after the cut were not kept"),
    ]
    assert recorder.totals.truncated
    assert recorder.totals.dropped_bytes == 11


def test_the_mark_begins_a_line_of_its_own() -> None:
    recorder = OutputRecorder(8)
    recorder.feed(1, OUT, 0, b"out?")
    [prompt] = recorder.take_chunks(force=True)
    recorder.feed(2, ERR, 0, b"error in a line")
    [rest] = recorder.take_chunks(force=True)

    raw = to_raw(unpack(prompt.data) + unpack(rest.data))

    assert raw == b"out?\nerro\noutput cut here: log_limit 8B reached\n"


def test_output_that_just_fits_is_not_cut() -> None:
    recorder = fed(b"1234", limit=4)
    recorder.close(at_ms=9)

    assert not recorder.totals.truncated
    assert texts(records_of(recorder)) == [(b"1234", False)]


def test_remarks_are_kept_past_the_limit_and_take_one_line() -> None:
    recorder = fed(b"text", limit=0)
    recorder.remark(5, "stopped:\ntimeout of 3s")

    assert records_of(recorder)[-1] == Record(5, ROTA, 0, b"stopped: timeout of 3s", ends_line=True)


def test_a_flood_past_the_limit_takes_no_memory() -> None:
    recorder = fed(b"x" * 100, limit=10)
    before = recorder.buffered_bytes

    for _ in range(100):
        recorder.feed(5, OUT, 0, b"flood\n" * 1000)

    assert recorder.buffered_bytes == before


def test_small_output_rides_inline() -> None:
    recorder = fed(b"hello\n", b"wor", b"ld")
    recorder.close(at_ms=9)

    inline = recorder.inline()

    assert inline is not None
    assert to_raw(inline) == b"hello\nworld"
    assert (recorder.totals.bytes, recorder.totals.lines) == (11, 2)


def test_no_output_is_inline_and_empty() -> None:
    recorder = fed()
    recorder.close(at_ms=9)

    assert recorder.inline() == b""


def test_output_is_not_inline_once_part_of_it_went_as_a_chunk() -> None:
    recorder = fed(b"hello\n")
    recorder.take_chunks(force=True)
    recorder.close(at_ms=9)

    assert recorder.inline() is None


def test_bigger_output_is_not_inline() -> None:
    recorder = fed(b"x" * INLINE_LIMIT)
    recorder.close(at_ms=9)

    assert recorder.inline() is None


def test_closing_twice_says_the_loss_once() -> None:
    recorder = fed(b"text", limit=1)
    recorder.close(at_ms=9)
    lines = recorder.totals.lines

    recorder.close(at_ms=10)

    assert recorder.totals.lines == lines


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda data: data[:-1], id="cut short"),
        pytest.param(lambda data: data + b"x", id="something behind"),
        pytest.param(lambda data: data[:-8] + b"\0\0\0\0" + data[-4:], id="wrong checksum"),
        pytest.param(lambda data: b"plain", id="not compressed"),
        pytest.param(lambda data: gzip.compress(b"x" * (CHUNK_LIMIT + 1)), id="bomb"),
    ],
)
def test_a_damaged_chunk_is_refused(harm: Callable[[bytes], bytes]) -> None:
    [chunk] = fed(b"line\n").take_chunks(force=True)

    with pytest.raises(Unavailable, match="damaged"):
        unpack(harm(chunk.data))


def test_a_gap_ends_where_the_dropped_lines_ended() -> None:
    recorder = OutputRecorder(1 << 40)
    recorder.feed(5, Stream.STDOUT, 0, b"one\ntwo\nthree\n")
    [dropped] = recorder.take_chunks(force=True)
    recorder.feed(6, Stream.STDOUT, 0, b"four\n")
    [kept] = recorder.take_chunks(force=True)

    gap = gap_up_to(dropped, "3 lines are gone")

    assert (gap.number, gap.lines) == (dropped.number, 1)
    assert gap.first_line + gap.lines == kept.first_line
    [record] = read_records(unpack(gap.data))
    assert (record.stream, record.text) == (Stream.ROTA, b"3 lines are gone")

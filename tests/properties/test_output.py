from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import Unavailable
from rota.domain.output import (
    LINE_LIMIT,
    OutputRecorder,
    Stream,
    find_records,
    read_records,
    to_raw,
    unpack,
)

Feed = tuple[Stream, int, bytes]
LIMIT = 1 << 40

short_lines = st.builds(
    bytes.__mul__,
    st.sampled_from([b"\n", b"y\n", b"|+\n", b"\r\n\0\xff"]),
    st.integers(1, 1000),
)
long_lines = st.builds(
    lambda length, end: b"x" * length + end,
    st.integers(LINE_LIMIT - 2, 3 * LINE_LIMIT),
    st.sampled_from([b"", b"\n"]),
)
texts = st.binary(max_size=40) | short_lines | long_lines
streams = st.sampled_from([Stream.STDOUT, Stream.STDERR])
feeds = st.lists(st.tuples(streams, st.integers(0, 2), texts), max_size=8)


def recorded(items: Iterable[tuple[Feed, bool]], log_limit: int = LIMIT) -> list[bytes]:
    """The records of all chunks, taken by force after the feeds that say so."""
    recorder = OutputRecorder(log_limit)
    chunks = []
    for at_ms, ((stream, step, data), is_flushed) in enumerate(items):
        recorder.feed(at_ms, stream, step, data)
        chunks += recorder.take_chunks(force=is_flushed)
    recorder.close(at_ms=len(chunks))
    chunks += recorder.take_chunks(force=True)
    return [unpack(chunk.data) for chunk in chunks]


def printed(items: Iterable[Feed], stream: Stream, step: int) -> bytes:
    return b"".join(data for s, n, data in items if (s, n) == (stream, step))


@given(feeds, st.data())
def test_every_stream_comes_back_byte_for_byte(items: list[Feed], data: st.DataObject) -> None:
    flushes = data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)))

    chunks = recorded(zip(items, flushes, strict=True))

    records = [record for chunk in chunks for record in read_records(chunk)]
    for stream, step in {(stream, step) for stream, step, _ in items}:
        of_stream = [r for r in records if (r.stream, r.step) == (stream, step)]
        back = b"".join(r.text + b"\n" * r.ends_line for r in of_stream)
        assert back == printed(items, stream, step)
        assert all(len(r.text) <= LINE_LIMIT for r in of_stream)


@given(feeds, st.integers(0, 2 * LINE_LIMIT))
def test_what_is_kept_is_the_beginning_up_to_the_limit(items: list[Feed], limit: int) -> None:
    one_stream = [(Stream.STDOUT, 0, data) for _, _, data in items]
    whole = b"".join(data for _, _, data in items)

    chunks = recorded([(item, False) for item in one_stream], limit)

    raw = b"".join(map(to_raw, chunks))
    assert raw.startswith(whole[:limit])
    assert (b"output cut here" in raw[limit:]) == (len(whole) > limit)


@given(feeds, st.binary(min_size=1, max_size=2).filter(lambda text: b"\n" not in text))
def test_windows_and_search_agree_with_reading_all(items: list[Feed], text: bytes) -> None:
    for chunk in recorded([(item, False) for item in items]):
        records = list(read_records(chunk))
        middle = len(records) // 2

        assert to_raw(chunk) == b"".join(r.text + b"\n" * r.ends_line for r in records)
        assert list(read_records(chunk, middle, 3)) == records[middle : middle + 3]
        assert list(find_records(chunk, text)) == [
            (index, record) for index, record in enumerate(records) if text in record.text
        ]


@pytest.mark.parametrize("read", [lambda data: list(read_records(data)), to_raw, unpack])
@given(data=st.binary() | st.binary().map(lambda tail: b"1 stdout 0|" + tail))
def test_reading_anything_gives_records_or_a_clear_error(
    read: Callable[[bytes], object], data: bytes
) -> None:
    with suppress(Unavailable):
        read(data)

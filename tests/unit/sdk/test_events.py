from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rota.sdk.events import EventReader, ServerEvent

STREAM = (
    b": welcome\n\n"
    b'event: lines\nid: 3\ndata: {"a":\ndata: 1}\n\n'
    b"data:plain\r\n\r\n"
    b"event: ignored without data\n\n"
    b"event: end\ndata: \xc3\xa4\n\n"
    b"event: torn\ndata: never finished"
)
EVENTS = [
    ServerEvent("lines", '{"a":\n1}', "3"),
    ServerEvent("message", "plain", "3"),
    ServerEvent("end", "ä", "3"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = EventReader()
    edges = [0, *sorted(cuts), len(STREAM)]

    pieces = [STREAM[start:end] for start, end in pairwise(edges)]

    assert [event for piece in pieces for event in reader.feed(piece)] == EVENTS

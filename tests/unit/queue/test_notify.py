from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.queue.notify import Hint, Kind, hints, pack, unpack

names = st.text(max_size=40)
told = st.dictionaries(names, st.lists(names, max_size=120).map(tuple), max_size=20)


@given(told, told)
def test_what_is_packed_comes_out_again(
    wakes: dict[str, tuple[str, ...]], offers: dict[str, tuple[str, ...]]
) -> None:
    lines = list(hints(wakes, offers))

    texts = list(pack("node", iter(lines)))

    assert [hint for text in texts for hint in unpack(text)[1]] == lines
    assert {unpack(text)[0] for text in texts} <= {"node"}
    assert all(len(text.encode()) < 8_000 for text in texts)


@given(told)
def test_lines_tell_all_of_it(offers: dict[str, tuple[str, ...]]) -> None:
    gathered: dict[str, tuple[str, ...]] = {}
    for hint in hints({}, offers):
        gathered[hint.name] = gathered.get(hint.name, ()) + hint.values

    assert gathered == offers


def test_what_fits_nowhere_is_left_out() -> None:
    huge, small = Hint(Kind.WAKE, "x" * 9_000, ()), Hint(Kind.WAKE, "y", ("z",))

    texts = list(pack("node", iter([huge, small])))

    assert [unpack(text)[1] for text in texts] == [[small]]


def test_nothing_to_tell_is_no_text() -> None:
    assert list(pack("node", hints({}, {}))) == []

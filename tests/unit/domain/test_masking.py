"""Values that must not be printed, in whatever pieces they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.masking import Masker

SECRET, LONGER = "hunter2hunter2", "hunter2hunter2-of-the-shop"


def test_it_is_hidden_wherever_it_stands() -> None:
    mask = Masker([SECRET, LONGER])

    assert mask(f"a {LONGER}, {SECRET}{SECRET}".encode()) == b"a ***, ******"
    assert mask.text(f"ü {SECRET}") == "ü ***"
    assert mask.value({SECRET: [f"Bearer {SECRET}", 1, None]}) == {"***": ["Bearer ***", 1, None]}


def test_short_values_are_not_hidden_as_too_much_would_be() -> None:
    assert Masker(["a", "1234567"]).text("a 1234567") == "a 1234567"
    assert Masker([]).and_also(["b", SECRET]).text(f"b {SECRET}") == "b ***"


@given(st.lists(st.sampled_from(["x\n", "hunter2", SECRET, LONGER, "-of-"])), st.data())
def test_a_stream_is_hidden_as_the_whole_is(words: list[str], data: st.DataObject) -> None:
    mask, text = Masker([SECRET, LONGER]), "".join(words).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    passed, rest = b"", b""

    for first, last in zip([0, *cuts], [*cuts, len(text)], strict=True):
        shown, rest = mask.part(rest + text[first:last])
        passed += shown

    assert SECRET.encode() not in passed + rest
    assert (passed + rest).count(b"\n") == text.count(b"\n")


def test_what_cannot_be_a_beginning_is_not_held_back() -> None:
    mask = Masker([SECRET])

    assert mask.part(b"remote: no hunter\n") == (b"remote: no hunter\n", b"")
    assert mask.part(b"remote: hunter2h") == (b"remote: ", b"hunter2h")

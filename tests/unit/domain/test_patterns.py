"""Patterns of inputs."""

from __future__ import annotations

import random
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.patterns import MAX_PATTERN, MAX_TEXT, Pattern, PatternRefused


@pytest.mark.parametrize(
    ("pattern", "taken", "refused"),
    [
        ("abc", ["abc"], ["", "ab", "abcd", "ABC"]),
        ("[0-9]{4}-[0-9]{2}", ["2026-01"], ["2026-1", "x2026-01", "2026-01\n"]),
        (r"\d+(\.\d+)?", ["1", "12.5"], [".5", "1.", "a"]),
        ("(dev|staging|prod)-[a-z]*", ["dev-", "prod-eu"], ["dev", "test-a"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("a{0}b", ["b"], ["ab"]),
        ("(ab)*", ["", "abab"], ["aba"]),
        ("(?:a|b)?c", ["c", "ac", "bc"], ["abc"]),
        ("", [""], ["a"]),
        ("a|", ["a", ""], ["b"]),
        ("[^/]+", ["a b"], ["a/b", ""]),
        ("[]x-]", ["]", "x", "-"], ["y"]),
        (r"[\w.-]+@[\w.]+", ["me@example.org"], ["@example.org"]),
        (r"[\]-a]", ["^", "a", "]"], ["b"]),
        (r"\S\W\D", ["a-b"], [" -b", "aab", "a-1"]),
        (r"\$\{x\}", ["${x}"], ["$x"]),
        (".", ["a", "東"], ["", "\n", "ab"]),
        ("^abc$", ["abc"], ["^abc$"]),
        ("[ä-ü]+", ["äöü"], ["a"]),
    ],
)
def test_whole_text_has_to_match(pattern: str, taken: list[str], refused: list[str]) -> None:
    asked = Pattern(pattern)

    assert [text for text in taken if not asked.matches(text)] == []
    assert [text for text in refused if asked.matches(text)] == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", 'a "(" is not closed'),
        ("a)", 'a ")" closes nothing'),
        ("[a", 'a "[" is not closed'),
        ("[z-a]", "[z-a] goes from more to less"),
        ("*a", 'nothing to repeat before "*"'),
        ("a**", 'nothing to repeat before "*"'),
        ("a{3,2}", "{3,2} repeats from more to less"),
        ("a{x}", "a repetition is {2} or {2,5}"),
        ("a\\", 'it ends with "\\"'),
        (r"(a)\1", r"\1 is not taken"),
        (r"\bword", r"\b is not taken"),
        ("(?=a)b", "(?… is not taken"),
        ("(?P<n>a)", "(?… is not taken"),
        ("a$b", '"$" is in the middle'),
        ("((a{1000}){1000}){1000}", "its repetitions are too many"),
        ("(" * 21 + ")" * 21, "groups are nested deeper than 20 levels"),
        ("a" * (MAX_PATTERN + 1), "it is longer than 200 characters"),
    ],
)
def test_what_cannot_be_bounded_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(PatternRefused, match=re.escape(message)):
        Pattern(pattern)


class Counted(Pattern):
    """Counts the places that it looks at."""

    looked = 0

    def _leads(self, at: int) -> int:
        self.looked += 1
        return super()._leads(at)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(a|aa)+b", "a*" * 60 + "b"])
def test_work_is_bounded_where_others_take_for_ever(pattern: str) -> None:
    asked = Counted(pattern)

    assert not asked.matches("a" * MAX_TEXT)
    assert asked.matches("a" * (MAX_TEXT - 1) + "b")

    assert asked.looked <= 10_000


def test_what_is_remembered_is_bounded_too() -> None:
    """Each character leads to another set of hundreds of places."""
    asked = Pattern("(a|b)*a(a|b){150}")
    choose = random.Random(1)
    tracemalloc.start()
    try:
        for _ in range(4):
            asked.matches("".join(choose.choice("ab") for _ in range(MAX_TEXT)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 1024**2


def test_text_that_is_too_long_does_not_match() -> None:
    assert not Pattern("a*").matches("a" * (MAX_TEXT + 1))


_PIECES = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "(a|b)", "((ab)?)", "(a|)", r"\w", "-"])
_TIMES = st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}"])


@given(st.lists(st.tuples(_PIECES, _TIMES), max_size=6), st.text("ab-", max_size=8))
def test_it_agrees_with_python(parts: list[tuple[str, str]], text: str) -> None:
    pattern = "".join(piece + times for piece, times in parts)

    assert Pattern(pattern).matches(text) == bool(re.fullmatch(pattern, text))

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.terminal import inert, inert_json, inert_output, width_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nightly-backup", "nightly-backup"),
        ("größe ✔ 表", "größe ✔ 表"),
        ("\x1b[2J", "\\x1b[2J"),
        ("two\nlines", "two\\nlines"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("می\u200cشود a\u200db ü", "می\u200cشود a\u200db ü"),
        ("x\u200dy\u202e", "x\\u200dy\\u202e"),
    ],
)
def test_text_that_would_steer_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert inert(text) == shown


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m", "red and bold"),
        ("\x1b]0;pwned\x07title", "title"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;ti\x1b[0mtle\x07", "tle\\x07"),
        ("\x1b[31mred\x9b0m", "red"),
        ("\x1bcreset", "reset"),
        ("10%\r50%\r100%", "100%"),
        ("dos line\r", "dos line"),
        ("a\tb", "a\tb"),
        ("bell\x07", "bell\\x07"),
        ("\x1b", "\\x1b"),
    ],
)
def test_output_loses_its_escape_sequences_and_keeps_its_text(printed: str, shown: str) -> None:
    assert inert_output(printed) == shown


@given(st.lists(st.text(st.sampled_from("a \t\r\x1b[]0;m\x07\\\x9bü\u202e"), max_size=12)))
def test_lines_cleaned_together_are_as_if_each_were_alone(lines: list[str]) -> None:
    assert inert_output("\n".join(lines)) == "\n".join(map(inert_output, lines))


@pytest.mark.parametrize(
    "text",
    ["\r" * 200_000 + "x", "\x1b[" * 100_000, "\x1b]" * 100_000, "\x1b[" + "0" * 200_000],
    ids=["returns", "unfinished", "strings", "endless"],
)
def test_hostile_output_is_cleaned_in_one_pass(text: str) -> None:
    assert "\x1b" not in inert_output(text)  # by the time limit of tests


def test_json_keeps_its_meaning_while_nothing_in_it_steers_the_terminal() -> None:
    document = {"name": "a\x9bb\u202ec\U000e0001 ü", "lines": ["x\ny"]}

    text = inert_json(json.dumps(document, indent=2, ensure_ascii=False))

    assert json.loads(text) == document
    assert all(letter.isprintable() or letter == "\n" for letter in text)


@pytest.mark.parametrize(
    ("text", "cells"), [("abc", 3), ("表示", 4), ("e\u0301", 1), ("می\u200cش", 3), ("✔", 1)]
)
def test_width_is_counted_in_cells(text: str, cells: int) -> None:
    assert width_of(text) == cells

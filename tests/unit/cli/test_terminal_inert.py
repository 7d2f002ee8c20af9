from __future__ import annotations

import json

import pytest

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


def test_json_keeps_its_meaning_while_nothing_in_it_steers_the_terminal() -> None:
    document = {"name": "a\x9bb\u202ec\U000e0001 ü", "lines": ["x\ny"]}

    text = inert_json(json.dumps(document, indent=2, ensure_ascii=False))

    assert json.loads(text) == document
    assert all(letter.isprintable() or letter == "\n" for letter in text)


@pytest.mark.parametrize(("text", "cells"), [("abc", 3), ("表示", 4), ("e\u0301", 1), ("✔", 1)])
def test_width_is_counted_in_cells(text: str, cells: int) -> None:
    assert width_of(text) == cells

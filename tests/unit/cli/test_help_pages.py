"""Help pages are part of the product: a change of one shows up in review."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cyclopts import App

from rota.cli.main import COMMANDS
from rota.cli.program import build
from tests.unit.cli.console import Console

PAGES = Path(__file__).with_name("help_pages.txt")


def commands() -> list[list[str]]:
    """Every command and every verb, in the order of the overview."""
    program = build()
    return [
        words for command in COMMANDS for words in with_verbs(program[command.name], [command.name])
    ]


def with_verbs(app: App, words: list[str]) -> Iterator[list[str]]:
    yield words
    for verb in app:
        if not verb.startswith("-"):
            yield from with_verbs(app[verb], [*words, verb])


def test_help_pages_are_as_agreed(rota: Console) -> None:
    texts = [rota("--help").out]
    texts += [
        f"$ rota {' '.join(words)} --help\n{rota(*words, '--help').out}" for words in commands()
    ]
    pages = "\n".join(texts)

    if PAGES.read_text() != pages:
        PAGES.with_suffix(".new").write_text(pages)
    assert PAGES.read_text() == pages, "if it is meant: mv tests/unit/cli/help_pages.{new,txt}"


def test_no_line_of_a_page_is_too_long_for_a_terminal() -> None:
    assert [line for line in PAGES.read_text().splitlines() if len(line) > 100] == []

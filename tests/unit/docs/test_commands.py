"""Commands on the pages are commands that exist, with options that exist."""

from __future__ import annotations

import re
import shlex
from contextvars import copy_context
from functools import partial
from itertools import takewhile

import pytest

from rota.cli.program import build
from tests.unit.docs.pages import PAGES, ROOT, Block, blocks, exchanges, inline_code

ROTA = re.compile(r"(?:^|\$\()(?:\w+=\S+ )*rota (?P<words>[^)]*)")
MAKE = re.compile(r"make (?:[A-Z_]+=\S* )*([a-z]\w*)")
TRANSCRIPTS = blocks("console")
IN_PROSE = {
    code
    for page in sorted({block.page for block in TRANSCRIPTS})
    for code in inline_code(page)
    if code.startswith("rota ") and "…" not in code and "--json" not in code
}


def command_words(command: str) -> list[str] | None:
    """The words after `rota` in a line of shell; None: it calls something else."""
    found = ROTA.search(command)
    if found is None:
        return None
    words = shlex.split(found["words"].replace("\\|", " "))
    return list(takewhile(lambda word: word not in ("|", ">", "&&"), words))


def refusal(words: list[str]) -> str:
    """Why the command line is not understood; nothing is executed."""
    try:
        # In a context of its own, as in `main`: what is parsed chooses a time zone to print in.
        parse = partial(build().parse_args, exit_on_error=False, print_error=False)
        copy_context().run(parse, words)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
        return f"{' '.join(words)}: {error}"
    return ""


@pytest.mark.parametrize("block", TRANSCRIPTS, ids=str)
def test_commands_of_transcripts_exist(block: Block) -> None:
    called = [command_words(exchange.command) for exchange in exchanges(block)]

    assert [why for words in called if words if (why := refusal(words))] == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert refusal(["job", "lst"])
    assert refusal(["trigger", "greet", "--wach"])


@pytest.mark.parametrize("code", sorted(IN_PROSE))
def test_commands_in_prose_exist(code: str) -> None:
    nouns = {
        *("job", "run", "cart", "worker", "calendar", "cron"),
        *("import", "token", "config", "events", "limit", "resource", "quota", "share"),
    }
    words = code.replace("\\|", "|").split()[1:]
    is_command = words[0] if words[0] not in nouns else " ".join(words[:2])

    text = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")

    assert re.search(rf"^#+ rota {re.escape(is_command)}$", text, re.MULTILINE)


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^(\w+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("block", TRANSCRIPTS, ids=str)
def test_make_targets_of_transcripts_exist(block: Block) -> None:
    called = [target for exchange in exchanges(block) for target in MAKE.findall(exchange.command)]

    assert set(called) <= make_targets()


def test_make_targets_in_prose_exist() -> None:
    called = {
        found[1] for page in PAGES for code in inline_code(page) if (found := MAKE.match(code))
    }

    assert len(called) > 5
    assert called <= make_targets()

"""The documentation as data: pages, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

NOT_EXECUTED = "<!-- not executed"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced piece of a page."""

    page: Path
    language: str
    text: str
    line: int  # where it begins
    is_executed: bool = True

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


@dataclass(frozen=True)
class Exchange:
    """A command of a transcript, and what the page says it prints."""

    command: str
    printed: str


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(language: str, *pages: Path) -> list[Block]:
    """All blocks of a language, in the given pages or in all."""
    return [block for page in pages or PAGES for block in _blocks_of(page, language)]


def _blocks_of(page: Path, language: str) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for fence in _FENCE.finditer(text):
        if fence[1] == language:
            before = text[: fence.start()]
            last_line = before.rstrip().rpartition("\n")[2]
            line = before.count("\n") + 1
            yield Block(page, language, fence[2], line, not last_line.startswith(NOT_EXECUTED))


def exchanges(block: Block) -> list[Exchange]:
    """The commands of a console block with their output."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Exchange(*part.partition("\n")[::2]) for part in parts]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def inline_code(page: Path) -> list[str]:
    """What the prose of a page has between backticks."""
    return _CODE.findall(prose(page))


def rows(page: Path, heading: str = "") -> list[list[str]]:
    """The cells of the first table below a heading (none: of the page), without its own."""
    section = page.read_text("utf-8").partition(f"## {heading}\n" if heading else "\n")[2]
    found = table(section)
    assert found, f"{name_of(page)} has no table below {heading}"
    return found


def table(text: str) -> list[list[str]]:
    """The cells of the first table of a text, without its head; none if there is no table."""
    found = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    lines = found[0].splitlines()[2:] if found else []
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]

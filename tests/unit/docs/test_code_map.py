"""Pages for maintainers name modules, files, and what is in them: all of it is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs" / "design" / f"{name}.md" for name in ("architecture", "code-map")),
]
TOPS = (ROOT, ROOT / "src", ROOT / "src" / "rota", ROOT / "src" / "rota" / "server")
ENDINGS = ("", ".py", ".sql")
_PATH = re.compile(r"`([a-z_]\w*(?:/\w+)*(?:/|\.py|\.sql|\.proto))`|`([a-z_]\w*(?:/\w+)+)`")
_INSIDE = re.compile(r"`(\w+)`(?: \([^)]*\))? in `([\w/]+\.py)`")


def named_paths(page: Path) -> list[str]:
    return sorted({path or module for path, module in _PATH.findall(page.read_text())})


def files_of(named: str) -> Iterator[Path]:
    """Yield what a path may be: below one of the tops, or a bare name anywhere."""
    for top in TOPS:
        yield from (top / f"{named.rstrip('/')}{ending}" for ending in ENDINGS)
    if "/" not in named.rstrip("/"):
        for top in (ROOT / "src" / "rota", ROOT / "tests"):
            yield from top.rglob(named.rstrip("/"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_are_there(page: Path) -> None:
    named = named_paths(page)

    assert len(named) > 5
    assert [path for path in named if not any(file.exists() for file in files_of(path))] == []


def test_names_are_where_the_code_map_says() -> None:
    found = _INSIDE.findall(PAGES[-1].read_text())

    assert len(found) > 20
    assert [(name, path) for name, path in found if not is_in(name, path)] == []


def is_in(name: str, path: str) -> bool:
    return any(
        re.search(rf"\b{name}\b", file.read_text()) for file in files_of(path) if file.is_file()
    )

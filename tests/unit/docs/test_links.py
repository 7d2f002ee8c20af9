"""No link leads nowhere, and what pages name of the repository is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.unit.docs.pages import PAGES, ROOT, inline_code, name_of, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PARTS = {
    *("bench", "contracts", "deploy", "docs", "examples", "requirements"),
    *("src", "testkit", "tests", "tools"),
}
PATH = re.compile(r"([\w-]+)/[\w./*<>-]*")
SOURCE = re.compile(r"[\w<>/]+\.(?:py|sql)")
MODULE = re.compile(r"(?:rota|testkit)(?:\.[a-z_]+)+")
THEIRS = {
    *("deploy/secrets/", "deploy/tls/"),  # made by whoever runs the compose file
    *("shop.py", "rota.toml"),  # files of users
}


def places() -> Iterator[str]:
    """Files, and folders that have some; no caches and environments."""
    for part in sorted(PARTS):
        for folder, folders, files in os.walk(ROOT / part):
            folders[:] = [name for name in folders if not name.startswith((".", "__", "node_"))]
            here = Path(folder).relative_to(ROOT).as_posix()
            yield from (f"/{here}/{name}" for name in files)
            if files or folders:
                yield f"/{here}"


PLACES = list(places())
ROOMS = PARTS | {place.split("/")[3] for place in PLACES if place.startswith("/src/rota/")}


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(prose(page)) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(page.read_text("utf-8"))
    }


def is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or (anchor != "" and anchor not in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_places_that_exist(page: Path) -> None:
    assert [link for link in links(page) if is_broken(page, link)] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, ahead = set[Path](), [ROOT / "docs" / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            ahead += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]

    assert [name_of(page) for page in PAGES if page not in reached and "docs" in page.parts] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def named_of_repository(page: Path) -> set[str]:
    """Words between backticks that look like places of the repository."""
    words = {word.partition("::")[0] for code in inline_code(page) for word in code.split()}
    return {word for word in words if looks_like_ours(word)} - THEIRS


def looks_like_ours(word: str) -> bool:
    path = PATH.fullmatch(word)
    is_in_a_room = path is not None and path[1] in ROOMS
    return is_in_a_room or bool(SOURCE.fullmatch(word) or MODULE.fullmatch(word))


def is_there(name: str) -> bool:
    """Whether it is somewhere; `<noun>` is any name, and modules need no `.py` or have dots."""
    if not SOURCE.fullmatch(name) and MODULE.fullmatch(name):
        name = name.replace(".", "/")
    pattern = "*/" + re.sub(r"<\w+>", "*", name).rstrip("/")
    return any(fnmatchcase(place, each) for place in PLACES for each in (pattern, f"{pattern}.py"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_places_of_the_repository_exist(page: Path) -> None:
    assert sorted(name for name in named_of_repository(page) if not is_there(name)) == []


def test_a_place_that_is_gone_is_noticed() -> None:
    gone = ["store/letting_go.py", "letting_go.py", "rota.store.letting_go", "tests/units/cli"]

    assert [looks_like_ours(name) and not is_there(name) for name in gone] == [True] * len(gone)

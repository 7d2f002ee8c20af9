"""No link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.docs.pages import PAGES, ROOT, name_of, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


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

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from rota.domain.access import Role
from tests.unit.server.gateway.served import Served

pytestmark = pytest.mark.anyio


async def test_the_job_file_schema_is_published(served: Served) -> None:
    schema = (await served.get("schema", Role.VIEWER)).json()

    assert schema["$schema"].endswith("2020-12/schema")


async def test_pages_run_nothing_and_load_only_their_style(served: Served) -> None:
    for path, loads in (("/", ["link"]), ("/api/v1/docs", ["link"])):
        page = await served.get(path)

        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert Loads.of(page.text) == loads


async def test_the_docs_page_lists_the_api(served: Served) -> None:
    page = await served.get("docs")

    assert "/api/v1/jobs/{job}/runs:batch" in page.text


class Loads(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @classmethod
    def of(cls, text: str) -> list[str]:
        parser = cls()
        parser.feed(text)
        return parser.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe", "style", "form"}:
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name.startswith("on") or name == "src"]

"""What pages take from the code is what the code says now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.docs.pages import PAGES, ROOT, inline_code, name_of, rows
from tools.generate_docs import BLOCK, BLOCKS, renewed

import rota
from rota.cli.exits import Exit
from rota.domain.states import TRANSITIONS, RunEvent, RunState
from rota.gateway.app import create_app
from rota.gateway.openapi import describe

DOCS = ROOT / "docs"
GENERATED = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", GENERATED, ids=name_of)
def test_generated_blocks_are_current(page: Path) -> None:
    assert page.read_text() == renewed(page.read_text()), "renew it with: make docs"


def test_every_block_is_on_one_page() -> None:
    used = [block["name"] for page in GENERATED for block in BLOCK.finditer(page.read_text())]

    assert sorted(used) == sorted(BLOCKS)

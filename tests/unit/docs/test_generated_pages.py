"""What pages take from the code is what the code says now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rota
from rota.cli.terminal import Exit
from rota.domain.states import FINAL_STATES, RunEvent, RunState
from tests.unit.docs.pages import PAGES, ROOT, inline_code, name_of, rows
from tools.generate_docs import BLOCK, BLOCKS, WIDTH, renewed

REFERENCE = ROOT / "docs" / "reference"
GENERATED = [page for page in PAGES if BLOCK.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", GENERATED, ids=name_of)
def test_generated_blocks_are_current(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", WIDTH)
    text = page.read_text("utf-8")

    assert text == renewed(text), "renew it with: make docs"


def test_every_block_is_on_one_page() -> None:
    pages = [page.read_text("utf-8") for page in GENERATED]

    assert sorted(block["name"] for page in pages for block in BLOCK.finditer(page)) == sorted(
        BLOCKS
    )


def test_every_call_is_told_in_a_whole_sentence() -> None:
    page = (REFERENCE / "rest.md").read_text("utf-8")

    calls = re.findall(r"^\| `[A-Z]+ /.*$", page, re.MULTILINE)

    assert calls
    assert [call for call in calls if not call.endswith(". |")] == []


def test_page_that_is_out_of_date_is_noticed() -> None:
    page = (REFERENCE / "states.md").read_text("utf-8")

    assert renewed(page.replace("| `QUEUED` | `claimed` | `CLAIMED` |\n", "")) == page


def test_states_are_explained_in_the_order_of_the_code() -> None:
    explained = rows(REFERENCE / "states.md")

    assert [row[0] for row in explained] == [f"`{state}`" for state in RunState]
    assert {row[0] for row in explained if row[2] == "final"} == {
        f"`{state}`" for state in FINAL_STATES
    }


def test_every_event_is_explained() -> None:
    explained = " ".join(row[0] for row in rows(REFERENCE / "states.md", "Events"))

    assert [event for event in RunEvent if f"`{event}`" not in explained] == []


def test_every_exit_code_is_explained() -> None:
    explained = rows(REFERENCE / "cli.md", "Exit codes")

    assert [int(row[0]) for row in explained] == [int(code) for code in Exit]


def test_every_public_name_of_the_sdk_is_explained() -> None:
    explained = {code.partition("(")[0] for code in inline_code(REFERENCE / "sdk.md")}

    assert set(rota.__all__) - explained == set()

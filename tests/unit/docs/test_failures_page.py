"""Every line about a failure names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs" / "failures.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
ROWS = re.findall(r"^\| (\*\*.+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_named_test_exists(file: str, test: str) -> None:
    assert re.search(rf"\bdef {test}\(", (ROOT / file).read_text("utf-8"))


def test_every_failure_names_its_proof() -> None:
    assert len(ROWS) > 10
    assert [row for row in ROWS if "`tests/" not in row and "the campaign" not in row] == []

"""Every promise names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs" / "design" / "guarantees.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
PROMISES = re.findall(r"^\| (?!promise|---)(.+?) \| (.*) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_named_test_exists(file: str, test: str) -> None:
    assert re.search(rf"\bdef {test}\(", (ROOT / file).read_text("utf-8"))


def test_every_name_of_a_test_is_one_that_is_looked_for() -> None:
    assert PAGE.count("`tests/") == len(re.findall(r"`tests/[\w/]+\.py::\w+`", PAGE))


def test_every_promise_names_its_proof() -> None:
    assert len(PROMISES) > 20
    assert [promise for promise, proof in PROMISES if "`tests/" not in proof] == []

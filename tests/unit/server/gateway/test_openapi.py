"""The OpenAPI document is the one that was checked in: a change of the API is a visible one."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tools.generate_docs import OPENAPI, openapi


def test_openapi_document_is_the_one_that_was_checked_in() -> None:
    snapshot, current = OPENAPI.read_text("utf-8"), openapi()

    if current != snapshot:
        lines = unified_diff(
            snapshot.splitlines(), current.splitlines(), "checked in", "now", lineterm=""
        )
        pytest.fail("\n".join(["the API has changed; if it should, run: make docs", *lines]))

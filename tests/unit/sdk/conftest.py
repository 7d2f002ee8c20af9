from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.sdk.answering import Answering, AnsweringServer


@pytest.fixture
def server() -> Iterator[Answering]:
    with AnsweringServer() as answering:
        yield answering

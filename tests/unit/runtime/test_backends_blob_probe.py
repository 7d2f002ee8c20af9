"""A server says at its start that there is nowhere to put output, and starts all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota.blobs.files import open_files
from rota.blobs.objects import open_objects
from rota.runtime.backends import BlobProbe

pytestmark = pytest.mark.anyio

NOWHERE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "here",
}


async def test_store_that_answers_is_no_news(tmp_path: Path) -> None:
    async with await open_files(tmp_path) as blobs:
        with capture_logs() as lines:
            await BlobProbe(blobs).run()

    assert lines == []


async def test_store_that_is_away_is_told_and_nothing_fails() -> None:
    async with await open_objects("s3://bucket", NOWHERE) as blobs:
        with capture_logs() as lines:
            await BlobProbe(blobs).run()

    [line] = lines
    assert (line["event"], line["log_level"]) == ("blobs.away", "warning")
    assert "endpoint" in line["hint"]

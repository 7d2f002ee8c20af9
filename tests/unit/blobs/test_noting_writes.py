"""A bucket that takes nothing is told once, and once more when it does again."""

from __future__ import annotations

from datetime import timedelta

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from structlog.testing import capture_logs

from rota.blobs.objects import ObjectBlobs, parse_bucket
from rota.domain.errors import Unavailable

pytestmark = pytest.mark.anyio


class Bucket:
    """Refuses as many writes as it is told to."""

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals

    async def put(self, *_: object, **__: object) -> None:
        if self._refusals:
            self._refusals -= 1
            raise PermissionDeniedError("status code: 403 Forbidden")


async def test_refused_writes_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstore, "put_async", Bucket(refusals=2).put)
    blobs = ObjectBlobs(parse_bucket("s3://missing"), obstore.store.MemoryStore(), timedelta(1))

    with capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(Unavailable, match="bucket missing, or it does not exist"):
                await blobs.put("a/b", b"text")
        await blobs.put("a/b", b"text")
        await blobs.put("a/c", b"text")

    assert [line["event"] for line in lines] == ["blobs.away", "blobs.back"]

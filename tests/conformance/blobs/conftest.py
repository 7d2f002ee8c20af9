"""Every adapter of the blob port, each test with a place of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.blobs.files import open_files
from rota.blobs.objects import open_objects
from rota.ports.blobs import Blobs
from testkit.servers.azurite import Azurite
from testkit.servers.s3 import S3Server

_AZURE = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first use installs it


@pytest.fixture(params=["files", "s3", pytest.param("azure", marks=_AZURE)])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Blobs]:
    opened = await _open(request, tmp_path)
    yield opened
    await opened.close()


async def _open(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "files":
        return await open_files(tmp_path / "blobs")
    server: S3Server | Azurite = request.getfixturevalue(request.param)
    return await open_objects(f"{server.address}/{uuid.uuid4()}", server.environ())

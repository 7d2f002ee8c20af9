from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.blobs.files import open_files
from rota.domain.errors import Unavailable

pytestmark = pytest.mark.anyio


@pytest.fixture
def tiny_files() -> Iterator[int]:
    """The system refuses to let a file grow past so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def test_a_write_that_breaks_off_leaves_nothing_behind(
    tmp_path: Path, tiny_files: int
) -> None:
    async with await open_files(tmp_path) as blobs:
        with pytest.raises(Unavailable) as caught:
            await blobs.put("a/b", b"x" * (tiny_files + 1))

        assert caught.value.code == "no_space"
        assert files_below(tmp_path) == []


async def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with await open_files(tmp_path) as blobs:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(Unavailable, match="No space left") as caught:
                await blobs.put("a/b", b"text")
        await blobs.put("a/b", b"again")

        assert "free some space" in caught.value.hint
        assert await blobs.get("a/b") == b"again"


async def test_leftovers_of_a_crash_are_cleared_when_opened(tmp_path: Path) -> None:
    async with await open_files(tmp_path) as blobs:
        await blobs.put("a/b", b"text")
    (tmp_path / ".incoming" / "7").write_bytes(b"half")

    async with await open_files(tmp_path) as blobs:
        assert files_below(tmp_path) == [tmp_path / "a" / "b"]
        assert await blobs.get("a/b") == b"text"


async def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(Unavailable, match="cannot be used"):
        await open_files(tmp_path / "file" / "blobs")


async def test_the_folder_is_the_owners_alone(tmp_path: Path) -> None:
    async with await open_files(tmp_path / "blobs"):
        assert (tmp_path / "blobs").stat().st_mode & 0o077 == 0

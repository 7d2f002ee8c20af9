from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.ports.executor import Exit
from rota.walls.disk import LOOK_EVERY, DiskLimited, is_over, shortage
from testkit.clock import FakeClock, FakeTicker

pytestmark = pytest.mark.anyio

KIB = 1024


class TestMeasuring:
    def test_files_count_with_what_they_take(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a/file").write_bytes(b"x" * 100 * KIB)

        assert is_over(tmp_path, 90 * KIB)
        assert not is_over(tmp_path, 200 * KIB)

    def test_holes_cost_nothing(self, tmp_path: Path) -> None:
        os.truncate(os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY), 1 << 40)

        assert not is_over(tmp_path, 100 * KIB)

    def test_empty_files_count_for_the_inodes_that_they_take(self, tmp_path: Path) -> None:
        for number in range(100):
            (tmp_path / str(number)).touch()

        assert is_over(tmp_path, 399 * KIB)
        assert not is_over(tmp_path, 401 * KIB)

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "out").symlink_to("/usr")

        assert not is_over(tmp_path, 10 * KIB)

    def test_what_is_too_deep_to_be_measured_is_too_much(self, tmp_path: Path) -> None:
        (tmp_path / "/".join("d" * 300)).mkdir(parents=True)
        before = len(list(Path("/proc/self/fd").iterdir()))

        assert is_over(tmp_path, 1 << 40)
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_a_look_that_runs_out_of_descriptors_keeps_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "/".join("d" * 20)).mkdir(parents=True)
        look, before = os.scandir, len(list(Path("/proc/self/fd").iterdir()))
        looks = iter([look] * 5)

        def scandir(folder: int) -> Iterator[os.DirEntry[str]]:
            for able in looks:
                return able(folder)
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", scandir)
            is_over(tmp_path, 1 << 40)

        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_folder_that_is_gone_takes_nothing(self, tmp_path: Path) -> None:
        assert not is_over(tmp_path / "none", 0)


def disk(*, size: int, free: int) -> os.statvfs_result:
    """Return what the kernel tells of a file system, in MiB."""
    block, files = 1 << 20, 1 << 20
    return os.statvfs_result((block, block, size, free, free, files, files, files, 0, 255))


class TestShortage:
    def test_too_little_space_is_told_with_the_setting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "statvfs", lambda _: disk(size=10_000, free=60))

        told = shortage(tmp_path, 64 << 20)

        assert "takes nothing new: 60 MiB" in told
        assert "disk_floor" in told

    def test_small_disk_need_not_have_more_free_than_a_twentieth(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "statvfs", lambda _: disk(size=40, free=2))
        assert shortage(tmp_path, 64 << 20) == ""

        monkeypatch.setattr(os, "statvfs", lambda _: disk(size=40, free=1))
        assert shortage(tmp_path, 64 << 20)

    def test_enough_is_enough(self, tmp_path: Path) -> None:
        assert shortage(tmp_path, 1) == ""
        assert shortage(tmp_path, 0) == ""

    def test_folder_that_cannot_be_looked_at_is_a_shortage(self, tmp_path: Path) -> None:
        assert "cannot be looked at" in shortage(tmp_path / "none", 1)


class Process:
    """Implements `rota.ports.executor.Process`."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.ended.set_result(Exit(None, 9))


class TestLimit:
    async def test_a_process_that_fills_its_folder_is_killed_and_says_why(
        self, tmp_path: Path
    ) -> None:
        ticker, process = FakeTicker(), Process()
        limited = DiskLimited(process, tmp_path, 50 * KIB, FakeClock(ticker))
        await a_turn()
        (tmp_path / "file").write_bytes(b"x" * 100 * KIB)

        ticker.advance(LOOK_EVERY + timedelta(milliseconds=1))

        async with asyncio.timeout(5):
            assert await limited.ended == Exit(None, 9, cause="disk")

    async def test_one_that_does_not_ends_as_it_likes(self, tmp_path: Path) -> None:
        process = Process()
        limited = DiskLimited(process, tmp_path, 50 * KIB, FakeClock(FakeTicker()))

        limited.signal(15)
        process.ended.set_result(Exit(3, None))

        assert await limited.ended == Exit(3, None)
        assert process.signals == [15]


async def a_turn() -> None:
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned

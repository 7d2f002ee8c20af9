"""Archives that others made: what is fine is there, what is not is refused with the reason."""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.sources.unpack import place
from rota.sources.wish import Bounds, FileWish, SourceRefused
from testkit.hostile import (
    bombs,
    entry,
    hostile_archives,
    link,
    million_tar,
    million_zip,
    tar,
    zip_entry,
    zipped,
)

SMALL = Bounds(bytes=1024**2, files=50)
HOSTILE = hostile_archives(SMALL)


@contextmanager
def kept(data: bytes, name: str) -> Iterator[FileWish]:
    descriptor = os.memfd_create("archive")
    try:
        os.write(descriptor, data)
        yield FileWish(name, descriptor, len(data))
    finally:
        os.close(descriptor)


class Ground:
    """A folder to unpack into, with something beside it that must stay as it is."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "job"
        self.folder.mkdir()
        self.outside = top / "outside"
        self.outside.write_text("untouched")
        self.before = self._beside()

    def _beside(self) -> object:
        top = self.folder.parent
        status = self.outside.stat()
        return sorted(top.iterdir()), self.outside.read_text(), status.st_mode, status.st_nlink

    def unpack(self, data: bytes, name: str = "code.tar", bounds: Bounds = SMALL) -> int:
        try:
            with kept(data, name) as file:
                return place(file, str(self.folder), bounds)
        finally:
            assert self._beside() == self.before

    def refuses(self, data: bytes, name: str = "code.tar", bounds: Bounds = SMALL) -> str:
        with pytest.raises(SourceRefused) as refused:
            self.unpack(data, name, bounds)
        return str(refused.value)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


USUAL = (
    entry("./", type=tarfile.DIRTYPE, mode=0o755),
    entry("./app/", type=tarfile.DIRTYPE, mode=0o700),
    entry("./app/run.sh", b"#!/bin/sh\n", 0o755),
    entry("./app/données ☃.txt", b"text", 0o600),
    entry("deep/er/file", b"made without its folders"),
    link("app/latest", "run.sh"),
    link("deep/er/up", "../../app/run.sh"),
    link("app/same.sh", "app/run.sh", tarfile.LNKTYPE),
)


class TestWhatIsFine:
    @pytest.mark.parametrize(
        ("name", "pack"),
        [
            ("code.tar", bytes),
            ("code.tar.gz", gzip.compress),
            ("code.tgz", gzip.compress),
            ("CODE.TAR.XZ", lzma.compress),
        ],
    )
    @pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    def test_a_tar_file_is_there_as_it_was_packed(
        self, ground: Ground, name: str, pack: Callable[[bytes], bytes], form: int
    ) -> None:
        assert ground.unpack(pack(tar(*USUAL, form=form)), name) == len(USUAL)

        app = ground.folder / "app"
        assert (app / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (app / "données ☃.txt").read_text() == "text"
        assert (app / "données ☃.txt").stat().st_mode & 0o777 == 0o644
        assert (ground.folder / "deep/er/up").resolve() == app / "run.sh"
        assert (app / "same.sh").samefile(app / "run.sh")
        assert (app / "latest").readlink().name == "run.sh"

    def test_several_members_of_gzip_are_one_file(self, ground: Ground) -> None:
        data = tar(*USUAL)

        ground.unpack(gzip.compress(data[:700]) + gzip.compress(data[700:]), "code.tar.gz")

        assert (ground.folder / "deep/er/file").exists()

    def test_a_zip_file_is_there_as_it_was_packed(self, ground: Ground) -> None:
        data = zipped(
            ("app/", b""),
            (zip_entry("app/run.sh", stat.S_IFREG | 0o755), b"#!/bin/sh\n"),
            ("app/données.txt", b"text"),
            (zip_entry("app/latest", stat.S_IFLNK | 0o777), b"run.sh"),
        )

        ground.unpack(data, "code.zip")

        assert os.access(ground.folder / "app/run.sh", os.X_OK)
        assert (ground.folder / "app/données.txt").read_text() == "text"
        assert (ground.folder / "app/latest").readlink().name == "run.sh"

    def test_what_is_no_archive_is_one_program(self, ground: Ground) -> None:
        ground.unpack(b"#!/bin/sh\n", "ship.sh")

        assert os.access(ground.folder / "ship.sh", os.X_OK)

    def test_without_a_name_its_first_bytes_tell(self, ground: Ground) -> None:
        ground.unpack(gzip.compress(tar(*USUAL)), "")

        assert (ground.folder / "app/run.sh").exists()

    def test_an_input_is_never_unpacked(self, ground: Ground) -> None:
        with kept(tar(*USUAL), "data.tar") as file:
            wish = FileWish("data.tar", file.descriptor, file.size, input="data")
            place(wish, str(ground.folder), SMALL)

        assert (ground.folder / "data.tar").is_file()
        assert not os.access(ground.folder / "data.tar", os.X_OK) or os.geteuid() == 0

    def test_an_input_takes_no_file_of_the_source_away(self, ground: Ground) -> None:
        (ground.folder / "data.csv").symlink_to(ground.outside)
        with kept(b"1,2", "data.csv") as file:
            wish = FileWish("data.csv", file.descriptor, file.size, input="data")
            with pytest.raises(SourceRefused, match="the source has, too: give the file another"):
                place(wish, str(ground.folder), SMALL)

        assert ground.outside.read_text() == "untouched"


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_with_the_reason(ground: Ground, case: str) -> None:
    archive = HOSTILE[case]

    assert archive.reason in ground.refuses(archive.data, archive.name)
    assert sum(1 for _ in ground.folder.rglob("*")) <= SMALL.files


@pytest.mark.parametrize("case", ["zeros", "zeros, zip"])
def test_a_bomb_is_refused_by_what_it_becomes(ground: Ground, case: str) -> None:
    assert bombs()[case].reason in ground.refuses(bombs()[case].data, bombs()[case].name, Bounds())


def test_a_size_that_no_header_tells(ground: Ground) -> None:
    data = zipped(("a", b"x" * 100_000), ("b", b"y" * 100_000))

    assert "more than 146.5 KiB" in ground.refuses(data, "code.zip", Bounds(150_000, 50))


def test_a_zip_file_of_a_million_is_counted_before_anything_is_made_of_it(ground: Ground) -> None:
    """Whatever number it tells: the library would make an object of each first."""
    for data in (million_zip(), million_zip(told=10)):
        assert "more than 200,000 entries" in ground.refuses(data, "code.zip", Bounds())
        assert list(ground.folder.iterdir()) == []


def test_a_tar_file_of_a_million_is_refused_at_the_bound(ground: Ground) -> None:
    reason = ground.refuses(million_tar(), "code.tar.gz", Bounds(files=1_000))

    assert "more than 1,000 entries" in reason
    assert sum(1 for _ in ground.folder.iterdir()) == 1_000


@pytest.mark.parametrize("comment", [b"", b"said about it"])
def test_entries_are_counted_whatever_comes_after_them(ground: Ground, comment: bytes) -> None:
    data = zipped(*((f"f{number}", b"") for number in range(51)))
    data = data[:-2] + len(comment).to_bytes(2, "little") + comment

    assert "more than 50 entries" in ground.refuses(data, "code.zip")
    assert list(ground.folder.iterdir()) == []

"""Archives that others made: what is fine is there, what is not is refused with the reason."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.sources.unpack import place
from rota.sources.wish import Bounds, FileWish, SourceRefused

Entry = tarfile.TarInfo
SMALL = Bounds(bytes=1024**2, files=50)


def entry(name: str, data: bytes = b"", mode: int = 0o644, **fields: object) -> tuple[Entry, bytes]:
    info = Entry(name)
    info.size, info.mode = len(data), mode
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[Entry, bytes]:
    return entry(name, type=kind, linkname=target)


def tar(*entries: tuple[Entry, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(
        fileobj=data, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for named, content in entries:
            # Of no time of its own: what pytest makes names of is the same in all its processes.
            info = zipfile.ZipInfo(named) if isinstance(named, str) else named
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def zip_entry(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


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


HOSTILE_TARS = {
    "traversal": (tar(entry("../outside", b"x")), "leads out"),
    "traversal inside": (tar(entry("a/../../outside", b"x")), "leads out"),
    "absolute": (tar(entry("/etc/rota-was-here", b"x")), "begins with /"),
    "absolute link": (tar(link("a", "/etc/passwd")), "leads out"),
    "link out": (tar(entry("d", type=tarfile.DIRTYPE), link("d/a", "../../outside")), "leads out"),
    "link to above": (tar(link("a", "..")), "leads out"),
    "link up behind a link": (
        tar(link("d/e/f", "../.."), link("x", "d/e/f/../outside")),
        "leads out",
    ),
    "written through a link": (
        tar(link("a", "b"), entry("b", type=tarfile.DIRTYPE), entry("a/file", b"x")),
        "written through",
    ),
    "written through nested links": (
        tar(entry("b/c/file", b"1"), link("b/c/l", ".."), link("m", "b/c/l"), entry("m/x", b"x")),
        "written through",
    ),
    "a file in the place of a link": (tar(link("a", "b"), entry("a", b"x")), "written through"),
    "a link in the place of a file": (tar(entry("a", b"x"), link("a", "b")), "twice"),
    "a link in the place of a folder": (tar(entry("a/f", b"x"), link("a", "b")), "twice"),
    "a folder in the place of a file": (tar(entry("a", b"x"), entry("a/b", b"x")), "twice"),
    "the same name twice": (tar(entry("a", b"1"), entry("./a", b"2")), "twice"),
    "the folder itself": (tar(entry("./", b"x")), "the folder itself"),
    "hard link out": (tar(link("a", "../outside", tarfile.LNKTYPE)), "leads out"),
    "hard link to the machine": (tar(link("a", "/etc/passwd", tarfile.LNKTYPE)), "begins with /"),
    "hard link to a link": (
        tar(link("l", "x"), link("a", "l", tarfile.LNKTYPE)),
        "no file before it",
    ),
    "hard link to nothing": (tar(link("a", "b", tarfile.LNKTYPE)), "no file before it"),
    "device": (tar(entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)), "a device"),
    "disk": (tar(entry("sda", type=tarfile.BLKTYPE, devmajor=8)), "a device"),
    "pipe": (tar(entry("pipe", type=tarfile.FIFOTYPE)), "a pipe"),
    "setuid": (tar(entry("su", b"x", 0o4755)), "setuid"),
    "setgid": (tar(entry("sg", b"x", 0o2755)), "setuid"),
    "case": (tar(entry("README", b"1"), entry("readme", b"2")), "the same name on many machines"),
    "case of folders": (tar(entry("A/x", b"1"), entry("a/y", b"2")), "the same name"),
    "unicode": (tar(entry("é", b"1"), entry("e\u0301", b"2")), "the same name"),
    "not UTF-8": (tar(entry("caf\udce9", b"x"), form=tarfile.GNU_FORMAT), "is not UTF-8"),
    "control characters": (tar(entry("a\nb", b"x")), "control characters"),
    "backslash": (tar(entry("..\\outside", b"x")), "backslash"),
    "long name": (tar(entry("x" * 300, b"x")), "too long"),
    "deep": (tar(entry("/".join("d" * 200), b"x")), "folders deep"),
    "too many": (tar(*(entry(f"f{number}") for number in range(51))), "more than 50 entries"),
    "too large": (tar(entry("f", bytes(1024**2 + 1))), "more than 1 MiB"),
    "cut off": (tar(entry("f", bytes(4000)))[:2000], "cannot be unpacked"),
    "no archive": (b"this is no archive" * 100, "cannot be unpacked"),
    "empty": (b"", "cannot be unpacked"),
}


@pytest.mark.parametrize("case", HOSTILE_TARS)
def test_a_hostile_tar_file_is_refused_with_the_reason(ground: Ground, case: str) -> None:
    data, reason = HOSTILE_TARS[case]

    assert reason in ground.refuses(data)
    assert reason in Ground(make(ground.folder.parent / "again")).refuses(
        gzip.compress(data), "code.tar.gz"
    )


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def sparse_gnu() -> bytes:
    """A file of a terabyte that is all hole, in the old format of GNU."""
    info = Entry("hole")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"%011o\0" % 0  # the one piece: offset
    header[398:410] = b"%011o\0" % 512  # and length
    header[483:495] = b"%011o\0" % (1 << 32)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512 + 1024)


def sparse_pax() -> bytes:
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**40)}
    info, _ = entry("hole", b"0\n" + bytes(510), pax_headers=headers)
    return tar((info, b"0\n" + bytes(510)))


@pytest.mark.parametrize("data", [sparse_gnu(), sparse_pax()], ids=["gnu", "pax"])
def test_a_sparse_file_is_refused(ground: Ground, data: bytes) -> None:
    assert "sparse" in ground.refuses(data)


def test_a_header_that_never_ends_is_refused(ground: Ground) -> None:
    """The library would read it as a whole: a gigabyte that is a megabyte in the archive."""
    info = Entry("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1024**3

    reason = ground.refuses(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024), bounds=Bounds())

    assert "a header of 1 GiB" in reason


class TestBombs:
    def test_by_ratio(self, ground: Ground) -> None:
        data = gzip.compress(tar(entry("zeros", bytes(70 * 1024**2))))

        assert "bomb" in ground.refuses(data, "code.tar.gz", Bounds())

    def test_by_ratio_in_a_zip(self, ground: Ground) -> None:
        data = zipped(("zeros", bytes(70 * 1024**2)))

        assert "bomb" in ground.refuses(data, "code.zip", Bounds())

    def test_by_headers_of_headers(self, ground: Ground) -> None:
        """Each is about the next one: the library goes one call deeper for each."""
        info = Entry("././@LongLink")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, 512
        header = info.tobuf(tarfile.GNU_FORMAT) + bytes(512)

        assert "cannot be unpacked" in ground.refuses(header * 5_000, bounds=Bounds())

    def test_by_count(self, ground: Ground) -> None:
        """A million files: refused at the bound, long before they are all there."""
        headers = (Entry(f"f{number}").tobuf(tarfile.USTAR_FORMAT) for number in range(2_000))
        data = gzip.compress(b"".join(headers), 1)

        reason = ground.refuses(data, "code.tar.gz", Bounds(1024**2, 200))

        assert "more than 200 entries" in reason
        assert sum(1 for _ in ground.folder.iterdir()) <= 200

    def test_by_folders_that_no_entry_tells(self, ground: Ground) -> None:
        entries = [entry("/".join(f"{n}-{at}" for at in range(20)) + "/f") for n in range(20)]

        reason = ground.refuses(tar(*entries), bounds=Bounds(1024**2, 100))

        assert "more than 100 entries" in reason
        assert sum(1 for _ in ground.folder.rglob("*")) <= 100

    def test_by_size_that_no_header_tells(self, ground: Ground) -> None:
        data = zipped(("a", b"x" * 100_000), ("b", b"y" * 100_000))

        assert "more than 146.5 KiB" in ground.refuses(data, "code.zip", Bounds(150_000, 50))


def with_size(data: bytes, size: int) -> bytes:
    """A zip file whose only entry says another size than it has."""
    place_of = data.index(b"PK\x01\x02")
    local = data[:22] + struct.pack("<I", size) + data[26:place_of]
    central = data[place_of:]
    return local + central[:24] + struct.pack("<I", size) + central[28:]


class TestHostileZips:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (zipped(("../outside", b"x")), "leads out"),
            (zipped(("/etc/rota-was-here", b"x")), "begins with /"),
            (zipped(("..\\outside", b"x")), "backslash"),
            (zipped((zip_entry("a", stat.S_IFLNK | 0o777), b"/etc/passwd")), "leads out"),
            (zipped((zip_entry("a", stat.S_IFLNK | 0o777), b"../outside")), "leads out"),
            (
                zipped((zip_entry("a", stat.S_IFLNK | 0o777), b"b"), ("a/x", b"x")),
                "written through",
            ),
            (zipped((zip_entry("a", stat.S_IFLNK | 0o777), b"x" * 5000)), "no file can have"),
            (zipped((zip_entry("d", stat.S_IFCHR | 0o666), b"")), "no file, folder or link"),
            (zipped((zip_entry("p", stat.S_IFIFO | 0o666), b"")), "no file, folder or link"),
            (zipped((zip_entry("su", stat.S_IFREG | 0o4755), b"x")), "setuid"),
            (zipped(("README", b"1"), ("readme", b"2")), "the same name on many machines"),
            (zipped(("folder/", b"content")), "a folder with content"),
            (with_size(zipped(("a", b"x" * 1000)), 10), "cannot be unpacked"),
            (with_size(zipped(("a", b"x" * 1000)), 100_000), "size"),
            (zipped(("a", b"x"))[:-30], "cannot be unpacked"),
            (b"PK\x03\x04 and nothing more", "cannot be unpacked"),
        ],
    )
    def test_it_is_refused_with_the_reason(self, ground: Ground, data: bytes, reason: str) -> None:
        assert reason in ground.refuses(data, "code.zip")

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_the_same_name_twice(self, ground: Ground) -> None:
        assert "twice" in ground.refuses(zipped(("a", b"1"), ("a", b"2")), "code.zip")

    def test_a_name_with_a_zero_byte(self, ground: Ground) -> None:
        data = zipped(("a_b", b"x")).replace(b"a_b", b"a\0b")

        assert "control characters" in ground.refuses(data, "code.zip")

    def test_a_name_that_is_not_utf_8(self, ground: Ground) -> None:
        data = zipped(("a_b", b"x")).replace(b"a_b", b"a\xe9b")

        assert "is not UTF-8" in ground.refuses(data, "code.zip")

    def test_encrypted(self, ground: Ground) -> None:
        data = bytearray(zipped(("a", b"x")))
        data[6] |= 1
        data[data.index(b"PK\x01\x02") + 8] |= 1

        assert "is encrypted" in ground.refuses(bytes(data), "code.zip")

    def test_entries_that_share_their_bytes(self, ground: Ground) -> None:
        """A thousand names for one packed gigabyte: each alone is within all bounds."""
        one = zipped(("a", os.urandom(20_000)))
        central = one.index(b"PK\x01\x02")
        end = one.index(b"PK\x05\x06")
        entry_of_a, rest = one[central:end], one[end:]
        entries = entry_of_a + entry_of_a.replace(b"a", b"b") + entry_of_a.replace(b"a", b"c")
        record = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 3, 3, len(entries), central, 0)
        assert rest

        assert "overlap" in ground.refuses(one[:central] + entries + record, "code.zip")

"""Unpacking of archives that others made, into a folder that is empty.

Nothing in an archive is believed. Folders are opened one component after the other and never
through a link; links are made when all else is there, so that nothing is written through one. What
an archive says of its sizes is an announcement: what is written is counted.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO, BinaryIO

from rota.domain.files import ARCHIVES
from rota.sources.wish import Bounds, FileWish, SourceRefused, quoted, sized

_MOST_RATIO = 200  # of what comes out to what went in; text hardly gets beyond 20
_ALWAYS_ALLOWED = 64 * 1024**2  # bytes, whatever the ratio
_LONGEST_PART, _LONGEST_PATH, _DEEPEST = 255, 4096, 100
_MOST_MEMORY = 256 * 1024**2  # of a decompressor
_LONGEST_HEADER = 1024**2  # bytes, of what a tar file has besides files
_PIECE = 1024**2
_FOLDER, _FILE, _PROGRAM = 0o755, 0o644, 0o755
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    gzip.BadGzipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    MemoryError,
    OverflowError,
)
_MAGIC = {
    b"\x1f\x8b": ".tar.gz",
    b"\xfd7zXZ\x00": ".tar.xz",
    b"PK\x03\x04": ".zip",
    b"PK\x05\x06": ".zip",
}


def place(file: FileWish, folder: str, bounds: Bounds) -> int:
    """Put a file into the folder: unpacked, if its name says so; return how many entries it has.

    A file without a name, by its first bytes. Raise `SourceRefused`.
    """
    kind = kind_of(file)
    with _opened(folder) as top, os.fdopen(os.dup(file.descriptor), "rb") as data:
        data.seek(0)
        if not kind or file.input:
            with suppress(FileNotFoundError):
                os.lstat(file.name, dir_fd=top)
                raise SourceRefused(_taken(file))
            _copy(data, top, file.name or "source", _FILE if file.input else _PROGRAM)
            return 1
        writer = Writer(top, bounds, os.fstat(file.descriptor).st_size)
        try:
            if kind == ".zip":
                _unzip(data, writer)
            else:
                _untar(data, kind, writer)
        except _BROKEN as error:
            raise SourceRefused(
                f"{quoted(file.name)} cannot be unpacked: {_reason(error)}"
            ) from error
        writer.finish()
        return writer.count


def _taken(file: FileWish) -> str:
    return (
        f"the input {file.input} is the file {quoted(file.name)}, which the source has, too: give"
        " the file another name"
    )


def kind_of(file: FileWish) -> str:
    """Return the ending that says how a file is unpacked; "": it is not."""
    name = file.name.lower()
    if name:
        return next((ending for ending in ARCHIVES if name.endswith(ending)), "")
    head = os.pread(file.descriptor, 512, 0)
    if head[257:262] == b"ustar":
        return ".tar"
    return next((ending for magic, ending in _MAGIC.items() if head.startswith(magic)), "")


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it takes more memory than unpacking may"
    return str(error) or type(error).__name__


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    top = os.open(folder, _OPEN_FOLDER)
    try:
        yield top
    finally:
        os.close(top)


def _copy(data: IO[bytes], folder: int, name: str, mode: int) -> None:
    with os.fdopen(os.open(name, _NEW_FILE, mode, dir_fd=folder), "wb") as file:
        os.fchmod(file.fileno(), mode)
        while piece := data.read(_PIECE):
            file.write(piece)


@dataclass(slots=True)
class Writer:
    """Writer of what an archive has, below a folder."""

    top: int
    bounds: Bounds
    packed: int  # bytes of the archive
    count: int = 0
    written: int = 0  # bytes
    _kinds: dict[tuple[str, ...], str] = field(default_factory=dict)  # file, folder, link
    _names: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)  # folded → real
    _links: dict[tuple[str, ...], str] = field(default_factory=dict)
    _implied: int = 0  # folders that are on the way to entries, and none themselves

    def folder(self, name: str) -> None:
        self._count()
        if parts := self._parts(name):
            self._enter(parts, "folder")

    def file(self, name: str, mode: int, size: int, data: IO[bytes]) -> None:
        """Write a file; it must have as many bytes as the archive says."""
        self._count()
        if mode & (stat.S_ISUID | stat.S_ISGID):
            raise SourceRefused(f"{quoted(name)} would run as its owner (setuid)")
        if self.written + size > self.bounds.bytes:
            raise SourceRefused(self._too_large())
        with self._new(name, _PROGRAM if mode & 0o111 else _FILE) as file:
            found = 0
            while piece := data.read(_PIECE):
                found += len(piece)
                self._note_bytes(len(piece))
                if found > size:
                    break
                file.write(piece)
        if found != size:
            raise SourceRefused(f"{quoted(name)} has not the size that the archive says")

    def link(self, name: str, target: str) -> None:
        """Note a symbolic link, which is made at the end."""
        self._count()
        parts = self._parts(name)
        pure = PurePosixPath(target)
        ups = 0
        for part in pure.parts:
            if part != "..":
                break
            ups += 1
        # Only at its beginning, where it is exact: beyond a name, which may be a link itself, ".."
        # would lead who knows where.
        is_plain = ".." not in pure.parts[ups:]
        if not target or pure.is_absolute() or not is_plain or ups >= len(parts):
            raise SourceRefused(
                f"the link {quoted(name)} leads out of the folder: {quoted(target)}"
            )
        if len(os.fsencode(target)) >= _LONGEST_PATH or "\0" in target:
            raise SourceRefused(f"the link {quoted(name)} has a target that no file can have")
        self._enter(parts, "link")
        self._links[parts] = target

    def hard_link(self, name: str, target: str) -> None:
        """Give a file that was written before another name."""
        self._count()
        source = self._parts(target)
        if self._kinds.get(source) != "file":
            raise SourceRefused(
                f"{quoted(name)} is a link to {quoted(target)}, which is no file before it"
            )
        parts = self._parts(name)
        self._enter(parts, "file")
        with self._parent(source) as old, self._parent(parts) as new:
            os.link(source[-1], parts[-1], src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)

    def refuse(self, name: str, what: str) -> None:
        raise SourceRefused(f"{quoted(name)} is {what}, which no source may have")

    def finish(self) -> None:
        """Make the links."""
        for parts, target in self._links.items():
            with self._parent(parts) as folder:
                os.symlink(target, parts[-1], dir_fd=folder)

    # --- one entry

    def _count(self) -> None:
        self.count += 1
        self.refuse_many(self.count + self._implied)

    def refuse_many(self, count: int) -> None:
        """Refuse an archive that has so many entries, if these are too many."""
        if count > self.bounds.files:
            raise SourceRefused(
                f"the archive has more than {self.bounds.files:,} entries, the most that the"
                " worker's setting source_files allows"
            )

    def _note_bytes(self, count: int) -> None:
        self.written += count
        if self.written > self.bounds.bytes:
            raise SourceRefused(self._too_large())
        if self.written > max(_ALWAYS_ALLOWED, _MOST_RATIO * self.packed):
            raise SourceRefused(
                f"the archive of {sized(self.packed)} becomes more than {_MOST_RATIO} times as"
                " large: it looks like a bomb"
            )

    def _too_large(self) -> str:
        return (
            f"the archive becomes more than {sized(self.bounds.bytes)}, the most that the"
            " worker's setting source_limit allows"
        )

    def _parts(self, name: str) -> tuple[str, ...]:
        """Return the components of a name below the folder; (): it is the folder itself."""
        try:
            length = len(name.encode())
        except UnicodeEncodeError:
            raise SourceRefused(f"the name {quoted(name)} is not UTF-8") from None
        if name.startswith("/") or length >= _LONGEST_PATH:
            what = "begins with /" if length < _LONGEST_PATH else "is too long"
            raise SourceRefused(f"the name {quoted(name)} {what}")
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        for part in parts:
            if part == "..":
                raise SourceRefused(f"the name {quoted(name)} leads out of the folder")
            if len(part.encode()) > _LONGEST_PART:
                raise SourceRefused(f"the name {quoted(name)} is too long")
            if "\\" in part or any(ord(each) < 32 or ord(each) == 127 for each in part):
                raise SourceRefused(
                    f"the name {quoted(name)} has a backslash or control characters"
                )
        if len(parts) > _DEEPEST:
            raise SourceRefused(f"the name {quoted(name)} is more than {_DEEPEST} folders deep")
        return parts

    def _enter(self, parts: tuple[str, ...], kind: str) -> None:
        """Note what is at a path, and make the folders above it."""
        if not parts:
            raise SourceRefused("the archive has the folder itself as a file")
        for depth in range(1, len(parts)):
            self._note(parts[:depth], "folder", is_implied=True)
        self._note(parts, kind)

    def _note(self, parts: tuple[str, ...], kind: str, *, is_implied: bool = False) -> None:
        present = self._kinds.get(parts)
        if present is None:
            self._note_name(parts)
            self._kinds[parts] = kind
            if is_implied:  # an entry of its own was counted by then
                self._implied += 1
                self.refuse_many(self.count + self._implied)
            if kind == "folder":
                with self._parent(parts) as above:
                    os.mkdir(parts[-1], _FOLDER, dir_fd=above)
        elif present != "folder" or kind != "folder":
            name = quoted("/".join(parts))
            if present == "link":
                raise SourceRefused(f"{name} is a link, and something is to be written through it")
            raise SourceRefused(f"{name} is in the archive twice")

    def _note_name(self, parts: tuple[str, ...]) -> None:
        folded = tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)
        other = self._names.setdefault(folded, parts)
        if other != parts:
            raise SourceRefused(
                f"{quoted('/'.join(other))} and {quoted('/'.join(parts))} are the same name on"
                " many machines"
            )

    @contextmanager
    def _parent(self, parts: tuple[str, ...]) -> Iterator[int]:
        """Open the folder of an entry, which no link is on the way to."""
        folder = os.dup(self.top)
        try:
            for part in parts[:-1]:
                below = os.open(part, _OPEN_FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _new(self, name: str, mode: int) -> Iterator[IO[bytes]]:
        parts = self._parts(name)
        self._enter(parts, "file")
        with self._parent(parts) as folder:
            descriptor = os.open(parts[-1], _NEW_FILE, mode, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            yield file


# --- zip

_END, _END_64, _WHERE_64, _LISTED = b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2"
_END_SIZE, _END_64_SIZE, _WHERE_64_SIZE, _LISTED_SIZE = 22, 56, 20, 46
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_ENCRYPTED, _UTF8 = 0x1, 0x800
_UNIX = 3


def _unzip(data: BinaryIO, writer: Writer) -> None:
    if os.fstat(data.fileno()).st_size > writer.bounds.bytes:
        raise SourceRefused("the archive itself is larger than a source may be")
    writer.refuse_many(_count_listed(data, writer.bounds.files + 1))
    with zipfile.ZipFile(data) as archive:
        entries = archive.infolist()
        if sum(entry.compress_size for entry in entries) > writer.packed:
            raise SourceRefused("its entries overlap: it looks like a bomb")
        for entry in entries:
            _unzip_one(archive, entry, writer)


def _count_listed(data: BinaryIO, most: int) -> int:
    """Count the entries that a zip file lists at its end, as far as to `most`.

    The library makes an object of each before it tells how many there are, and does not believe the
    number that is written either.
    """
    size = os.fstat(data.fileno()).st_size
    tail_at = max(size - _END_SIZE - 0xFFFF, 0)
    tail = os.pread(data.fileno(), size - tail_at, tail_at)
    last = tail[-_END_SIZE:]  # where it is, unless a comment follows
    has_comment = not (last.startswith(_END) and last.endswith(b"\0\0"))
    place = tail.rfind(_END) if has_comment else len(tail) - _END_SIZE
    if place < 0 or place + _END_SIZE > len(tail):
        return 0  # it is no zip file, as the library will say
    end = tail_at + place
    (length,) = struct.unpack_from("<I", tail, place + 12)
    at_64 = end - _WHERE_64_SIZE - _END_64_SIZE
    if at_64 >= 0:
        both = os.pread(data.fileno(), _END_64_SIZE + _WHERE_64_SIZE, at_64)
        if both.startswith(_END_64) and both[_END_64_SIZE:].startswith(_WHERE_64):
            (length,) = struct.unpack_from("<Q", both, 40)
            end = at_64
    count = 0
    data.seek(max(end - length, 0))
    while count < most:
        header = data.read(_LISTED_SIZE)
        if len(header) < _LISTED_SIZE or not header.startswith(_LISTED):
            break
        count += 1
        data.seek(sum(struct.unpack_from("<HHH", header, 28)), os.SEEK_CUR)
    return count


def _unzip_one(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, writer: Writer) -> None:
    name = _name_in_zip(entry)
    mode = entry.external_attr >> 16 if entry.create_system == _UNIX else 0
    kind = stat.S_IFMT(mode)
    if entry.flag_bits & _ENCRYPTED:
        raise SourceRefused(f"{quoted(name)} is encrypted: pack it without a password")
    if entry.compress_type not in _METHODS:
        raise SourceRefused(f"{quoted(name)} is packed in a way that is not known here")
    if name.endswith("/"):
        if entry.file_size:
            raise SourceRefused(f"{quoted(name)} is a folder with content")
        writer.folder(name)
    elif kind == stat.S_IFLNK:
        if entry.file_size >= _LONGEST_PATH:
            raise SourceRefused(f"the link {quoted(name)} has a target that no file can have")
        writer.link(name, archive.read(entry).decode("utf-8", "surrogateescape"))
    elif kind in (0, stat.S_IFREG):
        with archive.open(entry) as content:
            writer.file(name, mode, entry.file_size, content)
    else:
        writer.refuse(name, "no file, folder or link")


def _name_in_zip(entry: zipfile.ZipInfo) -> str:
    """Return the name as it is written: the library cuts it at a zero byte, for one."""
    name = entry.orig_filename
    if entry.flag_bits & _UTF8:
        return name
    raw = name.encode("cp437")
    try:
        return raw.decode("utf-8")  # what nearly all programs write, with or without that flag
    except UnicodeDecodeError:
        raise SourceRefused(f"the name {quoted(name)} is not UTF-8") from None


# --- tar


class _Member(tarfile.TarInfo):
    """Member of a tar file, whose headers have bounds: the library reads these as a whole."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        is_header = self.type in _HEADERS
        if is_header and self.size > _LONGEST_HEADER:
            raise SourceRefused(f"the archive has a header of {sized(self.size)}")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise SourceRefused(f"{quoted(self.name)} is a sparse file: pack it without --sparse")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class _Unpacked(io.RawIOBase):
    """Decompressed bytes of a file, counted: headers and padding, too."""

    def __init__(self, data: BinaryIO, kind: str, writer: Writer) -> None:
        self._data = data
        self._make = _decompressor(kind)
        self._engine = self._make()
        self._count = 0
        # Each entry has a header of 512 bytes, perhaps with two more of extensions.
        self._most = writer.bounds.bytes + 4096 * (writer.bounds.files + 1)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        self._count += len(piece)
        if self._count > self._most:
            raise SourceRefused("the archive becomes larger than a source may be")
        return len(piece)

    def _next(self, most: int) -> bytes:
        while True:
            if self._engine.eof:
                self._rest = self._engine.unused_data or self._data.read(_PIECE)
                if not self._rest:
                    return b""
                self._engine = self._make()  # several members, one after the other
            else:
                self._rest = self._data.read(_PIECE) if self._engine.needs_input else b""
            # At the end of the data there may be some that it has kept.
            if piece := self._engine.decompress(self._rest, most):
                return piece
            if not self._rest and not self._engine.eof and self._engine.needs_input:
                raise EOFError("it ends too early")


class _Gzip:
    """Decompressor of gzip with the manners of those of the library for the other formats."""

    def __init__(self) -> None:
        self._engine = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._engine.eof

    @property
    def unused_data(self) -> bytes:
        return self._engine.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._engine.unconsumed_tail and not self._engine.eof

    def decompress(self, data: bytes, most: int) -> bytes:
        return self._engine.decompress(self._engine.unconsumed_tail or data, most)


def _decompressor(kind: str) -> Callable[[], _Gzip | lzma.LZMADecompressor]:
    if kind == ".tar.xz":
        return lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
    return _Gzip


def _untar(data: BinaryIO, kind: str, writer: Writer) -> None:
    source: IO[bytes] = data
    if kind != ".tar":
        source = io.BufferedReader(_Unpacked(data, kind, writer), _PIECE)
    with tarfile.open(
        fileobj=source, mode="r|", tarinfo=_Member, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        while (entry := archive.next()) is not None:
            _untar_one(archive, entry, writer)
            archive.members.clear()  # type: ignore[attr-defined] # else all of a million stay


def _untar_one(archive: tarfile.TarFile, entry: tarfile.TarInfo, writer: Writer) -> None:
    if entry.issparse():
        raise SourceRefused(f"{quoted(entry.name)} is a sparse file: pack it without --sparse")
    if entry.isdir():
        writer.folder(entry.name)
    elif entry.issym():
        writer.link(entry.name, entry.linkname)
    elif entry.islnk():
        writer.hard_link(entry.name, entry.linkname)
    elif entry.isreg():
        content = archive.extractfile(entry)
        assert content is not None
        writer.file(entry.name, entry.mode, entry.size, content)
    else:
        kinds = {
            tarfile.CHRTYPE: "a device",
            tarfile.BLKTYPE: "a device",
            tarfile.FIFOTYPE: "a pipe",
        }
        writer.refuse(entry.name, kinds.get(entry.type, "of a kind that is not known here"))

"""Archives and repositories that attack whoever unpacks or fetches them, with the reasons told.

One corpus for the program that fetches and for jobs on a real server: what is found once is tried
in both places. Sizes and counts go by the bounds that are given.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rota.sources.wish import Bounds, sized
from testkit.servers.git import Repository

MILLION = 1_000_000
Entry = tarfile.TarInfo


@dataclass(frozen=True, slots=True)
class Archive:
    """Archive, and a part of the message that refuses it."""

    name: str
    data: bytes = field(repr=False)
    reason: str


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
    with warnings.catch_warnings(), zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.filterwarnings("ignore", "Duplicate name")
        for named, content in entries:
            # Of no time of its own: what pytest makes names of is the same in all its processes.
            info = zipfile.ZipInfo(named) if isinstance(named, str) else named
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def zip_entry(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


def hostile_archives(bounds: Bounds) -> Mapping[str, Archive]:
    """Return all of them, by what is wrong with each: tar files plain, and packed with gzip."""
    found = {}
    for name, (data, reason) in hostile_tars(bounds).items():
        found[f"{name}, plain"] = Archive("code.tar", data, reason)
        found[f"{name}, packed"] = Archive("code.tar.gz", gzip.compress(data, 1), reason)
    for name, (data, reason) in hostile_zips().items():
        found[f"{name}, zip"] = Archive("code.zip", data, reason)
    return found


def hostile_tars(bounds: Bounds) -> Mapping[str, tuple[bytes, str]]:
    """Return tar files with a part of the message that refuses each, by what is wrong."""
    folder, hard, plain = tarfile.DIRTYPE, tarfile.LNKTYPE, Entry("f")
    plain.size = bounds.bytes + 1
    many = [entry(f"f{number}") for number in range(bounds.files + 1)]
    return {
        "traversal": (tar(entry("../outside", b"x")), "leads out"),
        "traversal inside": (tar(entry("a/../../outside", b"x")), "leads out"),
        "absolute": (tar(entry("/etc/rota-was-here", b"x")), "begins with /"),
        "absolute link": (tar(link("a", "/etc/passwd")), "leads out"),
        "link out": (tar(entry("d", type=folder), link("d/a", "../../outside")), "leads out"),
        "link to above": (tar(link("a", "..")), "leads out"),
        "link up behind a link": (
            tar(link("d/e/f", "../.."), link("x", "d/e/f/../outside")),
            "leads out",
        ),
        "written through a link": (
            tar(link("a", "b"), entry("b", type=folder), entry("a/file", b"x")),
            "written through",
        ),
        "written through nested links": (
            tar(
                entry("b/c/file", b"1"), link("b/c/l", ".."), link("m", "b/c/l"), entry("m/x", b"x")
            ),
            "written through",
        ),
        "a file in the place of a link": (tar(link("a", "b"), entry("a", b"x")), "written through"),
        "a link in the place of a file": (tar(entry("a", b"x"), link("a", "b")), "twice"),
        "a link in the place of a folder": (tar(entry("a/f", b"x"), link("a", "b")), "twice"),
        "a folder in the place of a file": (tar(entry("a", b"x"), entry("a/b", b"x")), "twice"),
        "the same name twice": (tar(entry("a", b"1"), entry("./a", b"2")), "twice"),
        "the folder itself": (tar(entry("./", b"x")), "the folder itself"),
        "hard link out": (tar(link("a", "../outside", hard)), "leads out"),
        "hard link to the machine": (tar(link("a", "/etc/passwd", hard)), "begins with /"),
        "hard link to a link": (tar(link("l", "x"), link("a", "l", hard)), "no file before it"),
        "hard link to nothing": (tar(link("a", "b", hard)), "no file before it"),
        "device": (tar(entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)), "a device"),
        "disk": (tar(entry("sda", type=tarfile.BLKTYPE, devmajor=8)), "a device"),
        "pipe": (tar(entry("pipe", type=tarfile.FIFOTYPE)), "a pipe"),
        "setuid": (tar(entry("su", b"x", 0o4755)), "setuid"),
        "setgid": (tar(entry("sg", b"x", 0o2755)), "setuid"),
        "case": (tar(entry("README", b"1"), entry("readme", b"2")), "the same name on many"),
        "case of folders": (tar(entry("A/x", b"1"), entry("a/y", b"2")), "the same name"),
        "unicode": (tar(entry("é", b"1"), entry("e\u0301", b"2")), "the same name"),
        "not UTF-8": (tar(entry("caf\udce9", b"x"), form=tarfile.GNU_FORMAT), "is not UTF-8"),
        "control characters": (tar(entry("a\nb", b"x")), "control characters"),
        "backslash": (tar(entry("..\\outside", b"x")), "backslash"),
        "long name": (tar(entry("x" * 300, b"x")), "too long"),
        "deep": (tar(entry("/".join("d" * 200), b"x")), "folders deep"),
        "sparse": (_sparse_gnu(), "sparse"),
        "sparse in headers": (_sparse_pax(), "sparse"),
        "too many": (tar(*many), f"more than {bounds.files:,} entries"),
        "too many folders on the way": (tar(*_ways(bounds)), f"more than {bounds.files:,} entries"),
        "too large": (plain.tobuf(), f"more than {sized(bounds.bytes)}"),
        "a header that never ends": (_long_name(1024**3) + bytes(1024), "a header of 1 GiB"),
        # Each is about the next one: the library goes one call deeper for each.
        "headers of headers": (_long_name(512, bytes(512)) * 5_000, "cannot be unpacked"),
        "cut off": (tar(entry("f", bytes(4000)))[:2000], "cannot be unpacked"),
        "no archive": (b"this is no archive" * 100, "cannot be unpacked"),
        "empty": (b"", "cannot be unpacked"),
    }


def _ways(bounds: Bounds) -> list[tuple[Entry, bytes]]:
    """Return files that are few, with many folders on the way to them."""
    return [
        entry("/".join(f"{number}-{at}" for at in range(20)) + "/f")
        for number in range(bounds.files // 20 + 1)
    ]


def _sparse_gnu() -> bytes:
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


def _sparse_pax() -> bytes:
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**40)}
    info, _ = entry("hole", b"0\n" + bytes(510), pax_headers=headers)
    return tar((info, b"0\n" + bytes(510)))


def _long_name(size: int, content: bytes = b"") -> bytes:
    info = Entry("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, size
    return info.tobuf(tarfile.GNU_FORMAT) + content


# --- zip


def hostile_zips() -> Mapping[str, tuple[bytes, str]]:
    """Return zip files with a part of the message that refuses each, by what is wrong."""
    link_to = partial(zip_entry, mode=stat.S_IFLNK | 0o777)
    return {
        "traversal": (zipped(("../outside", b"x")), "leads out"),
        "absolute": (zipped(("/etc/rota-was-here", b"x")), "begins with /"),
        "backslash": (zipped(("..\\outside", b"x")), "backslash"),
        "absolute link": (zipped((link_to("a"), b"/etc/passwd")), "leads out"),
        "link out": (zipped((link_to("a"), b"../outside")), "leads out"),
        "written through a link": (zipped((link_to("a"), b"b"), ("a/x", b"x")), "written through"),
        "a link that is no path": (zipped((link_to("a"), b"x" * 5000)), "no file can have"),
        "device": (zipped((zip_entry("d", stat.S_IFCHR | 0o666), b"")), "no file, folder or link"),
        "pipe": (zipped((zip_entry("p", stat.S_IFIFO | 0o666), b"")), "no file, folder or link"),
        "setuid": (zipped((zip_entry("su", stat.S_IFREG | 0o4755), b"x")), "setuid"),
        "case": (zipped(("README", b"1"), ("readme", b"2")), "the same name on many machines"),
        "the same name twice": (zipped(("a", b"1"), ("a", b"2")), "twice"),
        "a zero byte": (zipped(("a_b", b"x")).replace(b"a_b", b"a\0b"), "control characters"),
        "not UTF-8": (zipped(("a_b", b"x")).replace(b"a_b", b"a\xe9b"), "is not UTF-8"),
        "a folder with content": (zipped(("folder/", b"content")), "a folder with content"),
        "less than it says": (_with_size(zipped(("a", b"x" * 1000)), 100_000), "size"),
        "more than it says": (_with_size(zipped(("a", b"x" * 1000)), 10), "cannot be unpacked"),
        "encrypted": (_encrypted(), "is encrypted"),
        "entries that share their bytes": (_overlapping(), "overlap"),
        "cut off": (zipped(("a", b"x"))[:-30], "cannot be unpacked"),
        "no archive": (b"PK\x03\x04 and nothing more", "cannot be unpacked"),
    }


def _with_size(data: bytes, size: int) -> bytes:
    """A zip file whose only entry says another size than it has."""
    place_of = data.index(b"PK\x01\x02")
    local = data[:22] + struct.pack("<I", size) + data[26:place_of]
    central = data[place_of:]
    return local + central[:24] + struct.pack("<I", size) + central[28:]


def _encrypted() -> bytes:
    data = bytearray(zipped(("a", b"x")))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def _overlapping() -> bytes:
    """A thousand names for one packed gigabyte: each alone is within all bounds."""
    one = zipped(("a", os.urandom(20_000)))
    central, end = one.index(b"PK\x01\x02"), one.index(b"PK\x05\x06")
    entry_of_a = one[central:end]
    entries = entry_of_a + entry_of_a.replace(b"a", b"b") + entry_of_a.replace(b"a", b"c")
    record = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 3, 3, len(entries), central, 0)
    return one[:central] + entries + record


# --- bombs


def bombs() -> Mapping[str, Archive]:
    """Return archives that become very large; bounds must be above 70 MiB to let these decide."""
    zeros = bytes(70 * 1024**2)
    return {
        "zeros": Archive("code.tar.gz", gzip.compress(tar(entry("zeros", zeros))), "a bomb"),
        "zeros, zip": Archive("code.zip", zipped(("zeros", zeros)), "a bomb"),
    }


def million_tar() -> bytes:
    """Return a packed tar file of a million empty files."""
    headers = bytearray(Entry(f"{0:07}").tobuf(tarfile.USTAR_FORMAT))
    base = sum(headers[:148]) + 8 * ord(" ") + sum(headers[156:])
    packer, parts = zlib.compressobj(1, wbits=31), []
    for number in range(MILLION):
        digits = b"%07d" % number
        headers[:7] = digits
        headers[148:156] = b"%06o\0 " % (base + sum(digits) - 7 * ord("0"))
        parts.append(packer.compress(headers))
    return b"".join([*parts, packer.compress(bytes(1024)), packer.flush()])


def million_zip(told: int = MILLION) -> bytes:
    """Return a zip file of a million empty files; its last record may tell another number."""
    local = struct.Struct("<4sHHHHHIIIHH7s")
    listed = struct.Struct("<4sHHHHHHIIIHHHHHII7s")
    names = [b"%07d" % number for number in range(MILLION)]
    data = [local.pack(b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, 7, 0, name) for name in names]
    fields = (b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 7, 0, 0, 0, 0, 0)
    data += [listed.pack(*fields, at * local.size, name) for at, name in enumerate(names)]
    begin, size = MILLION * local.size, MILLION * listed.size
    end = begin + size
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, told, told, size, begin)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    few, all_ = min(told, 0xFFFF), 0xFFFFFFFF
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, few, few, all_, all_, 0)
    return b"".join([*data, record, locator, last])


# --- repositories


@dataclass(frozen=True, slots=True)
class Attack:
    """Repository, and a part of the message that refuses it."""

    make: Callable[[Path, str], Repository]  # in a folder that is served, with a name
    reason: str
    git: Mapping[str, Any] = field(default_factory=dict)  # beside its address


def hostile_repositories(bounds: Bounds) -> Mapping[str, Attack]:
    """Return repositories by what is wrong with them."""
    count = f"more than {bounds.files:,} files"
    size = f"larger than {sized(bounds.bytes)}"
    with_submodules = {"submodules": True}
    named = {
        "traversal": "..",
        "a name that is a path": "../outside",
        "an absolute name": "/etc/rota-was-here",
        "its own settings": ".git",
        "its own settings in capitals": ".GIT",
        "its own settings as Windows shortens them": "GIT~1",
        "its own settings with a letter that nobody sees": ".g\u200cit",
    }
    addresses = {
        "metadata": ("http://169.254.169.254/latest", "must not be reached"),
        "a file": ("file:///etc", "no address to go to"),
        "a command": ("ext::sh -c id", "no address to go to"),
        "an option": ("-u./evil.sh", "no address to go to"),
        "beyond the host": ("../../../../x.git", "leads beyond"),
    }
    return {
        **{
            name: Attack(partial(_with_entry, written), "invalid path")
            for name, written in named.items()
        },
        **{
            f"a submodule at {name}": Attack(partial(_with_submodule, url), why, with_submodules)
            for name, (url, why) in addresses.items()
        },
        "too many files": Attack(partial(_repeated, 32, 6, is_file=True), count),
        "a million files": Attack(partial(_repeated, 1_000, 2, is_file=True), count),
        "too many folders": Attack(partial(_repeated, 10, 9, is_file=False), count),
        "a path that no file can have": Attack(_deep, "more than 4,095 bytes"),
        "too large": Attack(partial(_large, bounds.bytes + 1), size),
        "larger than it says": Attack(partial(_growing, bounds), size),
    }


def _with_entry(name: str, folder: Path, repository: str) -> Repository:
    """Give a tree an entry that no honest program writes: a folder with a hook in it."""
    made = Repository.make(folder, repository)
    hook = {"hooks/post-checkout.sh": "#!/bin/sh\ntouch /tmp/rota-was-here\n"}
    below = made.run("rev-parse", f"{made.commit(hook)}^{{tree}}")
    made.push_tree(made.write_tree(("40000", name.encode(), below)))
    return made


def _with_submodule(url: str, folder: Path, repository: str) -> Repository:
    made = Repository.make(folder, repository)
    first = made.commit({"a": "1"})
    made.add_submodule("library", url, first)
    made.commit_index()
    return made


def _repeated(
    width: int, depth: int, folder: Path, repository: str, *, is_file: bool
) -> Repository:
    """Name one file, or one empty folder, width ** depth times: a few kilobytes to fetch."""
    made = Repository.make(folder, repository)
    blob = made.run("rev-parse", f"{made.commit({'a': 'x'})}:a")
    tree = f"100644 blob {blob}" if is_file else f"040000 tree {made.make_tree('')}"
    for _ in range(depth):
        listed = made.make_tree("".join(f"{tree}\tf{number:04}\n" for number in range(width)))
        tree = f"040000 tree {listed}"
    made.push_tree(tree.split()[-1])
    return made


def _deep(folder: Path, repository: str) -> Repository:
    made = Repository.make(folder, repository)
    blob = made.run("rev-parse", f"{made.commit({'a': '1'})}:a")
    tree = made.make_tree(f"100644 blob {blob}\tf")
    for _ in range(17):
        tree = made.make_tree(f"040000 tree {tree}\t{'d' * 250}\n")
    made.push_tree(tree)
    return made


def _large(size: int, folder: Path, repository: str) -> Repository:
    made = Repository.make(folder, repository)
    made.commit({"zeros": bytes(size)})
    return made


def _growing(bounds: Bounds, folder: Path, repository: str) -> Repository:
    """Files that git writes nine times as large as it keeps them, each below the bound."""
    made = Repository.make(folder, repository)
    content = b"$Id$\n" * (bounds.bytes // 250)
    files = {f"f{number}": content for number in range(10)}
    made.commit({".gitattributes": "* ident\n", **files})
    return made

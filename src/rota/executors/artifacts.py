"""Artifacts of a step: found in its folder, and opened so that no job leads its worker astray.

A job may leave anything in its folder: links to what only the worker may read, pipes that block
whoever opens them, names that look like ways out, a million files. So each folder on the way is
opened by its name in the one above it, never through a link; what is opened has to be a plain file
of somebody who worked there; and how much is looked at has a bound.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from rota.domain.errors import quoted
from rota.domain.files import (
    MOST_ARTIFACTS,
    MOST_LOOKED_AT,
    matching,
    may_hold,
    path_fault,
)
from rota.domain.quantities import format_size
from rota.domain.spec import Artifacts

_DEEPEST = 100  # folders in one another
_MOST_TOLD = 20  # of what is not kept
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(slots=True)
class Findings:
    """Files of a step that are to be kept, and lines for people about the rest."""

    paths: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # bytes of each, as the limit counted them
    told: list[str] = field(default_factory=list)
    _untold: int = 0

    def leave(self, path: str, why: str) -> None:
        """Note that a file is not kept."""
        self.tell(f"{quoted(path)} was not kept: {why}")

    def tell(self, remark: str) -> None:
        if len(self.told) < _MOST_TOLD:
            self.told.append(remark)
        else:
            self._untold += 1

    def remarks(self) -> list[str]:
        """Return what to tell, a line each."""
        more = [f"{self._untold:,} more were not kept"] if self._untold else []
        return [f"artifacts: {remark}" for remark in (*self.told, *more)]


@dataclass(frozen=True, slots=True)
class Top:
    """Folder that a step works in."""

    path: Path
    is_shared: bool = False  # others may have made a link of any folder on the way to it

    def open(self) -> int:
        if not self.is_shared:
            return os.open(self.path, _FOLDER)
        with _opened(Top(Path(self.path.anchor)), self.path.parts[1:]) as descriptor:
            return os.dup(descriptor)


def find(top: Top, declared: Artifacts) -> Findings:
    """Look for what a step declared; blocks, for a while if there is much."""
    found = Findings()
    matched: set[str] = set()
    size = 0
    for path, status in _entries(top, declared.paths, found):
        patterns = matching(path, declared.paths)
        if not patterns:
            continue
        matched.update(patterns)
        kind = stat.S_IFMT(status.st_mode)
        if kind != stat.S_IFREG:
            found.leave(path, f"it is {_KINDS.get(kind, 'no plain file')}")
        elif fault := path_fault(path):
            found.leave(path, fault)
        elif len(found.paths) >= MOST_ARTIFACTS:
            found.leave(path, f"a step keeps at most {MOST_ARTIFACTS:,} files")
        elif size + status.st_size > declared.limit:
            limit = format_size(declared.limit)
            found.leave(path, f"its {status.st_size:,} bytes are beyond the limit of {limit}")
        else:
            size += status.st_size
            found.sizes[path] = status.st_size
            found.paths.append(path)
    for pattern in declared.paths:
        if pattern not in matched:
            found.tell(f"nothing matches {quoted(pattern)}")
    return found


def _entries(
    top: Top, patterns: Sequence[str], found: Findings
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all that is no folder, by path; only folders that a pattern may reach are opened."""
    waiting, seen = [""], 0
    while waiting:
        folder = waiting.pop()
        try:
            entries = _list(top, folder)
        except OSError as error:
            found.leave(folder or ".", f"the folder cannot be read: {error.strerror}")
            continue
        inner = []
        for name, status in entries:
            seen += 1
            if seen > MOST_LOOKED_AT:
                found.tell(f"only the first {MOST_LOOKED_AT:,} entries were looked at")
                return
            path = f"{folder}/{name}" if folder else name
            if not stat.S_ISDIR(status.st_mode):
                yield path, status
            elif may_hold(path, patterns):
                if path.count("/") < _DEEPEST:
                    inner.append(path)
                else:
                    found.leave(path, "it lies too deep")
        waiting += reversed(inner)


def _list(top: Top, folder: str) -> list[tuple[str, os.stat_result]]:
    with _opened(top, folder.split("/") if folder else []) as descriptor:
        with os.scandir(descriptor) as listed:  # never more than so many, however many there are
            names = [entry.name for entry in islice(listed, MOST_LOOKED_AT + 1)]
        entries = []
        for name in sorted(names):
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            entries.append((name, status))
        return entries


@contextmanager
def _opened(top: Top, parts: Sequence[str]) -> Iterator[int]:
    """Open a folder, each on the way by its name in the one above."""
    descriptor = top.open()
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def open_artifact(top: Top, path: str, writers: Collection[int] | None) -> int:
    """Open a file below a folder for reading; `OSError` says why it cannot be kept.

    `writers` are the users whose files count: a hard link to another's file has that one's number.
    None: all do.
    """
    *parts, name = path.split("/")
    with _opened(top, parts) as folder:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file any more")
    if writers is not None and status.st_uid not in writers:
        os.close(descriptor)
        raise OSError(errno.EPERM, "it is the file of another user")
    return descriptor

"""Rooms: folders of attempts that are not one of the worker's own processes, and their users.

A room belongs to the user of its attempt; what holds it belongs to the worker, so that no link of
a job leads the worker astray. It is never used twice.

A worker that is root gives each sandbox a user of its own, which has no rights anywhere: what gets
out of one finds itself nobody. That user has to reach the room, though the data folder is for the
worker alone: where the guardian has a mount namespace, the rooms are mounted to a place that all
can reach; the namespace ends with the guardian, and the mount with it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

RUN = Path("/run/rota-walls")  # of this machine, for all workers on it
_PARTS = ("job", "tmp", "home", "told")
_PRIVATE, _PASSABLE = 0o700, 0o711
_MS_BIND = 4096


@dataclass(slots=True)
class Room:
    """Folders of one attempt, and the users that its steps were so far."""

    top: Path
    user: int | None = None  # who owns it; None: the worker's own
    users: set[int] = field(default_factory=set)
    lent: int | None = None  # the user of its own that it was given
    _files: int = 0

    @property
    def job(self) -> Path:
        """Return the folder to work in."""
        return self.top / "job"

    @property
    def tmp(self) -> Path:
        return self.top / "tmp"

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def told(self) -> Path:
        """Return the folder of what the job tells Rota."""
        return self.top / "told"

    def new_path(self, suffix: str) -> Path:
        """Return a path of its own, beside the folders of its user."""
        self._files += 1
        return self.top / f"file{self._files}{suffix}"

    def note_worker(self) -> None:
        """Note that a step is the worker's own user: files of that are the attempt's, too."""
        self.users.add(os.geteuid())

    def give_to(self, user: int, group: int) -> None:
        """Let a user work in it from now on; what others made in it stays theirs."""
        if user != self.user:
            for part in _PARTS:
                os.chown(self.top / part, user, group, follow_symlinks=False)
            self.user = user
            self.users.add(user)


class Rooms:
    """All rooms of a worker. Those of an earlier life are removed."""

    def __init__(self, root: Path, uids: Sequence[int], *, may_mount: bool, run: Path = RUN):
        self._root = root
        self._uids = Users(uids, run / "users")
        self._numbers = itertools.count(1)
        remove_tree(root)
        root.mkdir(parents=True)
        root.chmod(_PASSABLE)
        self._ground, self.trouble = reachable(root, run / "rooms", may_mount=may_mount)

    def take(self) -> Room:
        """Make a room, which belongs to the worker at first."""
        room = Room(self._ground / str(next(self._numbers)))
        room.top.mkdir()
        room.top.chmod(_PASSABLE)
        for part in _PARTS:
            (room.top / part).mkdir(mode=_PRIVATE)
        return room

    def lend_user(self, room: Room) -> int:
        """Return a user of its own for a room, the same one each time."""
        if room.lent is None:
            room.lent = self._uids.take()
        return room.lent

    def real(self, room: Room) -> Path:
        """Return where a room is for the worker itself, whatever is mounted where."""
        return self._root / room.top.name

    def remove(self, room: Room) -> None:
        """Remove a room once all its processes have ended; blocks, perhaps for long."""
        remove_tree(self.real(room))
        if room.lent is not None:
            self._uids.give_back(room.lent)
            room.lent = None


class Users:
    """Numbers of users that nobody else on this machine runs a sandbox under at the same time.

    Workers on one machine may have the same range: each number in use is a locked file, which the
    kernel unlocks when its worker ends, however that happens.
    """

    def __init__(self, uids: Sequence[int], folder: Path) -> None:
        self._free = deque(uids)
        self._folder = folder
        self._locks: dict[int, int] = {}

    def take(self) -> int:
        """Return one that is free; `OSError` if none is."""
        _make_passable(self._folder.parent)
        self._folder.mkdir(mode=_PRIVATE, exist_ok=True)
        for _ in range(len(self._free)):
            uid = self._free.popleft()
            if self._lock(uid):
                return uid
            self._free.append(uid)
        raise OSError(errno.EAGAIN, "all users of sandbox_uids are in use")

    def _lock(self, uid: int) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._folder / str(uid), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._locks[uid] = descriptor
        return True

    def give_back(self, uid: int) -> None:
        os.close(self._locks.pop(uid))
        self._free.appendleft(uid)  # first again: else each number leaves a file in time


def reachable(root: Path, place: Path, *, may_mount: bool) -> tuple[Path, str]:
    """Return where others can reach this folder, and why they cannot, if so."""
    if os.geteuid() != 0 or all(map(_is_passable, root.absolute().parents)):
        return root, ""
    if not may_mount:
        return root, (
            f"other users cannot reach {root.absolute()}, and without a namespace of its own"
            " (setting namespace) the worker cannot mount it elsewhere: move ROTA_HOME to a"
            " folder that all may pass through"
        )
    try:
        _make_passable(place.parent)
        _make_passable(place)
        _bind(root, place)
    except OSError as error:
        return root, f"{root.absolute()} cannot be mounted to {place}: {error.strerror}"
    return place, ""


def _is_passable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _make_passable(folder: Path) -> None:
    """Make a folder that is the worker's own, which all may pass through and nobody may list."""
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(_PASSABLE)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"{folder} belongs to somebody else")


def _bind(source: Path, target: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(_MS_BIND), None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def give_tree(top: Path, user: int, group: int) -> None:
    """Give a folder and all in it to a user, in which nobody works at present."""
    for _, folders, files, folder in os.fwalk(top, follow_symlinks=False):
        os.fchown(folder, user, group)
        for name in (*folders, *files):
            os.chown(name, user, group, dir_fd=folder, follow_symlinks=False)


def remove_tree(top: Path) -> None:
    """Remove a folder and all in it, however deep, and whatever rights a job left it with.

    Folders that are not empty move up to the top first: so no path gets long, no call recurses,
    and a folder of ten thousand levels costs no more than ten thousand folders. What cannot be
    removed stays, to be tried again at the next start.
    """
    with suppress(OSError):
        top.unlink()  # a link, perhaps
        return
    try:
        descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _empty(descriptor)
    finally:
        os.close(descriptor)
    with suppress(OSError):
        top.rmdir()


def _empty(top: int) -> None:
    # Nobody can have foreseen them: a job might have taken such names for folders of its own.
    names = map(f".{os.urandom(8).hex()}-{{}}".format, itertools.count())
    waiting = _clear(top, top, names)
    while waiting:
        name = waiting.pop()
        with suppress(OSError):
            allow_all(name, top)
            folder = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top
            )
            try:
                waiting += _clear(folder, top, names)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _clear(folder: int, top: int, names: Iterator[str]) -> list[str]:
    """Remove the files of a folder, and move its folders to the top; return their names there."""
    moved: dict[str, None] = {}
    # Again: what is removed during a look may hide other entries from it. Entry by entry, as a job
    # may leave more of them than there is memory for a list.
    while _clear_once(folder, top, names, moved):
        pass
    return list(moved)


def _clear_once(folder: int, top: int, names: Iterator[str], moved: dict[str, None]) -> bool:
    """Return whether something is gone from the folder."""
    has_gone = False
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if not _is_folder(entry):
                    os.unlink(entry.name, dir_fd=folder)
                elif folder == top:
                    moved[entry.name] = None
                    continue
                else:
                    allow_all(entry.name, folder)
                    new = next(names)
                    os.rename(entry.name, new, src_dir_fd=folder, dst_dir_fd=top)
                    moved[new] = None
                has_gone = True
    return has_gone


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def allow_all(name: str, folder: int) -> None:
    """Give its owner all rights to a folder in this one; `OSError` if it is something else.

    Whoever it belongs to may be alive, and put a link in its place at any time.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        Path(f"/proc/self/fd/{descriptor}").chmod(_PRIVATE)
    finally:
        os.close(descriptor)


def folder_below(top: str, folder: str) -> str:
    """Return where a folder of a step is below the folder of its attempt, without links.

    `OSError` if it is not there, or links lead out of that folder. Looked at just before the step
    begins: who made the links was an earlier step, of which nothing runs any more.
    """
    above = Path(os.path.realpath(top))
    try:
        found = (above / folder).resolve(strict=True)
    except PermissionError:
        return folder  # the step itself finds out, as somebody who may or may not enter it
    except (OSError, RuntimeError):  # the latter of links that lead in a circle
        raise OSError(errno.ENOENT, f"there is no folder {folder} in its work folder") from None
    if not found.is_relative_to(above):
        raise OSError(errno.EPERM, f"the folder {folder} leads out of its work folder")
    if not found.is_dir():
        raise OSError(errno.ENOTDIR, f"{folder} in its work folder is not a folder")
    return str(found.relative_to(above))

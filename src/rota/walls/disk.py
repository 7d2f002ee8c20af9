"""Disk: how much a run has filled, and whether the machine has any left.

Both are looked at every two seconds: a soft limit, which something that writes fast exceeds before
it is ended. Hard ones need quotas of the file system, which few machines have.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rota.ports.clock import Clock
from rota.ports.executor import Exit, Process
from rota.walls.rooms import allow_all

LOOK_EVERY = timedelta(seconds=2)
_BLOCK = 512  # bytes, of what the kernel calls blocks of a file
_LEAST = 4096  # bytes that each entry counts: inodes run out, too
_DEEPEST = 200  # levels of folders: each costs a descriptor while it is looked at
_LEAST_INODES = 1000
_MEBIBYTE = 1024 * 1024
_USUAL_FLOOR = 64 * _MEBIBYTE  # one above it was meant, whatever the size of the disk
_DISK_PARTS = 20  # the floor is one of them at the most: a small disk can be used, too


class DiskLimited:
    """Implements `rota.ports.executor.Process`: one that is killed when its folder is too large."""

    def __init__(self, process: Process, folder: Path, limit: int, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._watching = asyncio.get_running_loop().create_task(self._watch(folder, limit))
        process.ended.add_done_callback(self._end)
        self._is_over = False

    def signal(self, number: int) -> None:
        self._process.signal(number)

    def kill(self) -> None:
        self._process.kill()

    async def _watch(self, folder: Path, limit: int) -> None:
        loop = asyncio.get_running_loop()
        # A thread of its own: those that all share may be busy for long, removing what jobs left.
        thread = ThreadPoolExecutor(1, "disk")
        try:
            while not self._is_over:
                await self._clock.sleep(LOOK_EVERY)
                self._is_over = await loop.run_in_executor(thread, is_over, folder, limit)
        finally:
            thread.shutdown(wait=False)
        self._process.kill()  # at once: what it writes in its grace others may need

    def _end(self, ended: asyncio.Future[Exit]) -> None:
        self._watching.cancel()
        ending = ended.result()
        self.ended.set_result(replace(ending, cause="disk") if self._is_over else ending)


def is_over(folder: Path, limit: int) -> bool:
    """Return whether a folder takes more than so many bytes; looks no further than needed.

    What cannot be measured counts as too large: else one would hide there what one fills.
    """
    try:
        return _measure(folder, limit) > limit
    except _Unmeasurable:
        return True
    except OSError:
        return False  # it is gone


class _Unmeasurable(Exception):
    """A folder has more levels than anything useful, or does not let its owner look into it."""


def _measure(folder: Path, limit: int) -> int:
    """Add up what is in a folder, by descriptors: a job may rename what is being looked at."""
    used = 0
    open_folders = [_Folder(os.open(folder, _FLAGS))]
    try:
        while open_folders and used <= limit:
            entry = next(open_folders[-1].entries, None)
            if entry is None:
                open_folders.pop().close()
                continue
            used += _size(entry)
            if entry.is_dir(follow_symlinks=False):
                if len(open_folders) > _DEEPEST:
                    raise _Unmeasurable
                inner = open_folders[-1].enter(entry.name)
                open_folders += [] if inner is None else [inner]
    finally:
        for each in open_folders:
            each.close()
    return used


def _size(entry: os.DirEntry[str]) -> int:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    return max(status.st_blocks * _BLOCK, _LEAST)


_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Folder:
    """Folder that is open to be looked at."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        try:
            self.entries = os.scandir(descriptor)
        except OSError:  # it takes a descriptor, of which a worker may have no more
            os.close(descriptor)
            raise

    def enter(self, name: str) -> _Folder | None:
        """Open a folder in it; None: it is gone.

        A job that is the worker's own user may take the right to look from both.
        """
        try:
            return _Folder(self._open(name))
        except PermissionError as error:
            raise _Unmeasurable from error
        except OSError:
            return None

    def _open(self, name: str) -> int:
        try:
            return os.open(name, _FLAGS, dir_fd=self._descriptor)
        except PermissionError:
            allow_all(name, self._descriptor)
            return os.open(name, _FLAGS, dir_fd=self._descriptor)

    def close(self) -> None:
        self.entries.close()
        os.close(self._descriptor)


def shortage(folder: Path, floor: int) -> str:
    """Say what the file system of a folder lacks to take on more; "": nothing."""
    if not floor:
        return ""
    try:
        status = os.statvfs(folder)
    except OSError as error:
        return f"takes nothing new: {folder} cannot be looked at: {error.strerror}"
    free = status.f_bavail * status.f_frsize
    if floor <= _USUAL_FLOOR:
        floor = min(floor, status.f_blocks * status.f_frsize // _DISK_PARTS)
    if free < floor:
        return (
            f"takes nothing new: {free // _MEBIBYTE} MiB of disk are free at {folder},"
            f" less than {floor / _MEBIBYTE:,.1f} MiB (the setting disk_floor)"
        )
    if status.f_files and status.f_favail < _LEAST_INODES:
        return f"takes nothing new: the file system of {folder} has no room for more files"
    return ""

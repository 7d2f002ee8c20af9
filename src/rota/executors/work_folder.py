"""Working folders of attempts, the files beside them, and the pipes of their output."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import select
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.domain.output import Stream
from rota.domain.run import MAX_OUTPUTS, why_not_portable
from rota.ports.clock import Clock
from rota.ports.executor import OutputSink
from rota.walls.rooms import Room, remove_tree

_PROGRESS_TAIL = 4096
_PROGRESS_MESSAGE = 500
_MODE = 0o700
_CLOCK_TICK = 0.1  # seconds: more than the kernel's clock for time stamps of files may lag
_SECOND_NS = 1_000_000_000


class WorkFolders:
    """Pool of empty folders to work in. One that is still empty afterwards is used again: creating
    and removing folders waits for the file system's journal, which slows down short jobs.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._free: list[WorkFolder] = []
        self._numbers = itertools.count(1)
        remove_tree(root)  # left behind by a worker that was killed
        root.mkdir(parents=True, mode=_MODE)

    def take(self) -> WorkFolder:
        folder = self._free.pop() if self._free else self._make()
        folder.taken_at = self._clock.monotonic()
        return folder

    def _make(self) -> WorkFolder:
        folder = WorkFolder(self._root, str(next(self._numbers)))
        folder.path.mkdir(mode=_MODE)
        return folder

    def give_back(self, folder: WorkFolder) -> None:
        """Return a folder, once every process that worked in it has ended."""
        if folder.is_like_new(self._clock.monotonic()):
            self._free.append(folder)
        else:
            asyncio.get_running_loop().run_in_executor(None, folder.remove)


@dataclass(frozen=True, slots=True)
class FoundEmpty:
    """Change time, which nobody can set, of a folder that was found empty."""

    changed_ns: int
    at: float  # monotonic: when it was first found so

    def still_holds(self, changed_ns: int, taken_at: float) -> bool:
        """Return whether the change time proves that an attempt changed nothing since it began.

        An equal one is no proof if a change by that attempt could have got the same time stamp.
        """
        has_fine_clock = changed_ns % _SECOND_NS != 0  # some file systems count whole seconds
        return changed_ns == self.changed_ns and has_fine_clock and taken_at - self.at > _CLOCK_TICK


class WorkFolder:
    """Working folder, and beside it the files through which the job communicates with Rota."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / name
        self.output = root / f"{name}.output"
        self.progress = root / f"{name}.progress"
        self.taken_at = 0.0  # monotonic
        self._text = str(self.path)
        self._beside = (str(self.output), str(self.progress))
        self._scripts: list[Path] = []
        self._found_empty: FoundEmpty | None = None
        self._writers: Collection[int] | None = None  # users whose files count; None: all

    def is_like_new(self, now: float) -> bool:
        """Return whether nothing was left behind."""
        if self._scripts or any(map(os.path.lexists, self._beside)):
            return False
        try:
            status = os.lstat(self._text)
            found = self._found_empty
            if found is not None and found.still_holds(status.st_ctime_ns, self.taken_at):
                return True
            is_private = stat.S_IMODE(status.st_mode) == _MODE
            with os.scandir(self._text) as entries:
                is_empty = is_private and next(entries, None) is None
        except OSError:
            return False
        if is_empty and (found is None or found.changed_ns != status.st_ctime_ns):
            self._found_empty = FoundEmpty(status.st_ctime_ns, now)
        return is_empty

    @property
    def measured(self) -> Path:
        """Return the folder that counts for a limit of disk."""
        return self.path

    @property
    def writers(self) -> Collection[int] | None:
        """Return the users whose files count; None: all."""
        return self._writers

    def write_script(self, step: int, suffix: str, text: str) -> str:
        """Write the script of a step to a file that its interpreter can read."""
        path = self.path.with_name(f"{self.path.name}.step{step}{suffix}")
        path.write_text(text, "utf-8")
        path.chmod(_MODE)
        self._scripts.append(path)
        return str(path)

    def remove(self) -> None:
        remove_tree(self.path)
        for path in (self.output, self.progress, *self._scripts):
            with suppress(OSError):
                path.unlink()

    def read_outputs(self) -> tuple[Any, str]:
        """Read $ROTA_OUTPUT; return its value, and a complaint if it is not usable."""
        try:
            data = _read_regular(self.output, MAX_OUTPUTS + 1, self._writers)
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"$ROTA_OUTPUT could not be read: {error.strerror}"
        if len(data) > MAX_OUTPUTS:
            return None, "$ROTA_OUTPUT is over 1 MiB and was not kept"
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            return None, f"$ROTA_OUTPUT is not JSON and was not kept: {error}"
        complaint = why_not_portable(value)
        return (None, f"$ROTA_OUTPUT was not kept: {complaint}") if complaint else (value, "")

    def read_progress(self) -> str:
        """Return the last line that the job wrote to $ROTA_PROGRESS; "" if there is none."""
        try:
            data = _read_regular(self.progress, _PROGRESS_TAIL, self._writers, from_end=True)
        except OSError:
            return ""
        return data.decode(errors="replace").strip().rsplit("\n", 1)[-1]


class RoomFolder(WorkFolder):
    """Folder of an attempt with steps that are somebody else, or see nothing else."""

    def __init__(self, room: Room) -> None:
        super().__init__(room.top, room.job.name)
        self.room = room
        self.output = room.told / "output"
        self.progress = room.told / "progress"
        self._writers = room.users

    @property
    def measured(self) -> Path:
        return self.room.top


def _read_regular(
    path: Path, limit: int, writers: Collection[int] | None, *, from_end: bool = False
) -> bytes:
    """Read at most `limit` bytes of a regular file: a job may leave a pipe or a link instead.

    A link to the file of another user has that user's number: it is not among the writers.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        if writers is not None and status.st_uid not in writers:
            raise OSError(errno.EPERM, "it is the file of another user")
        if from_end:
            file.seek(max(status.st_size - limit, 0))
        return file.read(limit)


def parse_progress(line: str) -> tuple[float, float | None, str] | None:
    """Parse `DONE[/TOTAL] [MESSAGE]`, or a JSON object with these names; None: neither."""
    try:
        if line.startswith("{"):
            value = json.loads(line)
            done, total, message = value["done"], value.get("total"), value.get("message", "")
        else:
            numbers, _, message = line.partition(" ")
            done, _, rest = numbers.partition("/")
            total = rest or None
        amounts = [float(done)] if total is None else [float(done), float(total)]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    text = str(message)[:_PROGRESS_MESSAGE]
    if why_not_portable([*amounts, text]):
        return None
    return amounts[0], amounts[1] if len(amounts) > 1 else None, text


_READ_SIZE = 256 * 1024
_KEPT = 4 * 1024  # bytes of the end that are looked at for a last line
_LONGEST_LINE = 200  # characters


def end_of(end: bytes, data: bytes) -> bytes:
    """Return what is kept of the end of a stream, which `data` goes on."""
    return (end + data[-_KEPT:])[-_KEPT:]


def last_line_of(end: bytes) -> str:
    """Return the last line that is not blank, without terminal escape sequences."""
    lines = end.decode(errors="replace").split("\n")
    printable = ("".join(filter(str.isprintable, line)).strip() for line in reversed(lines))
    return next(filter(None, printable), "")[:_LONGEST_LINE]


class Pipes:
    """Reads what all steps print.

    The event loop watches one epoll, which watches the pipes: most of them are gone so soon that
    the event loop's own books about each would cost more than all that is read from them.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._watched: dict[int, Pipe] = {}
        self._loop.add_reader(self._epoll.fileno(), self._read)

    def open(self, open_sink: Callable[[], OutputSink], step: int) -> tuple[Pipe, Pipe]:
        """Open pipes for standard output and error of a step: both or, with an `OSError`, none."""
        stdout = Pipe(self, open_sink, Stream.STDOUT, step)
        try:
            return stdout, Pipe(self, open_sink, Stream.STDERR, step)
        except OSError:
            stdout.discard()
            raise

    def watch(self, descriptor: int, pipe: Pipe) -> None:
        self._epoll.register(descriptor, select.EPOLLIN)
        self._watched[descriptor] = pipe

    def pause(self, descriptor: int) -> None:
        """Stop watching a pipe that stays open."""
        self._epoll.unregister(descriptor)
        del self._watched[descriptor]

    def close_one(self, descriptor: int) -> None:
        """Close the reading end, which ends the watch: nobody else has a copy of it."""
        self._watched.pop(descriptor, None)
        os.close(descriptor)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _read(self) -> None:
        for descriptor, _ in self._epoll.poll(0):
            self._watched[descriptor].read()


class Pipe:
    """Reading end of one stream. The writing end goes to the process.

    The sink is opened at the first byte: most short jobs print nothing.
    """

    def __init__(
        self, pipes: Pipes, open_sink: Callable[[], OutputSink], stream: Stream, step: int
    ) -> None:
        self._pipes = pipes
        self._open_sink = open_sink
        self._stream = stream
        self._step = step
        self._waiting: asyncio.Task[None] | None = None
        self._is_closing = False  # or closed: its descriptor may soon be another file's
        self._end = b""  # the last bytes that came
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(self.writer, True)  # a job expects its output to block
            pipes.watch(self._reader, self)
        except OSError:
            self.discard()
            raise

    def read(self) -> None:
        """Pass on what is there; rest while the sink is full."""
        if not self._pass_on():
            self._is_closing = True
            self._pipes.close_one(self._reader)
        elif (sink := self._open_sink()).is_full:
            self._pipes.pause(self._reader)
            self._waiting = asyncio.get_running_loop().create_task(self._read_on(sink))

    def _pass_on(self) -> bool:
        """Pass on available data; return False at the end of the stream."""
        try:
            data = os.read(self._reader, _READ_SIZE)
        except BlockingIOError:
            return True
        if data:
            self._take(data)
        return bool(data)

    def _take(self, data: bytes) -> None:
        self._end = end_of(self._end, data)
        self._open_sink().feed(self._stream, self._step, data)

    @property
    def last_line(self) -> str:
        return last_line_of(self._end)

    def latest_line(self) -> str:
        """Return the last line of all that was printed by now."""
        if not self._is_closing:
            with suppress(BlockingIOError):
                while data := os.read(self._reader, _READ_SIZE):
                    self._take(data)
        return self.last_line

    async def _read_on(self, sink: OutputSink) -> None:
        await sink.drained()
        if not self._is_closing:
            self._pipes.watch(self._reader, self)

    def discard(self) -> None:
        """Close both ends: no process will write."""
        self._pipes.close_one(self._reader)
        os.close(self.writer)

    async def close(self) -> None:
        """Read the rest; every process that could write has ended, so the end is near."""
        if self._is_closing:
            return
        self._is_closing = True  # not watched again: nothing reads between this and the close
        if self._waiting is not None:
            await self._waiting
        with suppress(BlockingIOError):  # somebody else was given the writing end
            while data := os.read(self._reader, _READ_SIZE):
                self._take(data)
        self._pipes.close_one(self._reader)

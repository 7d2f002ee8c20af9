"""Step `source`: what brings code and files into the folder of an attempt, before its own steps.

It is a program of Rota's own (`rota.sources`), and runs in a sandbox wherever this worker has one:
what it reads was made by others. It is given what it needs as descriptors, and so it tells what it
found. A mirror of each repository stays on the worker, for one project and one credential each.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from ipaddress import IPv4Network
from pathlib import Path
from typing import BinaryIO

import structlog

from rota.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rota.domain.git import GIT, WALLED_FILES, WALLED_GIT, parse_repository
from rota.domain.output import Stream
from rota.domain.quantities import format_duration
from rota.domain.spec import InputType, Isolation, JobSpec, Network
from rota.domain.walls import OfferKind, network_of_source
from rota.executors.git_credentials import find_credential
from rota.executors.steps import SOURCE_STEP, Attempt
from rota.executors.work_folder import Pipes
from rota.ports.clock import Clock
from rota.ports.executor import Confinement, Exit, Files, Process, Spawner
from rota.ports.work import Fence
from rota.sources.calls import size_of
from rota.sources.packed import program
from rota.sources.wish import (
    INPUT,
    SOURCE,
    Bounds,
    FileWish,
    GitWish,
    SourceRefused,
    SourceReport,
    SourceSettings,
    SourceWish,
    sized,
)
from rota.walls import sandbox
from rota.walls.disk import DiskLimited
from rota.walls.enclosing import Output, Walls, WallUnavailable
from rota.walls.rooms import Room, give_tree, remove_tree
from rota.walls.sandbox import Bind, Script, View

_WISH, _REPORT, _FIRST_FILE = sandbox.FIRST, sandbox.FIRST + 1, sandbox.FIRST + 2
_PROGRAM = "/run/source.pyz"
_PRIVATE = 0o700
_LOOK_AGAIN = timedelta(milliseconds=200)  # at a mirror that another process has

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where one attempt is to find its source."""

    room: Room  # that it is fetched into
    deliver: Callable[[], None]  # hands it over to whoever executes the steps; blocks


RecordCommit = Callable[[Fence, str], Awaitable[None]]


class Sources:
    """Fetcher of the sources of a worker's attempts."""

    def __init__(
        self,
        settings: SourceSettings,
        walls: Walls,
        spawner: Spawner,
        clock: Clock,
        mirrors: Mirrors,
        record: RecordCommit,
        files: Files | None = None,
    ) -> None:
        self.settings = settings
        self.walls = walls
        self.spawner = spawner
        self.clock = clock
        self.mirrors = mirrors
        self.record = record
        self.files = files
        self.pipes = Pipes()

    def begin(self, attempt: Attempt, number: int, workplace: Workplace) -> Fetch:
        """Begin to fetch the source of an attempt; never waits."""
        return Fetch(self, attempt, number, workplace)

    def close(self) -> None:
        self.pipes.close()


class Fetch:
    """Implements `rota.executors.steps.RunningStep`, and the `Process` of it."""

    def __init__(
        self, sources: Sources, attempt: Attempt, number: int, workplace: Workplace
    ) -> None:
        loop = asyncio.get_running_loop()
        self._sources = sources
        self._attempt = attempt
        self._number = number
        self._workplace = workplace
        self._spec = attempt.assignment.spec
        self._stdout, self._stderr = sources.pipes.open(attempt.open_sink, number)
        self._running: Process | None = None
        self._is_too_slow = False
        self._is_started = False
        self.ended: asyncio.Future[Exit] = loop.create_future()
        self.process: Process = self
        limit = sources.walls.limits(self._spec, SOURCE_STEP).disk
        if limit is not None:
            self.process = DiskLimited(self, workplace.room.top, limit, sources.clock)
        self._work = loop.create_task(self._run())

    def signal(self, number: int) -> None:
        if self._running is None:
            self._work.cancel()
        else:
            self._running.signal(number)

    def kill(self) -> None:
        if self._running is None:
            self._work.cancel()
        else:
            self._running.kill()

    async def finish(self) -> None:
        await self._stdout.close()
        await self._stderr.close()

    def last_line(self) -> str:
        return ""  # why it failed is told in a sentence

    # --- its life

    async def _run(self) -> None:
        cause = SOURCE
        try:
            ending = await self._fetched()
        except (SourceRefused, WallUnavailable) as error:
            cause = getattr(error, "cause", "") or SOURCE
            words = error.strerror if isinstance(error, WallUnavailable) else str(error)
            ending = Exit(None, None, error=str(words), cause=cause)
        except Conflict as error:
            ending = Exit(None, None, error=str(error))
        except asyncio.CancelledError:
            ending = Exit(None, signal.SIGTERM)
        except OSError as error:
            words = f"the source cannot be fetched: {error.strerror or error}"
            ending = Exit(None, None, error=words, cause=SOURCE)
        except Exception as error:  # whoever waits for the end must get one
            log.error("source.broken", run=self._attempt.fence.run, exc_info=error)
            ending = Exit(None, None, error=f"internal error: {error!r}", cause=SOURCE)
        if not self._is_started:
            for pipe in (self._stdout, self._stderr):
                os.close(pipe.writer)
        self.ended.set_result(ending)

    async def _fetched(self) -> Exit:
        limit = self._sources.settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                with ExitStack() as stack:
                    files = tuple([await self._file(each, stack) for each in self._wanted()])
                    return await self._with_mirror(SourceWish("", self._bounds, None, files), stack)
        except TimeoutError:
            raise self._too_slow() from None

    async def _with_mirror(self, wish: SourceWish, stack: ExitStack) -> Exit:
        git = self._spec.git
        if git is None:
            return await self._carry_out(wish, stack)
        wanted = self._git_wish()
        async with self._sources.mirrors.taken((self._spec.project, git.url, git.credential)) as it:
            whole = replace(wish, git=replace(wanted, mirror=str(it)))
            return await self._carry_out(whole, stack, it)

    def _too_slow(self) -> SourceRefused:
        allowed = format_duration(self._sources.settings.timeout)
        return SourceRefused(
            f"the source did not come within {allowed}, which the worker's setting"
            " source_timeout allows"
        )

    @property
    def _bounds(self) -> Bounds:
        settings = self._sources.settings
        return Bounds(settings.limit, settings.files)

    # --- what is wanted

    def _git_wish(self) -> GitWish:
        git, settings = self._spec.git, self._sources.settings
        assert git is not None
        try:
            target = parse_repository(git.url, allows_http=settings.allows_http)
        except Invalid as error:
            raise SourceRefused(str(error)) from error
        login = find_credential(settings.credentials, git.credential, self._spec.project, target)
        return GitWish(
            url=git.url,
            mirror="",
            ref=git.ref,
            commit=self._attempt.assignment.work.commit,
            submodules=git.submodules,
            login=login,
            known_hosts=_text_of(settings.known_hosts, "git_known_hosts"),
            authorities=_text_of(settings.authorities, "git_authorities"),
            allows_http=settings.allows_http,
            opened=tuple(map(str, settings.networks)),
        )

    def _wanted(self) -> list[tuple[str, str, str]]:
        """Return names, digests and inputs of the files that come through Rota."""
        upload, inputs = self._spec.upload, self._attempt.assignment.work.inputs or {}
        found = [] if upload is None else [(upload.name, upload.digest, "")]
        for name, declared in self._spec.inputs.items():
            value = inputs.get(name)
            if declared.type is InputType.FILE and isinstance(value, Mapping):
                found.append((str(value["file"]), str(value["digest"]), name))
        return found

    async def _file(self, wanted: tuple[str, str, str], stack: ExitStack) -> FileWish:
        """Fetch a file to where nobody else sees it."""
        name, digest, of_input = wanted
        files, shown = self._sources.files, f"{name or 'the source'} ({digest[:19]}…)"
        what = f"the input {of_input}, {shown}," if of_input else shown
        if files is None:
            raise _refused(f"{what} cannot be fetched: this worker transfers no files", of_input)
        scratch = self._sources.mirrors.scratch
        file: BinaryIO = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 (the stack closes it)
        stack.callback(file.close)
        try:
            most = self._sources.settings.limit
            size = await files.fetch(self._attempt.fence, digest, file.fileno(), most)
        except NotFound:
            words = f"{what} is not kept any more: upload it again"
            raise _refused(words, of_input) from None
        except (Unavailable, Invalid) as error:
            raise _refused(f"{what} cannot be fetched: {error}", of_input) from error
        if size > most:
            allowed = f"{sized(most)}, which the worker's setting source_limit allows"
            raise _refused(f"{what} has more than {allowed}", of_input)
        return FileWish(name, file.fileno(), size, of_input)

    # --- the program

    async def _carry_out(
        self, wish: SourceWish, stack: ExitStack, mirror: Path | None = None
    ) -> Exit:
        files = [each.descriptor for each in wish.files]
        wish = replace(
            wish,
            files=tuple(
                replace(each, descriptor=_FIRST_FILE + at) for at, each in enumerate(wish.files)
            ),
        )
        report = _memory(stack, b"")
        lacks = self._sources.walls.equipment.lacks
        is_walled = _asks_for_wall(self._spec)
        need = WALLED_GIT if is_walled and wish.git is not None else WALLED_FILES
        lack = lacks.get(f"{OfferKind.CAPABILITY}/{need}", "")
        if lack and is_walled:
            raise SourceRefused(
                f"this worker has no sandbox to fetch the source in ({lack}), and the job asks for"
                " a wall"
            )
        if wish.git is not None and (reason := lacks.get(f"{OfferKind.CAPABILITY}/{GIT}", "")):
            raise SourceRefused(f"this worker cannot fetch from git: {reason}")
        if lack:
            self._say(f"this worker has no sandbox ({lack}): the source is fetched as a process")
        start = self._as_process if lack else self._in_sandbox
        process = start(wish, [report, *files], mirror, stack)
        self._is_started = True
        self._running = process
        ending = await self._end_of(process)
        self._running = None
        if ending.error or ending.cause or ending.signal is not None:
            return ending
        told = SourceReport.read(report)
        if told is None:
            words = f"the source was not fetched: {self._stderr.latest_line()}"
            return Exit(ending.status, None, error=words, cause=SOURCE)
        if told.error:
            raise _refused(told.error, told.cause if told.cause == INPUT else "")
        if told.commit and not self._attempt.assignment.work.commit:
            await self._sources.record(self._attempt.fence, told.commit)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._workplace.deliver)
        return replace(ending, status=0)

    async def _end_of(self, process: Process) -> Exit:
        try:
            return await asyncio.shield(process.ended)
        except asyncio.CancelledError:  # of the time limit: signals go to the process itself
            process.kill()
            await process.ended
            raise

    def _say(self, text: str) -> None:
        self._attempt.open_sink().feed(Stream.ROTA, self._number, f"{text}\n".encode())

    def _in_sandbox(
        self, wish: SourceWish, given: Sequence[int], mirror: Path | None, stack: ExitStack
    ) -> Process:
        walls, spec, room = self._sources.walls, self._spec, self._workplace.room
        confinement = walls.prepare(spec, room, self._tag)
        if mirror is not None and confinement.user is not None:
            assert confinement.group is not None
            give_tree(mirror, confinement.user, confinement.group)
        wish = replace(wish, folder=sandbox.WORK)
        env = {"PATH": sandbox.PATH, "HOME": sandbox.HOME, "TMPDIR": sandbox.TMP, "LANG": "C.UTF-8"}
        view = View(
            room,
            self._network(),
            env,
            sandbox.WORK,
            Script(_PROGRAM, program()),
            binds=[*([] if mirror is None else [Bind(mirror, writable=True)]), *_python_binds()],
            given=[_memory(stack, wish.encode()), *given],
        )
        output = Output(self._stdout.writer, self._stderr.writer, self._stderr.latest_line)
        opened = [each for each in self._sources.settings.networks if isinstance(each, IPv4Network)]
        command = _command(walls.equipment.python, _PROGRAM)
        return walls.sandboxed(view, command, confinement, output, opened)

    def _as_process(
        self, wish: SourceWish, given: Sequence[int], mirror: Path | None, stack: ExitStack
    ) -> Process:
        room, spec = self._workplace.room, self._spec
        owner = self._sources.walls.owner(spec, room)
        limited = self._sources.walls.confinement(spec, SOURCE_STEP, self._tag)
        confinement = limited or Confinement(tag=self._tag)
        if owner.user == os.geteuid():
            room.note_worker()
        else:
            room.give_to(owner.user, owner.group)
            confinement = replace(
                confinement, user=owner.user, group=owner.group, groups=owner.groups
            )
            if mirror is not None:
                give_tree(mirror, owner.user, owner.group)
        path = room.new_path(".pyz")
        path.write_bytes(program())
        path.chmod(0o444)
        wish = replace(wish, folder=str(room.job))
        descriptors = [_memory(stack, wish.encode()), *given]
        numbered = {sandbox.FIRST + at: os.dup(each) for at, each in enumerate(descriptors)}
        return self._sources.spawner.spawn(
            _command(sys.executable, str(path)),
            env={"PATH": os.defpath, "HOME": str(room.home), "LANG": "C.UTF-8"},
            cwd=str(room.job),
            stdout=self._stdout.writer,
            stderr=self._stderr.writer,
            confinement=replace(confinement, descriptors=numbered),
        )

    @property
    def _tag(self) -> str:
        return f"{self._attempt.fence.run}-{self._attempt.fence.attempt}-{self._number}"

    def _network(self) -> Network:
        """Return the network of the source; without steps that have one, code still needs it."""
        return Network.NONE if self._spec.git is None else network_of_source(self._spec)


def _command(python: str, path: str) -> list[str]:
    return [python, "-I", "-S", path, str(_WISH), str(_REPORT)]


def _asks_for_wall(spec: JobSpec) -> bool:
    walls = (spec.isolation, *(step.isolation for step in spec.steps))
    return any(wall not in (None, Isolation.PROCESS) for wall in walls)


class _Refused(SourceRefused):
    def __init__(self, words: str, cause: str) -> None:
        super().__init__(words)
        self.cause = cause


def _refused(words: str, of_input: str) -> SourceRefused:
    return _Refused(words, INPUT if of_input else SOURCE)


def _memory(stack: ExitStack, data: bytes) -> int:
    """Return a file in memory, which is closed with the rest."""
    descriptor = os.memfd_create("source", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.write(descriptor, data)
    return descriptor


def _text_of(path: Path | None, setting: str) -> str:
    if path is None:
        return ""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SourceRefused(f"the worker's {setting} cannot be read: {path}: {reason}") from error


def _python_binds() -> list[Bind]:
    """Return what sandboxes must see for the worker's own Python."""
    base = Path(sys.base_prefix)
    return [] if base.is_relative_to("/usr") or os.geteuid() == 0 else [Bind(base)]


# --- mirrors


class Mirrors:
    """Folders of repositories that stay on the worker: one for project, address and credential.

    The least recently used go first when they become too much.
    """

    def __init__(self, root: Path, place: Path, scratch: Path, most: int, clock: Clock) -> None:
        """`place` is where others reach `root`; files of attempts are in `scratch` for a while."""
        self.scratch = scratch
        self._root = root
        self._place = place
        self._most = most
        self._clock = clock
        for lock in root.glob("*.lock"):
            if not lock.with_suffix("").exists():
                lock.unlink()

    @asynccontextmanager
    async def taken(self, key: tuple[str, str, str]) -> AsyncIterator[Path]:
        """Have a mirror for oneself."""
        name = sha256("\0".join(key).encode()).hexdigest()[:32]
        with ExitStack() as stack:
            while not self._is_locked(name, stack):
                await self._clock.sleep(_LOOK_AGAIN)
            folder = self._root / name
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
            try:
                yield self._place / name
            finally:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self._put_back, folder)

    def _is_locked(self, name: str, stack: ExitStack) -> bool:
        """Lock a mirror until the stack is closed; return False if somebody has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._root / f"{name}.lock", flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        stack.callback(os.close, descriptor)
        return True

    def _put_back(self, folder: Path) -> None:
        """Make it the worker's own again, and remove others that are too many."""
        if folder.lstat().st_uid != os.geteuid():
            give_tree(folder, os.geteuid(), os.getegid())
        os.utime(folder)
        sizes, used_at = {}, {}
        for each in self._root.iterdir():
            with suppress(FileNotFoundError):  # another attempt removes some at the same moment
                if each.is_dir():
                    used_at[each] = each.lstat().st_mtime
                    sizes[each] = size_of(each)
        total = sum(sizes.values())
        for each in sorted(used_at, key=used_at.__getitem__):
            with ExitStack() as stack:
                if total > self._most and self._is_locked(each.name, stack):
                    remove_tree(each)
                    total -= sizes[each]

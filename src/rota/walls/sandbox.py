"""Sandboxes: what bubblewrap is told, and what it tells.

A sandbox sees the machine's programs, read-only; a few files of /etc; and the folders of its room.
Everything else of the machine is not hidden but absent.

All but the command itself goes through a descriptor: the arguments of a process are for everybody
to read. So does the environment, for another reason: bubblewrap runs before the walls stand, and
variables of a job such as LD_PRELOAD would make it execute what the job wants.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rota.domain.spec import Network
from rota.ports.executor import Exit, Process
from rota.walls import network, seccomp
from rota.walls.network import NetworkFailed, WayOut
from rota.walls.rooms import Room

WORK, TOLD, HOME, TMP = "/job", "/run/rota", "/home/job", "/tmp"  # noqa: S108 (its own)
SCRIPT = "/run/script"  # with a suffix
USER, UID = "job", 1000  # as it sees itself, whoever that is outside
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHM_BYTES = 64 * 1024 * 1024
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links to /usr on most systems
_OF_ETC = (
    "alternatives",
    "ca-certificates",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "timezone",
    "nsswitch.conf",
    "hosts",
    "services",
    "protocols",
    "mime.types",
)
_NOBODY = f"nobody:x:65534:65534:nobody:{HOME}:/usr/sbin/nologin"
_PASSWD = f"""root:x:0:0:root:/root:/usr/sbin/nologin
{USER}:x:{UID}:{UID}:{USER}:{HOME}:/bin/sh
{_NOBODY}
"""
_GROUP = f"root:x:0:\n{USER}:x:{UID}:\nnogroup:x:65534:\n"
FIRST = 3  # descriptor that is given


@dataclass(frozen=True, slots=True)
class Bind:
    """Path of the machine that all sandboxes of a worker see."""

    path: Path
    writable: bool = False

    def shows(self, path: Path) -> bool:
        return path == self.path or self.path in path.parents


class Given:
    """Files that a process is given, under numbers of its own."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}  # number there → ours

    def pass_on(self, descriptor: int) -> str:
        """Give a descriptor, which is not the caller's any more."""
        number = FIRST + len(self.numbers)
        self.numbers[number] = descriptor
        return str(number)

    def write(self, name: str, data: bytes) -> str:
        """Give a file with this content."""
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            os.lseek(descriptor, 0, os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            raise
        return self.pass_on(descriptor)

    def hand_over(self) -> dict[int, int]:
        """Return them, to be closed by whoever starts the process."""
        numbers, self.numbers = self.numbers, {}
        return numbers

    def close(self) -> None:
        for descriptor in self.hand_over().values():
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Script:
    """File that only one sandbox has."""

    path: str
    text: str | bytes


@dataclass(frozen=True, slots=True)
class View:
    """View of one sandbox: its folders, files, network and variables."""

    room: Room
    network: Network
    env: Mapping[str, str]
    folder: str = WORK  # to start in
    script: Script | None = None
    binds: Sequence[Bind] = ()
    given: Sequence[int] = ()  # descriptors of ours, which it has under the numbers from `FIRST`


class Sandbox:
    """Arguments of bubblewrap for one view, with the descriptors that belong to them."""

    def __init__(self, program: str, view: View) -> None:
        self._program = program
        self._view = view
        self.given = Given()
        self.status, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.gate: int | None = None  # a byte here lets it begin; None: it begins at once
        try:
            for descriptor in view.given:
                self.given.pass_on(os.dup(descriptor))
            # Before all else: an error must not leave it open.
            status = self.given.pass_on(writer)
            self._arguments = self.given.write("arguments", _joined(self._options(status)))
        except BaseException:
            self.close()
            raise

    def argv(self, command: Sequence[str]) -> list[str]:
        return [self._program, "--args", self._arguments, "--", *command]

    def close(self) -> None:
        """Close what is still ours, of a sandbox that was not started or is over."""
        self.given.close()
        for descriptor in (self.status, self.gate):
            if descriptor is not None:
                os.close(descriptor)

    def _options(self, status: str) -> Iterator[str]:
        view, given = self._view, self.given
        yield from ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
        yield from ("--unshare-cgroup-try", "--disable-userns", "--cap-drop", "ALL")
        yield from ("--uid", str(UID), "--gid", str(UID), "--hostname", USER)
        yield from ("--die-with-parent", "--new-session")
        if view.network is not Network.HOST:
            yield "--unshare-net"
        yield from self._files()
        yield from ("--chdir", view.folder, "--clearenv")
        for name, value in view.env.items():
            yield from ("--setenv", name, value)
        yield from ("--json-status-fd", status)
        yield from ("--seccomp", given.write("seccomp", seccomp.program()))
        if view.network is Network.OUTBOUND:
            reader, self.gate = os.pipe2(os.O_CLOEXEC)
            yield from ("--block-fd", given.pass_on(reader))

    def _files(self) -> Iterator[str]:
        view = self._view
        yield from ("--proc", "/proc", "--dev", "/dev")
        yield from ("--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108
        yield from ("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/opt", "/opt")
        for name in _MERGED:
            yield from _merged(Path("/", name))
        yield from ("--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/etc/ssl")
        for name in _OF_ETC:
            yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
        yield from self._file("/etc/passwd", _PASSWD)
        yield from self._file("/etc/group", _GROUP)
        yield from self._file("/etc/resolv.conf", _resolvers(view.network))
        for part in ("/run", "/home"):
            yield from ("--perms", "0755", "--dir", part)
        if view.script is not None:
            yield from self._file(view.script.path, view.script.text, "0555")
        room = view.room
        for source, target in (
            (room.job, WORK),
            (room.tmp, TMP),
            (room.home, HOME),
            (room.told, TOLD),
        ):
            yield from ("--bind", str(source), target)
        for bind in view.binds:
            yield from ("--bind-try" if bind.writable else "--ro-bind-try", *[str(bind.path)] * 2)
        # Last: what is made above is made in them.
        yield from ("--remount-ro", "/dev", "--remount-ro", "/")

    def _file(self, path: str, text: str | bytes, mode: str = "0444") -> tuple[str, ...]:
        data = text.encode() if isinstance(text, str) else text
        number = self.given.write(path.rpartition("/")[2], data)
        return ("--perms", mode, "--file", number, path)


def _merged(path: Path) -> tuple[str, ...]:
    if path.is_symlink():
        return ("--symlink", str(path.readlink()), str(path))
    return ("--ro-bind-try", str(path), str(path))


def _resolvers(kind: Network) -> str:
    match kind:
        case Network.NONE:
            return ""
        case Network.OUTBOUND:
            return f"nameserver {network.NAMESERVER}\n"
        case Network.HOST:
            with suppress(OSError):
                return Path("/etc/resolv.conf").read_text("utf-8", errors="replace")
            return ""


def _joined(options: Iterator[str]) -> bytes:
    """Join arguments as bubblewrap reads them: each ends with a zero byte, so none may have one.

    A variable that had one would be followed by arguments of the job's choice.
    """
    arguments = list(options)
    for position, argument in enumerate(arguments):
        if "\0" in argument:
            raise OSError(errno.EINVAL, "a variable or a path has a zero byte")
        if argument == "--setenv" and not _is_name(arguments[position + 1]):
            raise OSError(errno.EINVAL, f"{arguments[position + 1]!r} cannot name a variable")
    try:
        return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
    except UnicodeEncodeError as error:
        raise OSError(errno.EINVAL, "a variable or a path is no text") from error


def _is_name(name: str) -> bool:
    return bool(name) and "=" not in name


class Status:
    """Status that bubblewrap writes: a line with its child, and one with its exit code."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = b""

    def read(self) -> bool:
        """Read what is there; return False once there will be no more."""
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return True
        self._data += data
        return bool(data)

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {}
        for line in self._data.split(b"\n")[:-1]:  # the last one may be half of one
            with suppress(ValueError):
                told = json.loads(line)
                facts |= told if isinstance(told, dict) else {}
        return facts

    @property
    def child(self) -> int | None:
        """Return the pid of the first process inside; None: not told yet."""
        pid = self._facts().get("child-pid")
        return pid if isinstance(pid, int) else None

    @property
    def has_run(self) -> bool:
        """Return whether the command was executed and has ended."""
        return "exit-code" in self._facts()


Attach = Callable[[int], Awaitable[WayOut]]  # the pid inside; raises `NetworkFailed`


@dataclass(slots=True, eq=False)
class SandboxedProcess:
    """Implements `rota.ports.executor.Process`: a sandbox, with its network if it has one."""

    _sandbox: Sandbox
    _process: Process
    _attach: Attach | None
    _complaint: Callable[[], str]  # what it printed last, if it could not begin
    ended: asyncio.Future[Exit] = field(init=False)
    _has_begun: bool = field(init=False)
    _task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ended = loop.create_future()
        self._has_begun = self._attach is None
        self._task = loop.create_task(self._live())

    def signal(self, number: int) -> None:
        """Send a signal to the processes inside; before there are any, it ends all."""
        if self._has_begun:
            self._process.signal(number)
        else:
            self._process.kill()

    def kill(self) -> None:
        self._process.kill()

    async def _live(self) -> None:
        status = Status(self._sandbox.status)
        failure, way_out = "", None
        try:
            if self._attach is not None:
                way_out, failure = await self._open(status, self._attach)
            if way_out is not None:
                failure = await self._watch(way_out)
            ending = await self._process.ended
            status.read()
        except Exception as error:  # noqa: BLE001 (its end must be told, whatever happens here)
            self._process.kill()
            ending, failure = await self._process.ended, f"internal error: {error!r}"
        finally:
            if way_out is not None:
                await way_out.close()
            self._sandbox.close()
        self.ended.set_result(self._told(ending, status, failure))

    async def _open(self, status: Status, attach: Attach) -> tuple[WayOut | None, str]:
        """Open its network, then let it begin; return why that is not possible."""
        child = await self._child(status)
        if child is None:
            return None, ""  # it is over already
        try:
            way_out = await attach(child)
        except NetworkFailed as error:
            # First: once the gate is closed from here, it would begin without a network.
            self._process.kill()
            await self._process.ended
            return None, f"the step has no network: {error}"
        assert self._sandbox.gate is not None
        with suppress(BrokenPipeError):  # killed meanwhile
            os.write(self._sandbox.gate, b"1")
        self._has_begun = True
        return way_out, ""

    async def _child(self, status: Status) -> int | None:
        """Wait until it tells its child; None: it ended without one."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def tell(_: object = None) -> None:
            if not told.done():
                told.set_result(None)

        def read() -> None:
            if not status.read() or status.child is not None:
                loop.remove_reader(self._sandbox.status)
                tell()

        loop.add_reader(self._sandbox.status, read)
        self._process.ended.add_done_callback(tell)
        try:
            await told
        finally:
            loop.remove_reader(self._sandbox.status)
        return None if self._process.ended.done() else status.child

    async def _watch(self, way_out: WayOut) -> str:
        """Wait for its end; a step whose network ended is ended, too."""
        both = {self._process.ended, way_out.ended}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if self._process.ended.done():
            return ""
        self._process.kill()
        return f"the network of the step ended: {way_out.obituary()}"

    def _told(self, ending: Exit, status: Status, failure: str) -> Exit:
        if failure:
            return replace(ending, error=failure)
        if ending.error or ending.status in (0, None) or status.has_run or ending.cause:
            return ending
        complaint = self._complaint().removeprefix("bwrap: ")
        program = complaint.removeprefix("execvp ")
        if program != complaint:
            return replace(ending, error=f"cannot execute {program}")
        return replace(ending, error=f"the sandbox could not be built: {complaint}")

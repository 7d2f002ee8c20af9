"""`rota worker`: the launcher, which keeps a guardian with a worker in it running.

The launcher is outside the worker's pid namespace, and between them is a guardian that passes on
only an exit code. So what they have to tell one another goes by files in the worker's folder: the
note of its session, and the reason why it was refused.

The note is how a restart finds out that no process of the previous worker is left: its attempts may
then be retried at once instead of after its lease. When a pid namespace is empty, everything that
was ever started in it has provably ended. The kernel reuses the number of a namespace soon after
its end, so the note also says when its first process began.

A data folder may be new, or a copy from another machine or container, where the worker of the note
may still be alive. Only a launcher that can see that namespace can tell: the one that created it,
or another one beside it. In all other cases nothing is claimed, and the lease has to expire.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal

import msgspec
import structlog
import uvloop

from rota.clock import SystemClock
from rota.domain.errors import Conflict, Denied, Invalid, RotaError, Unavailable
from rota.guardian import guardian_command
from rota.guardian.options import ExitCode
from rota.ports.clock import Clock
from rota.runtime import sources, supervision, walls
from rota.runtime.credentials import JOIN_VARIABLE, TOKEN_VARIABLE, CredentialFile, Joining
from rota.runtime.home import check_home, secure_worker_folder, worker_folder, worker_socket
from rota.runtime.settings import Settings
from rota.runtime.supervision import ungrouped_errors

_NOTE = "namespace.json"
_PATIENCE = timedelta(seconds=3)  # a killed namespace needs a moment to empty
_LOOK_AGAIN = timedelta(milliseconds=20)
_FIRST_PROCESS = "1"
_START_TIME = 19  # its place in /proc/PID/stat after the name


class _Note(msgspec.Struct, frozen=True):
    session: str
    launched_from: str
    namespace: str
    began: int  # the first process of the namespace, in the kernel's ticks since the boot


def vantage() -> str:
    """Identify the pid namespace of the launcher, and the boot of its machine."""
    return f"{_boot_id()} {_namespace_of('self')}"


def leave_note(folder: Path, session: str, launched_from: str) -> None:
    """Write the session note; called by the worker itself, inside its namespace.

    `launched_from` is its launcher's view.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    note = _Note(session, launched_from, _namespace_of("self"), _began(_FIRST_PROCESS))
    temporary = folder / f"{_NOTE}.new"
    temporary.write_bytes(msgspec.json.encode(note))
    temporary.replace(folder / _NOTE)


async def ended_session(folder: Path, clock: Clock) -> str:
    """Return the session of the note if all its processes have ended; "" if that is not certain.

    Called by the launcher, outside the namespace. Waits a little for a dying predecessor.
    """
    try:
        note = msgspec.json.decode((folder / _NOTE).read_bytes(), type=_Note)
    except (OSError, msgspec.MsgspecError):
        return ""
    if note.launched_from != vantage() or note.namespace == _namespace_of("self"):
        return ""  # it is out of our sight, or shared our namespace
    deadline = clock.monotonic() + _PATIENCE.total_seconds()
    while clock.monotonic() < deadline:
        if not _is_inhabited(note.namespace, note.began):
            return note.session
        await clock.sleep(_LOOK_AGAIN)
    return ""


def _is_inhabited(namespace: str, began: int) -> bool:
    processes = (path.name for path in Path("/proc").glob("[0-9]*"))
    members = [pid for pid in processes if _namespace_of(pid) == namespace]
    for pid in members:
        with suppress(OSError):  # it ended while we looked
            if _is_first_of_its_namespace(pid):
                return _began(pid) == began
    return bool(members)


def _namespace_of(pid: str) -> str:
    with suppress(OSError):
        return str(Path("/proc", pid, "ns/pid").readlink())
    return ""


def _is_first_of_its_namespace(pid: str) -> bool:
    status = Path("/proc", pid, "status").read_text("utf-8")
    [pids] = [line for line in status.splitlines() if line.startswith("NSpid:")]
    return pids.split()[-1] == _FIRST_PROCESS


def _began(pid: str) -> int:
    """Return when a process was started, in the kernel's ticks since the machine booted."""
    after_name = Path("/proc", pid, "stat").read_text("utf-8").rpartition(")")[2]
    return int(after_name.split()[_START_TIME])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()


_REFUSAL = "refusal.json"
_UNTOLD = "the worker was refused, and its note of why cannot be read"


class _Refusal(msgspec.Struct, frozen=True):
    kind: Literal["denied", "invalid"]
    code: str
    message: str
    hint: str


def is_final(error: BaseException) -> bool:
    """Return whether a worker that starts again would only get the same error."""
    is_missing_extra = isinstance(error, RotaError) and error.code == "extra_missing"
    return isinstance(error, Denied | Invalid) or is_missing_extra


def leave_refusal(folder: Path, error: RotaError) -> None:
    """Write down why the worker was refused; called by that worker."""
    kind: Literal["denied", "invalid"] = "denied" if isinstance(error, Denied) else "invalid"
    note = _Refusal(kind, error.code, error.message, error.hint)
    (folder / _REFUSAL).write_bytes(msgspec.json.encode(note))


def take_refusal(folder: Path) -> RotaError:
    """Return the error of a refused worker, and delete it; called by its launcher."""
    path = folder / _REFUSAL
    try:
        note = msgspec.json.decode(path.read_bytes(), type=_Refusal)
        path.unlink()
    except (OSError, msgspec.MsgspecError):
        return Invalid(_UNTOLD, hint=f"look at {path}")
    kind = Denied if note.kind == "denied" else Invalid
    return kind(note.message, code=note.code, hint=note.hint)


log = structlog.get_logger()

_FIRST_PAUSE = timedelta(milliseconds=200)
_LONGEST_PAUSE = timedelta(seconds=10)
_KILL_MARGIN = timedelta(seconds=5)  # beyond the stop grace, before the guardian itself is killed
_NAME_PART = 80  # characters: of longer names the guardian cuts off the end, which tells them apart


class GuardedWorker:
    """Service: the worker of this machine, supervised from outside its namespace."""

    name = "worker"

    def __init__(self, settings: Settings, clock: Clock, *, replaces: bool = False) -> None:
        self._settings = settings
        self._clock = clock
        self._replaces = replaces  # a credential that its name has, when it joins
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.exit_code = 0

    async def run(self) -> None:
        """Keep one worker alive until `stop`; `Denied` or `Invalid` if it is refused for good."""
        folder = secure_worker_folder(self._settings.home, self._settings.name)
        lock = _lock(folder, self._settings.name)
        pause = _FIRST_PAUSE
        try:
            await self._join(folder)
            while not self._stopping.is_set():
                began = self._clock.monotonic()
                self.exit_code = await self._run_once(folder)
                if self._stopping.is_set():
                    return
                if self.exit_code == ExitCode.WORKER_REFUSED:
                    raise take_refusal(folder)
                log.warning("worker.ended", exit_code=self.exit_code)
                if self._clock.monotonic() - began > _LONGEST_PAUSE.total_seconds():
                    pause = _FIRST_PAUSE
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            os.close(lock)

    async def _join(self, folder: Path) -> None:
        """Get the worker a credential of its own if it has none, or return when asked to stop."""
        joining = Joining(self._settings, folder, self._clock)
        if not joining.is_needed(replaces=self._replaces):
            return
        tasks = [
            asyncio.ensure_future(joining.join(replaces=self._replaces)),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            joined, _ = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(joined, Exception):
            raise joined

    async def _run_once(self, folder: Path) -> int:
        ended = await ended_session(folder, self._clock)
        alive, held = os.pipe()  # the guardian kills everything when our end closes
        command = guardian_command(
            self._worker_command(ended),
            namespace=self._settings.namespace,
            parent_fd=alive,
            name=_name_on_this_machine(self._settings.name, folder),
            stop_grace=self._settings.stop_grace + _KILL_MARGIN,
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                pass_fds=(alive,),
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment(),
                start_new_session=True,
            )
        finally:
            os.close(alive)
        self._process = process
        try:
            if self._stopping.is_set():
                process.terminate()
            return await process.wait()
        finally:
            os.close(held)
            self.kill()
            await process.wait()  # nothing of it outlives us, even if something here failed

    def _environment(self) -> dict[str, str]:
        """Return our environment; a token is passed here, where no list of processes shows it."""
        token = self._settings.worker_token
        environ = {name: it for name, it in os.environ.items() if name != JOIN_VARIABLE}
        return {**environ, TOKEN_VARIABLE: token} if token else environ

    def _worker_command(self, ended_session: str) -> list[str]:
        settings = self._settings
        # -P: modules of the folder that somebody just stands in are not ours.
        command = [sys.executable, "-P", "-m", "rota.runtime.worker_process"]
        options = {
            "home": settings.home.absolute(),
            "worker_name": settings.name,
            "slots": settings.slots,
            "pool": settings.pool,
            "app": settings.app,
            "executors": json.dumps(settings.executors),
            "stop_grace": settings.stop_grace.total_seconds(),
            "log_level": settings.log_level,
            "labels": json.dumps(_labels(settings)),
            "resources": json.dumps(dict(settings.resources or {})),
            "lease": settings.worker_lease.total_seconds() if settings.worker_lease else "",
            "succeeds": ended_session,
            "launched_from": vantage(),
            "walls": walls.as_option(settings.walls),
            "sources": sources.as_option(settings.sources),
            "containers": walls.containers_as_option(settings.containers),
            "http": walls.http_as_option(settings.http),
        }
        command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command += [f"--server={server}" for server in settings.server]
        if settings.tls_ca is not None:
            command.append(f"--tls-ca={settings.tls_ca.absolute()}")
        return command

    async def stop(self) -> None:
        """Let attempts finish within the grace, then end everything."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        limit = self._settings.stop_grace + 2 * _KILL_MARGIN
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await process.wait()
        except TimeoutError:
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """Kill everything at once; its attempts are retried by the next worker."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _name_on_this_machine(worker: str, folder: Path) -> str:
    """Return a name that workers of the same name with other data folders do not have."""
    status = folder.stat()
    place = f"{status.st_dev}:{status.st_ino}".encode()
    return f"{worker[:_NAME_PART]}-{hashlib.blake2b(place, digest_size=4).hexdigest()}"


def _labels(settings: Settings) -> dict[str, str]:
    zone = {"zone": settings.zone} if settings.zone else {}
    return {**zone, **(settings.labels or {})}


def _lock(folder: Path, worker: str) -> int:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Conflict(
            f"a worker named {worker} already runs on this data folder",
            code="worker_already_running",
            hint="give this one another name with --name",
        ) from error
    return descriptor


def main(settings: Settings, *, replaces: bool = False) -> None:
    """Run in the foreground until TERM or Ctrl-C; `replaces`: see `JoinWish`."""
    _check(settings)
    supervision.set_up(settings.log_level)
    with ungrouped_errors():
        uvloop.run(_run(settings, replaces=replaces))


def _check(settings: Settings) -> None:
    if settings.server and not (
        settings.worker_token or settings.join_token or _has_joined(settings)
    ):
        raise Invalid(
            "a worker of a server elsewhere needs a token",
            code="no_worker_token",
            hint=f"set ROTA_WORKER_TOKEN to what `rota worker token create {settings.name}` shows,"
            " or ROTA_JOIN_TOKEN to what `rota worker join-token create` does",
        )
    check_home(settings.home)
    if not settings.server and not worker_socket(settings.home).exists():
        raise Unavailable(
            f"no server runs on the data folder {settings.home.absolute()}",
            hint="start one with: rota up, or name one elsewhere with --server",
        )


def _has_joined(settings: Settings) -> bool:
    return CredentialFile(worker_folder(settings.home, settings.name)).load()


async def _run(settings: Settings, *, replaces: bool = False) -> None:
    worker = GuardedWorker(settings, SystemClock(), replaces=replaces)
    asked = asyncio.Event()

    def stop() -> None:
        if asked.is_set():
            worker.kill()
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run()).add_done_callback(lambda _: asked.set())
        await asked.wait()
        await worker.stop()

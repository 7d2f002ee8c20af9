"""Starts a guardian with a worker in it, and starts it again when it ends unasked."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import structlog

from rota.domain.errors import Conflict
from rota.guardian import guardian_command
from rota.guardian.exits import ExitCode
from rota.ports.clock import Clock
from rota.runtime import predecessor, refusals
from rota.runtime.paths import worker_folder
from rota.runtime.settings import Settings
from rota.runtime.worker_link import TOKEN_VARIABLE

log = structlog.get_logger()

_FIRST_PAUSE = timedelta(milliseconds=200)
_LONGEST_PAUSE = timedelta(seconds=10)
_KILL_MARGIN = timedelta(seconds=5)  # beyond the stop grace, before the guardian itself is killed


class GuardedWorker:
    """A service: the worker of this machine, supervised from outside its namespace."""

    name = "worker"

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.exit_code = 0

    async def run(self) -> None:
        """Keep one worker alive until `stop`. `Denied` or `Invalid` if it is refused for good."""
        folder = worker_folder(self._settings.home, self._settings.name)
        lock = _lock(folder, self._settings.name)
        pause = _FIRST_PAUSE
        try:
            while not self._stopping.is_set():
                began = self._clock.monotonic()
                self.exit_code = await self._run_once(folder)
                if self._stopping.is_set():
                    return
                if self.exit_code == ExitCode.WORKER_REFUSED:
                    raise refusals.take_note(folder)
                log.warning("worker.ended", exit_code=self.exit_code)
                if self._clock.monotonic() - began > _LONGEST_PAUSE.total_seconds():
                    pause = _FIRST_PAUSE
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            os.close(lock)

    async def _run_once(self, folder: Path) -> int:
        ended = await predecessor.ended_session(folder, self._clock)
        alive, held = os.pipe()  # the guardian kills everything when our end closes
        command = guardian_command(
            self._worker_command(ended),
            namespace=self._settings.namespace,
            parent_fd=alive,
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
        """Ours; a token travels here, where no list of processes shows it."""
        token = self._settings.worker_token
        return {**os.environ, TOKEN_VARIABLE: token} if token else dict(os.environ)

    def _worker_command(self, ended_session: str) -> list[str]:
        settings = self._settings
        command = [sys.executable, "-m", "rota.runtime.worker_process"]
        options = {
            "home": settings.home.absolute(),
            "worker_name": settings.name,
            "slots": settings.slots,
            "pool": settings.pool,
            "app": settings.app,
            "stop_grace": settings.stop_grace.total_seconds(),
            "log_level": settings.log_level,
            "labels": json.dumps(_labels(settings)),
            "resources": json.dumps(dict(settings.resources or {})),
            "succeeds": ended_session,
            "launched_from": predecessor.vantage(),
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
        """End everything at once; what ran is tried again by the next worker."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _labels(settings: Settings) -> dict[str, str]:
    zone = {"zone": settings.zone} if settings.zone else {}
    return {**zone, **(settings.labels or {})}


def _lock(folder: Path, worker: str) -> int:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
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

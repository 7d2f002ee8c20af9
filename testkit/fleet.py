"""A fleet for tests: many workers in one process, each with a session of its own on a real server.

They connect as workers do, renew their leases, get their files and run the steps of shell jobs as
processes, but without a guardian and without walls: fifty of those would cost a minute to start.
Jobs find the name of the worker that really has them in `MACHINE`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rota.clock import SystemClock
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.executors.shell import input_variables, rota_variables
from rota.ports.executor import Assignment, JobBatch
from rota.ports.work import Fence, Hello, Outcome
from rota.runtime.credentials import over_socket
from rota.runtime.home import worker_socket
from rota.runtime.worker_process import offers
from rota.worker.attempts import Attempts
from rota.worker.files import LinkedFiles
from rota.worker.session import WorkerSession
from rota.worker.spool import OutputSpool
from testkit.guards import NoGuard
from testkit.waiting import PATIENCE

_MOST_BYTES = 1024**3  # of an input


class Fleet:
    """Workers by name, in one pool, on the server of a data folder."""

    def __init__(self, home: Path, folder: Path, pool: str, **labels: str) -> None:
        self._connect = over_socket(worker_socket(home))
        self._folder = folder
        self._pool = pool
        self._labels = labels
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._lives: dict[str, tuple[Future[None], threading.Event]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._lives):
            self.kill(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, *names: str) -> None:
        for name in names:
            is_over = threading.Event()
            life = asyncio.run_coroutine_threadsafe(self._live(name, is_over), self._loop)
            self._lives[name] = life, is_over

    def kill(self, name: str) -> None:
        """End a worker and what it runs, without a word to its server."""
        life, is_over = self._lives.pop(name)
        life.cancel()
        is_over.wait(PATIENCE.total_seconds())

    async def _live(self, name: str, is_over: threading.Event) -> None:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        clock = SystemClock()
        spool = OutputSpool(folder / "output")
        spool.open()
        attempts = Attempts(clock, spool)
        hello = Hello(name, self._pool, 1, labels=self._labels, offers=offers(has_app=False))
        session = WorkerSession(self._connect, attempts, hello, NoGuard(), clock)
        files = LinkedFiles(session.serving, clock)
        machine = _Machine(name, folder, attempts, files)
        attempts.serve_with({JobType.SHELL: machine})
        try:
            await session.run()
        finally:
            await machine.die()
            is_over.set()


class _Machine:
    """Implements `rota.ports.executor.Executor` for plain steps and inputs that are files."""

    def __init__(self, name: str, folder: Path, attempts: Attempts, files: LinkedFiles) -> None:
        self._name = name
        self._folder = folder
        self._attempts = attempts
        self._files = files
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batches: Sequence[JobBatch]) -> None:
        for batch in batches:
            for assignment in batch.assignments():
                task = asyncio.create_task(self._execute(assignment))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def cancel(self, fences: Sequence[Fence]) -> None:
        raise AssertionError("nothing is to be cancelled here")

    async def close(self) -> None: ...

    async def die(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _execute(self, assignment: Assignment) -> None:
        work = assignment.work
        began_at = self._attempts.store_micros()
        folder = self._folder / work.run
        folder.mkdir(exist_ok=True)
        await self._bring_files(assignment, folder)
        environ = {
            "PATH": os.environ["PATH"],
            "MACHINE": self._name,
            **input_variables(assignment.spec, work.inputs, str(folder)),
            **rota_variables(assignment, folder / "output", folder / "progress"),
        }
        status = 0
        for step in assignment.spec.steps:
            status = await _run(str(step.run), folder, environ)
            if status:
                break
        result = AttemptResult.FAILED if status else AttemptResult.COMPLETED
        ended_at = self._attempts.store_micros()
        outcome = Outcome(work.run, work.number, result, began_at, ended_at, exit_code=status)
        self._attempts.ended([outcome])

    async def _bring_files(self, assignment: Assignment, folder: Path) -> None:
        for value in (assignment.work.inputs or {}).values():
            if isinstance(value, dict) and "digest" in value:
                with (folder / value["file"]).open("wb") as file:
                    fence = assignment.work.fence
                    await self._files.fetch(fence, value["digest"], file.fileno(), _MOST_BYTES)


async def _run(script: str, folder: Path, environ: dict[str, str]) -> int:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-ec", script, cwd=folder, env=environ, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        return await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()

"""The worker process: composed here, started by the guardian, never by a person."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import structlog
import uvloop

from rota import __version__
from rota.adapters.clock import SystemClock
from rota.adapters.executors.shell import ShellExecutor
from rota.adapters.link.local import LocalLink
from rota.domain.errors import RotaError, Unavailable
from rota.domain.spec import JobSpec, JobType
from rota.ports.executor import Executor
from rota.ports.work import Fence, Hello, OutputChunk, ReportAnswer
from rota.runtime import logs, predecessor
from rota.runtime.paths import worker_folder, worker_socket
from rota.runtime.supervision import told_alone
from rota.worker.attempts import Attempts
from rota.worker.guard import Guard
from rota.worker.output import AttemptOutput, OutputTimes
from rota.worker.session import SessionConfig, WorkerSession

log = structlog.get_logger()

_RESEND = timedelta(milliseconds=200)
_STARTING = timedelta(seconds=60)  # the app's import may take its time before the first lease


def main() -> None:
    options = _parse()
    logs.set_up(options.log_level)
    try:
        with told_alone():
            uvloop.run(_run(options))
    except (OSError, RotaError) as error:
        log.error("worker.failed", error=str(error))
        sys.exit(1)


async def _run(options: argparse.Namespace) -> None:
    folder = worker_folder(options.home, options.worker_name)
    predecessor.leave_note(folder)
    guard = Guard(
        socket.socket(fileno=int(os.environ["ROTA_GUARDIAN_FD"])),
        int(os.environ["ROTA_GUARDIAN_KILL_FD"]),
    )
    worker = _Worker(options, folder, guard)
    try:
        await worker.run(await guard.greet())
    finally:
        guard.close()


class _Worker:
    """Session, attempts and executors, wired together."""

    def __init__(self, options: argparse.Namespace, folder: Path, guard: Guard) -> None:
        self._options = options
        self._guard = guard
        self._clock = SystemClock()
        self._attempts = Attempts(self._clock, self._open_output)
        self._executors: dict[JobType, Executor] = {
            JobType.SHELL: ShellExecutor(self._attempts, guard, self._clock, folder / "work")
        }
        self._session: WorkerSession | None = None

    async def run(self, guard_mode: str) -> None:
        """Serve until told to stop."""
        functions = await self._serve_functions() if self._options.app else ()
        self._attempts.serve_with(self._executors)
        self._session = session = WorkerSession(
            lambda: LocalLink.connect(worker_socket(self._options.home)),
            self._attempts,
            self._hello(functions, guard_mode),
            self._guard,
            self._clock,
            SessionConfig(stop_grace=timedelta(seconds=self._options.stop_grace)),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, session.stop)
        await session.run()
        for executor in self._executors.values():
            await executor.close()

    async def _serve_functions(self) -> tuple[str, ...]:
        """Start the app's host; its functions are known once it has imported the app."""
        from rota.adapters.executors.python import PythonExecutor

        python = PythonExecutor(self._attempts, self._guard, self._options.app)
        self._guard.prolong(self._clock.monotonic() + _STARTING.total_seconds())
        self._executors[JobType.PYTHON] = python
        return await python.ready()

    def _hello(self, functions: tuple[str, ...], guard_mode: str) -> Hello:
        return Hello(
            worker=self._options.worker_name,
            pool=self._options.pool,
            slots=self._options.slots,
            labels=self._options.labels,
            functions=functions,
            guard_mode=guard_mode,
            version=__version__,
            predecessor_is_gone=self._options.predecessor_is_gone,
        )

    def _open_output(self, fence: Fence, spec: JobSpec) -> AttemptOutput:
        times = OutputTimes(self._clock.monotonic, lambda: self._attempts.store_micros() // 1000)
        return AttemptOutput(fence, spec.log_limit, times, self._send)

    async def _send(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        """Until a server has them: output waits for the connection, it is not lost with it."""
        while True:
            try:
                if self._session is not None:
                    return await self._session.link.output(chunks)
            except Unavailable:
                pass
            await self._clock.sleep(_RESEND)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rota.runtime.worker_process")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--worker-name", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--app", default="")
    parser.add_argument("--labels", type=json.loads, default={})
    parser.add_argument("--stop-grace", type=float, required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--predecessor-is-gone", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()

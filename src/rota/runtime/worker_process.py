"""The worker process: composed here, started by the guardian, never by a person."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path

import structlog
import uvloop

from rota import __version__
from rota.adapters.clock import SystemClock
from rota.adapters.executors.shell import ShellExecutor
from rota.domain.errors import RotaError
from rota.domain.spec import JobType
from rota.guardian.exits import ExitCode
from rota.ports.executor import Executor
from rota.ports.work import Hello
from rota.runtime import logs, predecessor, refusals
from rota.runtime.offered_resources import offered
from rota.runtime.paths import worker_folder, worker_socket
from rota.runtime.supervision import told_alone
from rota.runtime.worker_link import TOKEN_VARIABLE, Connect, over_grpc, over_socket
from rota.worker.attempts import Attempts
from rota.worker.delivery import OutputDeliverer
from rota.worker.guard import Guard
from rota.worker.session import SessionConfig, WorkerSession
from rota.worker.spool import OutputSpool

log = structlog.get_logger()

_STARTING = timedelta(seconds=60)  # the app's import may take its time before the first lease


def main() -> None:
    options = _parse()
    logs.set_up(options.log_level)
    try:
        with told_alone():
            uvloop.run(_run(options))
    except (OSError, RotaError) as error:
        sys.exit(_end_with(error, worker_folder(options.home, options.worker_name)))


def _end_with(error: OSError | RotaError, folder: Path) -> int:
    """The exit code; what is final is told by the launcher, once."""
    if isinstance(error, RotaError) and refusals.is_final(error):
        refusals.leave_note(folder, error)
        return ExitCode.WORKER_REFUSED
    log.error("worker.failed", error=str(error))
    return 1


async def _run(options: argparse.Namespace) -> None:
    folder = worker_folder(options.home, options.worker_name)
    guard = Guard(
        socket.socket(fileno=int(os.environ["ROTA_GUARDIAN_FD"])),
        int(os.environ["ROTA_GUARDIAN_KILL_FD"]),
    )
    worker = _Worker(options, folder, guard, _connect(options))
    try:
        await worker.run(await guard.greet())
    finally:
        guard.close()


def _connect(options: argparse.Namespace) -> Connect:
    token = os.environ.pop(TOKEN_VARIABLE, "")  # functions and jobs inherit what is left
    if not options.server:
        return over_socket(worker_socket(options.home))
    return over_grpc(options.server, token, options.tls_ca)


class _Worker:
    """Session, attempts and executors, wired together."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, guard: Guard, connect: Connect
    ) -> None:
        self._options = options
        self._folder = folder
        self._connect = connect
        self._guard = guard
        self._clock = SystemClock()
        self._attempts = Attempts(self._clock, OutputSpool(folder / "output"))
        self._executors: dict[JobType, Executor] = {
            JobType.SHELL: ShellExecutor(self._attempts, guard, self._clock, folder / "work")
        }
        self._session: WorkerSession | None = None

    async def run(self, guard_mode: str) -> None:
        """Serve until told to stop."""
        functions = await self._serve_functions() if self._options.app else ()
        self._attempts.serve_with(self._executors)
        self._attempts.spool.open()
        self._session = session = WorkerSession(
            self._connect,
            self._attempts,
            self._hello(functions, guard_mode),
            self._guard,
            self._clock,
            SessionConfig(stop_grace=timedelta(seconds=self._options.stop_grace)),
            note_session=self._note,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, session.stop)
        async with asyncio.TaskGroup() as group:
            deliverer = OutputDeliverer(self._attempts.spool, lambda c: session.link.output(c))
            delivering = group.create_task(deliverer.run())
            gc.collect()
            gc.freeze()  # what there is now stays: searching it for garbage holds up what is due
            await session.run()
            delivering.cancel()
        for executor in self._executors.values():
            await executor.close()

    def _note(self, session: str) -> None:
        """For our next life; without it, that one waits for this one's lease to end."""
        try:
            predecessor.leave_note(self._folder, session, self._options.launched_from)
        except OSError as error:
            log.warning("worker.unnoted", session=session, error=str(error))

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
            resources=offered(self._options.resources),
            functions=functions,
            guard_mode=guard_mode,
            version=__version__,
            succeeds=self._options.succeeds,
        )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rota.runtime.worker_process")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--server", action="append", default=[])
    parser.add_argument("--tls-ca", type=Path)
    parser.add_argument("--worker-name", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--app", default="")
    parser.add_argument("--labels", type=json.loads, default={})
    parser.add_argument("--resources", type=json.loads, default={})
    parser.add_argument("--stop-grace", type=float, required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--succeeds", default="")
    parser.add_argument("--launched-from", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()

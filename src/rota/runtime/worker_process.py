"""The worker process: composed here, started by the guardian, never by a person."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
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
_GUARDIAN_SILENCE = timedelta(seconds=10)  # a third of the default lease


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
    clock = SystemClock()
    folder = worker_folder(options.home, options.worker_name)
    predecessor.leave_note(folder)
    guard = Guard(
        socket.socket(fileno=int(os.environ["ROTA_GUARDIAN_FD"])),
        int(os.environ["ROTA_GUARDIAN_KILL_FD"]),
    )
    mode = await guard.greet()

    async def send(chunks: Sequence[OutputChunk]) -> ReportAnswer:
        while True:
            try:
                return await session.link.output(chunks)
            except Unavailable:
                await clock.sleep(_RESEND)

    def open_output(fence: Fence, spec: JobSpec) -> AttemptOutput:
        times = OutputTimes(clock.monotonic, lambda: attempts.store_micros() // 1000)
        return AttemptOutput(fence, spec.log_limit, times, send)

    attempts = Attempts(clock, open_output)
    executors: dict[JobType, Executor] = {
        JobType.SHELL: ShellExecutor(attempts, guard, clock, folder / "work")
    }
    functions: tuple[str, ...] = ()
    if options.app:
        from rota.adapters.executors.python import (
            PythonExecutor,
        )  # only workers with an app need it

        python = PythonExecutor(attempts, guard, options.app)
        guard.prolong(clock.monotonic() + _STARTING.total_seconds())
        functions = await python.ready()
        executors[JobType.PYTHON] = python
    attempts.serve_with(executors)
    hello = Hello(
        worker=options.worker_name,
        nonce=secrets.token_hex(8),
        pool=options.pool,
        slots=options.slots,
        labels=_labels(options.labels),
        functions=functions,
        guard_mode=mode,
        version=__version__,
        predecessor_is_gone=options.predecessor_is_gone,
    )
    session = WorkerSession(
        lambda: LocalLink.connect(worker_socket(options.home)),
        attempts,
        hello,
        guard.prolong,
        clock,
        SessionConfig(stop_grace=timedelta(seconds=options.stop_grace)),
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, session.stop)
    watch = loop.create_task(guard.keep_watch(clock, _GUARDIAN_SILENCE))
    await session.run()
    watch.cancel()
    for executor in executors.values():
        await executor.close()
    guard.close()


def _labels(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rota.runtime.worker_process")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--worker-name", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--app", default="")
    parser.add_argument("--labels", default="")
    parser.add_argument("--stop-grace", type=float, required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--predecessor-is-gone", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()

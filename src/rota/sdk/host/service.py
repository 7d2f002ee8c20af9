"""Handling of the worker's orders."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from rota.sdk.functions import JobFunction
from rota.sdk.host import wire
from rota.sdk.host.execution import Execution, Outbox, monotonic_micros
from rota.sdk.host.threads import LoopThread, ThreadPool

Functions = Mapping[str, JobFunction[..., Any, Any]]


def serve(connection: socket.socket, functions: Functions) -> None:
    """Handle orders until told to stop; without a worker, nothing may go on."""
    executions = Executions(Outbox(connection), functions)
    for order in wire.receive(connection):
        match order:
            case wire.Run(tasks):
                executions.start(tasks)
            case wire.Cancel(keys):
                executions.cancel(keys)
            case wire.Stop():
                return
    os._exit(1)


class Executions:
    """Executions in progress, each in its thread or on the event loop."""

    def __init__(self, outbox: Outbox, functions: Functions) -> None:
        self._outbox = outbox
        self._functions = functions
        self._pool = ThreadPool(self._finished)
        self._under_way: dict[int, Execution] = {}

    @cached_property
    def _loop(self) -> LoopThread:
        return LoopThread(self._finished)

    def start(self, tasks: tuple[wire.Task, ...]) -> None:
        plain: list[Execution] = []
        asynchronous: list[Execution] = []
        for task in tasks:
            job = self._functions.get(task.function)
            if job is None:
                self._refuse(task)
                continue
            execution = self._under_way[task.key] = Execution(task, job, self._outbox)
            (asynchronous if job.is_async else plain).append(execution)
        if plain:
            self._pool.start(plain)
        if asynchronous:
            self._loop.start(asynchronous)

    def cancel(self, keys: tuple[int, ...]) -> None:
        for key in keys:
            execution = self._under_way.get(key)
            if execution is not None:
                (self._loop if execution.is_async else self._pool).cancel(execution)

    def _finished(self, done: wire.Done) -> None:
        del self._under_way[done.key]
        self._outbox.done(done)

    def _refuse(self, task: wire.Task) -> None:
        now = monotonic_micros()
        message = f"the app has no function {task.function}"
        self._outbox.done(wire.Done(task.key, "failed", now, now, message=message))

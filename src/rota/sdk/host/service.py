"""Handling of the worker's orders."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from rota.sdk.functions import JobFunction
from rota.sdk.host import wire
from rota.sdk.host.execution import Batch, Outbox, monotonic_micros
from rota.sdk.host.threads import LoopThread, ThreadPool

Functions = Mapping[str, JobFunction[..., Any, Any]]


def serve(connection: socket.socket, functions: Functions) -> None:
    """Handle orders until told to stop; without a worker, nothing may go on."""
    executions = Executions(Outbox(connection), functions)
    for order in wire.receive(connection):
        match order:
            case wire.Run(batches):
                for batch in batches:
                    executions.start(batch)
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
        # Keys that are to stop, until they have. A cancel that crosses an end stays: there are few.
        self._cancelled: set[int] = set()
        self._pool = ThreadPool(self._cancelled)

    @cached_property
    def _loop(self) -> LoopThread:
        return LoopThread(self._cancelled)

    def start(self, message: wire.Batch) -> None:
        job = self._functions.get(message.function)
        if job is None:
            self._refuse(message)
            return
        batch = Batch(message, job, self._outbox)
        (self._loop if job.is_async else self._pool).start(batch)

    def cancel(self, keys: tuple[int, ...]) -> None:
        self._cancelled.update(keys)  # before looking for them: one may begin just now
        for key in keys:
            self._pool.cancel(key)
            if "_loop" in self.__dict__:
                self._loop.cancel(key)

    def _refuse(self, message: wire.Batch) -> None:
        now = monotonic_micros()
        words = f"the app has no function {message.function}"
        for key in message.keys:
            self._outbox.done(wire.Done(key, "failed", now, now, message=words))

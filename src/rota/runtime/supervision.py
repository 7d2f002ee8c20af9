"""Supervision of services, and logging.

Failures of the environment are retried, bugs end the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, TextIO

import structlog
from structlog.typing import Processor

from rota.domain.errors import RotaError, Unavailable, first_of
from rota.ports.clock import Clock

log = structlog.get_logger()

_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=5)


class Service(Protocol):
    """Loop with one duty."""

    name: str

    async def run(self) -> None: ...


async def supervise(services: Sequence[Service], clock: Clock) -> None:
    """Run all services until cancelled. A bug in one ends all, with its error."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(_keep_running(service, clock), name=service.name)


@contextmanager
def ungrouped_errors() -> Iterator[None]:
    """Raise an expected error (`RotaError`, `OSError`) itself instead of an exception group."""
    try:
        yield
    except BaseExceptionGroup as group:
        expected, bugs = group.split((RotaError, OSError))
        if expected is None or bugs is not None:
            raise
        raise first_of(expected) from group


async def _keep_running(service: Service, clock: Clock) -> None:
    """Run a service; when the store is unreachable, log once, back off and retry."""
    pause = _FIRST_PAUSE
    began = clock.monotonic()
    while True:
        try:
            await service.run()
            return
        except* Unavailable as group:
            if clock.monotonic() - began > _LONGEST_PAUSE.total_seconds():
                pause = _FIRST_PAUSE
            if pause == _FIRST_PAUSE:
                log.warning("service.interrupted", service=service.name, error=str(first_of(group)))
        await clock.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        began = clock.monotonic()


def set_up(level: str = "info", stream: TextIO | None = None) -> None:
    """Send log events to a stream, by default standard error."""
    target = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *(_for_people() if target.isatty() else _for_programs()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=True,
    )


def _for_people() -> list[Processor]:
    """Return processors for readable lines in local time; the renderer shows tracebacks."""
    has_colours = not os.environ.get("NO_COLOR")
    return [
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(colors=has_colours, pad_event=24),
    ]


def _for_programs() -> list[Processor]:
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]

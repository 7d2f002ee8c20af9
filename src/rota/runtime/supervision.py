"""Keeping services alive: what the world breaks is retried, what we broke ends the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import structlog

from rota.domain.errors import RotaError, Unavailable, first_of
from rota.ports.clock import Clock

log = structlog.get_logger()

_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=5)


class Service(Protocol):
    """A loop with one duty."""

    name: str

    async def run(self) -> None: ...


async def supervise(services: Sequence[Service], clock: Clock) -> None:
    """Run all services until cancelled. A bug in one ends all, loudly."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(_keep_running(service, clock), name=service.name)


@contextmanager
def told_alone() -> Iterator[None]:
    """What the world broke comes out as itself, not as a group of errors of concurrent tasks."""
    try:
        yield
    except BaseExceptionGroup as group:
        expected, bugs = group.split((RotaError, OSError))
        if expected is None or bugs is not None:
            raise
        raise first_of(expected) from group


async def _keep_running(service: Service, clock: Clock) -> None:
    """An unreachable store is expected: say so once, back off, go on."""
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

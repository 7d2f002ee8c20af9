"""PgQueuer: `pgqueuer_queue enqueue|schedule|consume|remaining ADDRESS COUNT [FIRST SPACING]`."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import asyncpg  # type: ignore[import-untyped, unused-ignore]  # typed in the project's environment
import uvloop
from pgqueuer import PgQueuer  # type: ignore[import-not-found]  # peers' environment
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.models import Job  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]

from bench import stamps

_ENQUEUED_AT_ONCE = 1_000
_BATCH = 250
_POLL = timedelta(seconds=1)


async def enqueue(address: str, count: int) -> None:
    """Install it, and fill its queue."""
    connection = await asyncpg.connect(address)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for done in range(0, count, _ENQUEUED_AT_ONCE):
        size = min(_ENQUEUED_AT_ONCE, count - done)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    await connection.close()


async def schedule(address: str, count: int, first: float, spacing: float) -> None:
    """Fill its queue with jobs for later."""
    connection = await asyncpg.connect(address)
    queries = Queries(AsyncpgDriver(connection))
    for done in range(0, count, _ENQUEUED_AT_ONCE):
        numbers = range(done, min(done + _ENQUEUED_AT_ONCE, count))
        due = [first + number * spacing for number in numbers]
        now = time.time()
        await queries.enqueue(
            ["mark"] * len(due),
            [repr(each).encode() for each in due],
            [0] * len(due),
            [timedelta(seconds=each - now) for each in due],
        )
    await connection.close()


async def consume(address: str) -> None:
    """Work until it is stopped."""
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(address)))

    @queuer.entrypoint("noop")  # type: ignore[untyped-decorator]  # peers' environment
    async def noop(_: Job) -> None:
        stamps.tick()

    @queuer.entrypoint("mark")  # type: ignore[untyped-decorator]  # peers' environment
    async def mark(job: Job) -> None:
        stamps.mark(float(job.payload))

    await queuer.run(batch_size=_BATCH, dequeue_timeout=_POLL)


async def remaining(address: str) -> None:
    """Print how many jobs are not done."""
    connection = await asyncpg.connect(address)
    print(await connection.fetchval("SELECT count(*) FROM pgqueuer"))
    await connection.close()


def main() -> None:
    action, address, count, *times = sys.argv[1:]
    if action == "enqueue":
        uvloop.run(enqueue(address, int(count)))
    elif action == "schedule":
        uvloop.run(schedule(address, int(count), *map(float, times)))
    else:
        uvloop.run({"consume": consume, "remaining": remaining}[action](address))


if __name__ == "__main__":
    main()

"""Procrastinate: `procrastinate_queue ACTION ADDRESS COUNT [FIRST SPACING]`.

ACTION is `enqueue`, `schedule`, `consume` or `remaining`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import procrastinate  # type: ignore[import-not-found]  # peers' environment
import psycopg  # type: ignore[import-not-found]
import uvloop

from bench import stamps

_ENQUEUED_AT_ONCE = 1_000
_CONCURRENCY = 30
_CONNECTIONS = 12
_POLL_SECONDS = 0.5
_LEFT = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"


async def enqueue(app: procrastinate.App, count: int) -> None:
    """Install it, and fill its queue."""
    await app.schema_manager.apply_schema_async()
    for done in range(0, count, _ENQUEUED_AT_ONCE):
        size = min(_ENQUEUED_AT_ONCE, count - done)
        await app.tasks["noop"].batch_defer_async(*[{} for _ in range(size)])


async def schedule(app: procrastinate.App, count: int, first: float, spacing: float) -> None:
    """Fill its queue with jobs for later."""
    for number in range(count):
        due = first + number * spacing
        at = datetime.fromtimestamp(due, UTC)
        await app.tasks["mark"].configure(schedule_at=at).defer_async(due=due)


async def consume(app: procrastinate.App) -> None:
    """Work until it is stopped."""
    await app.run_worker_async(
        concurrency=_CONCURRENCY, fetch_job_polling_interval=_POLL_SECONDS, wait=True
    )


async def act(action: str, address: str, count: int, *times: float) -> None:
    connector = procrastinate.PsycopgConnector(conninfo=address, max_size=_CONNECTIONS)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop")  # type: ignore[untyped-decorator]  # peers' environment
    async def noop() -> None:
        stamps.tick()

    @app.task(name="mark")  # type: ignore[untyped-decorator]  # peers' environment
    async def mark(due: float) -> None:
        stamps.mark(due)

    async with app.open_async():
        match action:
            case "enqueue":
                await enqueue(app, count)
            case "schedule":
                await schedule(app, count, *times)
            case _:
                await consume(app)


def main() -> None:
    action, address, count, *times = sys.argv[1:]
    if action == "remaining":
        with psycopg.connect(address) as connection:
            print(connection.execute(_LEFT).fetchone()[0])
    else:
        uvloop.run(act(action, address, int(count), *map(float, times)))


if __name__ == "__main__":
    main()

"""APScheduler 3 with one job per due time: `apscheduler_dates STORE FIRST SPACING COUNT`.

STORE is the address of a database, or `memory`. Times are in seconds. Runs until it is stopped;
exits at once if the first due time passes before all jobs are added.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from datetime import UTC, datetime

from apscheduler.executors.pool import (  # type: ignore[import-not-found]  # peers' environment
    ThreadPoolExecutor,
)
from apscheduler.jobstores.memory import MemoryJobStore  # type: ignore[import-not-found]
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore  # type: ignore[import-not-found]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-not-found]

from bench import stamps

_THREADS = 20
_GRACE_SECONDS = 600


def main() -> None:
    store, first, spacing, count = sys.argv[1], *map(float, sys.argv[2:])
    logging.disable(logging.CRITICAL)
    scheduler = BackgroundScheduler(
        jobstores={"default": _job_store(store)},
        executors={"default": ThreadPoolExecutor(_THREADS)},
        job_defaults={"misfire_grace_time": _GRACE_SECONDS},
        timezone=UTC,
    )
    scheduler.start(paused=True)
    for number in range(int(count)):
        due = first + number * spacing
        scheduler.add_job(
            stamps.mark, "date", run_date=datetime.fromtimestamp(due, UTC), args=[due]
        )
    if time.time() > first:
        sys.exit(1)
    scheduler.resume()
    signal.pause()  # asking the store whether it is done would disturb what is measured


def _job_store(address: str) -> MemoryJobStore | SQLAlchemyJobStore:
    return MemoryJobStore() if address == "memory" else SQLAlchemyJobStore(url=address)


if __name__ == "__main__":
    main()

"""huey on SQLite: `huey_queue enqueue|consume FILE COUNT default|fsync`."""

from __future__ import annotations

import logging
import sys

from huey import SqliteHuey  # type: ignore[import-not-found]  # only in the peers' environment

from bench import stamps


def main() -> None:
    action, path, count, durability = sys.argv[1:]
    # WAL and no results: the fastest that huey's documentation offers.
    huey = SqliteHuey(
        "bench", filename=path, results=False, journal_mode="wal", fsync=durability == "fsync"
    )
    noop = huey.task(name="noop")(stamps.tick)
    if action == "enqueue":
        for _ in range(int(count)):
            noop()
    else:
        logging.disable(logging.CRITICAL)
        huey.create_consumer(
            workers=1, worker_type="thread", periodic=False, check_worker_health=False
        ).run()


if __name__ == "__main__":
    main()

"""Celery on Redis: `celery_queue enqueue|consume|remaining ADDRESS COUNT`."""

from __future__ import annotations

import sys

import redis  # type: ignore[import-not-found]  # peers' environment
from celery import Celery  # type: ignore[import-not-found]

from bench import stamps

_PREFETCHED = 128
_WORKER = "--quiet worker --pool=prefork --concurrency=1 --loglevel=ERROR"
_ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def make_app(address: str) -> Celery:
    """Jobs are acknowledged once they are done: a worker's death loses none of them."""
    app = Celery("bench", broker=address)
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=_PREFETCHED,
        broker_connection_retry_on_startup=True,
    )
    app.task(name="noop")(stamps.tick)
    return app


def enqueue(address: str, count: int) -> None:
    app = make_app(address)
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            app.tasks["noop"].apply_async(producer=producer)


def consume(address: str) -> None:
    """Work until it is stopped."""
    make_app(address).worker_main([*_WORKER.split(), *_ALONE])


def remaining(address: str) -> None:
    """Print how many jobs are not done."""
    broker = redis.from_url(address)
    print(broker.llen("celery") + broker.hlen("unacked"))


def main() -> None:
    action, address, count = sys.argv[1:]
    if action == "enqueue":
        enqueue(address, int(count))
    else:
        {"consume": consume, "remaining": remaining}[action](address)


if __name__ == "__main__":
    main()

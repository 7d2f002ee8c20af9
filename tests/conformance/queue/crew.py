"""Servers and workers in one process, for tests of what lies between them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from rota.blobs.files import open_files
from rota.domain.ids import JobId
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.operations.engine import Engine
from rota.ports.queue import Queue, publish
from rota.ports.records import RunQuery
from rota.ports.work import Dispatch, Fence
from rota.queue.local import LocalIdleWorkers
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import Scene, hello, outcome, reported
from testkit.clock import FakeTicker
from testkit.new_stores import open_new_sqlite


class Crew:
    """One server for each queue, with two workers each, which note what they execute."""

    def __init__(self, nodes: Sequence[Engine], poll: timedelta) -> None:
        self._nodes = nodes
        self._scene = Scene(nodes[0].store, FakeTicker())
        config = FloorConfig(poll_interval=poll)
        self._floors = [Floor(node, config, f"s_{at}") for at, node in enumerate(nodes)]
        self._job: JobId | None = None
        self._reported = 0
        self._news = asyncio.Event()
        self.executed: Counter[Fence] = Counter()

    async def submit(self, batches: int, size: int = 4) -> None:
        """Runs that each server in turn is asked for."""
        self._job = self._job or await self._scene.job(overlap=Overlap.ALLOW)
        for number in range(batches):
            store = self._nodes[number % len(self._nodes)].store
            await Scene(store, self._scene.clock).submit(self._job, size)

    async def until_completed(self, count: int) -> None:
        """All runs have, and each was executed once."""
        async with asyncio.timeout(30):
            while self._reported < count:
                self._news.clear()
                await self._news.wait()
        runs = await self._nodes[0].store.runs(RunQuery(limit=1_000))
        assert [run.state for run in runs] == [RunState.COMPLETED] * count
        assert {fence.attempt for fence in self.executed} == {1}
        assert set(self.executed.values()) == {1}

    async def work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, floor in enumerate(self._floors * 2):
                group.create_task(self._serve(floor, f"w{number}"))
            for floor in self._floors:
                group.create_task(floor.run())

    async def _serve(self, floor: Floor, name: str) -> None:
        welcome = await floor.register(hello(name, slots=4))
        while True:
            order = await floor.next_order(welcome.session, welcome.stream)
            assert isinstance(order, Dispatch)
            fences = [work.fence for work in order.batch.works()]
            self.executed.update(fences)
            await floor.report(welcome.session, reported(*(outcome(fence) for fence in fences)))
            self._reported += len(fences)
            self._news.set()


@asynccontextmanager
async def at_work(folder: Path, queues: Sequence[Queue], poll: timedelta) -> AsyncIterator[Crew]:
    """A crew that serves until the end of the block."""
    store = await open_new_sqlite(folder / "rota.db")
    async with await open_files(folder / "blobs") as blobs:
        stores = [store.shared_with(partial(publish, queue)) for queue in queues]
        nodes = [
            Engine(*both, blobs, LocalIdleWorkers()) for both in zip(stores, queues, strict=True)
        ]
        crew = Crew(nodes, poll)
        serving = asyncio.create_task(crew.work())
        try:
            yield crew
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            await store.close()

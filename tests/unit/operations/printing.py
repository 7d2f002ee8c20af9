"""A run being executed, whose output a test stores and reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rota.blobs.files import FileBlobs, open_files
from rota.domain.ids import RunId, SessionId, new_job_id, new_run_id
from rota.domain.job import RunRules
from rota.domain.output import OutputRecorder, Stream
from rota.domain.run import AttemptResult, Trigger
from rota.operations.engine import Engine
from rota.operations.output import store_chunks
from rota.ports.records import NewJob, NewRun
from rota.ports.work import ChunkMeta, Hello, Outcome, OutputChunk, ReportAnswer
from rota.queue.local import LocalIdleWorkers
from testkit.builders import reported
from testkit.new_stores import local_queue, open_new_sqlite

_NOW = datetime(2026, 5, 4, tzinfo=UTC)
_NO_LIMIT = 1 << 40


class CountingBlobs(FileBlobs):
    """Counts what is put and what is fetched."""

    stored = 0
    fetched = 0
    fetched_bytes = 0

    async def put(self, key: str, data: bytes) -> None:
        self.stored += 1
        await super().put(key, data)

    async def get(self, key: str) -> bytes:
        self.fetched += 1
        data = await super().get(key)
        self.fetched_bytes += len(data)
        return data


@dataclass
class Printing:
    """Attempt 1 of a run, held by a session."""

    engine: Engine
    blobs: CountingBlobs
    session: SessionId
    run: RunId
    recorder: OutputRecorder

    async def prints(self, text: bytes) -> ReportAnswer:
        """Output that arrives now, in chunks of its own."""
        return await store_chunks(self.engine, self.session, self.chunks(text))

    def chunks(self, text: bytes) -> list[OutputChunk]:
        self.recorder.feed(1_000, Stream.STDOUT, 0, text)
        return [
            OutputChunk(
                self.run,
                1,
                ChunkMeta(
                    c.number, c.first_line, c.lines, c.text_bytes, c.first_at_ms, c.last_at_ms
                ),
                c.data,
            )
            for c in self.recorder.take_chunks(force=True)
        ]

    async def ends(self) -> None:
        """The attempt ends well, with what was fed and not taken riding along."""
        self.recorder.close(at_ms=2_000)
        totals = self.recorder.totals
        outcome = Outcome(
            self.run,
            1,
            AttemptResult.COMPLETED,
            1,
            2,
            exit_code=0,
            output=self.recorder.inline() or b"",
            output_bytes=totals.bytes,
            output_lines=totals.lines,
        )
        finished = await self.engine.store.finish(self.session, reported(outcome))
        assert not finished.refused


@asynccontextmanager
async def printing(folder: Path) -> AsyncIterator[Printing]:
    await open_files(folder / "blobs")
    async with AsyncExitStack() as stack:
        blobs = await stack.enter_async_context(CountingBlobs(folder / "blobs"))
        store = await open_new_sqlite(folder / "rota.db")
        stack.push_async_callback(store.close)
        engine = Engine(store, local_queue(store), blobs, LocalIdleWorkers())
        session, run = await _claimed_run(engine)
        yield Printing(engine, blobs, session, run, OutputRecorder(_NO_LIMIT))


async def _claimed_run(engine: Engine) -> tuple[SessionId, RunId]:
    store = engine.store
    job = NewJob(
        id=new_job_id(),
        project="default",
        name="print",
        document={"name": "print"},
        digest="d",
        rules=RunRules("print", "default"),
        set_name="",
        next_at=None,
        held_from=None,
        anchor=_NOW,
        enabled=True,
    )
    await store.save_jobs([job], removed=(), actor="test")
    run = new_run_id(_NOW)
    await store.submit([NewRun(run, job.id, 1, Trigger.MANUAL, "test")])
    session = await store.register(Hello("w", "default", 1), timedelta(minutes=5))
    [work] = (await store.claim(session.id, 1)).batch.works()
    assert work.run == run
    return session.id, run

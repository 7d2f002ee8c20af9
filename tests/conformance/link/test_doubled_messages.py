"""A worker and a server between which every message comes twice, work even long after."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.domain.states import RunState
from rota.ports.executor import JobBatch
from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit
from rota.ports.work import (
    Beat,
    BeatAnswer,
    Credential,
    Fence,
    Hello,
    Order,
    OutputChunk,
    Progress,
    RemoteHandle,
    Report,
    ReportAnswer,
    Start,
    StartAnswer,
    StepNote,
    Welcome,
    WorkerLink,
)
from rota.worker.attempts import Attempts
from rota.worker.session import WorkerSession
from rota.worker.spool import OutputSpool
from testkit.builders import hello, outcome
from testkit.guards import NoGuard
from tests.conformance.link.conftest import Shop

pytestmark = pytest.mark.anyio

RUNS = 20
SLOTS = 3


class DoublingLink:
    """Asks everything twice; all that was ever ordered comes again after each report."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._past: list[Order] = []
        self._again: list[Order] = []

    async def register(self, hello: Hello) -> Welcome:
        return await self._link.register(hello)

    async def beat(self, beat: Beat) -> BeatAnswer:
        await self._link.beat(beat)
        return await self._link.beat(beat)

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        await self._link.start(starts)
        return await self._link.start(starts)

    async def report(self, report: Report) -> ReportAnswer:
        await self._link.report(report)
        answer = await self._link.report(report)
        self._again += self._past
        return answer

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        return await self._link.output(chunks)

    async def progress(self, items: Sequence[Progress]) -> None:
        await self._link.progress(items)

    async def note(self, items: Sequence[StepNote]) -> None:
        await self._link.note(items)

    async def read_blob(self, wish: BlobRead) -> BlobPiece:
        return await self._link.read_blob(wish)

    async def commits(self, items: Sequence[SourceCommit]) -> ReportAnswer:
        await self._link.commits(items)
        return await self._link.commits(items)

    async def write_blob(self, piece: BlobPiece) -> BlobWritten:
        return await self._link.write_blob(piece)

    async def keep_handles(self, items: Sequence[RemoteHandle]) -> ReportAnswer:
        await self._link.keep_handles(items)
        return await self._link.keep_handles(items)

    async def receive(self) -> Order:
        if self._again:
            return self._again.pop(0)
        order = await self._link.receive()
        self._past.append(order)
        self._again.append(order)
        return order

    async def leave(self) -> None:
        await self._link.leave()

    async def renew_credential(self) -> Credential:
        await self._link.renew_credential()
        return await self._link.renew_credential()

    async def close(self) -> None:
        await self._link.close()


class AtOnce:
    """Executes in no time. Implements `rota.ports.executor.Executor`, as far as it is asked."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self.started: list[str] = []
        self.is_done = asyncio.Event()

    def start(self, jobs: Sequence[JobBatch]) -> None:
        works = [work for job in jobs for work in job.batch.works()]
        self.started += [work.run for work in works]
        self._attempts.ended([outcome(work, AttemptResult.COMPLETED) for work in works])
        if len(set(self.started)) == RUNS:
            self.is_done.set()

    def cancel(self, fences: Sequence[Fence]) -> None:
        raise AssertionError("nothing is to be cancelled")

    async def close(self) -> None: ...


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_every_run_is_executed_once(shop: Shop, tmp_path: Path, delivery: str) -> None:
    runs = await shop.scene.trigger(await shop.scene.job(delivery=delivery), RUNS)
    attempts = Attempts(SystemClock(), OutputSpool(tmp_path / "spool"))
    executor = AtOnce(attempts)
    attempts.serve_with({JobType.SHELL: executor})

    async def connect() -> DoublingLink:
        return DoublingLink(await shop.connect())

    session = WorkerSession(connect, attempts, hello(slots=SLOTS), NoGuard(), SystemClock())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(session.run())
        feeding = group.create_task(shop.floor.run())
        await executor.is_done.wait()
        session.stop()
        feeding.cancel()

    assert sorted(executor.started) == sorted(runs)
    ended = [await shop.scene.show(run) for run in runs]
    assert {(run.state, run.attempt) for run in ended} == {(RunState.COMPLETED, 1)}


async def test_a_beat_that_comes_again_after_more_was_sent_loses_nothing(shop: Shop) -> None:
    link = await shop.connect()
    welcome = await link.register(hello())
    before = Beat(received=0, stream=welcome.stream)
    await link.beat(before)
    [run] = await shop.scene.trigger(await shop.scene.job())
    await shop.floor.claim_for(welcome.session)
    await link.receive()

    for _ in range(3):
        await link.beat(before)

    assert await shop.scene.state(run) is RunState.CLAIMED
    await link.beat(Beat(received=1, stream=welcome.stream))
    assert await shop.scene.state(run) is RunState.SCHEDULED
    await link.close()

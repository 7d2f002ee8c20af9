"""A worker's conversation with a server, whatever carries it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from rota.domain.errors import LockedTooLong, NotFound, RotaError, StaleTransition, Unavailable
from rota.domain.ids import RunId, SessionId
from rota.domain.output import CHUNK_LIMIT, OutputRecorder, Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, Overlap, Retry
from rota.domain.states import RunState
from rota.link import grpc_messages, local
from rota.operations.runs import cancel
from rota.ports.files import COMMITS, SourceCommit
from rota.ports.work import (
    ATTEMPT_BITS,
    HANDLES,
    MAX_AMOUNT,
    MAX_NUMBER,
    MAX_TOTAL,
    RUNNING,
    STEPS,
    Beat,
    Cancel,
    ChunkMeta,
    Dispatch,
    EndBatch,
    Fence,
    OutputChunk,
    Progress,
    Refused,
    RemoteHandle,
    Report,
    ReportAnswer,
    Start,
    StepNote,
    StepOutcome,
    Welcome,
    Work,
    WorkerLink,
)
from testkit.builders import hello, outcome
from tests.conformance.link.conftest import Shop

pytestmark = pytest.mark.anyio


@pytest.fixture
async def link(shop: Shop) -> AsyncIterator[WorkerLink]:
    link = await shop.connect()
    yield link
    await link.close()


async def taken(shop: Shop, link: WorkerLink, welcome: Welcome, **rules: Any) -> Work:
    """A run that has been dispatched to the worker."""
    await shop.scene.trigger(await shop.scene.job(**rules))
    await shop.floor.claim_for(welcome.session)
    order = await link.receive()
    assert isinstance(order, Dispatch)
    return order.batch.work(0)


async def test_a_worker_is_welcomed_with_a_session_a_lease_and_the_store_s_time(
    shop: Shop, link: WorkerLink
) -> None:
    offer = hello(
        labels={"site": "fra"},
        resources={"cpu": 1_500, "memory": MAX_AMOUNT},
        functions=("app.tidy",),
        guard_mode="namespace",
    )

    welcome = await link.register(offer)

    [session] = await shop.scene.store.sessions(alive_only=True)
    assert (welcome.session, welcome.lease_seconds, welcome.stream) == (session.id, 30, 1)
    assert (session.labels, session.functions) == ({"site": "fra"}, ("app.tidy",))
    assert session.resources == {"cpu": 1_500, "memory": MAX_AMOUNT}
    assert welcome.store_now > 0


async def test_nothing_is_answered_before_the_worker_registers(link: WorkerLink) -> None:
    with pytest.raises((NotFound, Unavailable)):
        await link.beat(Beat())


async def test_work_arrives_in_batches_with_each_spec_once(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    job = await shop.scene.job(overlap=Overlap.ALLOW)
    runs = await shop.scene.trigger(job, 2)
    await shop.floor.claim_for(welcome.session)
    first = await link.receive()
    later = await shop.scene.trigger(job)
    await shop.floor.claim_for(welcome.session)

    second = await link.receive()

    assert isinstance(first, Dispatch)
    assert isinstance(second, Dispatch)
    assert first.batch.runs == runs
    assert [entry.job_id for entry in first.specs] == [job]
    assert second.batch.runs == later
    assert second.specs == ()
    assert (first.first, second.first) == (1, 3)


async def test_work_that_is_too_long_for_a_message_arrives_in_several(
    shop: Shop, link: WorkerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for adapter in (grpc_messages, local):
        monkeypatch.setattr(adapter, "PIECE", 3_000)
    welcome = await link.register(hello(slots=8))
    job = await shop.scene.job(overlap=Overlap.ALLOW)
    runs = await shop.scene.trigger(job, 8, inputs={"blob": "x" * 1_000})
    await shop.floor.claim_for(welcome.session)

    async with asyncio.timeout(10):
        specs, *parts = [await link.receive() for _ in range(5)]

    assert isinstance(specs, Dispatch)
    assert ([entry.job_id for entry in specs.specs], len(specs.batch)) == ([job], 0)
    works = [part for part in parts if isinstance(part, Dispatch)]
    assert [(part.first, len(part.batch)) for part in works] == [(1, 2), (3, 2), (5, 2), (7, 2)]
    assert [run for part in works for run in part.batch.runs] == runs


@pytest.mark.parametrize("error", [LockedTooLong("later"), StaleTransition("odd")], ids=repr)
async def test_a_server_that_cannot_do_it_now_says_so_and_the_link_goes_on(
    shop: Shop, link: WorkerLink, monkeypatch: pytest.MonkeyPatch, error: RotaError
) -> None:
    async def refuse(*_: Any) -> ReportAnswer:
        raise error

    await link.register(hello())
    for verb in ("report", "output"):
        monkeypatch.setattr(shop.floor, verb, refuse)

    with pytest.raises(Refused, match=error.message) as of_report:
        await link.report(Report())
    with pytest.raises(Refused, match=error.message):
        await link.output([])

    assert of_report.value.code == error.code
    assert (await link.beat(Beat())).alive


async def test_a_report_that_is_invalid_is_not_one_to_send_again(
    shop: Shop, link: WorkerLink
) -> None:
    await link.register(hello())

    with pytest.raises(Unavailable) as problem:
        await link.report(Report(EndBatch(["r_1"], [1], [], [], [])))

    assert not isinstance(problem.value, Refused)


async def test_a_session_that_is_gone_is_told_as_such(
    shop: Shop, link: WorkerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> ReportAnswer:
        raise NotFound("no such session")

    await link.register(hello())
    monkeypatch.setattr(shop.floor, "report", refuse)

    with pytest.raises(NotFound):
        await link.report(Report())


async def test_a_permit_makes_a_run_processing(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome, delivery=Delivery.AT_MOST_ONCE)

    answer = await link.start([Start(work.run, work.attempt, welcome.store_now)])

    assert (answer.granted, answer.refused) == ((work.fence,), ())
    assert await shop.scene.state(work.run) is RunState.PROCESSING


async def test_a_permit_for_another_attempt_is_refused(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)

    answer = await link.start([Start(work.run, 7, welcome.store_now)])

    assert answer.refused == (Fence(work.run, 7),)


async def test_a_report_ends_a_run_with_everything_the_worker_knows(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    report = outcome(
        work,
        AttemptResult.FAILED,
        at=welcome.store_now,
        exit_code=3,
        message="it broke — badly",
        outputs={"rows": [1, 2.5, None, "drei"]},
        steps=(StepOutcome("Build", "failed", 3, None, 1.5, 2), StepOutcome("Test", "skipped")),
        cpu_seconds=0.25,
        max_memory_bytes=1 << 40,
    )

    answer = await link.report(Report(outcomes=(report,)))

    run = await shop.scene.show(work.run)
    [attempt] = await shop.scene.store.attempts(run.id)
    assert answer == ReportAnswer()
    assert (run.state, run.exit_code, run.outputs) == (RunState.FAILED, 3, report.outputs)
    assert [(step.name, step.result) for step in attempt.steps] == [
        ("Build", "failed"),
        ("Test", "skipped"),
    ]
    assert attempt.usage.max_memory_bytes == 1 << 40


async def test_a_report_is_accepted_twice_and_a_stale_one_is_refused(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    report = Report(outcomes=(outcome(work),))
    await link.report(report)

    again = await link.report(report)
    stale = await link.report(Report(outcomes=(outcome(Fence(work.run, 9)),)))

    assert again == ReportAnswer()
    assert stale == ReportAnswer(refused=(Fence(work.run, 9),))


async def test_ends_in_columns_are_answered_with_what_was_refused_of_them(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    job = await shop.scene.job(overlap=Overlap.ALLOW)
    runs = await shop.scene.trigger(job, 2)
    await shop.floor.claim_for(welcome.session)
    order = await link.receive()
    assert isinstance(order, Dispatch)
    now = welcome.store_now
    ends = EndBatch(
        [*order.batch.runs, "r_foreign"],
        [*order.batch.numbers, 1 << ATTEMPT_BITS],
        [now] * 3,
        [now] * 3,
        [7] * 3,
        {1: '{"rows":3}'},
    )

    answer = await link.report(Report(ends))

    assert answer == ReportAnswer(refused=(Fence("r_foreign", 1 << ATTEMPT_BITS),))
    ended = [await shop.scene.show(run) for run in runs]
    assert [run.state for run in ended] == [RunState.COMPLETED] * 2
    assert [run.outputs for run in ended] == [None, {"rows": 3}]


async def test_a_fence_of_another_incarnation_is_refused(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    other = Fence(work.run, work.number + (1 << ATTEMPT_BITS))

    started = await link.start([Start(other.run, other.number, welcome.store_now)])
    reported = await link.report(Report(outcomes=(outcome(other),)))
    beaten = await link.beat(Beat((work.fence, other), received=1))

    assert started.refused == (other,)
    assert reported == ReportAnswer(refused=(other,))
    assert beaten.unknown == (other,)
    assert await shop.scene.state(work.run) is RunState.CLAIMED


async def test_output_arrives_chunk_by_chunk(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    recorder = OutputRecorder(1 << 20)
    recorder.feed(1_000, Stream.STDOUT, 0, b"all of it\n\xff\x00")
    [packed] = recorder.take_chunks(force=True)
    meta = ChunkMeta(packed.number, 0, packed.lines, packed.text_bytes, 1_000, 1_000)

    answer = await link.output([OutputChunk(work.run, work.attempt, meta, packed.data)])

    [stored] = await shop.scene.store.chunks(RunId(work.run), work.attempt)
    assert answer == ReportAnswer()
    assert stored.meta == meta
    assert await shop.engine.blobs.get(stored.key) == packed.data


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": MAX_NUMBER + 1},
        {"first_line": MAX_TOTAL + 1},
        {"lines": MAX_TOTAL + 1},
        {"bytes": MAX_TOTAL + 1},
        {"last_at": -1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_numbers_that_no_store_could_add_up_are_refused(
    shop: Shop, link: WorkerLink, wrong: dict[str, int]
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    meta = msgspec.structs.replace(ChunkMeta(0, 0, 1, 1, 0, 0), **wrong)

    with pytest.raises(Unavailable):
        await link.output([OutputChunk(work.run, work.attempt, meta, b"")])

    assert await shop.scene.store.chunks(RunId(work.run), work.attempt) == []


async def test_a_chunk_that_is_too_large_is_refused_and_the_link_goes_on(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    huge = OutputChunk(
        work.run, work.attempt, ChunkMeta(0, 0, 1, 1, 0, 0), b"x" * (2 * CHUNK_LIMIT + 1)
    )
    endless = OutputChunk(work.run, work.attempt, ChunkMeta(0, 0, 1, CHUNK_LIMIT + 1, 0, 0), b"x")

    answers = [await link.output([chunk]) for chunk in (huge, endless)]

    assert [answer.refused for answer in answers] == [(work.fence,)] * 2
    assert (await link.beat(Beat(held=(work.fence,)))).alive


async def test_progress_is_shown(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    await link.start([Start(work.run, work.attempt, welcome.store_now)])

    await link.progress([Progress(work.run, work.attempt, 3, 4, "three of four")])

    run = await shop.scene.show(work.run)
    assert run.progress is not None
    assert (run.progress["done"], run.progress["total"]) == (3, 4)


async def test_a_welcome_offers_notes_and_what_is_noted_is_shown(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    steps = tuple(StepOutcome(f"step {n}", RUNNING, started_at=n + 1) for n in range(3))

    await link.note([StepNote(work.run, work.number, 7, 5, steps, 2, 20, "\N{SNOWMAN}")])

    [note] = (await shop.scene.store.notes([work.run])).values()
    assert STEPS in welcome.requests
    assert (note.first_step, note.current, note.last_line) == (5, 7, "\N{SNOWMAN}")


async def test_a_handle_is_kept_and_comes_with_the_next_attempt(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    assert HANDLES in welcome.requests

    foreign = RemoteHandle("r_other", 1, "{}")
    handle = '{"taken":{"header:location":"/\N{SNOWMAN}"}}'
    kept = await link.keep_handles([RemoteHandle(work.run, work.number, handle), foreign])

    assert kept == ReportAnswer(refused=(foreign.fence,))
    await shop.scene.store.lose(SessionId(welcome.session), (work.fence,))
    await shop.scene.release()
    await shop.floor.claim_for(welcome.session)
    order = await link.receive()
    assert isinstance(order, Dispatch)
    assert order.batch.work(0).handle == handle


async def test_a_commit_that_was_told_comes_with_the_next_attempt(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome, retry=Retry(attempts=2))
    foreign = SourceCommit("r_foreign", 1, "b" * 40)

    answer = await link.commits([SourceCommit(work.run, work.number, "a" * 40), foreign])
    await link.report(Report(outcomes=(outcome(work.fence, AttemptResult.FAILED),)))
    await shop.scene.release()
    await shop.floor.claim_for(welcome.session)
    order = await link.receive()

    assert COMMITS in welcome.requests
    assert answer.refused == (foreign.fence,)
    assert isinstance(order, Dispatch)
    again = order.batch.work(0)
    assert (work.commit, again.number, again.commit) == ("", 2, "a" * 40)


async def test_any_number_of_notes_arrive(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    steps = tuple(StepOutcome(f"step {n}", "completed") for n in range(100))
    foreign = [StepNote(f"r_{n}", 1, 7, 0, steps) for n in range(25)]

    await link.note([*foreign, StepNote(work.run, work.number, 7, 0, steps)])

    assert set(await shop.scene.store.notes([work.run, "r_3"])) == {work.run}


async def test_a_beat_tells_what_to_cancel_and_what_is_not_the_worker_s(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    await shop.scene.store.cancel([RunId(work.run)], actor="test")
    foreign = Fence("r_foreign", 1)

    answer = await link.beat(Beat((work.fence, foreign)))

    assert answer.alive
    assert answer.cancel == (work.fence,)
    assert answer.unknown == (foreign,)


async def test_a_beat_tells_that_the_session_is_over(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    await shop.scene.store.end_session(SessionId(welcome.session))

    answer = await link.beat(Beat())

    assert not answer.alive


async def test_a_cancel_reaches_the_worker_unasked(shop: Shop, link: WorkerLink) -> None:
    welcome = await link.register(hello())
    work = await taken(shop, link, welcome)
    run = await shop.scene.show(work.run)

    async with asyncio.TaskGroup() as group:
        floor = group.create_task(shop.floor.run())
        await cancel(shop.engine, run, actor="test")
        order = await link.receive()
        floor.cancel()

    assert order == Cancel((work.fence,))


async def test_a_worker_comes_back_to_its_session_on_another_connection(
    shop: Shop, link: WorkerLink
) -> None:
    first = await link.register(hello())
    other = await shop.connect()

    second = await other.register(hello(resumes=first.session))

    assert (second.session, second.stream) == (first.session, 2)
    assert (await other.beat(Beat())).alive
    with pytest.raises((Unavailable, NotFound)):
        await link.receive()
    await other.close()


async def test_the_end_of_an_old_connection_does_not_touch_the_new_one(
    shop: Shop, link: WorkerLink
) -> None:
    first = await link.register(hello())
    other = await shop.connect()
    await other.register(hello(resumes=first.session))
    await other.beat(Beat())  # what it holds is known from here on

    await link.close()

    await other.beat(Beat())
    work = await taken(shop, other, first)
    assert await other.report(Report(outcomes=(outcome(work),))) == ReportAnswer()
    await other.close()


async def test_a_worker_that_leaves_ends_its_session(shop: Shop, link: WorkerLink) -> None:
    await link.register(hello())

    await link.leave()

    assert await shop.scene.store.sessions(alive_only=True) == []


async def test_a_closed_connection_leaves_the_session_to_its_lease(
    shop: Shop, link: WorkerLink
) -> None:
    welcome = await link.register(hello())

    await link.close()

    with pytest.raises(NotFound):  # once the server has noticed
        await shop.floor.next_order(welcome.session, welcome.stream)
    assert len(await shop.scene.store.sessions(alive_only=True)) == 1


async def test_a_closed_link_answers_nothing(link: WorkerLink) -> None:
    await link.register(hello())
    await link.close()

    with pytest.raises(Unavailable):
        await link.beat(Beat())
    with pytest.raises(Unavailable):
        await link.receive()

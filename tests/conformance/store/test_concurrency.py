"""Transactions side by side: whoever comes first, the rules hold and nobody hears of a deadlock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from rota.domain.errors import Conflict
from rota.domain.gates import SLOT_STATES
from rota.domain.ids import JobId, SessionId, new_run_id
from rota.domain.run import AttemptResult, Trigger
from rota.domain.spec import Overlap, Retry
from rota.domain.states import LEASED_STATES, RunState, is_final
from rota.ports.records import Event, Fired, Idempotency, NewRun, RunQuery
from rota.ports.work import Work
from testkit.builders import MINUTE, Scene, firing_of, new_calendar, new_job
from tests.conformance.store.conftest import every_way

pytestmark = [pytest.mark.anyio, every_way]

T = TypeVar("T")
LEASE = timedelta(seconds=30)


async def at_once(calls: Iterable[Awaitable[T]]) -> list[T]:
    """All of them side by side; whatever goes wrong is raised."""
    return list(await asyncio.gather(*calls))


async def answers(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The same, where a refusal is an answer; anything else that goes wrong is raised."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for answer in found:
        if isinstance(answer, BaseException) and not isinstance(answer, Conflict):
            raise answer
    return found


async def in_slots(scene: Scene, job_id: JobId) -> int:
    runs = await scene.store.runs(RunQuery(job_id=job_id, limit=1_000))
    return sum(run.state in SLOT_STATES for run in runs)


async def test_claims_that_race_give_every_run_to_one_worker(scene: Scene) -> None:
    runs = await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 300)
    workers = await at_once(scene.worker(f"worker-{n}", slots=20) for n in range(20))

    claimed = await at_once(scene.claim(worker, 2) for worker in workers for _ in range(10))

    works = [work.run for works in claimed for work in works]
    assert len(works) == len(set(works))
    assert set(works) <= set(runs)
    held = Counter(run.session for run in await scene.store.runs(RunQuery(limit=1_000)))
    assert all(held[worker] <= 20 for worker in workers)
    rest = await scene.claim(await scene.worker("last", slots=300), 300)
    assert len(works) + len(rest) == 300


async def test_claims_for_one_worker_never_fill_more_than_its_slots(scene: Scene) -> None:
    await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 50)
    worker = await scene.worker(slots=5)

    claimed = await at_once(scene.claim(worker, 5) for _ in range(10))

    assert sum(map(len, claimed)) == 5


async def test_a_due_time_fired_from_two_sides_has_one_run(scene: Scene) -> None:
    job_ids = [await scene.job(f"job-{n}", next_at=scene.clock.instant + MINUTE) for n in range(10)]
    scene.advance(MINUTE)
    jobs = [await scene.show_job(job_id) for job_id in job_ids]
    ownership = await scene.ownership()
    firings = [firing_of(job, next_at=scene.clock.instant + MINUTE) for job in jobs]

    fired: list[Fired] = await at_once(
        scene.store.fire(batch, ownership) for _ in range(5) for batch in (firings, firings[::-1])
    )

    assert Counter(job for each in fired for job in each.accepted) == Counter(job_ids)
    assert len(await scene.store.runs(RunQuery(limit=100))) == 10


@pytest.mark.parametrize("limit", [1, 3])
async def test_submissions_that_race_never_pass_the_limit(scene: Scene, limit: int) -> None:
    job_id = await scene.job(max_concurrency=limit)

    await at_once(scene.trigger(job_id, 2) for _ in range(20))

    assert await in_slots(scene, job_id) == limit


async def test_a_limit_that_comes_while_runs_are_submitted_counts_them_all(scene: Scene) -> None:
    job_id = await scene.job(overlap=Overlap.ALLOW)
    old = await scene.show_job(job_id)

    await at_once(
        [
            *(_trigger(scene, job_id, old.version) for _ in range(10)),
            scene.change(job_id, max_concurrency=1),
        ]
    )
    worker = await scene.worker(slots=20)
    while works := await scene.claim(worker, 20):
        await scene.finish(worker, works)
    await _trigger(scene, job_id, old.version)
    await _trigger(scene, job_id, old.version)

    assert await in_slots(scene, job_id) == 1


async def _trigger(scene: Scene, job_id: JobId, version: int) -> None:
    run = NewRun(new_run_id(scene.clock.instant), job_id, version, Trigger.MANUAL, "user")
    await scene.store.submit([run])


async def test_a_pause_beside_submissions_leaves_nothing_queued(scene: Scene) -> None:
    for n in range(5):
        job_id = await scene.job(f"job-{n}", overlap=Overlap.ALLOW)

        await at_once([*(scene.trigger(job_id) for _ in range(6)), scene.move("paused", job_id)])

        runs = await scene.store.runs(RunQuery(job_id=job_id))
        assert [run.state for run in runs] == [RunState.BLOCKED] * 6


@pytest.mark.parametrize("limit", [None, 20])
async def test_an_attempt_ends_once_whoever_ends_it(scene: Scene, limit: int | None) -> None:
    job_id = await scene.job(overlap=Overlap.ALLOW, max_concurrency=limit, retry=Retry(attempts=1))
    runs = await scene.trigger(job_id, 30)
    worker = await scene.worker(slots=20, lease=LEASE)
    works = await scene.claim(worker)
    scene.advance(2 * LEASE)

    await at_once(
        [
            scene.finish(worker, works[:10], AttemptResult.FAILED, message="told"),
            scene.finish(worker, works[5:15]),
            scene.store.cancel(runs, actor="user"),
            scene.store.cancel(runs[::-1], actor="user"),
            scene.store.reap({worker: 0}),
            scene.store.end_session(worker),
        ]
    )

    found = await scene.store.runs(RunQuery(limit=100))
    assert not [run for run in found if run.state in LEASED_STATES]
    assert await in_slots(scene, job_id) == 0
    _every_end_is_told_once(await scene.store.events(0, 1_000))
    counted = (await scene.store.counts()).finished
    assert sum(counted.values()) == sum(is_final(run.state) for run in found)


def _every_end_is_told_once(events: list[Event]) -> None:
    ended = [run for event in events if event.kind == "run.finished" for run in event.ids]
    assert len(ended) == len(set(ended))


async def test_nothing_is_stranded_in_a_line_at_rest(scene: Scene) -> None:
    job_id = await scene.job(overlap=Overlap.ALLOW)
    workers = [await scene.worker(f"worker-{n}", slots=100) for n in range(3)]
    done: list[str] = []

    async def work(worker: SessionId) -> None:
        for _ in range(20):
            works = await scene.claim(worker, 3)
            refused = (await scene.finish(worker, works)).refused if works else ()
            done.extend(work.run for work in works if work.fence not in refused)

    await at_once([*map(work, workers), *(scene.trigger(job_id, 1) for _ in range(60))])
    while works := await scene.claim(workers[0]):
        done.extend(work.run for work in works)
        await scene.finish(workers[0], works)

    assert len(done) == len(set(done)) == 60


async def test_one_key_gets_one_answer(scene: Scene) -> None:
    job_id = await scene.job()
    key = Idempotency("key", "digest")

    async def submit() -> tuple[Any, ...]:
        run = NewRun(new_run_id(scene.clock.instant), job_id, 1, Trigger.MANUAL, "user")
        return (await scene.store.submit([run], key)).runs

    submitted = await at_once(submit() for _ in range(20))

    assert len(set(submitted)) == 1
    assert len(await scene.store.runs(RunQuery())) == 1


async def test_jobs_saved_from_two_sides_are_saved_by_one(scene: Scene) -> None:
    now = scene.clock.instant
    sides = [[new_job(f"job-{n}", now) for n in range(10)] for _ in range(4)]

    saved = await answers(
        scene.store.save_jobs(jobs if side % 2 else jobs[::-1], removed=(), actor=f"editor-{side}")
        for side, jobs in enumerate(sides)
    )

    refused = [answer for answer in saved if isinstance(answer, Conflict)]
    assert {error.code for error in refused} == {"job_changed"}
    assert len(refused) == len(sides) - 1


async def test_an_edit_from_two_sides_is_made_by_one(scene: Scene) -> None:
    job_ids = [await scene.job(f"job-{n}") for n in range(10)]

    def edits() -> list[Any]:
        return [
            new_job(f"job-{n}", scene.clock.instant, job_id=job_id, expected_version=1)
            for n, job_id in enumerate(job_ids)
        ]

    saved = await answers(
        scene.store.save_jobs(edits()[:: 1 if side % 2 else -1], removed=(), actor="editor")
        for side in range(4)
    )

    assert sum(not isinstance(answer, Conflict) for answer in saved) == 1
    assert {(await scene.show_job(job_id)).version for job_id in job_ids} == {2}


async def test_a_calendar_in_use_is_never_deleted(scene: Scene) -> None:
    for n in range(5):
        name = f"nights-{n}"
        await scene.store.save_calendars([new_calendar(name)], actor="editor")

        deleted, saved = await answers(
            [
                scene.store.delete_calendar("default", name, expected_version=1, actor="editor"),
                scene.job(f"job-{n}", calendars=[name]),
            ]
        )

        assert isinstance(deleted, Conflict) != isinstance(saved, Conflict)


async def test_a_calendar_made_from_two_sides_is_made_by_one(scene: Scene) -> None:
    saved = await answers(
        scene.store.save_calendars([new_calendar()], actor=f"editor-{n}") for n in range(4)
    )

    assert sum(not isinstance(answer, Conflict) for answer in saved) == 1


async def test_due_times_backfilled_from_two_sides_run_in_one_backfill(scene: Scene) -> None:
    job_id = await scene.job()
    due = [scene.clock.instant - n * MINUTE for n in range(5, 0, -1)]

    asked = await answers(scene.backfill(job_id, due, max_parallel=5) for _ in range(4))

    refused = [answer for answer in asked if isinstance(answer, Conflict)]
    assert {error.code for error in refused} == {"backfill_overlaps"}
    assert len(await scene.store.runs(RunQuery())) == len(due)


async def test_a_worker_that_comes_back_while_it_is_reaped_holds_nothing(scene: Scene) -> None:
    await scene.trigger(await scene.job(overlap=Overlap.ALLOW), 40)
    worker = await scene.worker(slots=40, lease=LEASE)
    scene.advance(LEASE + timedelta(seconds=1))
    seen = {worker: 0}

    claimed: list[Any] = await at_once(
        [scene.store.reap(seen), scene.store.renew(worker, stopping=False), _works(scene, worker)]
    )

    works: list[Work] = claimed[2]
    session = next(s for s in await scene.store.sessions(alive_only=False) if s.id == worker)
    held = [r for r in await scene.store.runs(RunQuery(limit=100)) if r.state in LEASED_STATES]
    assert len(held) == (len(works) if session.alive else 0)


async def _works(scene: Scene, worker: SessionId) -> list[Work]:
    return [work for _ in range(5) for work in await scene.claim(worker, 5)]


async def test_readers_of_events_miss_nothing_that_commits_late(scene: Scene) -> None:
    job_id = await scene.job(overlap=Overlap.ALLOW)
    seen: list[Event] = []

    async def follow() -> None:
        while len([event for event in seen if event.kind == "run.queued"]) < 40:
            seen.extend(await scene.store.events(seen[-1].seq if seen else 0, 7))

    await at_once([follow(), *(_submit(scene, job_id) for _ in range(40))])

    assert [event.seq for event in seen] == sorted({event.seq for event in seen})
    assert [e.seq for e in seen] == [e.seq for e in await scene.store.events(0, 1_000)]


async def _submit(scene: Scene, job_id: JobId) -> None:
    await scene.trigger(job_id, 3)

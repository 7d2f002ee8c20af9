"""Limits and quotas: declared, changed and deleted while runs are there, and what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NoReturn

import pytest

from rota.domain.carts.facts import CartState, WaitReason
from rota.domain.errors import Conflict, Unavailable
from rota.domain.ids import SHARD_COUNT, JobId, RunId, SessionId, micros
from rota.domain.keys import Each, KeyKind, Limit, Quota, Resource
from rota.domain.run import AttemptResult
from rota.domain.spec import Overlap, Retry
from rota.domain.states import WAITING_STATES, RunState
from rota.ports.queue import Wakes
from rota.ports.records import ProjectCounts, RemovedJob, RunQuery
from rota.store import limits
from testkit.builders import MINUTE, Scene
from testkit.cart_scenes import PARALLEL, CartScene
from tests.conformance.store.key_scenes import declare, in_state, keep

pytestmark = pytest.mark.anyio


async def test_a_changed_limit_acts_on_those_who_wait(scene: Scene) -> None:
    await declare(scene, Resource("default", "pg-license", total=2))
    job = await scene.job(uses={"pg-license": 1})
    runs = await scene.trigger(job, 6)

    await declare(scene, Resource("default", "pg-license", total=4))
    raised = await keep(scene)
    await declare(scene, Resource("default", "pg-license", total=1))
    worker = await scene.worker()
    claimed = await scene.claim(worker)

    assert raised == 2
    assert [work.run for work in claimed] == runs[:1]
    assert len(await in_state(scene, runs, RunState.BLOCKED)) == 5


async def test_a_limit_that_is_deleted_lets_all_go(scene: Scene, published: list[Wakes]) -> None:
    await declare(scene, Limit("default", "mail", tokens=1, per=MINUTE, burst=1))
    job = await scene.job(rate_limits={"mail": 1})
    runs = await scene.trigger(job, 5)

    was_there = await scene.store.delete_declaration(
        KeyKind.RATE, "default", "mail", actor="editor"
    )
    wakes = published[-1]
    await keep(scene)

    assert was_there
    assert wakes.keys
    assert await scene.states(runs) == [RunState.QUEUED] * 5
    assert not await scene.store.delete_declaration(KeyKind.RATE, "default", "mail", actor="editor")
    assert published[-1] == Wakes()


async def test_a_limit_that_shrank_does_not_keep_others_from_the_workers(scene: Scene) -> None:
    await declare(scene, Limit("default", "mail", tokens=300, per=MINUTE, burst=300))
    mails = await scene.trigger(await scene.job("mail", rate_limits={"mail": 1}), 300)
    [other] = await scene.trigger(await scene.job("other"))
    worker = await scene.worker(slots=2)
    await declare(scene, Limit("default", "mail", tokens=1, per=MINUTE, burst=1))

    claimed = [work.run for work in await scene.claim(worker)]

    assert claimed == [mails[0], other]
    second, last = await scene.show(mails[1]), await scene.show(mails[-1])
    assert second.eligible_at == scene.clock.instant + MINUTE
    assert last.eligible_at == scene.clock.instant + 299 * MINUTE


async def times_told(scene: Scene, runs: Sequence[RunId]) -> list[datetime | None]:
    return [(await scene.show(run)).eligible_at for run in runs]


async def go_on(scene: Scene, worker: SessionId) -> datetime:
    """Wait until the next run may go, and let it; returns when that was."""
    next_at = await scene.store.next_key_at()
    assert next_at is not None
    scene.advance(next_at - scene.clock.instant)
    await keep(scene)
    assert len(await scene.claim(worker)) == 1
    return scene.clock.instant


@pytest.mark.parametrize(
    ("each", "named"), [(Each.NOBODY, {"mail": 1}), (Each.USER, {})], ids=["shared", "each-user"]
)
async def test_whoever_waits_for_a_rate_that_changes_is_told_anew_and_it_is_so(
    scene: Scene, each: Each, named: dict[str, int]
) -> None:
    async def allow(tokens: int) -> None:
        await declare(scene, Limit("default", "mail", tokens, per=MINUTE, burst=1, each=each))
        await keep(scene)

    await allow(1)
    job = await scene.job(rate_limits=named)
    worker = await scene.worker(slots=100, lease=timedelta(hours=1))
    runs = (await scene.trigger(job, 11))[1:]
    await scene.claim(worker)
    begin = scene.clock.instant

    await allow(4)
    raised = await times_told(scene, runs)
    starts = [await go_on(scene, worker) for _ in range(5)]
    await allow(2)
    lowered = await times_told(scene, runs[5:])
    starts += [await go_on(scene, worker) for _ in range(5)]

    assert raised == [begin + n * MINUTE / 4 for n in range(1, 11)]
    assert starts == raised[:5] + lowered
    assert lowered == [starts[4] + n * MINUTE / 2 for n in range(1, 6)]


async def test_a_quota_that_changes_acts_on_those_who_wait(scene: Scene) -> None:
    await declare(scene, Quota("default", running=1))
    runs = await scene.trigger(await scene.job(), 5)
    counts = []
    for quota in (Quota("default", running=3), Quota("default", jobs=100)):
        await declare(scene, quota)
        await keep(scene)
        counts.append(len(await in_state(scene, runs, RunState.QUEUED)))

    assert counts == [3, 5]


async def test_a_quota_binds_runs_that_were_there_before_it(scene: Scene) -> None:
    job = await scene.job()
    worker = await scene.worker()
    runs = await scene.trigger(job, 5)
    [live] = await scene.claim(worker, 1)

    await declare(scene, Quota("default", running=2))
    await keep(scene)
    second = await scene.claim(worker)
    full = await scene.claim(worker)
    await scene.finish(worker, [live])
    await keep(scene)

    assert [work.run for work in (live, *second)] == runs[:2]
    assert full == []
    assert len(await scene.claim(worker)) == 1


async def test_a_limit_for_each_user_binds_runs_that_were_there_before_it(scene: Scene) -> None:
    next_at = scene.clock.instant + MINUTE
    job = await scene.job(next_at=next_at, overlap=Overlap.ALLOW)
    due = await scene.scheduled_run(job)
    runs = await scene.trigger(job, 1_005)
    worker = await scene.worker(slots=2_000)
    await declare(scene, Limit("default", "fair", tokens=2, per=MINUTE, burst=2, each=Each.USER))

    await keep(scene)
    claimed = [work.run for work in await scene.claim(worker, 2_000)]

    assert sorted(claimed) == sorted([due.id, *runs[:2]])  # one is of who made the job
    assert (await scene.show(runs[-1])).reasons[0].key == "rate:default/fair/user=user"


@pytest.mark.parametrize("is_deleted", [False, True], ids=["changed", "made-anew"])
async def test_a_limit_that_is_for_each_job_no_more_binds_those_who_name_it_together(
    scene: Scene, is_deleted: bool
) -> None:
    async def share(each: Each) -> None:
        await declare(scene, Limit("default", "mail", tokens=1, per=MINUTE, burst=1, each=each))
        await keep(scene)

    await share(Each.JOB)
    named = [await scene.job(name, rate_limits={"mail": 1}) for name in ("ads", "news")]
    mails = [run for job in named for run in await scene.trigger(job, 2)]
    others = await scene.trigger(await scene.job("other"), 2)
    apart = await in_state(scene, [*mails, *others], RunState.QUEUED)

    if is_deleted:
        await scene.store.delete_declaration(KeyKind.RATE, "default", "mail", actor="ann")
        await keep(scene)
    await share(Each.NOBODY)
    worker = await scene.worker()
    claimed = [work.run for work in await scene.claim(worker)]
    await keep(scene)
    claimed += [work.run for work in await scene.claim(worker)]

    assert apart == [mails[0], mails[2], others[0]]
    assert claimed == [mails[0], *others]


async def test_whoever_waits_for_a_limit_that_is_deleted_goes_however_many_they_are(
    scene: Scene,
) -> None:
    await declare(scene, Limit("default", "fair", tokens=1, per=MINUTE, burst=1, each=Each.USER))
    runs = await scene.trigger(await scene.job(), 40)
    await scene.store.delete_declaration(KeyKind.RATE, "default", "fair", actor="ann")

    looks = 0
    while await scene.store.release_keys(1):
        looks += 1

    assert looks > 1
    assert await in_state(scene, runs, RunState.QUEUED) == list(runs)


async def test_what_failed_when_runs_were_to_take_new_keys_is_done_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(limit: int, book: object) -> NoReturn:
        raise Unavailable("the store is away", code="store_unavailable")

    runs = await scene.trigger(await scene.job(), 3)
    await declare(scene, Quota("default", running=1))
    with monkeypatch.context() as away:
        away.setattr(limits, "rekey", fail)
        with pytest.raises(Unavailable):
            await keep(scene)

    await keep(scene)

    assert [work.run for work in await scene.claim(await scene.worker())] == [runs[0]]


SECOND = timedelta(seconds=1)


async def allow(scene: Scene, queued: int) -> None:
    await scene.store.save_declarations([Quota("default", queued=queued)], actor="admin")


async def waiting(scene: Scene) -> int:
    return len(await scene.store.runs(RunQuery(states=tuple(WAITING_STATES), limit=1_000)))


async def test_what_a_project_has_is_counted(scene: Scene, job: JobId, worker: SessionId) -> None:
    gone = await scene.job("gone")
    await scene.trigger(job, 3)
    await scene.claim(worker, 1)
    await scene.store.save_jobs([], removed=[RemovedJob(gone)], actor="editor")

    assert await scene.store.project_counts("default") == ProjectCounts(jobs=1, waiting=2)
    assert await scene.store.project_counts("other") == ProjectCounts(jobs=0, waiting=0)


async def test_a_cart_starts_as_many_items_as_there_is_room_for(
    scene: Scene, carts: CartScene, job: JobId, worker: SessionId
) -> None:
    await allow(scene, queued=4)
    await scene.trigger(job)
    cart = await carts.submit(job, PARALLEL, items=9)

    first = await carts.advance(cart)
    with pytest.raises(Conflict, match="quota of runs that wait"):
        await scene.trigger(job)
    await scene.claim(worker, 2)
    second = await carts.advance(cart)

    assert (first.state, first.open) == (CartState.RUNNING, 3)
    assert (second.open, await waiting(scene)) == (5, 4)


async def test_a_cart_waits_while_there_is_no_room_and_looks_for_it_by_itself(
    scene: Scene, carts: CartScene, job: JobId, worker: SessionId
) -> None:
    await allow(scene, queued=1)
    await scene.trigger(job)
    cart = await carts.submit(job)

    full = await carts.advance(cart)
    await carts.advance(cart)
    told = [event.kind for event in await scene.store.events(0, 100)]
    await scene.finish(worker, await scene.claim(worker))
    scene.advance(SECOND)
    [look] = await scene.store.carts_to_advance(range(SHARD_COUNT), 10)
    _, flights = await carts.play(look.id, worker)

    assert (full.state, full.reason, full.open) == (CartState.WAITING, WaitReason.QUOTA, 0)
    assert told.count("cart.waiting") == 1
    assert flights == [["item-0"], ["item-1"], ["item-2"]]
    assert (await carts.show(cart)).state is CartState.COMPLETED


async def test_carts_and_people_together_keep_the_quota(
    scene: Scene, carts: CartScene, job: JobId
) -> None:
    await allow(scene, queued=5)
    cart = await carts.submit(job, PARALLEL, items=4)

    async def ask() -> None:
        with suppress(Conflict):
            await scene.trigger(job)

    await asyncio.gather(carts.advance(cart), *(ask() for _ in range(4)))

    assert await waiting(scene) == 5


OUTPUT_KEY = "quota:default/output-bytes-per-day"
DAY = timedelta(days=1)


async def test_output_counts_from_the_end_of_its_attempt_until_time_has_made_up_for_it(
    scene: Scene, job: JobId, worker: SessionId
) -> None:
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")
    await scene.trigger(job, 2)
    loud, _ = await scene.claim(worker)
    begin = scene.clock.instant
    await scene.finish(worker, [loud], AttemptResult.FAILED, output_bytes=1_500)

    [blocked] = await scene.trigger(job)
    told = await scene.show(blocked)
    use = (await scene.store.key_uses([OUTPUT_KEY]))[OUTPUT_KEY]
    early = await scene.store.release_keys(100)
    assert told.eligible_at is not None
    scene.advance(told.eligible_at - scene.clock.instant)
    late = await scene.store.release_keys(100)

    assert (told.state, told.reasons[0].gate) == (RunState.BLOCKED, "quota")
    assert told.reasons[0].message == "quota output-bytes-per-day: 0 of 1,000 bytes left"
    assert DAY / 2 <= told.eligible_at - begin < DAY / 2 + DAY / 200
    assert (use.waiting, early, late) == (1, 0, 1)


async def test_output_of_a_day_ago_is_made_up_for_whoever_looked_in_between(
    scene: Scene, job: JobId
) -> None:
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")
    levels = []
    for _ in range(3):
        worker = await scene.worker()
        [run] = await scene.trigger(job)
        await scene.finish(worker, await scene.claim(worker), output_bytes=900)
        assert await scene.state(run) is RunState.COMPLETED
        state = (await scene.store.key_uses([OUTPUT_KEY]))[OUTPUT_KEY].state
        assert state.bucket is not None
        levels.append(state.bucket.level_at(micros(scene.clock.instant)))
        scene.advance(DAY)

    assert levels == pytest.approx([99.0] * 3)


async def test_each_attempt_is_charged_even_where_two_end_in_the_same_instant(
    scene: Scene, worker: SessionId
) -> None:
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")
    await scene.trigger(await scene.job(retry=Retry(attempts=2)))
    for _ in range(2):
        await scene.finish(
            worker, await scene.claim(worker), AttemptResult.FAILED, output_bytes=300
        )
        await scene.release()
        # Without it nobody takes what was charged out of the bucket.
        await scene.store.delete_declaration(KeyKind.QUOTA, "default", "", actor="ann")
    await scene.store.save_declarations([Quota("default", output_bytes_per_day=1_000)], actor="ann")

    state = (await scene.store.key_uses([OUTPUT_KEY]))[OUTPUT_KEY].state
    assert state.bucket is not None
    assert state.bucket.level == 1_000 - 1 - 2 * 300


async def test_projects_without_a_quota_of_output_are_charged_nothing(
    scene: Scene, job: JobId, worker: SessionId
) -> None:
    await scene.store.save_declarations([Quota("default", running=5)], actor="ann")
    await scene.trigger(job)
    await scene.finish(worker, await scene.claim(worker), output_bytes=10**12)

    await scene.store.save_declarations([Quota("default", output_bytes_per_day=10)], actor="ann")
    [run] = await scene.trigger(job)

    assert await scene.state(run) is RunState.QUEUED

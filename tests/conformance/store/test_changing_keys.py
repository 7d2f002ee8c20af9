"""Limits and quotas that are declared, changed and deleted while runs are there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NoReturn

import pytest

from rota.domain.errors import Unavailable
from rota.domain.ids import RunId, SessionId
from rota.domain.keys import Each, KeyKind, Limit, Quota, Resource
from rota.domain.spec import Overlap
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.store import limits
from testkit.builders import MINUTE, Scene
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

"""Rate limits, named resources, `exclusive_by` and quotas, as runs meet them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.errors import Conflict
from rota.domain.ids import RunId, SessionId
from rota.domain.keys import READERS, Each, KeyKind, Limit, Quota, Resource, Sharing
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, Overlap, Retry
from rota.domain.states import RunState
from rota.ports.carts import PauseCart
from rota.ports.queue import Wakes
from rota.ports.work import Work
from testkit.builders import MINUTE, Scene
from testkit.cart_scenes import PARALLEL, CartScene
from tests.conformance.store.key_scenes import declare, in_state, keep

pytestmark = pytest.mark.anyio
SECOND = timedelta(seconds=1)
PUTS = Limit("default", "s3-put", tokens=10, per=SECOND, burst=10)
LICENSE = Resource("default", "pg-license", total=2)
CATALOG = Resource("default", "catalog", sharing=Sharing.READ_WRITE)


async def work_off(scene: Scene, worker: SessionId) -> list[str]:
    """Give room to who waits and run it, one after another; returns the runs in their order."""
    done: list[str] = []
    while await keep(scene) and (works := await scene.claim(worker)):
        await scene.finish(worker, works)
        done += [work.run for work in works]
    return done


async def test_a_run_that_finds_no_worker_does_not_keep_a_key_from_others(scene: Scene) -> None:
    await declare(scene, Resource("default", "lock"))
    idle = await scene.job("idle", uses={"lock": 1}, pool="empty")
    [first] = await scene.trigger(idle)
    worker = await scene.worker(slots=5)
    others = await scene.trigger(await scene.job(uses={"lock": 1}), 3)

    at_first = await keep(scene)
    scene.advance(11 * SECOND)
    done = await work_off(scene, worker)

    assert at_first == 0
    assert done == list(others)
    assert await scene.state(first) is RunState.QUEUED


async def test_starts_never_exceed_a_rate_and_each_run_goes_when_it_was_told(scene: Scene) -> None:
    await declare(scene, PUTS)
    job = await scene.job(rate_limits={"s3-put": 1})
    worker = await scene.worker(slots=1_000)
    runs = await scene.trigger(job, 100)
    told = {run: (await scene.show(run)).eligible_at for run in runs}
    begin = scene.clock.instant

    starts = dict.fromkeys((work.run for work in await scene.claim(worker)), begin)
    while len(starts) < len(runs):
        next_at = await scene.store.next_key_at()
        assert next_at is not None
        scene.advance(next_at - scene.clock.instant)
        await keep(scene)
        starts |= {work.run: scene.clock.instant for work in await scene.claim(worker)}

    assert [told[run] or begin for run in runs] == [starts[run] for run in runs]
    ordered = sorted(starts.values())
    assert all(
        later - first <= 10 + 10 * (ordered[later - 1] - ordered[first]).total_seconds()
        for first in range(100)
        for later in range(first + 1, 101)
    )
    assert ordered[-1] - begin == timedelta(seconds=9)


async def test_a_run_that_waits_for_tokens_says_so(scene: Scene) -> None:
    await declare(scene, Limit("default", "mail", tokens=1, per=MINUTE, burst=1))
    job = await scene.job(rate_limits={"mail": 1})
    await scene.trigger(job)

    [second] = await scene.trigger(job)
    run = await scene.show(second)

    [reason] = run.reasons
    assert (run.state, run.eligible_at) == (RunState.BLOCKED, scene.clock.instant + MINUTE)
    assert (reason.gate, reason.key) == ("rate_limit", "rate:default/mail")
    assert reason.message == "rate limit mail: 0 of 1 tokens"
    assert reason.eligible_at == run.eligible_at
    assert reason.action == "rota limit show mail"


async def test_who_could_not_go_when_it_was_told_is_told_anew(scene: Scene) -> None:
    await declare(scene, Limit("default", "mail", tokens=1, per=MINUTE, burst=1))
    job = await scene.job(rate_limits={"mail": 1})
    worker = await scene.worker()
    begin = scene.clock.instant
    _, second = await scene.trigger(job, 2)
    scene.advance(10 * SECOND)
    await scene.claim(worker)  # until then no token came, as the bucket was full

    scene.advance(begin + MINUTE - scene.clock.instant)
    early = await keep(scene)
    told = (await scene.show(second)).eligible_at
    scene.advance(20 * SECOND)
    next_at = await scene.store.next_key_at()
    late = await keep(scene)

    assert told == next_at == begin + MINUTE + 10 * SECOND
    assert (early, late) == (0, 1)


async def test_a_bucket_for_each_user_binds_all_runs_of_the_project(scene: Scene) -> None:
    each = Limit("default", "fair", tokens=1, per=MINUTE, burst=1, each=Each.USER)
    await declare(scene, each)
    job = await scene.job()

    first = await scene.trigger(job, 2)
    stored = await scene.store.key_uses(["rate:default/fair/user=user"])

    assert await scene.states(first) == [RunState.QUEUED, RunState.BLOCKED]
    assert stored["rate:default/fair/user=user"].waiting == 1


async def test_units_are_held_until_the_end_and_then_given_to_who_waits(
    scene: Scene, published: list[Wakes]
) -> None:
    await declare(scene, LICENSE)
    job = await scene.job(uses={"pg-license": 1})
    worker = await scene.worker()
    runs = await scene.trigger(job, 3)
    works = await scene.claim(worker)

    waiting = await scene.show(runs[2])
    await scene.finish(worker, works[:1])
    wakes = published[-1]
    uses = await scene.store.key_uses(["resource:default/pg-license"])
    released = await keep(scene)

    assert waiting.reasons[0].message == "resource pg-license: 2 of 2 in use"
    assert wakes.keys
    assert uses["resource:default/pg-license"].holders == (works[1].run,)
    assert released == 1
    assert [work.run for work in await scene.claim(worker)] == [runs[2]]


async def test_of_every_key_the_oldest_holders_are_told(scene: Scene) -> None:
    names = ("disk", "tape")
    await declare(scene, *(Resource("default", name, total=20) for name in names))
    runs = {n: await scene.trigger(await scene.job(n, uses={n: 1}), 12) for n in names}
    await scene.claim(await scene.worker(slots=100))

    uses = await scene.store.key_uses([f"resource:default/{name}" for name in names])

    told = {key: list(use.holders) for key, use in uses.items()}
    assert told == {f"resource:default/{name}": runs[name][:10] for name in names}


async def test_a_writer_is_alone_and_not_kept_waiting_by_new_readers(scene: Scene) -> None:
    await declare(scene, CATALOG)
    reads = await scene.job("reads", uses={"catalog": 1})
    writes = await scene.job("writes", uses={"catalog": READERS})
    worker = await scene.worker()
    await scene.trigger(reads, 2)
    readers = await scene.claim(worker)

    [writer] = await scene.trigger(writes)
    [late] = await scene.trigger(reads)
    await scene.finish(worker, readers[:1])
    early = await keep(scene)
    await scene.finish(worker, readers[1:])
    order = await work_off(scene, worker)

    assert len(readers) == 2
    assert early == 0
    assert order == [writer, late]


async def test_equal_inputs_exclude_one_another_across_jobs_and_retries(scene: Scene) -> None:
    retry = Retry(attempts=2, delay=MINUTE)
    deploy = await scene.job("deploy", exclusive_by=("host",), retry=retry)
    reboot = await scene.job("reboot", exclusive_by=("host",))
    worker = await scene.worker()
    [first] = await scene.trigger(deploy, inputs={"host": "a", "version": 1})

    [same] = await scene.trigger(reboot, inputs={"host": "a"})
    [other] = await scene.trigger(reboot, inputs={"host": "b"})
    works = await scene.claim(worker)
    blocked = await scene.show(same)
    await scene.finish(worker, works, AttemptResult.FAILED)
    await keep(scene)
    [second] = await scene.claim(worker)
    scene.advance(MINUTE)
    await scene.release()
    again = await scene.state(first)
    await scene.finish(worker, [second])

    assert [work.run for work in works] == [first, other]
    assert blocked.reasons[0].gate == "exclusive_by"
    assert blocked.reasons[0].message == "another run with host=a goes first (exclusive_by)"
    assert (second.run, again) == (same, RunState.BLOCKED)
    assert await work_off(scene, worker) == [first]


async def test_a_scheduled_run_has_the_defaults_of_its_inputs(scene: Scene) -> None:
    next_at = scene.clock.instant + MINUTE
    nightly = await scene.job(
        next_at=next_at, exclusive_by=("host",), exclusive_defaults={"host": "a"}
    )
    other = await scene.job("other", exclusive_by=("host",))
    await scene.trigger(other, inputs={"host": "a"})
    await scene.claim(await scene.worker())

    run = await scene.scheduled_run(nightly)

    assert run.state is RunState.BLOCKED


async def test_a_run_nobody_knows_about_keeps_its_equals_away(scene: Scene) -> None:
    job = await scene.job(exclusive_by=("host",), delivery=Delivery.AT_MOST_ONCE)
    worker = await scene.worker()
    await scene.trigger(job, inputs={"host": "a"})
    [work] = await scene.claim(worker)
    await scene.start(worker, [work])
    [second] = await scene.trigger(job, inputs={"host": "a"})

    await scene.vanish(worker)
    early = await keep(scene)
    [use] = (await scene.store.key_uses(['exclusive:default/{"host":"a"}'])).values()
    await scene.store.resolve(RunId(work.run), RunState.FAILED, actor="operator")
    late = await keep(scene)

    assert (early, late) == (0, 1)
    assert use.holders == (work.run,)
    assert await scene.state(second) is RunState.QUEUED


async def test_the_death_of_a_worker_frees_what_its_runs_held(scene: Scene) -> None:
    await declare(scene, Resource("default", "lock", sharing=Sharing.MUTEX))
    job = await scene.job(uses={"lock": 1})
    worker = await scene.worker()
    [first, second] = await scene.trigger(job, 2)
    await scene.claim(worker)

    await scene.vanish(worker)
    late = await scene.finish(worker, [Work(first, 1, job, 1, 0)])
    await keep(scene)

    assert late.refused
    assert await scene.state(second) is RunState.QUEUED


async def test_a_resource_that_jobs_use_stays(scene: Scene) -> None:
    await declare(scene, LICENSE, CATALOG)
    job = await scene.job(uses={"pg-license": 1})

    with pytest.raises(Conflict) as refused:
        await scene.store.delete_declaration(
            KeyKind.RESOURCE, "default", "pg-license", actor="editor"
        )
    await scene.change(job, uses={"catalog": 1})
    gone = await scene.store.delete_declaration(
        KeyKind.RESOURCE, "default", "pg-license", actor="editor"
    )

    assert refused.value.code == "resource_in_use"
    assert gone
    declared = await scene.store.declarations("default", KeyKind.RESOURCE)
    assert [each.declaration for each in declared] == [CATALOG]


async def test_a_quota_bounds_how_many_runs_of_a_project_run(scene: Scene) -> None:
    await declare(scene, Quota("default", running=2))
    worker = await scene.worker()
    runs = await scene.trigger(await scene.job("one"), 2)
    runs += await scene.trigger(await scene.job("two"), 2)

    works = await scene.claim(worker)
    reason = (await scene.show(runs[3])).reasons[0]
    await scene.finish(worker, works)
    await keep(scene)

    assert [work.run for work in works] == runs[:2]
    assert (reason.gate, reason.message) == ("quota", "quota running: 2 of 2 in use")
    assert [work.run for work in await scene.claim(worker)] == runs[2:]


async def test_what_goes_beyond_the_quota_of_waiting_runs_is_refused_as_a_whole(
    scene: Scene,
) -> None:
    await declare(scene, Quota("default", queued=3))
    job = await scene.job()
    await scene.trigger(job, 2)

    with pytest.raises(Conflict) as refused:
        await scene.trigger(job, 2)
    [last] = await scene.trigger(job)

    assert refused.value.code == "quota_exceeded"
    assert await scene.state(last) is RunState.QUEUED


async def test_all_that_is_short_is_told_and_the_first_gate_is_waited_for(scene: Scene) -> None:
    slow = Limit("default", "slow", tokens=1, per=MINUTE, burst=1)
    await declare(scene, slow, Resource("default", "lock", sharing=Sharing.MUTEX))
    job = await scene.job(uses={"lock": 1}, rate_limits={"slow": 1})
    worker = await scene.worker()
    await scene.trigger(job)
    [work] = await scene.claim(worker)

    [run] = await scene.trigger(job)
    gates = [reason.gate for reason in (await scene.show(run)).reasons]
    scene.advance(MINUTE)
    await keep(scene)
    then = await scene.show(run)
    await scene.finish(worker, [work])
    await keep(scene)

    assert gates == ["rate_limit", "resource"]
    assert (then.state, [reason.gate for reason in then.reasons]) == (
        RunState.BLOCKED,
        ["resource"],
    )
    assert await scene.state(run) is RunState.QUEUED


async def test_who_waits_goes_by_priority_and_passes_the_gates_of_its_job_again(
    scene: Scene,
) -> None:
    await declare(scene, Resource("default", "lock", sharing=Sharing.MUTEX))
    low = await scene.job("low", uses={"lock": 1})
    high = await scene.job("high", uses={"lock": 1}, priority=9)
    worker = await scene.worker()
    await scene.trigger(low)
    [work] = await scene.claim(worker)
    [later], [first] = await scene.trigger(low), await scene.trigger(high)
    await scene.move("paused", high)

    await scene.finish(worker, [work])
    await keep(scene)

    held = await scene.show(first)
    assert (held.state, held.reasons[0].gate) == (RunState.BLOCKED, "pause")
    assert await scene.state(later) is RunState.QUEUED


async def test_priority_is_a_head_start_for_a_key_and_not_a_wall(scene: Scene) -> None:
    await declare(scene, Resource("default", "lock", sharing=Sharing.MUTEX))
    low = await scene.job("low", uses={"lock": 1}, priority=0)
    high = await scene.job("high", uses={"lock": 1}, priority=9)
    worker = await scene.worker()
    await scene.trigger(high)
    works = await scene.claim(worker)
    begin = scene.clock.instant
    [humble] = await scene.trigger(low)

    urgent: list[RunId] = []
    while works[0].run != humble and len(urgent) < 50:
        urgent += await scene.trigger(high)
        scene.advance(10 * SECOND)
        await scene.store.renew(worker, stopping=False)
        await scene.finish(worker, works)
        await keep(scene)
        works = await scene.claim(worker)

    # Those that came within nine steps of 30 seconds went first, and each took ten.
    assert [work.run for work in works] == [humble]
    assert scene.clock.instant - begin == timedelta(seconds=9 * 30 + 10)
    assert await in_state(scene, urgent, RunState.BLOCKED) == urgent[-1:]


async def test_a_cancelled_run_gives_up_its_place_before_a_key(
    scene: Scene, published: list[Wakes]
) -> None:
    await declare(scene, CATALOG)
    reads = await scene.job("reads", uses={"catalog": 1})
    writes = await scene.job("writes", uses={"catalog": READERS})
    worker = await scene.worker()
    await scene.trigger(reads)
    await scene.claim(worker)
    [writer], [reader] = await scene.trigger(writes), await scene.trigger(reads)

    await scene.store.cancel([writer], actor="user")
    wakes = published[-1]
    await keep(scene)

    assert wakes.keys
    assert await scene.state(reader) is RunState.QUEUED


async def test_runs_without_keys_do_not_wait_for_those_with(scene: Scene) -> None:
    await declare(scene, Resource("default", "lock", sharing=Sharing.MUTEX))
    keyed = await scene.job("keyed", uses={"lock": 1})
    plain = await scene.job("plain", overlap=Overlap.ALLOW)
    worker = await scene.worker()
    await scene.trigger(keyed, 50)
    [free] = await scene.trigger(plain)

    works = await scene.claim(worker)

    assert free in {work.run for work in works}
    assert len(works) == 2


async def test_a_line_is_of_who_asked_or_of_who_made_the_job(scene: Scene) -> None:
    job = await scene.job(next_at=scene.clock.instant + MINUTE, overlap=Overlap.ALLOW)
    await scene.trigger(job)
    await scene.scheduled_run(job)
    await scene.trigger(await scene.job("shared", share="night"))

    lines = await scene.store.chains_of_pool("default")

    assert {line.share for line in lines} == {"default/user", "default/editor", "night"}


async def test_items_of_a_cart_exclude_one_another_and_obey_its_pause(
    scene: Scene, carts: CartScene
) -> None:
    job = await scene.job(exclusive_by=("host",), exclusive_defaults={"host": "a"})
    worker = await scene.worker()
    cart = await carts.submit(job, PARALLEL, items=3)
    await carts.advance(cart)
    works = await scene.claim(worker)

    await scene.finish(worker, works)
    await scene.store.command_cart(cart, PauseCart(), actor="ann")
    await keep(scene)
    paused = await scene.claim(worker)

    assert (len(works), paused) == (1, [])
    assert [item.run_state for item in await carts.items(cart)].count(RunState.BLOCKED) == 2


async def test_keys_that_nobody_uses_are_forgotten_and_those_in_use_are_not(scene: Scene) -> None:
    await declare(scene, Limit("default", "fair", tokens=1, per=MINUTE, burst=1, each=Each.USER))
    job = await scene.job(exclusive_by=("host",))
    await scene.job("follower", after=("job",))  # which is saved under a lock beside the keys
    worker = await scene.worker(lease=timedelta(hours=1))
    await scene.trigger(job, inputs={"host": "a"})
    works = await scene.claim(worker)

    in_use = await scene.store.forget_keys(1)
    [blocked] = await scene.trigger(job, inputs={"host": "a"})
    gates = [reason.gate for reason in (await scene.show(blocked)).reasons]
    scene.advance(MINUTE)
    await scene.finish(worker, works)
    forgotten = await scene.store.forget_keys(1)

    assert gates == ["exclusive_by", "rate_limit"]
    assert (in_use, forgotten) == (0, 2)
    assert await scene.store.forget_keys(1) == 0
    assert await work_off(scene, worker) == [blocked]

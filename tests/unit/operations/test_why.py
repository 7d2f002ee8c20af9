"""Why runs wait, gate by gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.domain import gates
from rota.domain.ids import RunId, micros
from rota.domain.job import RunRules
from rota.domain.keys import Quota
from rota.domain.resources import UNIT
from rota.domain.run import AttemptResult
from rota.domain.shape import shape_of
from rota.domain.states import RunState
from rota.operations.why import Explanation, in_short, why, worker_reason
from rota.ports.work import Outcome
from testkit.builders import closed_until, hello, reported
from testkit.clock import START
from tests.unit.server.scheduler.timeline import EVER, Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ALONE = {"resources": [{"name": "licence", "total": 1}]}


async def define(timeline: Timeline, file: Mapping[str, Any] | None = None, **fields: Any) -> None:
    """The job `job`, and what else is in its file."""
    job = {"name": "job", "steps": [{"run": "true"}], **fields}
    await timeline.apply_file({"jobs": [job], **(file or {})})


async def trigger(timeline: Timeline, name: str = "job", **fields: Any) -> RunId:
    [run] = await timeline.scene.trigger((await timeline.job(name)).id, **fields)
    return run


async def explain(timeline: Timeline, run: RunId) -> Explanation:
    return await why(timeline.engine, await timeline.scene.show(run))


async def second_of(timeline: Timeline, **fields: Any) -> Explanation:
    """What the second of two runs is told, while the first is going."""
    await trigger(timeline, **fields)
    await timeline.start_runs()
    return await explain(timeline, await trigger(timeline, **fields))


async def test_a_token_that_comes_after_hours_is_likely_to_be_had_then(timeline: Timeline) -> None:
    limit = {"name": "s3-put", "tokens": 1, "per": "3h", "burst": 1}
    await define(timeline, {"limits": [limit]}, rate_limits=[{"name": "s3-put"}])

    told = await second_of(timeline)

    assert told.starts_at == START + 3 * HOUR


async def test_a_rate_limit_says_when_the_next_token_comes(timeline: Timeline) -> None:
    limit = {"name": "s3-put", "tokens": 1, "per": "1m", "burst": 1}
    await define(timeline, {"limits": [limit]}, rate_limits=[{"name": "s3-put"}])
    await trigger(timeline)
    await timeline.start_runs()
    second, third = [await trigger(timeline) for _ in range(2)]

    told = [await explain(timeline, run) for run in (second, third)]

    assert [each.reasons[0].eligible_at for each in told] == [START + MINUTE, START + 2 * MINUTE]
    assert [(each.obstacles[0].before, each.obstacles[0].waiting) for each in told] == [
        (0, 2),
        (1, 2),
    ]
    assert told[0].reasons[0].message == "rate limit s3-put: 0 of 1 tokens"
    assert told[0].passed == ("time", "pause", "hold", "max_concurrency")


async def test_a_closed_job_tells_until_when_and_others_do_not_speak_of_its_gate(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = replace(closed_until(START + 2 * HOUR), concerns=_is_shy)
    monkeypatch.setattr(gates, "CLOSINGS", (*gates.CLOSINGS, closing))
    await timeline.apply_all([{"name": "shy"}, {"name": "job", "max_concurrency": 1}])

    shy, other = await explain(timeline, await trigger(timeline, "shy")), await second_of(timeline)

    assert shy.summary == "blocked: closed for a while"
    assert shy.passed == ("time",)
    assert shy.starts_at == START + 2 * HOUR
    assert other.passed == ("time", "pause", "hold")


def _is_shy(job: gates.ClosableJob) -> bool:
    return job.rules.name == "shy"


async def test_a_reason_is_told_as_it_is_by_now(timeline: Timeline) -> None:
    limit = {"name": "s3-put", "tokens": 10, "per": "1m", "burst": 10}
    await define(timeline, {"limits": [limit]}, rate_limits=[{"name": "s3-put", "tokens": 10}])
    waiting = await second_of(timeline)

    timeline.ticker.advance(MINUTE / 2)

    stored = waiting.run.reasons[0].message
    [reason] = (await explain(timeline, waiting.run.id)).reasons
    assert (stored, reason.message) == (
        "rate limit s3-put: 0 of 10 tokens",
        "rate limit s3-put: 5 of 10 tokens",
    )


async def test_a_resource_tells_who_has_it_and_when_that_ends(timeline: Timeline) -> None:
    await define(timeline, ALONE, resources={"licence": 1})
    first = await trigger(timeline)
    works = await timeline.start_runs()
    timeline.ticker.advance(10 * MINUTE)
    ended = Outcome(
        first, works[0].attempt, AttemptResult.COMPLETED, micros(START), micros(START + 10 * MINUTE)
    )
    await timeline.store.finish(timeline.session, reported(ended))

    told = await second_of(timeline)

    [obstacle] = told.obstacles
    [holder] = obstacle.holders
    assert obstacle.reason.message == "resource licence: 1 of 1 in use"
    assert obstacle.reason.action == "rota resource show licence"
    assert holder.job == "job"
    assert holder.ends_at == timeline.ticker.instant + 10 * MINUTE


async def test_of_a_job_without_history_its_file_tells_the_end(timeline: Timeline) -> None:
    await define(timeline, max_concurrency=1, expect="10m")

    [obstacle] = (await second_of(timeline)).obstacles

    assert [holder.ends_at for holder in obstacle.holders] == [START + 10 * MINUTE]


async def test_runs_with_equal_inputs_name_the_one_that_goes_first(timeline: Timeline) -> None:
    await define(timeline, exclusive_by=["db"], inputs={"db": {"type": "string"}})

    told = await second_of(timeline, inputs={"db": "orders"})

    [obstacle] = told.obstacles
    assert obstacle.reason.gate == "exclusive_by"
    assert "db=orders" in obstacle.reason.message
    assert len(obstacle.holders) == 1


async def test_a_quota_tells_what_the_project_has(timeline: Timeline) -> None:
    await define(timeline)
    await timeline.store.save_declarations([Quota("default", running=1)], actor="admin")

    told = await second_of(timeline)

    assert [(reason.gate, reason.message) for reason in told.reasons] == [
        ("quota", "quota running: 1 of 1 in use")
    ]


async def test_all_keys_that_are_short_are_told_in_the_order_of_the_gates(
    timeline: Timeline,
) -> None:
    limit = {"name": "s3-put", "tokens": 1, "per": "1h", "burst": 1}
    await define(
        timeline,
        {"limits": [limit], **ALONE},
        resources={"licence": 1},
        rate_limits=[{"name": "s3-put"}],
    )

    told = await second_of(timeline)

    assert [reason.gate for reason in told.reasons] == ["rate_limit", "resource"]
    assert [len(obstacle.holders) for obstacle in told.obstacles] == [0, 1]


async def test_a_key_that_is_free_again_is_no_reason(timeline: Timeline) -> None:
    limit = {"name": "s3-put", "tokens": 1, "per": "1h", "burst": 1}
    await define(
        timeline,
        {"limits": [limit], **ALONE},
        resources={"licence": 1},
        rate_limits=[{"name": "s3-put"}],
    )
    await trigger(timeline)
    works = await timeline.start_runs()
    waiting = await trigger(timeline)

    await timeline.scene.finish(timeline.session, works)

    told = await explain(timeline, waiting)
    assert [reason.gate for reason in told.reasons] == ["rate_limit"]


async def test_who_has_to_leave_a_free_key_to_another_is_told_so(timeline: Timeline) -> None:
    needs = {"one": {"licence": 1}, "other": {"lock": 1}, "both": {"licence": 1, "lock": 1}}
    steps = [{"run": "true"}]
    jobs = [{"name": name, "steps": steps, "resources": each} for name, each in needs.items()]
    shared = [*ALONE["resources"], {"name": "lock", "total": 1}]
    await timeline.apply_file({"jobs": jobs, "resources": shared})
    await trigger(timeline, "one")
    works = await timeline.start_runs()
    await trigger(timeline, "other")
    await timeline.start_runs()
    await trigger(timeline, "both")

    timeline.ticker.advance(MINUTE)
    await timeline.scene.finish(timeline.session, works)
    await timeline.store.release_keys(10)
    told = await explain(timeline, await trigger(timeline, "one"))

    [reason] = told.reasons
    assert reason.message == "resource licence: 0 of 1 in use, others wait before it"


async def test_a_full_job_tells_which_of_its_runs_are_going(timeline: Timeline) -> None:
    await define(timeline, max_concurrency=1)

    told = await second_of(timeline)

    [obstacle] = told.obstacles
    [first, _] = await timeline.runs()
    assert obstacle.reason.gate == "max_concurrency"
    assert [holder.run for holder in obstacle.holders] == [first.id]
    assert told.passed == ("time", "pause", "hold")


async def test_a_run_that_follows_a_job_tells_when_that_is_due(timeline: Timeline) -> None:
    await timeline.apply("0 * * * *", name="load")
    await timeline.apply("30 * * * *", after=["load"])

    await timeline.pass_time(HOUR / 2)
    [run] = await timeline.runs()
    [obstacle] = (await explain(timeline, run.id)).obstacles

    assert obstacle.reason.gate == "after"
    assert "load has not completed" in obstacle.reason.message
    assert obstacle.next_at == START + HOUR


async def test_a_hold_tells_who_holds_it_and_how_it_ends(timeline: Timeline) -> None:
    await define(timeline)
    run = await trigger(timeline)
    await timeline.store.hold_run(run, actor="anna")

    told = await explain(timeline, run)

    [reason] = told.reasons
    assert (reason.message, reason.action) == ("anna holds it", f"rota run release {run}")
    assert told.passed == ("time", "pause")
    assert told.starts_at is None


async def test_who_is_held_before_its_time_has_to_wait_for_that_too(timeline: Timeline) -> None:
    await define(timeline)
    run = await trigger(timeline, at=START + HOUR)
    await timeline.store.hold_run(run, actor="anna")

    told = await explain(timeline, run)

    assert [reason.gate for reason in told.reasons] == ["hold", "time"]
    assert told.reasons[1].eligible_at == START + HOUR
    assert told.passed == ("pause",)
    assert told.starts_at is None


async def test_a_run_that_no_worker_could_take_says_what_is_missing(timeline: Timeline) -> None:
    await define(timeline, ALONE, needs={"gpu": "a100"}, resources={"licence": 1})

    told = await explain(timeline, await trigger(timeline))

    [reason] = told.reasons
    assert told.run.state is RunState.BLOCKED
    assert reason.gate == "worker"
    assert "resource" not in told.passed  # nobody asked for it yet
    assert "label gpu=a100" in reason.message


async def test_a_run_that_only_one_worker_may_take_speaks_of_no_other(timeline: Timeline) -> None:
    await timeline.store.register(hello("web-2"), EVER)
    gone = await timeline.store.register(hello("web-1"), EVER)
    await define(timeline, needs={"worker": "web-1"})
    queued = await trigger(timeline)
    await timeline.store.drain_worker("web-1", actor="ann")
    draining = await explain(timeline, queued)
    await timeline.store.end_session(gone.id)
    left = await explain(timeline, queued)
    blocked = await explain(timeline, await trigger(timeline))

    assert draining.reasons[0].message == "worker web-1 is draining"
    assert left.reasons[0].message == "waits for worker web-1, which is gone"
    assert blocked.reasons[0].message.startswith("waits for worker web-1, which is gone since ")


async def test_a_queued_run_is_told_its_turn_and_the_numbers_behind_it(timeline: Timeline) -> None:
    await define(timeline, share="ann", expect="10s")
    await timeline.apply(None, name="urgent", priority=9, share="bob")
    await trigger(timeline)
    await timeline.start_runs()
    first = await trigger(timeline)
    second = await trigger(timeline)
    await trigger(timeline, "urgent")

    told = [await explain(timeline, run) for run in (first, second)]

    orders = [each.order for each in told if each.order is not None]
    assert [order.position for order in orders] == [1, 2]
    assert [(o.of_higher_priority, o.of_own_line, o.of_other_shares) for o in orders] == [
        (1, 0, 0),
        (1, 1, 0),
    ]
    assert [order.latest_turn for order in orders] == [16, 32]
    order = orders[0]
    assert (order.share, order.boost, order.weight) == ("ann", 150.0, 1.0)
    assert (order.cost, order.used, order.entitled) == (0.01, 0.001, 0.5)
    assert order.tag == order.virtual_time == 0.01
    assert told[1].reasons[1].message == (
        "2 runs go first: 1 of a higher priority, 1 of ann came before it"
    )


async def test_one_worker_that_does_not_fit_is_not_counted(timeline: Timeline) -> None:
    await timeline.scene.worker("small", labels={"site": "osl"})
    await define(timeline)
    run = await trigger(timeline)
    sessions = await timeline.store.sessions(alive_only=True)
    sessions = [each for each in sessions if each.worker == "small"]

    shape = shape_of(RunRules("report", "default", needs={"site": "fra"}))
    told = worker_reason(await timeline.scene.show(run), shape, sessions)

    assert told.message == "no worker of pool default fits: missing label site=fra"


async def test_who_is_first_in_the_queue_waits_for_no_share(timeline: Timeline) -> None:
    await define(timeline)

    told = await explain(timeline, await trigger(timeline))

    [reason] = told.reasons
    assert reason.message.startswith(
        "worker worker has room (0 of 1000 slots are taken); if it is gone, that is known by 2"
    )
    assert [(each.name, each.message) for each in told.not_reasons] == [
        ("priority", "first in queue"),
        ("fair share", "default/user at 0.0 of its share"),
    ]


async def test_a_large_run_is_told_which_worker_is_kept_free_for_it(timeline: Timeline) -> None:
    big = await timeline.scene.worker("big", slots=8, resources={"gpu": 8 * UNIT})
    await define(timeline, resources={"gpu": 1})
    await timeline.apply(None, name="large", resources={"gpu": 8})
    await trigger(timeline)
    await timeline.scene.claim(big)
    large = await trigger(timeline, "large")
    await timeline.scene.claim(big)
    small = await trigger(timeline)

    told = {run: await explain(timeline, run) for run in (large, small)}

    assert [reason.message for reason in told[large].reasons] == [
        "no worker that could take it has room now: it needs 8 gpu",
        "worker big is kept free for it until 2030-01-01 12:01:00 UTC",
    ]
    assert [reason.gate for reason in told[small].reasons] == ["worker", "order", "reservation"]
    assert f"kept free for {large} until" in told[small].reasons[-1].message


async def lone_run(timeline: Timeline) -> RunId:
    """One that has lost two workers; it is not released yet."""
    scene = timeline.scene
    await define(timeline, pool="small")
    run = await trigger(timeline)
    for _ in range(2):
        await scene.release()
        worker = await scene.worker(pool="small")
        await scene.claim(worker)
        await scene.vanish(worker)
    return run


async def test_a_run_that_goes_alone_is_told_why_and_what_it_waits_for(timeline: Timeline) -> None:
    scene, lone = timeline.scene, await lone_run(timeline)
    busy = await scene.worker("busy", pool="small")
    await trigger(timeline)
    await scene.claim(busy)
    await scene.release()

    reason, *_ = (await explain(timeline, lone)).reasons

    assert reason.message == (
        "it goes alone after losing 2 workers: it waits until a worker is empty"
    )


async def test_whoever_waits_behind_it_is_told_that_no_slot_is_free(timeline: Timeline) -> None:
    scene = timeline.scene
    await lone_run(timeline)
    await scene.release()
    await scene.claim(await scene.worker(pool="small", slots=8))
    small = await trigger(timeline)

    reason, *_ = (await explain(timeline, small)).reasons

    assert reason.message == "8 of 8 slots are taken"


async def test_a_run_that_waits_is_told_when_it_will_start(timeline: Timeline) -> None:
    limit = {"name": "s3-put", "tokens": 1, "per": "5m", "burst": 1}
    await define(timeline, {"limits": [limit]}, rate_limits=[{"name": "s3-put"}])

    told = await second_of(timeline)

    assert told.starts_at is not None
    assert abs(told.starts_at - (START + 5 * MINUTE)) < MINUTE / 60


async def test_a_run_whose_worker_has_trouble_says_what_that_is(timeline: Timeline) -> None:
    await define(timeline)
    run = await trigger(timeline)
    await timeline.start_runs()
    trouble = "output cannot be delivered since 10:02"
    await timeline.store.renew(timeline.session, stopping=False, trouble=trouble)

    told = await explain(timeline, run)

    [reason] = told.reasons
    assert told.summary == "running on worker worker"
    assert (reason.message, reason.action) == (
        f"its worker says: {trouble}",
        "rota worker show worker",
    )


async def test_a_run_that_goes_on_has_all_gates_behind_it(timeline: Timeline) -> None:
    await define(timeline)
    run = await trigger(timeline)
    await timeline.start_runs()

    told = await explain(timeline, run)

    assert (told.summary, told.reasons) == ("running on worker worker", ())
    assert told.passed[-1] == "worker"


async def test_a_list_tells_the_first_reason(timeline: Timeline) -> None:
    await define(timeline, max_concurrency=1)
    queued, blocked = [await trigger(timeline) for _ in range(2)]
    later = await trigger(timeline, at=START + HOUR)

    short = [in_short(await timeline.scene.show(run)) for run in (queued, blocked, later)]

    assert short == ["it waits for a worker", "job has no free slot (max_concurrency: 1)", None]

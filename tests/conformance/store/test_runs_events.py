from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from itertools import pairwise

import pytest

from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, Overlap, Retry
from rota.domain.states import TRANSITIONS, RunState, fold_events, is_final
from rota.ports.records import Event, RemovedJob, RunQuery
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio

_STEPS = {(before, after) for (before, _), after in TRANSITIONS.items()}


async def all_events(scene: Scene) -> list[Event]:
    return await scene.store.events(0, 10_000)


async def a_busy_day(scene: Scene) -> None:
    """A bit of everything that can happen to runs."""
    retry = Retry(attempts=2, delay=timedelta(seconds=1))
    limited = await scene.job("limited", max_concurrency=1, retry=retry)
    once = await scene.job("once", delivery=Delivery.AT_MOST_ONCE)
    skipping = await scene.job("skipping", next_at=scene.clock.instant, overlap=Overlap.SKIP)
    newest = await scene.job("newest", next_at=scene.clock.instant, overlap=Overlap.QUEUE_ONE)
    await scene.trigger(limited, 3)
    await scene.trigger(once, 2)
    await scene.trigger(limited, at=scene.clock.instant + MINUTE)
    for job_id in (skipping, newest):
        for _ in range(3):
            await scene.scheduled_run(job_id)
    await scene.move("paused", limited)
    await scene.move("resumed", limited)
    worker = await scene.worker(slots=20)
    works = await scene.claim(worker)
    await scene.start(worker, works[::2])
    await scene.finish(worker, works[:1], AttemptResult.FAILED)
    await scene.finish(worker, works[1:2], AttemptResult.COMPLETED)
    await scene.store.cancel([(await scene.show(works[2].run)).id], actor="user")
    await scene.store.end_session(worker)
    scene.advance(2 * MINUTE)
    await scene.release()
    unknown = RunQuery(project=scene.home, states=[RunState.UNKNOWN])
    for run in await scene.store.runs(unknown):
        await scene.store.resolve(run.id, RunState.COMPLETED, actor="person")
    second = await scene.worker("second", slots=20)
    await scene.finish(second, await scene.claim(second))
    states = [RunState.BLOCKED, RunState.QUEUED]
    waiting = await scene.store.runs(RunQuery(project=scene.home, states=states))
    await scene.store.cancel([run.id for run in waiting], actor="user")


async def test_the_fold_of_the_events_is_the_state_of_every_run(scene: Scene) -> None:
    await a_busy_day(scene)

    paths = fold_events(await all_events(scene))

    runs = await scene.store.runs(RunQuery(limit=1_000))
    assert {run.id: run.state for run in runs} == {run: path[-1] for run, path in paths.items()}
    assert {run.state for run in runs} >= {
        RunState.COMPLETED,
        RunState.CANCELLED,
        RunState.SKIPPED,
    }


async def test_events_tell_only_steps_of_the_table(scene: Scene) -> None:
    await a_busy_day(scene)

    paths = fold_events(await all_events(scene)).values()

    steps = {step for path in paths for step in pairwise(path)}
    assert steps <= _STEPS
    assert len(steps) > 8


async def test_the_tally_counts_every_end_once(scene: Scene) -> None:
    await a_busy_day(scene)

    finished = (await scene.store.counts()).finished

    runs = await scene.store.runs(RunQuery(limit=1_000))
    ended = [(run.job, run.state.value) for run in runs if is_final(run.state)]
    assert dict(finished) == {end: ended.count(end) for end in ended}


async def test_events_come_in_order_page_by_page(scene: Scene) -> None:
    await a_busy_day(scene)
    everything = await all_events(scene)

    pages: list[Event] = []
    while page := await scene.store.events(pages[-1].seq if pages else 0, 7):
        pages += page

    assert pages == everything
    assert [event.seq for event in pages] == sorted({event.seq for event in pages})
    assert await scene.store.last_event() == everything[-1].seq


async def test_the_latest_events_are_as_many_as_asked_for(scene: Scene) -> None:
    nothing = await scene.store.position_before_latest(3)
    await a_busy_day(scene)
    everything = await all_events(scene)
    run = next(event.ids[0] for event in everything if event.kind == "run.claimed")
    of_run = await scene.store.events(0, 10_000, ids=[run])

    async def latest(count: int, *ids: str) -> list[Event]:
        position = await scene.store.position_before_latest(count, ids=ids)
        return await scene.store.events(position, 10_000, ids=ids)

    assert nothing == 0
    assert await latest(3) == everything[-3:]
    assert await latest(10_000) == everything
    assert await latest(2, run) == of_run[-2:]


async def test_events_of_one_run_tell_its_story(scene: Scene) -> None:
    job_id = await scene.job()
    run, other = await scene.trigger(job_id, 2)
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker))

    events = await scene.store.events(0, 100, ids=[run])

    assert [event.kind for event in events] == ["run.queued", "run.claimed", "run.finished"]
    assert [event.actor for event in events] == ["user", worker, worker]
    assert events[-1].data["attempts"] == [1, 1]
    assert other in events[-1].ids


async def test_changes_of_jobs_and_workers_are_recorded(scene: Scene) -> None:
    job_id = await scene.job()
    await scene.change(job_id)
    await scene.move("paused", job_id)
    await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")
    worker = await scene.worker()
    await scene.store.end_session(worker)

    kinds = [event.kind for event in await all_events(scene)]

    assert kinds == [
        "job.created",
        "job.changed",
        "job.paused",
        "job.deleted",
        "worker.registered",
        "worker.left",
    ]


async def test_a_late_result_is_an_event(scene: Scene) -> None:
    await scene.trigger(await scene.job())
    worker = await scene.worker()
    works = await scene.claim(worker)
    await scene.store.end_session(worker)

    await scene.finish(worker, works)

    assert (await all_events(scene))[-1].kind == "run.late_result"


class TestProjects:
    async def test_a_step_of_runs_of_two_projects_is_an_event_of_each(self, scene: Scene) -> None:
        one, other = await scene.in_project("one"), await scene.in_project("other")
        runs = {each.home: await each.trigger(await each.job(), 3) for each in (one, other)}
        worker = await scene.worker()
        works = await scene.claim(worker)
        await scene.start(worker, works)
        await scene.finish(worker, works)

        events = [event for event in await all_events(scene) if event.kind.startswith("run.")]

        for kind in ("run.queued", "run.claimed", "run.started", "run.finished"):
            told = {event.project: sorted(event.ids) for event in events if event.kind == kind}
            assert told == {project: sorted(ids) for project, ids in runs.items()}, kind
        finished = [event for event in events if event.kind == "run.finished"]
        assert [event.data["attempts"] for event in finished] == [[1, 1, 1]] * 2

    async def test_so_are_releases_retries_ends_without_an_attempt_and_lost_workers(
        self, scene: Scene
    ) -> None:
        scenes = [await scene.in_project(project) for project in ("one", "other")]
        retry = Retry(attempts=2, delay=timedelta(seconds=1))
        for each in scenes:
            job_id = await each.job(retry=retry, start_within=timedelta(seconds=1))
            await each.trigger(job_id, 3, at=scene.clock.instant + MINUTE)
        scene.advance(2 * MINUTE)
        await scene.release()
        worker = await scene.worker()
        works = await scene.claim(worker)
        await scene.finish(worker, works[:3], AttemptResult.FAILED)
        await scene.store.end_session(worker)
        scene.advance(MINUTE)
        await scene.release()
        await scene.store.release_forgotten(100)
        waiting = [
            run.id for each in scenes for run in await scene.store.runs(RunQuery(project=each.home))
        ]
        await scene.store.cancel(waiting, actor="user")

        events = await all_events(scene)

        projects: dict[str, set[str]] = defaultdict(set)
        for event in events:
            projects[event.kind].add(event.project)
        both = {"one", "other"}
        for kind in ("scheduled", "queued", "claimed", "late", "finished"):
            assert projects[f"run.{kind}"] == both, kind
        for each in scenes:
            mine = [event for event in events if event.project == each.home]
            runs = await scene.store.runs(RunQuery(project=each.home))
            assert {run.id: run.state for run in runs} == {
                run: path[-1] for run, path in fold_events(mine).items()
            }

    async def test_whatever_happens_in_a_project_is_told_as_its_own(self, scene: Scene) -> None:
        await a_busy_day(await scene.in_project("other"))

        events = await all_events(scene)

        of_installation = {event.kind.split(".")[0] for event in events if not event.project}
        assert of_installation == {"worker", "server", "shards"}
        assert {event.project for event in events} == {"", "other"}

    async def test_who_asks_for_a_project_gets_its_events_only(self, scene: Scene) -> None:
        for project in ("one", "other", "third"):
            await a_busy_day(await scene.in_project(project))
        everything = await all_events(scene)

        for projects in ({"one"}, {"other", "one"}, {"nothing"}, set[str]()):
            wanted = [event for event in everything if event.project in projects]
            pages: list[Event] = []
            after = 0
            while page := await scene.store.events(after, 7, projects=projects):
                pages += page
                after = page[-1].seq
            assert pages == wanted
            for count in (1, 5, 10_000):
                position = await scene.store.position_before_latest(count, projects=projects)
                latest = await scene.store.events(position, 10_000, projects=projects)
                assert latest == wanted[-count:]

    async def test_of_a_project_those_that_name_one_can_be_asked_for(self, scene: Scene) -> None:
        one, other = await scene.in_project("one"), await scene.in_project("other")
        [run], [foreign] = [await each.trigger(await each.job()) for each in (one, other)]

        mine = await scene.store.events(0, 10, ids=[run, foreign], projects={"one"})
        latest = await scene.store.position_before_latest(9, ids=[foreign], projects={"one"})

        assert [event.ids for event in mine] == [(run,)]
        assert latest == 0

    async def test_names_of_other_projects_are_not_told(self, scene: Scene) -> None:
        one, other = await scene.in_project("one"), await scene.in_project("other")
        mine, theirs = await one.job("mine"), await other.job("theirs")
        [run], [foreign] = await one.trigger(mine), await other.trigger(theirs)
        session = await scene.worker()

        names = await scene.store.names([mine, theirs, run, foreign, session], projects={"one"})

        assert names == {mine: "mine", run: "mine"}

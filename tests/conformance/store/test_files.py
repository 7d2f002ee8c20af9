"""Files of projects: their quota, who finds them, who needs them, and when they go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.errors import Conflict
from rota.domain.ids import JobId, RunId, SessionId
from rota.ports.files import ArtifactQuery, KeptFile, NewArtifact
from rota.ports.records import NewJob
from rota.ports.work import Fence, Work
from testkit.builders import Scene, new_job
from tests.conformance.store.conftest import every_way

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")


def file(number: int = 1, size: int = 10, digest: str = ONE, project: str = "default") -> KeptFile:
    return KeptFile(f"f_{number}", project, digest, size)


async def kept(scene: Scene, new: KeptFile, use: NewArtifact | None = None) -> KeptFile:
    await scene.store.begin_file(new, None)
    return await scene.store.finish_file(new, use)


async def held(scene: Scene, job: str = "job") -> tuple[SessionId, Work]:
    worker = await scene.worker()
    await scene.trigger(await scene.job(job))
    [work] = await scene.claim(worker)
    return worker, work


async def saved(scene: Scene, new: NewJob, digest: str) -> JobId:
    """Save a job whose code is an upload."""
    document = {**new.document, "source": {"upload": {"digest": digest}}}
    await scene.store.save_jobs([replace(new, document=document)], removed=[], actor="ann")
    return new.id


def artifact(worker: SessionId, fence: Fence, path: str = "a.txt", days: int = 3) -> NewArtifact:
    return NewArtifact(worker, fence, 0, path, timedelta(days=days))


class TestQuota:
    async def test_what_is_reserved_counts_before_it_has_come(self, scene: Scene) -> None:
        await scene.store.begin_file(file(1, 60), 100)

        with pytest.raises(Conflict, match="no room for 41B more") as refused:
            await scene.store.begin_file(file(2, 41), 100)

        assert refused.value.code == "file_quota"
        assert await scene.store.bytes_of_files("default") == 60
        await scene.store.begin_file(file(3, 40, TWO), 100)

    async def test_a_file_that_grows_beyond_it_is_refused(self, scene: Scene) -> None:
        await scene.store.begin_file(file(1, 0), 100)
        await scene.store.grow_file(file(1), 100, 100)

        with pytest.raises(Conflict):
            await scene.store.grow_file(file(1), 1, 100)

        assert await scene.store.bytes_of_files("default") == 100

    async def test_what_is_too_much_already_can_still_become_less(self, scene: Scene) -> None:
        await scene.store.begin_file(file(1, 200), None)

        await scene.store.grow_file(file(1), 0, 100)

        assert await scene.store.forget_files(["f_1"]) == 1
        assert await scene.store.bytes_of_files("default") == 0

    async def test_projects_have_their_own(self, scene: Scene) -> None:
        await scene.project("other")
        await scene.store.begin_file(file(1, 100), 100)

        await scene.store.begin_file(file(2, 100, project="other"), 100)

    @every_way
    async def test_two_at_once_never_share_its_last_bytes(self, scene: Scene) -> None:
        tries = [scene.store.begin_file(file(number, 60), 100) for number in range(6)]

        results = await asyncio.gather(*tries, return_exceptions=True)

        assert sum(result is None for result in results) == 1
        assert await scene.store.bytes_of_files("default") == 60


class TestKeeping:
    async def test_a_file_is_found_only_once_it_is_whole(self, scene: Scene) -> None:
        await scene.store.begin_file(file(), None)
        assert await scene.store.touch_files("default", [ONE], DAY) == {}

        await scene.store.finish_file(file())

        assert await scene.store.touch_files("default", [ONE], DAY) == {ONE: file()}

    async def test_nobody_finds_the_file_of_another_project(self, scene: Scene) -> None:
        await scene.project("other")
        await kept(scene, file())

        assert await scene.store.touch_files("other", [ONE], DAY) == {}

    async def test_the_size_that_came_counts(self, scene: Scene) -> None:
        await scene.store.begin_file(file(1, 100), None)

        await scene.store.finish_file(file(1, 30))

        assert await scene.store.bytes_of_files("default") == 30

    @every_way
    async def test_of_two_with_one_digest_one_is_kept(self, scene: Scene) -> None:
        for number in (1, 2, 3):
            await scene.store.begin_file(file(number), None)

        finished = await asyncio.gather(
            *(scene.store.finish_file(file(number)) for number in (1, 2, 3))
        )

        assert len({each.id for each in finished}) == 1
        spent = {each.file.id: each.is_kept for each in await scene.store.spent_files(10)}
        assert spent == dict.fromkeys({"f_1", "f_2", "f_3"} - {finished[0].id}, False)

    async def test_a_file_that_was_given_up_cannot_be_finished(self, scene: Scene) -> None:
        await scene.store.begin_file(file(), None)
        scene.advance(timedelta(hours=2))
        [spent] = await scene.store.spent_files(10)
        assert await scene.store.doom_files([spent.file.id]) == {"f_1"}

        with pytest.raises(Conflict, match="given up"):
            await scene.store.finish_file(file())
        with pytest.raises(Conflict, match="given up"):
            await scene.store.grow_file(file(), 1, None)

    async def test_one_that_goes_on_is_not_given_up(self, scene: Scene) -> None:
        await scene.store.begin_file(file(), None)
        for _ in range(3):
            scene.advance(timedelta(minutes=50))
            await scene.store.grow_file(file(), 1, None)

        assert await scene.store.spent_files(10) == []


class TestGoing:
    async def test_what_nothing_refers_to_is_spent_after_a_day(self, scene: Scene) -> None:
        await kept(scene, file())
        scene.advance(timedelta(hours=23))
        assert await scene.store.spent_files(10) == []

        scene.advance(timedelta(hours=2))

        assert [each.file for each in await scene.store.spent_files(10)] == [file()]

    async def test_what_somebody_asked_for_meanwhile_does_not_go(self, scene: Scene) -> None:
        await kept(scene, file())
        scene.advance(2 * DAY)
        [spent] = await scene.store.spent_files(10)

        await scene.store.touch_files("default", [ONE], DAY)

        assert await scene.store.doom_files([spent.file.id]) == frozenset()

    async def test_what_goes_is_not_found_and_counts_until_its_bytes_are_gone(
        self, scene: Scene
    ) -> None:
        await kept(scene, file())
        scene.advance(2 * DAY)

        assert await scene.store.doom_files(["f_1"]) == {"f_1"}

        assert await scene.store.touch_files("default", [ONE], DAY) == {}
        assert await scene.store.bytes_of_files("default") == 10
        again = await kept(scene, file(2))
        assert again.id == "f_2"
        await scene.store.forget_files(["f_1"])
        assert await scene.store.bytes_of_files("default") == 10

    async def test_jobs_live_runs_and_carts_name_what_they_need(self, scene: Scene) -> None:
        digests = [f"sha256:{digit * 64}" for digit in "3456"]
        job = await saved(scene, new_job("code", scene.clock.instant), digests[0])
        [run] = await scene.trigger(job, inputs={"data": {"file": "a", "digest": digests[1]}})
        newer = new_job("code", scene.clock.instant, job_id=job, expected_version=1)
        await saved(scene, newer, digests[2])

        assert await scene.store.needed_digests("default") == set(digests[:3])

        await scene.store.cancel([run], actor="ann")
        assert await scene.store.needed_digests("default") == {digests[2]}


class TestArtifacts:
    async def test_an_artifact_is_listed_with_its_attempt(self, scene: Scene) -> None:
        worker, work = await held(scene)

        await kept(scene, file(), artifact(worker, work.fence, "dist/a.txt"))

        [found] = await scene.store.artifacts(ArtifactQuery(RunId(work.run)))
        assert (found.attempt, found.step, found.path) == (1, 0, "dist/a.txt")
        assert (found.digest, found.size) == (ONE, 10)
        assert found.keep_until - found.kept_at == timedelta(days=3)

    async def test_whoever_lost_the_attempt_keeps_nothing(self, scene: Scene) -> None:
        worker, work = await held(scene)
        other = await scene.worker("other")
        await scene.store.begin_file(file(), None)
        stale = Fence(work.run, work.number + 1)

        for use in (artifact(other, work.fence), artifact(worker, stale)):
            with pytest.raises(Conflict) as refused:
                await scene.store.finish_file(file(), use)
            assert refused.value.code == "stale_attempt"

        assert await scene.store.artifacts(ArtifactQuery(RunId(work.run))) == []
        assert await scene.store.held_attempt(other, work.fence) is None

    async def test_an_attempt_that_ended_keeps_nothing_more(self, scene: Scene) -> None:
        worker, work = await held(scene)
        await scene.finish(worker, [work])

        with pytest.raises(Conflict):
            await kept(scene, file(), artifact(worker, work.fence))

    async def test_a_list_goes_on_after_any_of_them(self, scene: Scene) -> None:
        worker, work = await held(scene)
        for number, path in enumerate(("b", "a", "c")):
            digest = f"sha256:{number}" + "0" * 63
            await kept(scene, file(number, digest=digest), artifact(worker, work.fence, path))

        first = await scene.store.artifacts(ArtifactQuery(RunId(work.run), limit=2))
        after = (first[-1].attempt, first[-1].step, first[-1].path)
        rest = await scene.store.artifacts(ArtifactQuery(RunId(work.run), after=after))

        assert [each.path for each in first] == ["a", "b"]
        assert [each.path for each in rest] == ["c"]

    async def test_its_file_goes_only_after_the_artifact(self, scene: Scene) -> None:
        worker, work = await held(scene)
        await kept(scene, file(), artifact(worker, work.fence))
        scene.advance(timedelta(days=4))
        assert await scene.store.spent_files(10) == []
        assert await scene.store.doom_files(["f_1"]) == frozenset()

        assert await scene.store.forget_artifacts(10) == 1

        assert [each.file.id for each in await scene.store.spent_files(10)] == ["f_1"]
        assert await scene.store.artifacts(ArtifactQuery(RunId(work.run))) == []

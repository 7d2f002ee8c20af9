"""The commit that a run was fetched at: who may tell it, and who has it afterwards."""

from __future__ import annotations

import pytest

from rota.domain.run import AttemptResult
from rota.domain.spec import Retry
from rota.ports.files import SourceCommit
from rota.ports.work import Fence, Work
from testkit.builders import Scene

pytestmark = pytest.mark.anyio

FIRST, SECOND = "a" * 40, "b" * 40


def commit(work: Work | Fence, name: str = FIRST) -> SourceCommit:
    return SourceCommit(work.run, work.number, name)


async def test_all_attempts_at_a_run_have_the_first_one(scene: Scene) -> None:
    worker = await scene.worker()
    await scene.trigger(await scene.job(retry=Retry(attempts=2)))
    [work] = await scene.claim(worker)

    refused = await scene.store.note_commits(worker, [commit(work)])
    again = await scene.store.note_commits(worker, [commit(work, SECOND)])
    await scene.finish(worker, [work], AttemptResult.FAILED)
    await scene.release()
    [next_work] = await scene.claim(await scene.worker("another"))

    assert (refused, again) == ((), ())
    assert (work.commit, next_work.number, next_work.commit) == ("", 2, FIRST)
    assert (await scene.show(work.run)).commit == FIRST


async def test_runs_without_one_have_none(scene: Scene) -> None:
    worker = await scene.worker(slots=2)
    job = await scene.job()
    await scene.trigger(job)
    await scene.trigger(job)
    [first, second] = await scene.claim(worker)
    await scene.store.note_commits(worker, [commit(second)])

    assert (await scene.show(first.run)).commit == ""
    assert (await scene.show(second.run)).commit == FIRST


async def test_only_who_has_the_attempt_may_tell_it(scene: Scene) -> None:
    """I4: a late worker, another one, and a number that is not the latest."""
    worker, other = await scene.worker(), await scene.worker("other")
    await scene.trigger(await scene.job())
    [work] = await scene.claim(worker)
    of_others = SourceCommit(work.run, work.number + 1, SECOND)

    refused = await scene.store.note_commits(other, [commit(work)])
    early = await scene.store.note_commits(worker, [of_others])
    await scene.finish(worker, [work])
    late = await scene.store.note_commits(worker, [commit(work)])

    assert (refused, early, late) == ((work.fence,), (of_others.fence,), (work.fence,))
    assert (await scene.show(work.run)).commit == ""


async def test_an_unknown_run_is_refused_and_others_are_not(scene: Scene) -> None:
    worker = await scene.worker()
    await scene.trigger(await scene.job())
    [work] = await scene.claim(worker)
    unknown = Fence("r_unknown", 1)

    refused = await scene.store.note_commits(worker, [commit(unknown), commit(work)])

    assert refused == (unknown,)
    assert (await scene.show(work.run)).commit == FIRST

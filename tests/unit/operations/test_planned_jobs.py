"""Which shares the jobs of a file may name, and who says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.domain.errors import Invalid
from rota.domain.jobfile import JobFile, read_file
from rota.domain.jobfile.export import Change, digest_of
from rota.operations import definitions
from rota.operations.limits import set_weight
from rota.ports.records import JobQuery
from testkit.builders import new_job
from tests.unit.operations.test_planned_limits import apply, file_of, job
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio


async def weights(timeline: Timeline) -> dict[str, float]:
    return {each.share: each.weight for each in await timeline.store.share_weights()}


async def refusal(timeline: Timeline, share: str, *, is_admin: bool = False) -> str:
    """Why a job of this share is refused; nothing of it is saved."""
    before = await weights(timeline)
    with pytest.raises(Invalid) as refused:
        await apply(timeline, file_of(job("new", share=share)), is_admin=is_admin)
    assert await weights(timeline) == before
    assert not await timeline.store.jobs(JobQuery(names=["new"]))
    [problem] = refused.value.problems
    assert problem.path == "jobs[0].share"
    return f"{problem.message} — {problem.hint}"


async def test_nobody_makes_a_share_up_but_an_admin(timeline: Timeline) -> None:
    assert await refusal(timeline, "my share") == (
        "there is no share \"my share\" — an admin makes it: rota share set 'my share' --weight 1"
    )

    await set_weight(timeline.engine, "my share", 2, actor="root")
    await apply(timeline, file_of(job(share="my share")))

    # No guess which one was meant: it may be of another project.
    assert await refusal(timeline, "my shire") == (
        "there is no share \"my shire\" — an admin makes it: rota share set 'my shire' --weight 1"
    )


async def test_a_share_that_an_admin_names_is_made_and_the_plan_says_so(
    timeline: Timeline,
) -> None:
    await set_weight(timeline.engine, "night", 3, actor="root")
    file = file_of(job(share="team"), job("dusk", share="night"), job("other"))

    planned = await definitions.plan(timeline.engine, file, is_admin=True)
    made_by_planning = await weights(timeline)
    applied = await apply(timeline, file, is_admin=True)

    assert [change.notes for change in planned.changes] == [
        ("share team is new and weighs 1",),
        (),
        (),
    ]
    assert [change.notes for change in applied.changes] == [c.notes for c in planned.changes]
    assert made_by_planning == {"night": 3}
    assert await weights(timeline) == {"night": 3, "team": 1}


@pytest.mark.parametrize("is_admin", [False, True])
async def test_projects_and_their_users_are_no_shares(timeline: Timeline, is_admin: bool) -> None:
    await timeline.scene.project("etl")
    for share in ("etl", "default", "etl/ann"):
        await set_weight(timeline.engine, share, 2, actor="root")

    told = [await refusal(timeline, s, is_admin=is_admin) for s in ("etl", "default", "etl/ann")]

    foreign = 'there is no share "etl" — an admin makes it: rota share set etl --weight 1'
    assert told == [
        'share "etl" is the name of a project — give it another name' if is_admin else foreign,
        'share "default" is the name of a project — give it another name',
        'share "etl/ann" reads like a user of a project — use no slash',
    ]


async def save_unasked(timeline: Timeline, file: JobFile) -> None:
    """As it was saved when anybody could name any share."""
    [entry] = file.jobs
    new = new_job(entry.name, timeline.ticker.instant, set_name=file.set_name)
    digest = digest_of(entry.document)
    await timeline.store.save_jobs(
        [replace(new, document=entry.document, digest=digest)], removed=(), actor="ann"
    )


async def test_a_job_that_has_a_made_up_share_is_left_alone_until_it_changes(
    timeline: Timeline,
) -> None:
    file = file_of(job(share="mine"))
    await save_unasked(timeline, file)

    again = await apply(timeline, file)

    assert [change.change for change in again.changes] == [Change.UNCHANGED]
    with pytest.raises(Invalid):
        await apply(timeline, file_of(job(share="mine", priority=9)))


async def test_a_share_from_the_defaults_is_refused_where_it_stands(timeline: Timeline) -> None:
    text = "defaults:\n  share: mine\njobs:\n  - name: a\n    steps: [{run: 'true'}]\n"

    with pytest.raises(Invalid) as refused:
        await apply(timeline, read_file(text, name="jobs"))

    [problem] = refused.value.problems
    assert (problem.path, problem.line) == ("defaults.share", 2)

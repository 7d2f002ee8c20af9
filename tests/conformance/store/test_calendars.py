from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.calendars import Calendar, Holidays, Inside
from rota.domain.errors import Conflict
from rota.domain.states import RunState
from rota.ports.queue import Wakes
from rota.ports.records import Answered, JobQuery, LedgerEntry, NewCalendar, RemovedJob
from testkit.builders import MINUTE, Scene, firing_of, new_calendar, new_job

pytestmark = pytest.mark.anyio

MISSING = "there is no calendar nights any more"


async def save(scene: Scene, *new: NewCalendar) -> None:
    await scene.store.save_calendars(new, actor="editor")


async def names(scene: Scene) -> list[str]:
    return [found.calendar.name for found in await scene.store.calendars("default")]


async def ledger(scene: Scene, job: str) -> list[LedgerEntry]:
    [found] = await scene.store.jobs(JobQuery(names=[job]))
    now = scene.clock.instant
    return await scene.store.ledger(found.id, now - timedelta(days=1), now, 100)


async def test_a_saved_calendar_is_found_as_it_was_written(scene: Scene) -> None:
    calendar = Calendar(
        "quiet", ("Sat,Sun", "Dec 24"), "Europe/Berlin", Holidays("DE", "BY"), Inside.RUN_AFTER
    )

    await save(scene, NewCalendar("default", calendar))

    [found] = await scene.store.calendars("default")
    assert (found.project, found.calendar, found.version) == ("default", calendar, 1)
    assert (found.updated_by, found.updated_at) == ("editor", scene.clock.instant)


async def test_calendars_come_by_name_and_only_those_of_their_project(scene: Scene) -> None:
    await save(scene, new_calendar("b"), new_calendar("a"))
    await save(scene, NewCalendar("other", Calendar("c", ("Sat",))))

    some = await scene.store.calendars("default", ["b", "c"])

    assert await names(scene) == ["a", "b"]
    assert [found.calendar.name for found in some] == ["b"]


async def test_a_change_makes_the_next_version(scene: Scene) -> None:
    await save(scene, new_calendar("nights"))

    await save(scene, new_calendar("nights", "Sat", expected_version=1))

    [found] = await scene.store.calendars("default")
    assert (found.version, found.calendar.windows) == (2, ("Sat",))


@pytest.mark.parametrize("expected", [0, 2])
async def test_a_calendar_that_is_not_as_expected_is_a_conflict(
    scene: Scene, expected: int
) -> None:
    await save(scene, new_calendar("nights"))

    with pytest.raises(Conflict) as conflict:
        await save(scene, new_calendar("fresh"), new_calendar("nights", expected_version=expected))

    assert conflict.value.code == "calendar_changed"
    assert await names(scene) == ["nights"]


async def test_jobs_and_the_calendars_they_use_are_saved_together(scene: Scene) -> None:
    job = new_job("backup", scene.clock.instant, calendars=["nights"])

    await scene.store.save_jobs([job], removed=(), actor="editor", calendars=[new_calendar()])

    users = await scene.store.jobs(JobQuery(calendar="nights"))
    assert [user.name for user in users] == ["backup"]
    assert await names(scene) == ["nights"]


async def test_a_job_that_uses_a_calendar_that_is_not_there_undoes_the_whole_save(
    scene: Scene,
) -> None:
    job = new_job("backup", scene.clock.instant, calendars=["nights"])

    with pytest.raises(Conflict, match=MISSING):
        await scene.store.save_jobs(
            [job], removed=(), actor="editor", calendars=[new_calendar("other")]
        )

    assert await scene.store.jobs(JobQuery()) == []
    assert await names(scene) == []


async def test_a_calendar_in_use_cannot_be_deleted(scene: Scene) -> None:
    await save(scene, new_calendar())
    job_id = await scene.job("backup", calendars=["nights"])

    with pytest.raises(Conflict) as conflict:
        await scene.store.delete_calendar("default", "nights", expected_version=1, actor="editor")

    assert (conflict.value.code, "backup" in conflict.value.hint) == ("calendar_in_use", True)
    await scene.change(job_id, calendars=())
    await scene.store.delete_calendar("default", "nights", expected_version=1, actor="editor")
    assert await names(scene) == []


async def test_a_deleted_job_uses_no_calendar(scene: Scene) -> None:
    await save(scene, new_calendar())
    job_id = await scene.job("backup", calendars=["nights"])

    await scene.store.save_jobs([], removed=[RemovedJob(job_id)], actor="editor")

    await scene.store.delete_calendar("default", "nights", expected_version=1, actor="editor")
    assert await names(scene) == []


async def test_a_calendar_that_changed_meanwhile_is_not_deleted(scene: Scene) -> None:
    await save(scene, new_calendar())
    await save(scene, new_calendar("nights", "Sat", expected_version=1))

    with pytest.raises(Conflict) as conflict:
        await scene.store.delete_calendar("default", "nights", expected_version=1, actor="editor")

    assert conflict.value.code == "calendar_changed"


async def test_a_firing_planned_with_the_old_calendar_is_stale(
    scene: Scene, published: list[Wakes]
) -> None:
    await save(scene, new_calendar())
    uses = await scene.job("uses", next_at=scene.clock.instant, calendars=["nights"])
    other = await scene.job("other", next_at=scene.clock.instant)
    planned = [firing_of(await scene.show_job(job)) for job in (uses, other)]

    await scene.store.save_calendars(
        [new_calendar("nights", "Sat", expected_version=1)], actor="editor"
    )
    wakes = published[-1]
    fired = await scene.fire_all(planned)

    assert wakes.times
    assert fired.accepted == {other}


async def test_changes_are_told_as_events(scene: Scene) -> None:
    await save(scene, new_calendar())
    await save(scene, new_calendar("nights", "Sat", expected_version=1))
    await scene.store.delete_calendar("default", "nights", expected_version=2, actor="editor")

    events = await scene.store.events(0, 10)

    assert [(event.kind, event.ids, event.project) for event in events] == [
        ("calendar.created", ("nights",), "default"),
        ("calendar.changed", ("nights",), "default"),
        ("calendar.deleted", ("nights",), "default"),
    ]


async def test_due_times_ruled_out_one_after_the_other_are_one_entry(scene: Scene) -> None:
    job_id = await scene.job(next_at=scene.clock.instant)
    first = scene.clock.instant

    for _ in range(3):
        now = scene.clock.instant
        skipped = Answered(now, now, 1, RunState.SKIPPED, "calendar nights", now - MINUTE)
        await scene.fire(job_id, runs=[], answered=[skipped])
        scene.advance(MINUTE)

    [entry] = await ledger(scene, "job")
    assert (entry.first, entry.last, entry.count) == (first, first + 2 * MINUTE, 3)


@pytest.mark.parametrize(
    ("state", "cause", "previous"),
    [
        (RunState.SKIPPED, "calendar other", MINUTE),
        (RunState.MISSED, "calendar nights", MINUTE),
        (RunState.SKIPPED, "calendar nights", 2 * MINUTE),
    ],
    ids=["another cause", "another state", "a due time in between"],
)
async def test_an_entry_goes_on_only_where_nothing_else_happened(
    scene: Scene, state: RunState, cause: str, previous: timedelta
) -> None:
    job_id = await scene.job(next_at=scene.clock.instant)
    now = scene.clock.instant
    skipped = Answered(now, now, 1, RunState.SKIPPED, "calendar nights", None)
    await scene.fire(job_id, runs=[], answered=[skipped])
    now = scene.advance(MINUTE)

    later = Answered(now, now, 1, state, cause, now - previous)
    await scene.fire(job_id, runs=[], answered=[later])

    assert [entry.count for entry in await ledger(scene, "job")] == [1, 1]

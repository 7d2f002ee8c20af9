from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from rota.domain.firing import FiringRules
from rota.domain.ids import JobId
from rota.domain.schedule import compile_schedule
from rota.domain.spec import Misfire, Schedule
from rota.ports.records import DueSchedule
from rota.server.scheduler.timekeeper import Agenda, Upcoming
from testkit.clock import START

SHARDS = (1, 2)
MANY = 1_000


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def new_rules() -> FiringRules:
    table = compile_schedule(Schedule(("every 1s",)), key="default/job", anchor=START)
    return FiringRules(table, Misfire(), timedelta(0))


RULES = new_rules()


def due(job: str, seconds: float, *, version: int = 1, shard: int = 1) -> DueSchedule:
    return DueSchedule(JobId(job), at(seconds), version, 1, START, shard)


def entry(
    job: str, seconds: float, *, version: int = 1, shard: int = 1, rules: FiringRules = RULES
) -> Upcoming:
    return Upcoming(due(job, seconds, version=version, shard=shard), rules, None)


def agenda_of(*entries: Upcoming) -> Agenda:
    agenda = Agenda()
    look(agenda, *entries)
    return agenda


def look(agenda: Agenda, *entries: Upcoming) -> None:
    agenda.begin_look()
    for found in entries:
        agenda.offer(found)
    agenda.end_look()


def take(agenda: Agenda, seconds: float, limit: int = MANY) -> list[Upcoming]:
    return agenda.take_due(at(seconds), limit, SHARDS)


def names(entries: list[Upcoming]) -> list[str]:
    return [found.job_id for found in entries]


def test_what_is_due_comes_by_due_time_and_not_early() -> None:
    agenda = agenda_of(entry("late", 3), entry("soon", 1), entry("next", 2))

    assert agenda.next_at == at(1)
    assert names(take(agenda, 2)) == ["soon", "next"]
    assert take(agenda, 2) == []
    assert agenda.next_at == at(3)


def test_a_batch_has_its_limit() -> None:
    agenda = agenda_of(entry("a", 1), entry("b", 1), entry("c", 1))

    assert [names(take(agenda, 1, limit=2)), names(take(agenda, 1, limit=2))] == [["a", "b"], ["c"]]


def test_an_empty_agenda_has_no_next_time() -> None:
    assert Agenda().next_at is None


def test_a_look_replaces_what_was_there() -> None:
    agenda = agenda_of(entry("gone", 1), entry("moved", 1), entry("same", 2))

    look(agenda, entry("moved", 3), entry("same", 2))

    assert names(take(agenda, 2)) == ["same"]
    assert names(take(agenda, 3)) == ["moved"]
    assert len(agenda) == 0


def test_a_look_never_doubles_an_entry() -> None:
    agenda = agenda_of(entry("job", 1))

    look(agenda, entry("job", 5))
    look(agenda, entry("job", 1))

    assert names(take(agenda, 9)) == ["job"]
    assert take(agenda, 9) == []


def test_what_is_offered_can_be_taken_before_the_look_has_ended() -> None:
    agenda = Agenda()
    agenda.begin_look()
    agenda.offer(entry("job", 1))

    assert names(take(agenda, 1)) == ["job"]


def test_what_was_fired_since_the_look_began_wins_over_what_it_read() -> None:
    agenda = agenda_of(entry("again", 1), entry("once", 1))
    agenda.begin_look()
    taken = take(agenda, 1)
    agenda.settle(taken, [entry("again", 2)])

    agenda.offer(entry("again", 1))
    agenda.offer(entry("once", 1))
    agenda.end_look()

    assert take(agenda, 1) == []
    assert names(take(agenda, 2)) == ["again"]


def test_what_was_being_fired_when_the_look_began_wins_too() -> None:
    agenda = agenda_of(entry("again", 1), entry("once", 1))
    taken = take(agenda, 1)
    agenda.begin_look()
    agenda.offer(entry("again", 1))
    agenda.settle(taken, [entry("again", 2)])
    agenda.offer(entry("once", 1))
    agenda.end_look()

    assert take(agenda, 1) == []
    assert names(take(agenda, 2)) == ["again"]


def test_the_look_after_that_counts_again() -> None:
    agenda = agenda_of(entry("job", 1))
    agenda.settle(take(agenda, 1), [entry("job", 2)])

    look(agenda, entry("job", 7, version=2))

    assert agenda.next_at == at(7)


def test_entries_of_shards_that_are_not_held_are_forgotten() -> None:
    agenda = agenda_of(entry("mine", 1, shard=2), entry("theirs", 1, shard=3))

    assert names(take(agenda, 1)) == ["mine"]
    assert len(agenda) == 0


@pytest.mark.parametrize(
    ("known", "is_known"),
    [
        (entry("job", 1), True),
        (entry("job", 2), False),
        (entry("job", 1, version=2), False),
        (entry("job", 1, rules=new_rules()), False),
        (entry("other", 1), False),
    ],
)
def test_an_entry_that_changes_nothing_is_known(known: Upcoming, is_known: bool) -> None:
    agenda = agenda_of(known)
    agenda.begin_look()

    assert agenda.has(due("job", 1), RULES) is is_known

    agenda.end_look()
    assert len(agenda) == int(is_known)  # what is known counts as read

"""Every due time of a job that uses calendars is answered once, and as they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rota.domain.calendars import (
    Blackout,
    BlackoutAnswer,
    ReleasedAt,
    SkippedBy,
    blackout_answer,
    end_of_blackout,
)
from rota.domain.firing import Answers, FiringRules, SkippedRange, answer_due_times, next_start
from rota.domain.schedule import DueRange, Timetable
from rota.domain.spec import Misfire, MisfirePolicy
from tests.properties.test_calendars import several
from tests.unit.domain.calendars.builders import blackout
from tests.unit.domain.schedule.builders import timetable, utc

GRACE = timedelta(seconds=2)
MICROSECOND = timedelta(microseconds=1)
_MANY = 100_000

timetables = st.builds(
    timetable,
    st.sampled_from(["*/7 * * * *", "0 * * * *", "every 13m", "30 2 * * *", "0 */5 * * * *"]),
    st.sampled_from(["@daily", "15 */4 * * *"]),
    run_once=st.booleans(),
    timezone=st.sampled_from(["UTC", "Europe/Berlin"]),
)
misfires = st.builds(
    Misfire,
    policy=st.sampled_from(MisfirePolicy),
    within=st.sampled_from([None, timedelta(hours=1), timedelta(days=1)]),
    max=st.integers(1, 5),
)
starts = st.datetimes(
    datetime(2026, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(2028, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.just(UTC),
)
backlogs = st.builds(timedelta, seconds=st.integers(0, 4 * 86_400))


def answer(rules: FiringRules, cursor: datetime, now: datetime) -> Answers:
    return answer_due_times(rules, cursor, now, after=rules.timetable.next_after(cursor))


def last_of_each_window(
    blackouts: list[Blackout], due_times: Sequence[datetime], following: datetime | None
) -> tuple[BlackoutAnswer, ...]:
    """The answers where, of the due times that wait for one end, only the last still does."""
    known = [*due_times, following] if following else list(due_times)
    answers = [blackout_answer(blackouts, due) for due in known]
    return tuple(
        SkippedBy(found.name)
        if isinstance(found, ReleasedAt) and found in answers[index + 1 :]
        else found
        for index, found in enumerate(answers[: len(due_times)])
    )


def expected_open(
    table: Timetable, blackouts: list[Blackout], due_times: list[datetime], now: datetime
) -> list[datetime]:
    if table.run_once:
        answers = tuple(blackout_answer(blackouts, due) for due in due_times)
    else:
        answers = last_of_each_window(blackouts, due_times, table.next_after(now))
    return [
        due
        for due, answer in zip(due_times, answers, strict=True)
        if not isinstance(answer, SkippedBy)
    ]


def expected_runs(
    table: Timetable, misfire: Misfire, open_times: list[datetime], now: datetime
) -> list[datetime]:
    since = now - misfire.within if misfire.within else datetime.min.replace(tzinfo=UTC)
    late = [due for due in open_times if since <= due < now - GRACE]
    punctual = [due for due in open_times if due >= now - GRACE]
    if table.run_once:
        late = [] if misfire.policy is MisfirePolicy.NONE else late
        return (late + punctual)[:1]
    match misfire.policy:
        case MisfirePolicy.NONE:
            late = []
        case MisfirePolicy.FIRST:
            late = late[:1]
        case MisfirePolicy.LAST:
            late = late[-1:]
        case MisfirePolicy.ALL:
            late = late[-misfire.max :]
    return late + punctual


def told(answers: Answers, due_times: list[datetime]) -> Counter[datetime]:
    """How often each due time is answered; a range must hold as many as it says."""
    found = Counter(run.due for run in answers.runs)
    stretches: list[DueRange | SkippedRange] = [*answers.missed, *answers.skipped]
    for stretch in stretches:
        inside = [due for due in due_times if stretch.first <= due <= stretch.last]
        assert len(inside) == stretch.count
        assert (inside[0], inside[-1]) == (stretch.first, stretch.last)
        found.update(inside)
    return found


@settings(max_examples=3 * settings().max_examples)
@given(timetables, several, starts, backlogs, misfires)
@example(  # what a calendar rules out after the only run has no answer
    timetable("0 * * * *", run_once=True),
    [blackout("daily 00:00-00:30", "daily 12:00-13:00")],
    utc("2026-01-04 23:59"),
    timedelta(hours=13, minutes=30),
    Misfire(),
)
def test_every_due_time_has_one_answer_and_calendars_come_before_misfires(
    table: Timetable,
    blackouts: list[Blackout],
    start: datetime,
    backlog: timedelta,
    misfire: Misfire,
) -> None:
    cursor = table.next_after(start)
    assert cursor is not None
    now = cursor + backlog
    due_times = list(table.between(cursor - MICROSECOND, now, _MANY))
    rules = FiringRules(table, misfire, GRACE, tuple(blackouts))

    answers = answer(rules, cursor, now)

    open_times = expected_open(table, blackouts, due_times, now)
    runs = expected_runs(table, misfire, open_times, now)
    assert [run.due for run in answers.runs] == runs
    ended = table.run_once and bool(runs)
    answered = [due for due in due_times if not ended or due <= runs[0]]
    assert told(answers, due_times) == Counter(answered)
    skipped = [due for due in answered if due not in open_times]
    assert sum(stretch.count for stretch in answers.skipped) == len(skipped)
    assert answers.next_at == (None if ended else table.next_after(now))


@settings(max_examples=2 * settings().max_examples)
@given(timetables, several, starts, backlogs, misfires)
def test_no_run_is_let_go_inside_a_blackout_unless_it_was_punctual(
    table: Timetable,
    blackouts: list[Blackout],
    start: datetime,
    backlog: timedelta,
    misfire: Misfire,
) -> None:
    cursor = table.next_after(start)
    assert cursor is not None
    now = cursor + backlog
    rules = FiringRules(table, misfire, GRACE, tuple(blackouts))

    for run in answer(rules, cursor, now).runs:
        told = blackout_answer(blackouts, run.due)
        assert run.not_before >= (told.at if isinstance(told, ReleasedAt) else run.due)
        starts_at = max(run.not_before, now)
        if run.due < now - GRACE:
            assert end_of_blackout(blackouts, starts_at) == starts_at


@given(several, starts, st.lists(st.integers(1, 3_600), min_size=1, max_size=60))
def test_answers_given_one_by_one_are_those_given_at_once(
    blackouts: list[Blackout], start: datetime, steps: list[int]
) -> None:
    """However often a scheduler looks, the ledger reads the same."""
    table = timetable("*/7 * * * *")
    rules = FiringRules(table, Misfire(MisfirePolicy.ALL, None, _MANY), GRACE, tuple(blackouts))
    cursor = table.next_after(start)
    assert cursor is not None
    moments = [cursor + timedelta(seconds=sum(steps[: n + 1])) for n in range(len(steps))]

    ran, count, at = list[datetime](), 0, cursor
    for now in moments:
        answers = answer(rules, at, now)
        ran += [run.due for run in answers.runs]
        count += sum(stretch.count for stretch in answers.skipped)
        assert answers.next_at is not None
        at = answers.next_at

    whole = answer(rules, cursor, moments[-1])
    assert ran == [run.due for run in whole.runs]
    assert count == sum(stretch.count for stretch in whole.skipped)


@given(timetables, several, starts)
def test_the_next_start_is_the_first_due_time_that_is_not_skipped(
    table: Timetable, blackouts: list[Blackout], cursor: datetime
) -> None:
    first = table.next_after(cursor)
    assert first is not None
    start = next_start(table, blackouts, first)
    assume(start is not None and start.not_before - first < timedelta(days=90))
    assert start is not None

    known = table.between(first - MICROSECOND, start.not_before, _MANY)

    if table.run_once:
        answers = tuple(blackout_answer(blackouts, due) for due in known)
    else:
        answers = last_of_each_window(blackouts, known, table.next_after(start.not_before))
    runs = [
        (due, answer.at if isinstance(answer, ReleasedAt) else due)
        for due, answer in zip(known, answers, strict=True)
        if not isinstance(answer, SkippedBy)
    ]
    assert runs[0] == (start.due, start.not_before)

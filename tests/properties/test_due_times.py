"""What holds for any schedule, in any zone, at any time."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from hypothesis import assume, given
from hypothesis import strategies as st

from rota.domain.errors import Invalid, Problem
from rota.domain.ids import micros
from rota.domain.schedule import (
    Kind,
    Timetable,
    catch_up,
    clock_changes,
    clock_remark,
    compile_schedule,
    describe,
)
from rota.domain.spec import Dst, Fold, Gap, Misfire, MisfirePolicy, Schedule
from tests.properties.clock_walk import zones

MICROSECOND = timedelta(microseconds=1)

instants = st.datetimes(
    datetime(1996, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(2037, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.just(UTC),
)
zone_names = st.sampled_from(zones())
dst_policies = st.builds(Dst, st.sampled_from(Gap), st.sampled_from(Fold))


def field(low: int, high: int, *special: str) -> st.SearchStrategy[str]:
    numbers = st.integers(low, high)
    steps = st.integers(1, high)
    term = st.one_of(
        numbers.map(str),
        st.builds("{}-{}".format, numbers, numbers),
        st.builds("{}-{}/{}".format, numbers, numbers, steps),
        st.builds("{}/{}".format, numbers, steps),
        st.builds("H/{}".format, steps),
        st.sampled_from(["H", *special]) if special else st.just("H"),
    )
    listed = st.lists(term, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), steps.map("*/{}".format), listed)


DAYS = field(1, 31, "L", "L-3", "LW", "L-2W", "15W", "1W")
WEEKDAYS = field(0, 7, "5#2", "1L", "FRI", "0#5")
five_fields = st.tuples(field(0, 59), field(0, 23), DAYS, field(1, 12), WEEKDAYS)
six_fields = st.tuples(field(0, 59), field(0, 59), field(0, 23), DAYS, field(1, 12), WEEKDAYS)
crons = st.one_of(five_fields, six_fields).map(" ".join)
intervals = st.integers(100, 10**9).map("{}ms".format)
times = instants.map(datetime.isoformat)
expressions = st.one_of(crons, crons, intervals, times)


@st.composite
def timetables(draw: st.DrawFn, max_expressions: int = 3) -> Timetable:
    texts = draw(st.lists(expressions, min_size=1, max_size=max_expressions))
    schedule = Schedule(tuple(texts), timezone=draw(zone_names), dst=draw(dst_policies))
    try:
        return compile_schedule(schedule, key="j_any", anchor=draw(instants))
    except Invalid as refusal:
        told = " ".join(problem.message for problem in refusal.problems)
        assume("never due" not in told and "very often" not in told)
        raise


@given(timetables(), instants)
def test_due_times_are_later_than_asked_for_and_ascend(table: Timetable, after: datetime) -> None:
    found = table.upcoming(after, 20)

    assert all(first < second for first, second in zip((after, *found), found, strict=False))
    assert all(due.tzinfo is UTC for due in found)


@given(timetables(), instants)
def test_walking_back_finds_the_same_due_times(table: Timetable, after: datetime) -> None:
    found = table.upcoming(after, 10)

    for earlier, later in zip((None, *found), found, strict=False):
        assert table.last_at_or_before(later) == later
        before = table.last_at_or_before(later - MICROSECOND)
        if earlier is None:
            assert before is None or before <= after
        else:
            assert before == earlier


@given(timetables(), instants, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_counting_agrees_with_listing(table: Timetable, after: datetime, span: timedelta) -> None:
    found = table.between(after, after + span, 2_000)
    through = found[-1] if len(found) == 2_000 else after + span

    assert table.count(after, through) == len(found)


@given(timetables(), instants, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_all_at_once_are_those_one_after_another(
    table: Timetable, after: datetime, span: timedelta
) -> None:
    found = table.between(after, after + span, 2_000)
    through = found[-1] if len(found) == 2_000 else after + span

    assert table.all_in(micros(after), micros(through)) == [micros(due) for due in found]


@given(timetables(), instants, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_due_times_do_not_depend_on_where_one_starts(
    table: Timetable, after: datetime, span: timedelta
) -> None:
    found = table.upcoming(after, 10)
    start = after - span
    near = [table.next_after(due - MICROSECOND) for due in found]

    assert near == list(found)
    assert table.count(start, after) + len(found) == (
        table.count(start, found[-1]) if found else table.count(start, after)
    )


@given(zone_names, st.integers(1996, 2036), st.times())
def test_a_daily_time_is_due_once_on_each_day_that_exists(zone: str, year: int, at: time) -> None:
    schedule = Schedule((f"{at.minute} {at.hour} * * *",), timezone=zone)
    table = compile_schedule(schedule, key="j_any", anchor=datetime(year, 1, 1, tzinfo=UTC))
    info = ZoneInfo(zone)
    begin, end = datetime(year, 1, 1, tzinfo=info), datetime(year + 1, 1, 1, tzinfo=info)

    due_times = table.between(begin - MICROSECOND, end - MICROSECOND, 1_000)

    assert [day_meant(due, at, info) for due in due_times] == days_that_exist(begin, end)


def days_that_exist(begin: datetime, end: datetime) -> list[date]:
    """All dates that the zone's clocks show when one looks every six hours."""
    first, looks = begin.astimezone(UTC), (end - begin) // timedelta(hours=6) + 1
    shown = {(first + timedelta(hours=6 * n)).astimezone(begin.tzinfo) for n in range(looks)}
    return sorted({local.date() for local in shown if local < end})


def day_meant(due: datetime, at: time, info: ZoneInfo) -> date:
    """The date whose time this is; after a gap, that of the time inside the gap."""
    local = due.astimezone(info)
    if (local.hour, local.minute) == (at.hour, at.minute):
        return local.date()
    gap = (due - MICROSECOND).astimezone(info).replace(tzinfo=None) + MICROSECOND
    is_next_day = (at.hour, at.minute) < (gap.hour, gap.minute)
    return gap.date() + timedelta(days=is_next_day)


@given(
    timetables(max_expressions=2),
    instants,
    st.timedeltas(timedelta(0), timedelta(days=3)),
    st.builds(
        Misfire,
        st.sampled_from(MisfirePolicy),
        st.none() | st.timedeltas(timedelta(0), timedelta(days=2)),
        st.integers(1, 20),
    ),
    st.timedeltas(timedelta(0), timedelta(minutes=2)),
)
def test_catching_up_answers_every_due_time_exactly_once(
    table: Timetable, start: datetime, outage: timedelta, misfire: Misfire, grace: timedelta
) -> None:
    next_at = table.next_after(start)
    assume(next_at is not None)
    assert next_at is not None
    now = next_at + outage

    result = catch_up(table, next_at, now, misfire, grace=grace)

    answered = len(result.fire) + sum(missed.count for missed in result.missed)
    assert answered == 1 + table.count(next_at, now)
    assert list(result.fire) == sorted(set(result.fire))
    assert result.next_at == table.next_after(now)
    for missed in result.missed:
        assert next_at <= missed.first <= missed.last < now - grace
        assert missed.count == 1 + table.count(missed.first, missed.last)
        assert not any(missed.first <= due <= missed.last for due in result.fire)
    written_down = table.one_offs(next_at - timedelta(microseconds=1), now)  # they run late
    late = [due for due in result.fire if due < now - grace and due not in written_down]
    assert misfire.within is None or all(due >= now - misfire.within for due in late)
    assert len(late) <= {"none": 0, "all": misfire.max}.get(misfire.policy, 1)


@given(timetables(), instants)
def test_any_schedule_can_be_put_into_words(table: Timetable, now: datetime) -> None:
    assert describe(table)
    assert all(change.text for change in clock_changes(table, now))
    assert all(isinstance(clock_remark(table, due), str) for due in table.upcoming(now, 3))


# Expressions that have a neat phrase, which fields drawn at random hardly ever have.
NEAT_MINUTES = st.sampled_from(["0", "30", "*", "*/5", "*/15", "15,45"])
NEAT_HOURS = st.sampled_from(["*", "*/2", "*/6", "2", "2,14", "9-17", "22-2"])
NEAT_MONTHS = st.sampled_from(["*", "*", "5", "1-3", "3,6,9,12"])
neat_five = st.tuples(NEAT_MINUTES, NEAT_HOURS, DAYS, NEAT_MONTHS, WEEKDAYS)
neat_six = st.tuples(
    st.sampled_from(["0", "*", "*/10", "10,30"]),
    *(NEAT_MINUTES, NEAT_HOURS),
    DAYS,
    NEAT_MONTHS,
    WEEKDAYS,
)
told = st.one_of(neat_five.map(" ".join), neat_six.map(" ".join), expressions)


@given(told, zone_names, instants)
def test_what_is_printed_in_words_is_read_again(text: str, zone: str, now: datetime) -> None:
    words = describe(compiled_if_ever_due(text, zone, now))

    assert describe(compiled(words, zone, now)) == words


@given(told, instants)
def test_words_mean_the_due_times_that_they_describe(text: str, now: datetime) -> None:
    """In UTC: words do not tell which of two kinds a time is when clocks change."""
    written = compiled_if_ever_due(text, "UTC", now)

    read = compiled(describe(written), "UTC", now)

    # "every 15 minutes" is told of */15 too, and read as the interval that it is elsewhere.
    assume(Kind.INTERVAL not in read.kinds or Kind.INTERVAL in written.kinds)
    assert read.upcoming(now, 20) == written.upcoming(now, 20)


def compiled(text: str, zone: str, anchor: datetime) -> Timetable:
    return compile_schedule(Schedule((text,), timezone=zone), key="j_any", anchor=anchor)


def compiled_if_ever_due(text: str, zone: str, anchor: datetime) -> Timetable:
    try:
        return compiled(text, zone, anchor)
    except Invalid as refusal:
        assume("never due" not in refusal.problems[0].message)
        raise


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_read_or_refused(expression: str, zone: str) -> None:
    schedule = Schedule((expression,), timezone=zone)
    problems: tuple[Problem, ...] | None = None

    try:
        compile_schedule(schedule, key="j_any", anchor=datetime(2026, 1, 1, tzinfo=UTC))
    except Invalid as refusal:
        problems = refusal.problems

    assert problems != ()

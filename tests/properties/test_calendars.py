"""What holds for any calendar, at any time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.calendars import (
    Blackout,
    Calendar,
    Inside,
    ReleasedAt,
    SkippedBy,
    blackout_answer,
    compile_calendar,
    end_of_blackout,
    in_words,
    next_windows,
)
from rota.domain.errors import Invalid, Problem
from rota.domain.firing import fold_into_window
from rota.domain.jobfile.calendars import read_calendar
from tests.properties.clock_walk import DAY_MINUTES
from tests.properties.window_walk import WEEKDAYS, ZONES, examples

MICROSECOND = timedelta(microseconds=1)
# Together, three calendars of two such windows cannot fill a day.
SHORT = DAY_MINUTES // 8

instants = st.datetimes(
    datetime(1996, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(2037, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.just(UTC),
)
blackouts = st.builds(
    Calendar,
    name=st.sampled_from(["a", "b"]),
    windows=st.lists(examples(SHORT).map(str), min_size=1, max_size=2).map(tuple),
    timezone=st.sampled_from(ZONES),
    inside=st.sampled_from(Inside),
).map(compile_calendar)
several = st.lists(blackouts, max_size=3)

PIECES = (
    *(*WEEKDAYS, "Feb", "Dec", "daily", "day", "L", "1", "15", "31", "24", "T", "Z", "+02:00"),
    *("00:00", "06:00", "24:00", "2026-12-24", "2026-12-24T08:00", " ", " ", ",", "-", "/", ":"),
)
texts = st.lists(st.sampled_from(PIECES), max_size=9).map("".join) | st.text(max_size=30)
values = st.recursive(
    st.none() | st.integers() | st.sampled_from(["Sat", "UTC", "skip", "quiet"]) | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["country", "subdivision"]), inner)
    ),
    max_leaves=5,
)
documents = st.dictionaries(
    st.sampled_from(["name", "windows", "timezone", "holidays", "inside", "odd"]), values
)


@given(several, instants)
def test_the_end_is_the_first_instant_outside(calendars: list[Blackout], time: datetime) -> None:
    end = end_of_blackout(calendars, time)

    assert end is not None
    assert end >= time
    assert not any(calendar.is_inside(end) for calendar in calendars)
    if end > time:
        for before in (time, time + (end - time) / 3, end - MICROSECOND):
            assert any(calendar.is_inside(before) for calendar in calendars)


@given(blackouts, instants)
def test_windows_ahead_are_whole_and_in_order(calendar: Blackout, time: datetime) -> None:
    windows = next_windows(calendar, time, 5)

    assert len(windows) == 5
    assert windows[0].ends > time
    assert calendar.is_inside(time) == (windows[0].begins <= time)
    assert all(before.ends < after.begins for before, after in pairwise(windows))
    for window in windows:
        middle = window.begins + (window.ends - window.begins) / 2
        assert all(map(calendar.is_inside, (window.begins, middle, window.ends - MICROSECOND)))
        assert not any(map(calendar.is_inside, (window.begins - MICROSECOND, window.ends)))


@given(several, instants, st.sets(st.integers(0, 3 * DAY_MINUTES), max_size=30))
def test_a_batch_has_one_run_for_each_end(
    calendars: list[Blackout], start: datetime, offsets: set[int]
) -> None:
    due_times = [start + timedelta(minutes=minutes) for minutes in sorted(offsets)]

    answers = fold_into_window(calendars, due_times, None)

    single = [blackout_answer(calendars, due) for due in due_times]
    last = {
        answer.at: due
        for due, answer in zip(due_times, single, strict=True)
        if isinstance(answer, ReleasedAt)
    }
    for due, folded, alone in zip(due_times, answers, single, strict=True):
        if isinstance(alone, ReleasedAt) and last[alone.at] != due:
            assert folded == SkippedBy(alone.name)
        else:
            assert folded == alone


@given(several, instants, st.sets(st.integers(0, 3 * DAY_MINUTES), min_size=1, max_size=30))
def test_due_times_one_by_one_are_answered_as_in_a_batch(
    calendars: list[Blackout], start: datetime, offsets: set[int]
) -> None:
    calendars = [it for it in calendars if it.calendar.inside is Inside.RUN_AFTER]
    due_times = [start + timedelta(minutes=minutes) for minutes in sorted(offsets)]

    one_by_one = [
        fold_into_window(calendars, [due], following)[0]
        for due, following in zip(due_times, [*due_times[1:], None], strict=True)
    ]

    assert tuple(one_by_one) == fold_into_window(calendars, due_times, None)


@given(texts)
def test_any_text_is_a_window_or_refused_with_a_reason(text: str) -> None:
    problems: tuple[Problem, ...] | None = None

    try:
        words = in_words(compile_calendar(Calendar("any", (text,))))
    except Invalid as refusal:
        words, problems = "", refusal.problems

    assert problems != ()
    assert words.isprintable()


@given(documents)
def test_any_document_is_a_calendar_or_refused_with_a_reason(document: dict[str, object]) -> None:
    problems: tuple[Problem, ...] | None = None

    try:
        read_calendar(json.dumps(document))
    except Invalid as refusal:
        problems = refusal.problems

    assert problems != ()

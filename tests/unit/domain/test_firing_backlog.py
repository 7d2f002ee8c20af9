from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.domain.calendars import Blackout
from rota.domain.firing import Answers, DueStart, FiringRules, answer_due_times
from rota.domain.spec import IntervalFrom, Misfire, MisfirePolicy
from tests.unit.domain.calendars.builders import blackout
from tests.unit.domain.schedule.builders import timetable, utc

GRACE = timedelta(seconds=2)


def answers(cursor: str, now: str, *blackouts: Blackout, **settings: Any) -> Answers:
    table = timetable(settings.pop("expression", "every 10m"), **settings)
    rules = FiringRules(table, Misfire(MisfirePolicy.LAST), GRACE, blackouts)
    after = table.next_after(utc(cursor))
    return answer_due_times(rules, utc(cursor), utc(now), after=after)


class TestIntervalsFromCompletion:
    def skipped(self, now: str) -> Answers:
        lunch = blackout("daily 12:00-13:00")
        return answers("2026-01-05 12:05", now, lunch, interval_from=IntervalFrom.COMPLETION)

    def test_a_skipped_due_time_counts_as_a_run_that_took_no_time(self) -> None:
        found = self.skipped("2026-01-05 12:06")

        assert found.runs == ()
        assert [stretch.count for stretch in found.skipped] == [1]
        assert found.next_at == utc("2026-01-05 12:15")

    def test_the_next_due_time_is_yet_to_come_however_long_nobody_looked(self) -> None:
        found = self.skipped("2026-01-05 18:00")

        assert found.next_at == utc("2026-01-05 18:10")


def test_what_follows_the_only_run_has_no_answer() -> None:
    """Closed at the cursor, open at 01:00, closed again at noon: nobody asked about noon."""
    found = answers(
        "2026-01-05 00:00",
        "2026-01-05 13:30",
        blackout("daily 00:00-00:30", "daily 12:00-13:00"),
        expression="0 * * * *",
        run_once=True,
    )

    assert [run.due for run in found.runs] == [utc("2026-01-05 01:00")]
    assert [(it.first, it.last) for it in found.skipped] == [(utc("2026-01-05"),) * 2]
    assert found.next_at is None


class TestLateRunsInsideABlackout:
    def late(self, *blackouts: Blackout) -> DueStart:
        found = answers("2026-12-31 23:00", "2027-01-01 00:30", *blackouts, expression="0 * * * *")
        [start] = found.runs
        return start

    def test_they_wait_for_its_end(self) -> None:
        start = self.late(blackout("2027-01-01", name="new-year"))

        assert start == DueStart(utc("2026-12-31 23:00"), utc("2027-01-02"), "new-year")

    def test_they_do_not_wait_for_years(self) -> None:
        decade = [blackout("2027-01-01/2031-06-01"), blackout("2031-01-01/2035-06-01")]

        start = self.late(*decade)

        assert start.not_before == start.due == utc("2026-12-31 23:00")
        assert start.calendar == ""

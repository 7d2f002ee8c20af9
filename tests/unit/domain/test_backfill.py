from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from rota.domain.backfill import (
    MAX_DUE_TIMES,
    BackfillPlan,
    DueRun,
    Only,
    Repeat,
    SkipCause,
    answered_end,
    backfill_priority,
    due_times,
    plan_backfill,
)
from rota.domain.errors import Invalid
from rota.domain.ids import RunId
from rota.domain.states import FINAL_STATES, RunState
from tests.unit.domain.schedule.builders import ANCHOR, timetable, utc

DUE = utc("2026-05-04 02:00")
NEVER_RUN = [[], [RunState.SKIPPED], [RunState.MISSED], [RunState.CANCELLED]]
BAD = [[RunState.FAILED], [RunState.TIMED_OUT], [RunState.FAILED, RunState.CANCELLED]]
GOOD = [[RunState.COMPLETED], [RunState.FAILED, RunState.COMPLETED]]


def planned(states: Sequence[RunState], only: Only | None) -> BackfillPlan:
    """The plan for one due time with runs in these states, the oldest first."""
    runs = [DueRun(RunId(f"r_{number}"), DUE, state) for number, state in enumerate(states)]
    return plan_backfill([DUE], runs, only)


def left_out(plan: BackfillPlan) -> list[SkipCause]:
    return [group.cause for group in plan.skipped]


class TestChoice:
    @pytest.mark.parametrize("states", [*NEVER_RUN, *BAD, *GOOD])
    def test_all_means_all_that_is_over(self, states: list[RunState]) -> None:
        assert len(planned(states, None).repeats) == 1

    @pytest.mark.parametrize("states", [*NEVER_RUN, *BAD])
    def test_missing_is_what_no_run_completed(self, states: list[RunState]) -> None:
        assert len(planned(states, Only.MISSING).repeats) == 1

    @pytest.mark.parametrize("states", BAD)
    def test_failed_is_what_ended_badly(self, states: list[RunState]) -> None:
        assert planned(states, Only.FAILED).repeats == (Repeat(DUE, RunId("r_0")),)

    @pytest.mark.parametrize("only", Only)
    @pytest.mark.parametrize("states", GOOD)
    def test_what_completed_is_left_out(self, states: list[RunState], only: Only) -> None:
        assert left_out(planned(states, only)) == [SkipCause.COMPLETED]

    @pytest.mark.parametrize("states", NEVER_RUN)
    def test_what_never_ran_did_not_fail(self, states: list[RunState]) -> None:
        assert left_out(planned(states, Only.FAILED)) == [SkipCause.NOT_FAILED]

    @pytest.mark.parametrize("only", [None, *Only])
    @pytest.mark.parametrize("state", sorted(frozenset(RunState) - FINAL_STATES))
    def test_nothing_runs_beside_a_run_that_is_not_over(
        self, state: RunState, only: Only | None
    ) -> None:
        assert left_out(planned([RunState.FAILED, state], only)) == [SkipCause.ACTIVE]

    def test_the_newest_failure_is_repeated(self) -> None:
        plan = planned([RunState.FAILED, RunState.TIMED_OUT, RunState.CANCELLED], None)

        assert plan.repeats == (Repeat(DUE, RunId("r_1")),)

    def test_what_completed_later_is_no_retry_of_the_failure_before(self) -> None:
        plan = planned([RunState.FAILED, RunState.COMPLETED], None)

        assert plan.repeats == (Repeat(DUE, None),)

    def test_what_is_left_out_is_told_by_cause(self) -> None:
        due = [DUE + timedelta(days=day) for day in range(4)]
        runs = [DueRun(RunId(f"r_{at.day}"), at, RunState.COMPLETED) for at in due[1:]]

        plan = plan_backfill(due, runs, Only.MISSING)

        [group] = plan.skipped
        assert (group.cause, group.count) == (SkipCause.COMPLETED, 3)
        assert (group.first, group.last) == (due[1], due[3])
        assert (plan.first, plan.last) == (DUE, DUE)

    def test_an_empty_range_has_neither_first_nor_last(self) -> None:
        plan = plan_backfill([], [], None)

        assert (plan.first, plan.last, plan.skipped) == (None, None, ())


class TestRange:
    def test_both_ends_belong_to_it(self) -> None:
        found = due_times(timetable("0 * * * *"), utc("2026-05-04 02:00"), utc("2026-05-04 04:00"))

        assert [f"{at:%H:%M}" for at in found] == ["02:00", "03:00", "04:00"]

    def test_it_may_begin_before_time_did(self) -> None:
        found = due_times(timetable("@yearly"), utc("0001-01-01 00:00"), utc("1971-01-01 00:00"))

        assert [at.year for at in found] == [1970, 1971]

    def test_an_interval_is_not_due_when_its_job_was_applied(self) -> None:
        found = due_times(timetable("every 1h"), ANCHOR, ANCHOR + timedelta(hours=2))

        assert found == (ANCHOR + timedelta(hours=1), ANCHOR + timedelta(hours=2))

    def test_an_interval_is_due_when_it_starts(self) -> None:
        hourly = timetable("every 1h", starts=ANCHOR)

        assert due_times(hourly, ANCHOR, ANCHOR) == (ANCHOR,)

    def test_as_many_as_fit_are_taken(self) -> None:
        end = utc("2026-01-01 00:00") + timedelta(seconds=MAX_DUE_TIMES)

        found = due_times(timetable("every 1s"), utc("2026-01-01 00:00"), end)

        assert (len(found), found[-1]) == (MAX_DUE_TIMES, end)

    def test_more_are_refused_with_the_way_to_go_on(self) -> None:
        end = utc("2026-01-01 00:00") + timedelta(seconds=MAX_DUE_TIMES + 1)

        with pytest.raises(Invalid) as refusal:
            due_times(timetable("every 1s"), utc("2026-01-01 00:00"), end)

        assert refusal.value.code == "backfill_too_large"
        assert (end - timedelta(seconds=1)).isoformat() in refusal.value.hint

    def test_what_is_to_come_belongs_to_the_schedule(self) -> None:
        now = utc("2026-05-04 12:00")
        hour = timedelta(hours=1)

        assert answered_end(now + hour, None, now) == now
        assert answered_end(now - hour, None, now) == now - hour
        assert answered_end(now, now + hour, now) == now

    def test_a_due_time_the_scheduler_has_not_fired_yet_is_left_to_it(self) -> None:
        now = utc("2026-05-04 12:00")

        assert answered_end(now, now, now) < now


@pytest.mark.parametrize(("job", "runs"), [(9, 7), (5, 3), (2, 0), (1, 0), (0, 0)])
def test_live_work_goes_first(job: int, runs: int) -> None:
    assert backfill_priority(job) == runs

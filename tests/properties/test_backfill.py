"""Whatever the runs of a range are, every due time of it is either run or left out for a cause."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.backfill import BackfillPlan, DueRun, Only, due_times, plan_backfill
from rota.domain.gates import SLOT_STATES, ActiveRun, BackfillRules, JobRules, backfill_room
from rota.domain.ids import BackfillId, JobId, RunId
from rota.domain.run import Trigger
from rota.domain.spec import Overlap
from rota.domain.states import FINAL_STATES, RunState
from tests.unit.domain.schedule.builders import ANCHOR, timetable

HOUR = timedelta(hours=1)
CHOICES = st.sampled_from([None, *Only])
HISTORIES = st.lists(st.lists(st.sampled_from(RunState), max_size=4), max_size=20)
ACTIVE_STATES = sorted(frozenset(RunState) - FINAL_STATES)
LIMITS = st.integers(1, 5)


def due_of(histories: list[list[RunState]]) -> list[datetime]:
    return [ANCHOR + number * HOUR for number in range(len(histories))]


def runs_of(histories: list[list[RunState]]) -> list[DueRun]:
    return [
        DueRun(RunId(f"r_{at:%d%H}_{age}"), at, state)
        for at, states in zip(due_of(histories), histories, strict=True)
        for age, state in enumerate(states)
    ]


def plan(histories: list[list[RunState]], only: Only | None) -> BackfillPlan:
    return plan_backfill(due_of(histories), runs_of(histories), only)


def chosen(made: BackfillPlan) -> list[datetime]:
    return [repeat.due_at for repeat in made.repeats]


@given(HISTORIES, CHOICES)
def test_every_due_time_is_run_or_left_out(
    histories: list[list[RunState]], only: Only | None
) -> None:
    made = plan(histories, only)

    assert len(made.repeats) + sum(group.count for group in made.skipped) == len(histories)
    assert chosen(made) == sorted(set(chosen(made)))
    assert set(chosen(made)) <= set(due_of(histories))


@given(HISTORIES)
def test_a_narrower_choice_runs_fewer(histories: list[list[RunState]]) -> None:
    wide, missing, failed = (set(chosen(plan(histories, only))) for only in (None, *Only))

    assert failed <= missing <= wide


@given(HISTORIES, CHOICES)
def test_nothing_is_run_beside_a_run_that_is_not_over(
    histories: list[list[RunState]], only: Only | None
) -> None:
    made = set(chosen(plan(histories, only)))

    for at, states in zip(due_of(histories), histories, strict=True):
        assert at not in made or FINAL_STATES.issuperset(states)


@given(HISTORIES, st.sampled_from(Only))
def test_a_backfill_that_went_well_leaves_nothing_to_repeat(
    histories: list[list[RunState]], only: Only
) -> None:
    made = set(chosen(plan(histories, only)))
    after = [
        [*states, RunState.COMPLETED] if at in made else states
        for at, states in zip(due_of(histories), histories, strict=True)
    ]

    assert chosen(plan(after, only)) == []


@given(HISTORIES, CHOICES)
def test_what_is_repeated_failed(histories: list[list[RunState]], only: Only | None) -> None:
    states = {run.id: run.state for run in runs_of(histories)}

    for repeat in plan(histories, only).repeats:
        if repeat.retry_of is not None:
            assert states[repeat.retry_of] in {RunState.FAILED, RunState.TIMED_OUT}


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(1, 90))
def test_a_range_has_all_its_due_times(start: int, length: int, every: int) -> None:
    since = ANCHOR + timedelta(seconds=start)
    until = since + timedelta(seconds=length)

    found = due_times(timetable(f"every {every}s"), since, until)

    ticks = range(start, start + length + 1)
    assert list(found) == [ANCHOR + timedelta(seconds=s) for s in ticks if s and s % every == 0]


@st.composite
def crowds(draw: st.DrawFn) -> list[ActiveRun]:
    """Active runs of a job, some of them of two backfills."""
    kinds = draw(
        st.lists(
            st.tuples(st.sampled_from(ACTIVE_STATES), st.sampled_from([None, "b_1", "b_2"])),
            max_size=10,
        )
    )
    return [
        ActiveRun(
            RunId(f"r_{seq}"),
            seq,
            state,
            Trigger.MANUAL if backfill is None else Trigger.BACKFILL,
            backfill=None if backfill is None else BackfillId(backfill),
        )
        for seq, (state, backfill) in enumerate(kinds)
    ]


@given(crowds(), LIMITS, st.none() | LIMITS, st.sampled_from(Overlap))
def test_room_fills_both_limits_and_passes_neither(
    active: list[ActiveRun], max_parallel: int, max_concurrency: int | None, overlap: Overlap
) -> None:
    job = JobRules(JobId("j_1"), "job", overlap, max_concurrency)
    backfill = BackfillRules(BackfillId("b_1"), max_parallel)

    room = backfill_room(job, backfill, active)

    slots = [run for run in active if run.state in SLOT_STATES]
    free = [max_parallel - sum(run.backfill == backfill.id for run in slots)]
    if max_concurrency is not None:
        free.append(max_concurrency - len(slots))
    assert room == max(0, min(free))

"""What holds for runs whatever happens to them: states, back-off, gates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.gates import SLOT_STATES, ActiveRun, JobRules, admit, releasable
from rota.domain.ids import JobId, RunId
from rota.domain.retry import Ending, attempt_ended, backoff
from rota.domain.run import AttemptResult, Reason, Trigger
from rota.domain.spec import Backoff, Delivery, Overlap, Retry
from rota.domain.states import (
    FINAL_STATES,
    INITIAL_STATES,
    LEASED_STATES,
    TRANSITIONS,
    RunEvent,
    RunState,
    fold_events,
    is_final,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DELAYS = st.timedeltas(timedelta(0), timedelta(days=400))
FRACTIONS = st.floats(0, 1, exclude_max=True)
RETRIES = st.builds(
    Retry,
    attempts=st.integers(1, 5),
    backoff=st.sampled_from(Backoff),
    delay=DELAYS,
    max_delay=DELAYS,
    jitter=st.floats(0, 1),
    when=st.frozensets(st.sampled_from(["failed", "timed_out"])),
    exit_codes=st.none() | st.frozensets(st.integers(0, 3)),
)
ENDINGS = st.builds(
    Ending,
    state=st.sampled_from(sorted(LEASED_STATES)),
    result=st.sampled_from(AttemptResult),
    now=st.just(NOW),
    exit_code=st.none() | st.integers(0, 3),
    signal=st.none() | st.integers(1, 15),
    failures=st.integers(0, 6),
    losses=st.integers(0, 6),
    delivery=st.sampled_from(Delivery),
    is_cancel_requested=st.booleans(),
    deadline_at=st.none() | st.datetimes(timezones=st.just(UTC)),
)
RULES = st.builds(
    JobRules,
    job_id=st.just(JobId("j_1")),
    name=st.just("job"),
    overlap=st.sampled_from(Overlap),
    max_concurrency=st.none() | st.integers(1, 4),
    closed=st.none() | st.just(Reason("pause", "job job is paused", "pause:j_1")),
)
STEPS = {(before, after) for (before, _), after in TRANSITIONS.items()}
ACTIVE_STATES = sorted(set(RunState) - FINAL_STATES)


@given(st.sampled_from(sorted(INITIAL_STATES)), st.lists(st.sampled_from(RunEvent), max_size=40))
def test_any_events_stay_in_the_table_and_final_stays_final(
    state: RunState, events: list[RunEvent]
) -> None:
    for event in events:
        after = TRANSITIONS.get((state, event), state)
        assert state not in FINAL_STATES or after is state
        state = after

    assert state in RunState


@dataclass(frozen=True, slots=True)
class Told:
    """An event of the history."""

    seq: int
    kind: str
    ids: tuple[str, ...]
    data: dict[str, str]


_KINDS = {RunState.PROCESSING: "run.started"}


def told(seq: int, state: RunState, runs: tuple[str, ...]) -> Told:
    if is_final(state):
        return Told(seq, "run.finished", runs, {"state": state})
    return Told(seq, _KINDS.get(state, f"run.{state.lower()}"), runs, {})


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Told], dict[str, list[RunState]]]:
    """Events of some runs that go by the table, and the states that each went through."""
    paths: dict[str, list[RunState]] = {}
    events: list[Told] = []
    for seq in range(1, draw(st.integers(1, 40))):
        run = f"r_{draw(st.integers(1, 4))}"
        before = paths[run][-1] if run in paths else None
        after = {
            state
            for state in RunState
            if (state in INITIAL_STATES if before is None else (before, state) in STEPS)
        }
        if after:
            state = draw(st.sampled_from(sorted(after)))
            paths.setdefault(run, []).append(state)
            events.append(told(seq, state, (run,)))
            events.append(Told(seq + 1000, "run.late", (run,), {}))  # says nothing of a state
    return events, paths


@given(histories(), st.randoms())
def test_events_fold_to_the_steps_of_each_run_in_whatever_order_they_arrive(
    history: tuple[list[Told], dict[str, list[RunState]]], random: Random
) -> None:
    events, paths = history
    random.shuffle(events)

    assert fold_events(events) == paths


@given(ENDINGS, RETRIES, st.integers(0, 4), FRACTIONS)
def test_every_verdict_is_a_row_of_the_table(
    ending: Ending, policy: Retry, max_losses: int, fraction: float
) -> None:
    verdict = attempt_ended(ending, policy, max_losses, fraction)

    assert TRANSITIONS[ending.state, verdict.event] is verdict.state
    assert (verdict.eligible_at is not None) == (verdict.state is RunState.SCHEDULED)
    assert verdict.eligible_at is None or verdict.eligible_at >= NOW


@given(ENDINGS, RETRIES, FRACTIONS)
def test_attempts_are_bounded(ending: Ending, policy: Retry, fraction: float) -> None:
    verdict = attempt_ended(ending, policy, 3, fraction)

    if verdict.event is RunEvent.RETRIED:
        assert ending.failures + 1 < policy.attempts
        assert not ending.is_cancel_requested
    if verdict.event is RunEvent.LOST and ending.result is AttemptResult.LOST:
        assert ending.losses < 3


@given(RETRIES, st.integers(0, 10_000), FRACTIONS)
def test_back_off_stays_in_its_bounds(policy: Retry, failures: int, fraction: float) -> None:
    pause = backoff(policy, failures, fraction)

    assert timedelta(0) <= pause <= policy.max_delay
    assert pause >= min(policy.delay, policy.max_delay)


@given(RETRIES, st.integers(0, 60), FRACTIONS)
def test_back_off_never_shrinks(policy: Retry, failures: int, fraction: float) -> None:
    assert backoff(policy, failures, fraction) <= backoff(policy, failures + 1, fraction)


@st.composite
def crowds(draw: st.DrawFn) -> list[ActiveRun]:
    kinds = draw(
        st.lists(
            st.tuples(st.sampled_from(ACTIVE_STATES), st.sampled_from(Trigger), st.integers(0, 1)),
            max_size=8,
        )
    )
    return [
        ActiveRun(RunId(f"r_{seq}"), seq, state, trigger, attempt)
        for seq, (state, trigger, attempt) in enumerate(kinds)
    ]


def slots(runs: list[ActiveRun]) -> int:
    return sum(run.state in SLOT_STATES for run in runs)


@given(RULES, crowds(), st.integers(0, 9), st.sampled_from(Trigger))
def test_nobody_is_admitted_past_a_limit(
    rules: JobRules, active: list[ActiveRun], seq: int, trigger: Trigger
) -> None:
    run = ActiveRun(RunId("r_new"), seq, RunState.SCHEDULED, trigger)
    others = [other for other in active if other.seq != seq]

    admission = admit(rules, run, others)

    if admission.state is RunState.QUEUED:
        assert rules.closed is None
        assert rules.max_concurrency is None or slots(others) < rules.max_concurrency
        live = [o for o in others if o.state in SLOT_STATES and o.trigger is Trigger.SCHEDULE]
        is_exclusive = rules.overlap is not Overlap.ALLOW and trigger is Trigger.SCHEDULE
        assert not (is_exclusive and live)
    if admission.state is RunState.SKIPPED:
        assert trigger is Trigger.SCHEDULE
    assert bool(admission.reasons) == (admission.state is RunState.BLOCKED)


@given(RULES, crowds())
def test_nothing_is_released_past_a_limit(rules: JobRules, crowd: list[ActiveRun]) -> None:
    waiting = [run for run in crowd if run.state is RunState.BLOCKED]
    active = [run for run in crowd if run.state is not RunState.BLOCKED]

    released = set(releasable(rules, waiting, active))

    going = [run for run in waiting if run.id in released]
    assert not (going and rules.closed)
    if going and rules.max_concurrency is not None:
        assert slots(active) + len(going) <= rules.max_concurrency
    if rules.overlap is not Overlap.ALLOW:
        scheduled = [run for run in going if run.trigger is Trigger.SCHEDULE]
        live = [o for o in active if o.state in SLOT_STATES and o.trigger is Trigger.SCHEDULE]
        assert len(scheduled) <= (0 if live else 1)


@given(RULES, crowds())
def test_a_job_with_room_never_leaves_everybody_waiting(
    rules: JobRules, crowd: list[ActiveRun]
) -> None:
    waiting = [run for run in crowd if run.state is RunState.BLOCKED]

    released = releasable(rules, waiting, [])

    assert bool(released) == (bool(waiting) and rules.closed is None)

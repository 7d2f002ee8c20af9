from __future__ import annotations

from rota.domain.states import (
    FINAL_STATES,
    INITIAL_STATES,
    LEASED_STATES,
    TRANSITIONS,
    WAITING_STATES,
    RunEvent,
    RunState,
    is_final,
    seen_state,
)


def test_the_final_states_are_those_of_the_specification() -> None:
    specified = {
        RunState.COMPLETED,
        RunState.FAILED,
        RunState.TIMED_OUT,
        RunState.CANCELLED,
        RunState.SKIPPED,
        RunState.MISSED,
    }

    assert specified == FINAL_STATES


def test_every_state_can_be_reached_from_where_runs_begin() -> None:
    reached = set(INITIAL_STATES)
    for _ in RunState:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}

    assert reached == set(RunState)


def test_every_state_that_is_not_final_can_come_to_an_end() -> None:
    ending = set(FINAL_STATES)
    for _ in RunState:
        ending |= {before for (before, _), after in TRANSITIONS.items() if after in ending}

    assert ending == set(RunState)


def test_every_event_can_happen() -> None:
    assert {event for _, event in TRANSITIONS} == set(RunEvent)


def test_every_state_belongs_to_somebody() -> None:
    somebody = WAITING_STATES | LEASED_STATES | FINAL_STATES | {RunState.UNKNOWN}

    assert somebody == set(RunState)


def test_what_was_not_started_can_always_be_cancelled() -> None:
    for state in WAITING_STATES | LEASED_STATES:
        assert is_final(TRANSITIONS[state, RunEvent.CANCELLED])


def test_only_what_is_queued_where_nobody_serves_is_seen_in_another_state() -> None:
    differing = {
        (state, is_served): seen
        for state in RunState
        for is_served in (True, False)
        if (seen := seen_state(state, is_served=is_served)) is not state
    }

    assert differing == {(RunState.QUEUED, False): RunState.BLOCKED}


def test_only_a_person_ends_the_doubt() -> None:
    events = {event for state, event in TRANSITIONS if state is RunState.UNKNOWN}

    assert events == {
        RunEvent.RESOLVED_COMPLETED,
        RunEvent.RESOLVED_FAILED,
        RunEvent.RESOLVED_RETRY,
    }

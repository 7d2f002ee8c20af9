"""What can be said of the statements without running them."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from rota.domain.states import INITIAL_STATES, LEASED_STATES, TRANSITIONS, WAITING_STATES, RunState
from rota.store.script import Statement, shared_statements

STEPS = {(before, after) for (before, _), after in TRANSITIONS.items()}
STATEMENTS = shared_statements()
ELSEWHERE = {"postgres/shards.sql": ["end_transactions"]}
WRITERS = {
    name: statement
    for name, statement in STATEMENTS.items()
    if re.search(r"UPDATE run SET (?:\w+ = \S+, )*state = ", statement.text)
}
# Statements whose new state is a parameter, with the states a decision may give it.
DECIDED = {
    "end_waiting_run": {RunState.SKIPPED, RunState.MISSED, RunState.CANCELLED, RunState.TIMED_OUT},
    "end_attempt": {after for (before, _), after in TRANSITIONS.items() if before in LEASED_STATES}
    - {RunState.PROCESSING},
    "resolve_runs": {RunState.COMPLETED, RunState.FAILED, RunState.SCHEDULED},
}


def states_before(statement: Statement) -> set[RunState]:
    """The states its guard names."""
    guard = re.search(r"\bstate (?:= '(\w+)'|IN \(([^)]*)\))", statement.text.split("WHERE", 1)[1])
    assert guard, f"{statement.name} has no guard"
    names = [guard.group(1)] if guard.group(1) else re.findall(r"'(\w+)'", guard.group(2))
    return {RunState(name) for name in names}


def states_after(statement: Statement) -> set[RunState]:
    """The states it may write."""
    value = re.search(r"\bstate = ('(\w+)'|:state)", statement.text)
    assert value, statement.name
    return {RunState(value.group(2))} if value.group(2) else DECIDED[statement.name]


def test_all_writers_of_states_are_known() -> None:
    assert set(WRITERS) == {
        "queue_runs",
        "block_run",
        "block_queued_runs",
        "block_on_keys",
        "hold_run",
        "block_runs_of_cart",
        "let_runs_go",
        "let_runs_of_cart_go",
        "end_waiting_run",
        "claim_runs",
        "start_runs",
        "complete_runs",
        "end_attempt",
        "resolve_runs",
    }


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_set_based_writes_produce_only_steps_of_the_table(name: str) -> None:
    before, after = states_before(WRITERS[name]), states_after(WRITERS[name])

    # A guard may name more states than one decision starts from, but never one without a way.
    for state in before:
        assert any((state, new) in STEPS for new in after), state
    if name not in DECIDED:
        assert {(old, new) for old in before for new in after} <= STEPS


def test_waiting_runs_may_end_in_every_way_the_sweep_and_people_know() -> None:
    ends = DECIDED["end_waiting_run"]

    assert {(before, after) for before in WAITING_STATES for after in ends} <= STEPS


def test_runs_are_inserted_by_one_statement_only() -> None:
    inserts = [name for name, s in STATEMENTS.items() if "INSERT INTO run " in s.text]

    assert inserts == ["insert_run"]
    assert RunState.CLAIMED not in INITIAL_STATES


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_writes_about_attempts_are_fenced(name: str) -> None:
    text = STATEMENTS[name].text
    is_about_attempt = name in {"start_runs", "complete_runs", "end_attempt", "set_progress"}

    if is_about_attempt:
        guard = text.split("WHERE", 1)[1]
        assert "attempt" in guard
        assert "session" in guard
        assert "state" in guard


def test_statements_take_parameters_and_no_values() -> None:
    for statement in STATEMENTS.values():
        assert "%s" not in statement.text
        assert "?" not in statement.text


@pytest.mark.parametrize("dialect", ["", "postgres"])
def test_statements_are_beside_the_module_that_uses_them(dialect: str) -> None:
    store = resources.files("rota.store")
    for file in store.joinpath(dialect).iterdir() if dialect else store.iterdir():
        if not file.name.endswith(".sql"):
            continue
        module = store.joinpath(file.name.replace(".sql", ".py")).read_text("utf-8")
        names = re.findall(r"^-- name: (?:lock_)?(\w+)$", file.read_text("utf-8"), re.MULTILINE)
        unused = [name for name in names if f'"{name}"' not in module]
        assert unused == ELSEWHERE.get(f"{dialect}/{file.name}", [])

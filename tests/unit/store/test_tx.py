from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import rota.store
from rota.store.memory import Memory, RulesCache
from rota.store.script import Lock, Step, Together
from rota.store.tx import Tx


def transaction() -> Tx:
    return Tx(1, RulesCache(), Memory())


def written(tx: Tx) -> Iterator[Step]:
    """Every step of the conclusion, as if no row were there."""
    script = tx.effects.conclude()
    try:
        step = next(script)
        while True:
            yield step
            step = script.send(())
    except StopIteration:
        return


def names(tx: Tx) -> list[str]:
    """What is written, in the order in which its rows are locked."""
    found: list[str] = []
    for step in written(tx):
        match step:
            case Together(changes):
                found += [change.name for change in changes]
            case Lock():
                pass
            case _:
                found.append(step.name)
    return found


def test_counts_and_events_are_written_in_one_round_trip() -> None:
    tx = transaction()
    tx.record("run.finished", ["r_1"], actor="w_1")
    tx.effects.chains.charge("chain", 1.0)
    tx.effects.served["pool"] += 1
    tx.effects.ends["job", "COMPLETED"] += 1

    [step] = written(tx)

    assert isinstance(step, Together)
    written_by_it = [change.name for change in step.changes]
    assert written_by_it == ["charge_chain", "count_served", "count_ends", "insert_event"]


def test_chains_are_locked_before_pools() -> None:
    tx = transaction()
    tx.record("worker.left", ["w_1"], actor="w_1")
    tx.effects.chains.charge("chain", 1.0)
    tx.effects.offers.add("pool")

    assert names(tx)[:2] == ["charge_chain", "pool_to_change"]


def test_events_are_written_in_the_order_in_which_they_were_recorded() -> None:
    tx = transaction()
    for kind in ("run.finished", "run.queued", "cart.finished"):
        tx.record(kind, [], actor="ann")

    [step] = written(tx)

    assert not isinstance(step, Together | Lock)
    assert [row[0] for row in getattr(step, "rows", ())] == [
        "run.finished",
        "run.queued",
        "cart.finished",
    ]


def test_nothing_is_written_for_a_transaction_that_concerns_nobody() -> None:
    assert list(written(transaction())) == []


def test_what_happens_in_a_project_is_never_recorded_as_of_the_installation() -> None:
    """Of it only those are told who have a role there: the others would miss their own events."""
    recorded = [
        (path.name, kind)
        for path in sorted(Path(rota.store.__file__).parent.glob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "tx.record"
        for kind in [ast.unparse(call.args[0]).lstrip("f").strip("'\"")]
    ]

    nouns = {kind.partition(".")[0] for _, kind in recorded}
    assert nouns >= {"worker", "server", "share"}
    assert not nouns & {"run", "job", "cart", "calendar", "limit", "resource", "quota"}, recorded


def test_an_event_of_a_batch_is_recorded_once_for_each_project() -> None:
    tx = transaction()
    rows = [
        {"id": "r_1", "project": "a"},
        {"id": "r_2", "project": "b"},
        {"id": "r_3", "project": "a"},
    ]

    tx.record_each("run.queued", rows, actor="scheduler", why="test")
    tx.record_quietly("run.claimed", rows[::2], actor="w_1")

    told = [(event[0], event[3], event[4]) for event in tx.effects.recorded]
    assert told == [
        ("run.queued", "a", '["r_1","r_3"]'),
        ("run.queued", "b", '["r_2"]'),
        ("run.claimed", "a", '["r_1","r_3"]'),
    ]
    assert tx.effects.events

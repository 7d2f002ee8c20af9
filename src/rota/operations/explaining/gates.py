"""The gates that a run passes, in their order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rota.domain.key_gates import GATES
from rota.domain.run import Run, Trigger
from rota.domain.shared_keys import Key, kind_of
from rota.domain.states import RunState

WORKER = "worker"


def gates_of(run: Run, keys: Collection[Key]) -> tuple[str, ...]:
    """Those that there are for this run."""
    return tuple(_gates(run, {GATES[kind_of(key)] for key in keys}))


def passed_gates(run: Run, keys: Collection[Key], held: Iterable[str]) -> tuple[str, ...]:
    """Those that it has behind it, if it stands at the gates in `held`."""
    gates = gates_of(run, keys)
    standing = {gate for gate in held if gate in gates}
    if run.state is not RunState.BLOCKED and not standing:
        return gates
    if run.state is RunState.BLOCKED and WORKER in standing:
        # Nobody can take it: shared keys are asked for only once somebody can.
        gates = tuple(gate for gate in gates if gate not in GATES.values())
    last = max((gates.index(gate) for gate in standing), default=0)
    return tuple(gate for gate in gates[:last] if gate not in standing)


def _gates(run: Run, of_keys: Collection[str]) -> Iterator[str]:
    is_due = run.trigger is Trigger.SCHEDULE
    yield "time"
    if is_due:
        yield "calendar"
    yield from ("pause", "hold")
    if is_due:
        yield "after"
    if run.cart is not None:
        yield "cart"
    if is_due:
        yield "overlap"
    yield "max_concurrency"
    if run.backfill is not None:
        yield "backfill"
    yield from (gate for gate in GATES.values() if gate in of_keys)
    yield WORKER

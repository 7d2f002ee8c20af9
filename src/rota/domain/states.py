"""States of a run and the only ways between them, as data.

Every write of a state, by a decision in Python or by set-based SQL, is one of `TRANSITIONS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Protocol


class RunState(StrEnum):
    """State of a run. Beside each: who moves a run out of it."""

    SCHEDULED = "SCHEDULED"  # scheduler: its time comes
    BLOCKED = "BLOCKED"  # scheduler: the gate that holds it opens
    QUEUED = "QUEUED"  # dispatcher: a worker has room
    CLAIMED = "CLAIMED"  # worker: starts it, or is lost
    PROCESSING = "PROCESSING"  # worker: reports its end, or is lost
    UNKNOWN = "UNKNOWN"  # a person, or the job's probe
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    MISSED = "MISSED"


class RunEvent(StrEnum):
    """Event that happens to a run."""

    RELEASED = "released"  # every gate passed
    HELD = "held"  # a gate holds it, perhaps another one than before
    LET_GO = "let_go"  # what held it is over: it passes the gates again
    CLAIMED = "claimed"  # a worker took it under a lease
    STARTED = "started"  # the worker is about to execute, or has begun
    SUCCEEDED = "succeeded"
    RETRIED = "retried"  # the attempt ended badly, another one follows
    GAVE_UP = "gave_up"  # the attempt ended badly, no attempt is left
    RAN_OUT = "ran_out"  # the timeout of the last attempt, or the run's deadline, passed
    LOST = "lost"  # the worker vanished, another attempt follows
    LOST_UNSAFE = "lost_unsafe"  # the worker vanished and repeating might do harm
    QUARANTINED = "quarantined"  # lost too many workers
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # a rule says no
    MISSED = "missed"  # nobody could in time
    RESOLVED_COMPLETED = "resolved_completed"
    RESOLVED_FAILED = "resolved_failed"
    RESOLVED_RETRY = "resolved_retry"


_WAITING = (RunState.SCHEDULED, RunState.BLOCKED, RunState.QUEUED)
_HELD_BY_WORKER = (RunState.CLAIMED, RunState.PROCESSING)

# A start may be coalesced into the end, so every end is reachable from CLAIMED too.
TRANSITIONS: Mapping[tuple[RunState, RunEvent], RunState] = {
    (RunState.SCHEDULED, RunEvent.RELEASED): RunState.QUEUED,
    (RunState.BLOCKED, RunEvent.RELEASED): RunState.QUEUED,
    (RunState.SCHEDULED, RunEvent.HELD): RunState.BLOCKED,
    (RunState.BLOCKED, RunEvent.HELD): RunState.BLOCKED,
    (RunState.QUEUED, RunEvent.HELD): RunState.BLOCKED,
    (RunState.BLOCKED, RunEvent.LET_GO): RunState.SCHEDULED,
    (RunState.QUEUED, RunEvent.CLAIMED): RunState.CLAIMED,
    (RunState.CLAIMED, RunEvent.STARTED): RunState.PROCESSING,
    **{(state, RunEvent.SUCCEEDED): RunState.COMPLETED for state in _HELD_BY_WORKER},
    **{(state, RunEvent.RETRIED): RunState.SCHEDULED for state in _HELD_BY_WORKER},
    **{(state, RunEvent.GAVE_UP): RunState.FAILED for state in _HELD_BY_WORKER},
    **{(state, RunEvent.RAN_OUT): RunState.TIMED_OUT for state in (*_WAITING, *_HELD_BY_WORKER)},
    **{(state, RunEvent.LOST): RunState.SCHEDULED for state in _HELD_BY_WORKER},
    (RunState.PROCESSING, RunEvent.LOST_UNSAFE): RunState.UNKNOWN,
    **{(state, RunEvent.QUARANTINED): RunState.FAILED for state in _HELD_BY_WORKER},
    **{(state, RunEvent.CANCELLED): RunState.CANCELLED for state in (*_WAITING, *_HELD_BY_WORKER)},
    **{(state, RunEvent.SKIPPED): RunState.SKIPPED for state in _WAITING},
    **{(state, RunEvent.MISSED): RunState.MISSED for state in _WAITING},
    (RunState.UNKNOWN, RunEvent.RESOLVED_COMPLETED): RunState.COMPLETED,
    (RunState.UNKNOWN, RunEvent.RESOLVED_FAILED): RunState.FAILED,
    (RunState.UNKNOWN, RunEvent.RESOLVED_RETRY): RunState.SCHEDULED,
}

INITIAL_STATES = frozenset(
    {RunState.SCHEDULED, RunState.BLOCKED, RunState.QUEUED, RunState.SKIPPED, RunState.MISSED}
    | {RunState.FAILED}  # it was not handed what it needs
)
FINAL_STATES = frozenset(RunState) - {state for state, _ in TRANSITIONS}
WAITING_STATES = frozenset(_WAITING)
LEASED_STATES = frozenset(_HELD_BY_WORKER)


def is_final(state: RunState) -> bool:
    """Return whether nothing can ever happen to a run in this state."""
    return state in FINAL_STATES


def seen_state(state: RunState, *, is_served: bool) -> RunState:
    """Return a state as people see it: queued in a pool without workers is blocked."""
    return RunState.BLOCKED if state is RunState.QUEUED and not is_served else state


class HistoryEvent(Protocol):
    """Event of the history, which may name many runs."""

    @property
    def seq(self) -> int: ...  # its position

    @property
    def kind(self) -> str: ...

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def data(self) -> Mapping[str, object]: ...


_STATES_BY_KIND: Mapping[str, RunState] = {
    "run.scheduled": RunState.SCHEDULED,
    "run.blocked": RunState.BLOCKED,
    "run.queued": RunState.QUEUED,
    "run.claimed": RunState.CLAIMED,
    "run.started": RunState.PROCESSING,
    "run.unknown": RunState.UNKNOWN,
}
_ENDS = frozenset({"run.finished", "run.resolved"})  # their data name the state


def state_after(event: HistoryEvent) -> RunState | None:
    """Return the state in which an event leaves its runs; None: it is not about their state."""
    if event.kind in _ENDS:
        return RunState(str(event.data["state"]))
    return _STATES_BY_KIND.get(event.kind)


def fold_events(events: Iterable[HistoryEvent]) -> dict[str, list[RunState]]:
    """Return the states each run went through, by position, in whatever order events arrived."""
    paths: defaultdict[str, list[RunState]] = defaultdict(list)
    for event in sorted(events, key=attrgetter("seq")):
        if (state := state_after(event)) is not None:
            for run in event.ids:
                paths[run].append(state)
    return dict(paths)


class Cause(StrEnum):
    """Cause in ledger and history. A calendar is a cause by its name: `calendar NAME`."""

    DOWNTIME = "downtime"  # nobody was there to fire it, and the misfire policy gave it up
    PAUSED = "paused"
    DISABLED = "disabled"
    SKIP_NEXT = "skip next"  # a person left it out
    SCHEDULE_CHANGED = "schedule changed"  # before it was fired
    DELETED = "deleted"
    OVERLAP = "overlap"  # another run of the job was active
    SUPERSEDED = "superseded"  # a younger run took its place
    TOO_LATE = "too late"  # to start within its objective
    NO_WORKER = "no worker in time"  # the one that it was for was gone for too long
    DEPENDENCY = "dependency"  # a job that it follows did not complete in time
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    PUT_BACK = "put back"  # an item of an earlier wave of its cart is to run again first
    CART = "cart cancelled"  # before its wave, or its turn in it, had come

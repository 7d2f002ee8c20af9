"""The states of carts and their items, and what a cart waits for."""

from __future__ import annotations

from enum import StrEnum

from rota.domain.states import RunState


class CartState(StrEnum):
    """Beside each: what moves a cart out of it."""

    PLANNED = "PLANNED"  # its time comes
    RUNNING = "RUNNING"  # its items end
    PAUSED = "PAUSED"  # a person
    WAITING = "WAITING"  # the gate before its next wave opens, or the quota has room
    COMPLETED = "COMPLETED"  # every item completed
    PARTIAL = "PARTIAL"  # every item ended, not all completed
    FAILED = "FAILED"  # too many failed, and the rest was called off
    CANCELLED = "CANCELLED"


class ItemState(StrEnum):
    """Where an item is."""

    PENDING = "PENDING"  # it has no run yet, or is to run once more
    OPEN = "OPEN"  # its run is not final
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"  # it never started


class PauseReason(StrEnum):
    """Why a cart is PAUSED."""

    PERSON = "person"
    FAILURES = "failures"  # more failed than may
    CHECK = "check"  # the check between two waves did not complete
    JOB = "job"  # a job that it needs is gone


class WaitReason(StrEnum):
    """What a WAITING cart waits for."""

    SOAK = "soak"
    CHECK = "check"
    APPROVAL = "approval"
    WINDOW = "window"  # its calendars
    QUOTA = "quota"  # fewer runs of its project that wait


CANCELLING = "cancelling"  # why a RUNNING cart starts nothing any more
FINAL_CART_STATES = frozenset(
    {CartState.COMPLETED, CartState.PARTIAL, CartState.FAILED, CartState.CANCELLED}
)
FINAL_ITEM_STATES = frozenset(ItemState) - {ItemState.PENDING, ItemState.OPEN}
FAILED_ITEM_STATES = frozenset({ItemState.FAILED, ItemState.TIMED_OUT})

_ITEM_STATES = {
    RunState.COMPLETED: ItemState.COMPLETED,
    RunState.FAILED: ItemState.FAILED,
    RunState.TIMED_OUT: ItemState.TIMED_OUT,
    RunState.CANCELLED: ItemState.CANCELLED,
    RunState.SKIPPED: ItemState.SKIPPED,
    RunState.MISSED: ItemState.SKIPPED,
}


def item_state_of(run: RunState) -> ItemState:
    """What an item is while its latest run is in this state."""
    return _ITEM_STATES.get(run, ItemState.OPEN)

"""Why a due time, or a run that nobody has begun, came to its end."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """What ledger and history record. A calendar is a cause by its name: `calendar NAME`."""

    DOWNTIME = "downtime"  # nobody was there to fire it, and the misfire policy gave it up
    PAUSED = "paused"
    DISABLED = "disabled"
    SKIP_NEXT = "skip next"  # a person left it out
    SCHEDULE_CHANGED = "schedule changed"  # before it was fired
    DELETED = "deleted"
    OVERLAP = "overlap"  # another run of the job was active
    SUPERSEDED = "superseded"  # a younger run took its place
    TOO_LATE = "too late"  # to start within its objective
    DEPENDENCY = "dependency"  # a job that it follows did not complete in time
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    PUT_BACK = "put back"  # an item of an earlier wave of its cart is to run again first
    CART = "cart cancelled"  # before its wave, or its turn in it, had come

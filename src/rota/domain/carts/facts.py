"""Facts about a cart at one moment, read under its lock: the whole basis of a decision.

With what follows from it: the failure budget, the progress, and failures that are alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from rota.domain.carts.definition import CartRules, Scope, Share
from rota.domain.states import Cause, RunState


class CartState(StrEnum):
    """State of a cart. Beside each: what moves a cart out of it."""

    PLANNED = "PLANNED"  # its time comes
    RUNNING = "RUNNING"  # its items end
    PAUSED = "PAUSED"  # a person
    WAITING = "WAITING"  # the gate before its next wave opens, or the quota has room
    COMPLETED = "COMPLETED"  # every item completed
    PARTIAL = "PARTIAL"  # every item ended, not all completed
    FAILED = "FAILED"  # too many failed, and the rest was called off
    CANCELLED = "CANCELLED"


class ItemState(StrEnum):
    """State of an item."""

    PENDING = "PENDING"  # it has no run yet, or is to run once more
    OPEN = "OPEN"  # its run is not final
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"  # it never started


class PauseReason(StrEnum):
    """Reason why a cart is PAUSED."""

    PERSON = "person"
    FAILURES = "failures"  # more failed than may
    CHECK = "check"  # the check between two waves did not complete
    JOB = "job"  # a job that it needs is gone


class WaitReason(StrEnum):
    """Reason why a cart is WAITING."""

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


def item_state_of(run: RunState, cause: str = "") -> ItemState:
    """Return the state of an item while its latest run is in this state, for this cause.

    One whose worker did not come in time failed: what was to be changed was not.
    """
    if run is RunState.MISSED and cause == Cause.NO_WORKER:
        return ItemState.FAILED
    return _ITEM_STATES.get(run, ItemState.OPEN)


@dataclass(frozen=True, slots=True)
class CartFacts:
    """Facts of a cart: its counters and its gate.

    The *current* wave is the one that was opened last; all OPEN items are in it. It is lower than
    the highest opened one while items of an earlier wave are run once more.
    """

    rules: CartRules  # with the allowance as it was last raised
    state: CartState
    items: int  # of the whole cart
    reason: str = ""  # a PauseReason, a WaitReason or CANCELLING; "": none
    ending: CartState | None = None  # CANCELLED or FAILED: what it becomes when nothing is OPEN
    starts_at: datetime | None = None  # None: as soon as it is submitted

    wave: int = 0  # the highest that was ever opened; 0: none
    current_wave: int = 0  # 0: none, or the cart had ended and goes on by a retry
    pending_wave: int | None = None  # the lowest with PENDING items; None: there are none
    pending_in_wave: int = 0  # PENDING items of that wave
    open: int = 0  # OPEN items, those UNKNOWN included
    waiting: int = 0  # of the OPEN: whose run is held by no worker and not UNKNOWN
    unknown: int = 0  # of the OPEN: whose run is UNKNOWN
    completed: int = 0
    failed: int = 0  # FAILED or TIMED_OUT
    items_in_wave: int = 0  # of the current wave
    failed_in_wave: int = 0  # FAILED or TIMED_OUT of the current wave
    is_breach_recorded: bool = False  # of `then: continue`, in the present scope

    wave_ended_at: datetime | None = None  # when the last item so far ended; None: none did
    check: RunState | None = None  # of the waves so far; None: not begun since the last start
    approved_by: str = ""  # since the last start of an item; "": nobody
    closed_until: datetime | None = None  # by its calendars; None: they are open

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_CART_STATES

    @property
    def is_ending(self) -> bool:
        return self.ending is not None and not self.is_final


MOST_IN_FLIGHT = 1_000  # of one cart, whatever its rules say: only the open part costs anything


def limit_of(allow: Share, items_in_scope: int) -> int:
    """Return how many may fail; one more is a breach."""
    return allow.rounded_down(items_in_scope)


def failures_of(facts: CartFacts) -> int:
    """Count the failures in scope. An UNKNOWN run counts as one until it is resolved."""
    return _ended_badly(facts) + facts.unknown


def limit(facts: CartFacts) -> int:
    """Return how many items of the present scope may fail."""
    failures = facts.rules.failures
    is_cart = failures.scope is Scope.CART
    return limit_of(failures.allow, facts.items if is_cart else facts.items_in_wave)


def is_breached(facts: CartFacts) -> bool:
    """Return whether more items of the present scope failed than may."""
    return failures_of(facts) > limit(facts)


def window(facts: CartFacts) -> int:
    """Return how many items may be in flight.

    Strict: so few that even if all of them fail, the limit is exceeded by one at most. After a
    breach that changes nothing (`then: continue`) there is no limit left to keep.
    """
    most = min(facts.rules.max_parallel or MOST_IN_FLIGHT, MOST_IN_FLIGHT)
    if not facts.rules.failures.strict or is_breached(facts):
        return most
    return min(most, limit(facts) + 1 - _ended_badly(facts))


def _ended_badly(facts: CartFacts) -> int:
    is_cart = facts.rules.failures.scope is Scope.CART
    return facts.failed if is_cart else facts.failed_in_wave


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed of a cart."""

    item: timedelta | None  # how long an item is expected to take; None: nothing is known of it
    window: int  # how many may be in flight
    slots: int | None = None  # how many the workers have room for; None: not known
    wait: timedelta = timedelta(0)  # between two waves

    @property
    def width(self) -> int:
        """Number of items that really go at once."""
        return self.window if self.slots is None else min(self.window, self.slots)


def eta(pace: Pace, left_in_waves: Iterable[int]) -> timedelta | None:
    """Estimate how long the items that are left will take, wave by wave; None: unknown.

    Items in flight count as left. A person's approval, checks and calendars take no time here.
    """
    waves = [left for left in left_in_waves if left > 0]
    if not waves:
        return timedelta(0)
    if pace.item is None or pace.width < 1:
        return None
    rounds = sum(-(-left // pace.width) for left in waves)
    return pace.item * rounds + pace.wait * (len(waves) - 1)


MAX_CAUSE = 200  # characters
_MOST_READ = 4_000  # of a message: far more than can be left of it

# The first that fits wins. None of them can match in two ways, so the time is linear.
_VARIABLE = re.compile(
    r"""
      (?P<text> "[^"]*" | `[^`]*` | (?<!\w)'[^']*'(?!\w) )
    | (?P<url> \b[a-z][a-z0-9+]{1,15}://[^\s"'<>]+ )
    | (?P<time>
          \b[0-9]{4}-[0-9]{2}-[0-9]{2}
          (?: [T\ ][0-9]{2}:[0-9]{2} (?: :[0-9]{2} (?: [.,][0-9]+ )? )?
              (?: Z | \ ?[+-][0-9]{2}:?[0-9]{2} )? )? \b
        | \b[0-9]{1,2}:[0-9]{2}:[0-9]{2} (?: [.,][0-9]+ )? \b )
    | (?P<id>
          \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b
        | \b[a-z]{1,3}_[0-9a-z]{8,}\b )
    | (?P<path> (?<![\w/]) (?: ~ | \.{1,2} | [a-z]: )? (?: [/\\][\w.@+~-]+ )+ [/\\]? )
    | (?P<host>
          \b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b
        | (?<![\w:]) (?=[0-9a-f:]*[0-9]) [0-9a-f]{0,4} (?: :[0-9a-f]{0,4} ){2,7} (?![\w:]) )
    | (?P<hex> \b0x[0-9a-f]+\b | \b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b )
    | (?P<duration>
          (?<!\w) (?: [0-9]+(?:\.[0-9]+)? \ ?
                      (?: ns | [uµ]s | ms | s | sec | secs | seconds? | m | min | mins | minutes?
                        | h | hrs? | hours? | d | days? ) (?![^\W\d]) )+ )
    | (?P<code> \b(?: exit | step | signal | status | code | http )\ [0-9]{1,5}\b )
    | (?P<word> [^\W\d]\w*(?:[.-]\w+)* )
    | (?P<n> (?: (?<!\w)[+-] )? [0-9]+(?:[.,][0-9]+)* )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def cause_of(message: str) -> str:
    """Reduce a failure message to what all items share: the key of a group of failures.

    Numbers, times, ids, quoted texts, paths and names with digits become placeholders:
    `disk full on db-017: 12 MB left` is `disk full on <name>: <n> MB left`. Codes stay: `exit 137`.
    """
    text = " ".join(message[:_MOST_READ].split())
    return _VARIABLE.sub(_placeholder, text)[:MAX_CAUSE].rstrip()


def _placeholder(match: re.Match[str]) -> str:
    kind = match.lastgroup
    word = match[0]
    if kind == "code":
        return word
    if kind != "word":
        return f"<{kind}>"
    return "<name>" if any(char.isdigit() for char in word) else word

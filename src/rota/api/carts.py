"""Carts, their items and waves, and the plan of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from rota.api.answers import UNSENT, Answer, Instant, one_of
from rota.api.runs import WAITING_STATES, Note, Progress, RunState

FINAL_CART_STATES = frozenset({"COMPLETED", "PARTIAL", "FAILED", "CANCELLED"})

CartState = Annotated[
    str,
    one_of(
        "Where a cart stands.",
        "PLANNED",
        "RUNNING",
        "PAUSED",
        "WAITING",
        "COMPLETED",
        "PARTIAL",
        "FAILED",
        "CANCELLED",
    ),
]
ItemState = Annotated[
    str,
    one_of(
        "Where an item is.",
        "PENDING",
        "OPEN",
        "COMPLETED",
        "FAILED",
        "TIMED_OUT",
        "CANCELLED",
        "SKIPPED",
    ),
]
WaitReason = Annotated[
    str, one_of("What a WAITING cart waits for.", "soak", "check", "approval", "window", "quota")
]
Order = Annotated[
    str,
    one_of(
        "Where the order numbers of the items come from.",
        "serial",
        "parallel",
        "groups",
        "explicit",
    ),
]
Scope = Annotated[str, one_of("Whose failures are counted together.", "cart", "wave")]
OnBreach = Annotated[
    str, one_of("What happens when more items failed than may.", "pause", "cancel", "continue")
]


class CartFailures(Answer, frozen=True, kw_only=True):
    """How many items may fail, and what happens when one more does."""

    allow: Annotated[int | str, Meta(examples=["2%"])] = 0  # "2%": of all items
    of: Scope = "cart"
    then: OnBreach = "pause"
    strict: bool = False


class CartBetween(Answer, frozen=True, kw_only=True):
    """Gate between two waves."""

    wait: Annotated[str, Meta(examples=["10m"])] = "0s"
    check: str = ""  # a job that has to complete; "": none
    approve: str = ""  # the role of whoever has to agree; "": nobody


class Cart(Answer, frozen=True, kw_only=True):
    """One submission of a list of items, as it stands."""

    id: Annotated[str, Meta(examples=["c_01jd8q4zk3v6"])]
    project: str = "default"
    name: str = ""
    state: CartState
    reason: str = ""  # why it is PAUSED, what it is WAITING for, or `cancelling`; "": none
    ending: CartState | None = None  # what it becomes once nothing is open; None: whatever comes
    version: int = 0  # grows with all that people do to it; also its ETag
    job: str = ""  # of the items that name none; "": each names its own
    title: str = ""  # for people, in any script
    description: str = ""
    labels: Mapping[str, str] = {}
    rollback: str = ""
    priority: int | None = None  # None: that of each job
    order: Order = "serial"
    group_size: tuple[int | str, ...] = ()
    max_parallel: int | None = None  # in flight at once; None: as many as fit
    failures: CartFailures = CartFailures()
    between: CartBetween = CartBetween()
    calendars: tuple[str, ...] = ()
    within: str | None = None  # how long an item waits for a worker that is gone; None: for ever
    items: int = 0
    pending: int = 0
    open: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    wave: int = 0  # the highest that was ever opened; 0: none
    current_wave: int = 0  # the one that was opened last; 0: none
    created_by: str = ""
    created_at: Instant = UNSENT
    starts_at: Instant | None = None  # None: at once
    started_at: Instant | None = None
    ended_at: Instant | None = None
    approved_by: str = ""  # whoever let the coming wave pass; "": nobody yet
    url: str = ""  # of its page; a path below the server's address, unless `public_url` is set

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_CART_STATES

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more happens by itself: final, or paused."""
        return self.is_final or self.state == "PAUSED"

    @property
    def done(self) -> int:
        """Items that have ended, however they did."""
        return self.completed + self.failed + self.cancelled + self.skipped

    @property
    def interrupted(self) -> int:
        """Items that neither completed nor failed: cancelled, or never started."""
        return self.cancelled + self.skipped


class FailureGroup(Answer, frozen=True, kw_only=True):
    """Items that failed for the same cause."""

    cause: str  # the message without what differs; also a filter of items and retries
    count: int = 0
    key: str = ""  # of one of them
    run: str | None = None
    message: str = ""  # of that one


class CartGate(Answer, frozen=True, kw_only=True):
    """Gate before the next wave, as it stands now."""

    wave: int | None = None  # its number
    waits_for: WaitReason = ""
    until: Instant | None = None  # None: not by time alone
    check_run: str | None = None
    approve_role: str | None = None


class StrandedItem(Answer, frozen=True, kw_only=True):
    """An item that waits for a worker which is not there."""

    key: str
    run: str
    message: str = ""  # what it waits for
    until: Instant | None = None  # when it has failed; None: it waits for ever


class CartProgress(Answer, frozen=True, kw_only=True):
    """How far a cart is, in items."""

    total: int = 0
    done: int = 0  # that have ended, however they did
    open: int = 0
    states: Mapping[ItemState, int] = {}
    runs: Mapping[RunState, int] = {}  # of the open items, by the states that their runs are in

    @property
    def waiting(self) -> int:
        """Number of open items whose run has not started."""
        return sum(self.runs.get(state, 0) for state in WAITING_STATES)


class CartDetail(Cart, frozen=True, kw_only=True):
    """A cart with how far it is, how bad, and what comes next."""

    failures_in_scope: int = (
        0  # of the cart or of its current wave; an end nobody knows counts as one
    )
    limit: int = 0  # so many of the present scope may fail
    breached: bool = False  # more of them failed, or of an earlier wave where that did not stop it
    progress: CartProgress = CartProgress()
    place: str = ""  # of the current wave: "4 of 13"; "" before the first
    eta: Instant | None = None  # when it will have ended; None: nobody knows, or it stands still
    why: str = ""  # what it is doing, in a sentence
    gate: CartGate | None = None  # None: it waits for none
    failure_groups: tuple[FailureGroup, ...] = ()  # the most frequent first, at most ten
    stranded: tuple[StrandedItem, ...] = ()  # that wait for workers, at most ten

    @property
    def summary(self) -> str:
        """Summary: `21 failed, 20 may; 127 of 1,000 items have ended`."""
        ended = f"{self.done:,} of {self.items:,} items have ended"
        if self.breached and self.failures_in_scope <= self.limit:
            return f"too many of an earlier wave failed; {ended}"
        scope = " of the wave" if self.failures.of == "wave" else ""
        return f"{self.failures_in_scope:,}{scope} failed, {self.limit:,} may; {ended}"

    @property
    def has_failed(self) -> bool:
        """Return whether it ended with too many failures, or early."""
        return self.failed_too_often or self.was_stopped

    @property
    def failed_too_often(self) -> bool:
        """Return whether it ended with more failures than it may have."""
        return self.state == "FAILED" or (self.state == "PARTIAL" and self.breached)

    @property
    def was_stopped(self) -> bool:
        """Return whether it was cancelled, or ended with items that were or never started."""
        return self.state == "CANCELLED" or (self.state == "PARTIAL" and self.interrupted > 0)


class RunningItem(Answer, frozen=True, kw_only=True):
    """An item of a cart that a worker has."""

    key: str
    run: str
    job: str = ""
    state: RunState = ""
    started_at: Instant | None = None
    progress: Progress | None = None  # None: it said nothing
    note: Note | None = None  # None: its worker has told nothing yet


class WatchedCart(CartDetail, frozen=True, kw_only=True):
    """A cart while it is watched."""

    running: tuple[RunningItem, ...] = ()  # some of its items that run, by their number


class CartItem(Answer, frozen=True, kw_only=True):
    """An item of a cart as it stands."""

    number: int = 0  # its place in the list, from 0
    key: str
    wave: int = 1
    job_id: str = ""
    job: str = ""
    job_version: int = 0
    inputs: Mapping[str, Any] | None = None
    state: ItemState
    run: str | None = None  # its latest
    run_state: RunState | None = None
    runs: int = 0
    cause: str = ""  # of a failure: its message without what differs
    message: str = ""  # of its latest run
    needs: Mapping[str, str] = {}  # labels of its worker, over those that its job needs


class CartWave(Answer, frozen=True, kw_only=True):
    """Items that go together."""

    number: int
    items: Mapping[ItemState, int] = {}  # how many are in each state


class Cells(Answer, frozen=True, kw_only=True):
    """All items of a cart at a glance."""

    cells: Annotated[str, Meta(examples=["CCCFQP"])] = ""  # a letter for each item, by number
    legend: Mapping[str, str] = {}  # what the letters mean


class CartPlan(Answer, frozen=True, kw_only=True):
    """Course that a cart would take."""

    name: str = ""
    items: int = 0
    waves: Annotated[str, Meta(examples=["1, 5, 20, 100 × 9, 74"])] = ""  # their sizes, in words
    wave_count: int = 0
    limit: int = 0  # so many may fail; of the first wave if failures count by wave
    order: Order = ""
    group_size: tuple[int | str, ...] = ()
    max_parallel: int | None = None
    failures: CartFailures = CartFailures()
    between: CartBetween = CartBetween()
    calendars: tuple[str, ...] = ()
    within: str | None = None
    eta_seconds: float | None = None  # None: nothing is known of its jobs' durations
    unrunnable: tuple[str, ...] = ()  # jobs or items that no live worker can run, and why
    starts_at: Instant | None = None  # None: at once

    def __str__(self) -> str:
        """`upgrade · 26 items · waves 1, 5, 20 · up to 2 may fail (10%), the 3rd pauses`."""
        items = "1 item" if self.items == 1 else f"{self.items:,} items"
        return " · ".join([self.name, items, self._waves, self._allowance])

    @property
    def _waves(self) -> str:
        match self.order:
            case "serial":
                return "one after another"
            case "parallel":
                return "all at once"
            case _:
                return f"waves {self.waves}"

    @property
    def _allowance(self) -> str:
        failures = self.failures
        share = f" ({failures.allow})" if "%" in str(failures.allow) else ""
        scope = " of each wave" if failures.of == "wave" else ""
        verb = {"pause": "pauses", "cancel": "cancels"}.get(failures.then)
        what = f"the {ordinal(self.limit + 1)} {verb}" if verb else "more are only recorded"
        return f"up to {self.limit:,}{scope} may fail{share}, {what}"


class CommandedCart(Cart, frozen=True, kw_only=True):
    """A cart after somebody steered it."""

    changed: bool = True  # False: it was so already
    affected: int = 0  # items that this concerned


class CartTemplate(Answer, frozen=True, kw_only=True):
    """A cart that was applied, and can be submitted by its name."""

    name: str
    version: int = 0
    etag: str = ""
    words: str = ""  # its items, its order, what may fail, when it starts; "": it cannot be read
    next_at: Instant | None = None  # when it starts by itself; None: on demand only
    set_name: str = ""
    updated_by: str = ""
    updated_at: Instant = UNSENT


class CartTemplateDetail(CartTemplate, frozen=True, kw_only=True):
    document: Mapping[str, Any] = {}  # in the job file's own vocabulary


def ordinal(number: int) -> str:
    """Format a number: `1st`, `12th`, `21st`."""
    suffixes = {1: "st", 2: "nd", 3: "rd"}
    is_teen = number % 100 in (11, 12, 13)
    return f"{number:,}{'th' if is_teen else suffixes.get(number % 10, 'th')}"

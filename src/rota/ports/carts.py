"""Values that the store takes and returns about carts, and its verbs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from rota.domain.access import ProjectSet
from rota.domain.carts.commands import NOBODY, Approver
from rota.domain.carts.definition import CartRules, Share
from rota.domain.carts.facts import CartState, ItemState
from rota.domain.carts.intake import NewItem
from rota.domain.ids import CartId, JobId, RunId
from rota.domain.states import RunState
from rota.ports.records import Idempotency


@dataclass(frozen=True, slots=True)
class NewCart:
    """A cart to be filled with items and then submitted."""

    id: CartId
    project: str
    name: str
    rules: CartRules
    items: int  # how many there will be
    created_by: str
    document: Mapping[str, Any]  # job, rollback, priority, description, labels, undoes
    starts_at: datetime | None = None  # None: at once


@dataclass(frozen=True, slots=True)
class Cart:
    """A cart as it stands."""

    id: CartId
    project: str
    name: str
    rules: CartRules
    document: Mapping[str, Any]
    state: CartState
    reason: str  # a PauseReason, a WaitReason or CANCELLING; "": none
    ending: CartState | None  # what it becomes once nothing is open; None: whatever comes
    version: int  # grows with all that people do to it
    items: int
    open: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    wave: int  # the highest that was ever opened; 0: none
    current_wave: int
    created_by: str
    created_at: datetime
    starts_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    wave_ended_at: datetime | None  # when the last item so far ended
    look_at: datetime | None  # when it may go on by itself; None: not by time alone
    check_run: RunId | None
    approved_by: str
    breach_wave: int | None  # current when too many had failed; None: never, or that was answered

    @property
    def pending(self) -> int:
        ended = self.completed + self.failed + self.cancelled + self.skipped
        return self.items - self.open - ended


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a cart as it stands."""

    number: int  # its place in the list, from 0
    key: str
    wave: int
    job_id: JobId
    job: str
    job_version: int
    inputs: Mapping[str, Any] | None
    state: ItemState
    run: RunId | None  # its latest
    run_state: RunState | None  # as shown: BLOCKED if it is queued where nobody serves
    runs: int
    cause: str  # of a failure: its message without what differs
    message: str  # of its latest run
    needs: Mapping[str, str] = field(default_factory=dict)  # of its own, over those of its job


@dataclass(frozen=True, slots=True)
class StrandedItem:
    """An item that waits for a worker which is not there."""

    key: str
    run: RunId
    message: str  # what it waits for
    until: datetime | None  # when it has failed; None: it waits for ever


@dataclass(frozen=True, slots=True)
class Wave:
    number: int
    items: Mapping[ItemState, int]


@dataclass(frozen=True, slots=True)
class Overview:
    """Progress of a cart, however many waves it has."""

    items: Mapping[ItemState, int]
    in_wave: Mapping[ItemState, int]  # of the current wave, or the first
    waves: int
    place: int  # of the current wave among them, from 1; 0: none was opened
    left: Sequence[int]  # items to do in the next waves, as many as were asked for
    next_wave: int | None = None  # the lowest with items to do; None: all have ended
    open_runs: Mapping[RunState, int] = field(default_factory=dict)  # as people see them
    stranded: Sequence[StrandedItem] = ()  # the first few, by number

    @property
    def unknown(self) -> int:
        """Number of open items of which nobody knows how their run ended."""
        return self.open_runs.get(RunState.UNKNOWN, 0)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Items that failed for the same cause."""

    cause: str
    count: int
    key: str  # of one of them
    run: RunId | None
    message: str


@dataclass(frozen=True, slots=True)
class CartQuery:
    project: ProjectSet = "default"  # several only without a prefix
    ids: Sequence[str] | None = None
    id_prefix: str | None = None
    name: str | None = None
    name_like: str | None = None  # with `*` wildcards
    states: Sequence[CartState] = ()
    created_by: str | None = None
    before: tuple[datetime, str] | None = None  # cursor: newest first
    limit: int = 100


@dataclass(frozen=True, slots=True)
class ItemQuery:
    cart: CartId
    states: Sequence[ItemState] = ()
    wave: int | None = None
    cause: str | None = None
    keys: Sequence[str] | None = None
    only_attempted: bool = False  # those of which a worker ever had a run
    after: int = -1  # cursor: by number
    limit: int = 100


@dataclass(frozen=True, slots=True)
class CartLook:
    """Cart that may have to do something now."""

    id: CartId
    project: str
    calendars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Advanced:
    has_more: bool = False  # it is not done yet: come again


@dataclass(frozen=True, slots=True)
class NewTemplate:
    """A template to create, or a new version of one."""

    project: str
    name: str
    document: Mapping[str, Any]  # as `cart_document` writes it
    digest: str
    set_name: str
    next_at: datetime | None  # when it becomes a cart by itself; None: on demand only
    anchor: datetime
    expected_version: int = 0  # the version this replaces; 0: it must not exist
    expected_next_at: datetime | None = None  # where the schedule of that version stood


@dataclass(frozen=True, slots=True)
class Template:
    """A template as it stands."""

    project: str
    name: str
    version: int
    document: Mapping[str, Any]
    digest: str
    set_name: str
    next_at: datetime | None
    anchor: datetime
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TemplateChanges:
    """Templates to create, change and delete."""

    new: Sequence[NewTemplate] = ()
    removed: Sequence[Template] = ()


NO_TEMPLATES = TemplateChanges()


@dataclass(frozen=True, slots=True)
class DueTemplate:
    """The answer to a due time of a template; stale if the template has moved on."""

    project: str
    name: str
    version: int
    due_at: datetime
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class MissedCarts:
    """Due times of a template that got no cart."""

    cause: str  # `downtime`, `overlap` or `refused`
    last: datetime  # of these; the first is the one that is answered
    count: int = 1
    message: str = ""  # why it was refused


@dataclass(frozen=True, slots=True)
class PauseCart: ...


@dataclass(frozen=True, slots=True)
class ResumeCart:
    allow: Share | None = None  # the new allowance; None: as it was


@dataclass(frozen=True, slots=True)
class CancelCart:
    stops_running: bool = True  # False: leased attempts go on to their end
    expected_version: int | None = None  # None: whichever


@dataclass(frozen=True, slots=True)
class ApproveCart:
    by: Approver
    wave: int | None = None  # None: whichever comes next


@dataclass(frozen=True, slots=True)
class Selection:
    """Filter of the items that have ended; all conditions hold together."""

    states: Collection[ItemState]
    from_wave: int | None = None
    keys: Collection[str] | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class RetryItems:
    selection: Selection
    versions: Mapping[JobId, int] = field(default_factory=dict)  # new ones; others stay as pinned


@dataclass(frozen=True, slots=True)
class EditedItem:
    """A change of an item whose wave is still closed."""

    key: str
    wave: int | None = None  # None: as it was
    inputs: Mapping[str, Any] | None = None  # None: as they were
    is_skipped: bool = False


@dataclass(frozen=True, slots=True)
class EditCart:
    rules: CartRules
    items: Sequence[EditedItem] = ()
    expected_version: int | None = None  # None: whichever
    by: Approver = NOBODY  # matters where the approval between waves changes


Steering: TypeAlias = PauseCart | ResumeCart | CancelCart | ApproveCart
Command: TypeAlias = Steering | RetryItems | EditCart


@dataclass(frozen=True, slots=True)
class Commanded:
    """Result of a command."""

    cart: Cart
    has_changed: bool  # False: it was so already
    items: int = 0  # that it concerned


class CartStore(Protocol):
    """Store of carts: filled first, submitted then; a cart that is not submitted does nothing."""

    async def create_cart(self, cart: NewCart) -> None: ...

    async def add_items(self, cart: CartId, first: int, items: Sequence[NewItem]) -> None:
        """Add items from number `first` on. `Conflict` if the cart has a key already."""
        ...

    async def submit_cart(
        self,
        cart: CartId,
        idempotency: Idempotency | None = None,
        due: DueTemplate | None = None,
    ) -> CartId:
        """Submit a cart. `Conflict` if one of its name is live, or if items are missing.

        Returns the cart of the first answer if the key was seen before; this one is discarded.
        With `due` it answers a due time of its template; `Conflict` if somebody has done so.
        """
        ...

    async def templates(self, project: str, names: Sequence[str] | None = None) -> list[Template]:
        """List the templates of a project by name; with `names`, those of them that exist."""
        ...

    async def due_templates(self, shards: Collection[int], limit: int) -> list[Template]:
        """List templates of these shards that are to become carts now."""
        ...

    async def pass_template(self, due: DueTemplate, missed: MissedCarts) -> None:
        """Answer due times without a cart; a template that has moved on is left alone."""
        ...

    async def discard_cart(self, cart: CartId) -> None:
        """Delete a cart that was not submitted."""
        ...

    async def carts(self, query: CartQuery, /) -> list[Cart]: ...

    async def items(self, query: ItemQuery, /) -> list[Item]: ...

    async def versions_of_items(
        self, cart: CartId, selection: Selection
    ) -> list[tuple[JobId, int]]:
        """List the jobs of these items, each with every version that one of them is to run."""
        ...

    async def waves(self, cart: CartId, after: int, limit: int) -> list[Wave]:
        """List the next waves after this number."""
        ...

    async def overview(self, cart: Cart, waves: int) -> Overview:
        """Return the progress of a cart, with what is left in up to so many waves."""
        ...

    async def failure_groups(self, cart: CartId, limit: int) -> list[FailureGroup]:
        """List the causes of failures, the most frequent first."""
        ...

    async def cells(self, cart: CartId) -> list[str]:
        """Return the state of each item by number; of an open one, that of its run as shown."""
        ...

    async def command_cart(self, cart: CartId, command: Command, *, actor: str) -> Commanded:
        """Apply a person's command, decided under the cart's lock. Raises `Conflict`, `Denied`."""
        ...

    async def carts_to_advance(self, shards: Collection[int], limit: int) -> list[CartLook]: ...

    async def advance_cart(self, cart: CartId, closed_until: datetime | None) -> Advanced:
        """Apply the steps that are due. Calendars keep waves closed until `closed_until`."""
        ...

    async def next_cart_look(self) -> datetime | None:
        """Return when the next cart may go on by itself; None: none will."""
        ...

    async def next_template_due(self) -> datetime | None:
        """Return when the next template becomes a cart by itself; None: none will."""
        ...

    async def forget_loading_carts(self, before: datetime) -> int:
        """Delete carts that began before this time and were never submitted."""
        ...

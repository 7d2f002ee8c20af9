"""Carts, their items and waves, and what submitting one would do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt, StrictStr

from rota.domain.carts.definition import (
    MAX_ITEMS,
    MAX_ORDER,
    Between,
    CartRules,
    Failures,
    OnBreach,
    Order,
    Scope,
    Share,
)
from rota.domain.carts.states import CartState, ItemState, WaitReason
from rota.domain.quantities import format_duration
from rota.domain.states import RunState
from rota.operations.cart_changes import SELECTED, CartChange, ItemChange, allowance
from rota.operations.carts import CartPlan, CartView
from rota.ports.carts import Cart, Commanded, ResumeCart, Selection
from rota.server.gateway.cart_cells import LEGEND, cells_in_letters
from rota.server.gateway.shapes.models import Answer, Body

MAX_CHANGES = 10_000  # of items in one request
PLAIN = r"^[^\x00]*$"  # text that every store can compare

ItemKey = Annotated[str, Field(max_length=200, pattern=PLAIN, examples=["db-001"])]


class FailuresShape(Answer):
    """How many items may fail, and what happens when one more does."""

    allow: int | str = Field(examples=["2%"])
    of: Scope
    then: OnBreach
    strict: bool

    @classmethod
    def of_rules(cls, failures: Failures) -> FailuresShape:
        return cls(
            allow=_written(failures.allow),
            of=failures.scope,
            then=failures.then,
            strict=failures.strict,
        )


class BetweenShape(Answer):
    """What stands between two waves."""

    wait: str = Field(examples=["10m"])
    check: str  # a job that has to complete; "": none
    approve: str  # the role of whoever has to agree; "": nobody

    @classmethod
    def of_rules(cls, between: Between) -> BetweenShape:
        return cls(wait=format_duration(between.wait), check=between.check, approve=between.approve)


class CartShape(Answer):
    """One submission of a list of items, as it stands."""

    id: str = Field(examples=["c_01jd8q4zk3v6"])
    project: str
    name: str
    state: CartState
    reason: str  # why it is PAUSED, what it is WAITING for, or `cancelling`; "": none
    ending: CartState | None  # what it becomes once nothing is open; None: whatever comes
    version: int  # grows with all that people do to it; also its ETag
    job: str  # of the items that name none; "": each names its own
    description: str
    labels: dict[str, str]
    rollback: str
    priority: int | None  # None: that of each job
    order: Order
    group_size: list[int | str]
    max_parallel: int | None  # in flight at once; None: as many as fit
    failures: FailuresShape
    between: BetweenShape
    calendars: list[str]
    items: int
    pending: int
    open: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    wave: int  # the highest that was ever opened; 0: none
    current_wave: int  # the one that was opened last; 0: none
    created_by: str
    created_at: datetime
    starts_at: datetime | None  # None: at once
    started_at: datetime | None
    ended_at: datetime | None
    approved_by: str  # whoever let the coming wave pass; "": nobody yet
    url: str  # of its page, relative to this server

    @classmethod
    def of(cls, cart: Cart) -> CartShape:
        return cls(**_fields(cart))


class CommandedCartShape(CartShape):
    """A cart after somebody steered it."""

    changed: bool  # False: it was so already
    affected: int  # items that this concerned

    @classmethod
    def of_command(cls, done: Commanded) -> CommandedCartShape:
        return cls(**_fields(done.cart), changed=done.has_changed, affected=done.items)


class ProgressShape(Answer):
    """How far a cart is, in items."""

    total: int
    done: int  # that have ended, however they did
    open: int
    states: dict[ItemState, int]


class FailureGroupShape(Answer):
    """Items that failed for the same cause."""

    cause: str  # the message without what differs; also a filter of items and retries
    count: int
    key: str  # of one of them
    run: str | None
    message: str  # of that one


class GateShape(Answer):
    """What stands before the next wave."""

    wave: int | None  # its number
    waits_for: WaitReason
    until: datetime | None  # None: not by time alone
    check_run: str | None
    approve_role: str | None


class CartDetail(CartShape):
    """A cart with how far it is, how bad, and what comes next."""

    failures_in_scope: int  # of the cart or of its current wave; an end nobody knows counts as one
    limit: int  # so many of the present scope may fail
    breached: bool  # more of them failed, or of an earlier wave where that did not stop it
    progress: ProgressShape
    place: str  # of the current wave: `4 of 13`; "" before the first
    eta: datetime | None  # when it will have ended; None: nobody knows, or it stands still
    why: str  # what it is doing, in a sentence
    gate: GateShape | None  # None: it waits for none
    failure_groups: list[FailureGroupShape]  # the most frequent first, at most ten

    @classmethod
    def of_view(cls, view: CartView) -> CartDetail:
        states = dict(view.by_state)
        progress = ProgressShape(
            total=view.cart.items, done=view.done, open=states[ItemState.OPEN], states=states
        )
        return cls(
            **_fields(view.cart),
            failures_in_scope=view.failures,
            limit=view.limit,
            breached=view.is_breached,
            progress=progress,
            place=view.place,
            eta=view.eta,
            why=view.why,
            gate=None if view.gate is None else GateShape.model_validate(view.gate),
            failure_groups=[FailureGroupShape.model_validate(it) for it in view.failure_groups],
        )


class ItemShape(Answer):
    """An item of a cart as it stands."""

    number: int  # its place in the list, from 0
    key: str
    wave: int
    job_id: str
    job: str
    job_version: int
    inputs: dict[str, Any] | None
    state: ItemState
    run: str | None  # its latest
    run_state: RunState | None
    runs: int
    cause: str  # of a failure: its message without what differs
    message: str  # of its latest run


class WaveShape(Answer):
    """Items that go together."""

    number: int
    items: dict[ItemState, int]  # how many are in each state


class CellsShape(Answer):
    """All items of a cart at a glance."""

    cells: str = Field(examples=["CCCFQP"])  # a letter for each item, by number
    legend: dict[str, str]  # what the letters mean

    @classmethod
    def of(cls, states: Iterable[str]) -> CellsShape:
        return cls(cells=cells_in_letters(states), legend=dict(LEGEND))


class CartPlanShape(Answer):
    """What a cart would do."""

    name: str
    items: int
    waves: str = Field(examples=["1, 5, 20, 100 × 9, 74"])  # their sizes, in words
    wave_count: int
    limit: int  # so many may fail; of the first wave if failures count by wave
    order: Order
    group_size: list[int | str]
    max_parallel: int | None
    failures: FailuresShape
    between: BetweenShape
    calendars: list[str]
    eta_seconds: float | None  # None: nothing is known of its jobs' durations
    unrunnable: list[str]  # jobs that no live worker can run, and why
    starts_at: datetime | None  # None: at once

    @classmethod
    def of(cls, plan: CartPlan) -> CartPlanShape:
        return cls(
            name=plan.name,
            items=plan.items,
            waves=plan.waves,
            wave_count=plan.wave_count,
            limit=plan.limit,
            **_rules(plan.rules),
            eta_seconds=None if plan.eta is None else plan.eta.total_seconds(),
            unrunnable=list(plan.unrunnable),
            starts_at=plan.starts_at,
        )


class ResumeBody(Body):
    """How a cart goes on."""

    # How many may fail from now on; None: as many as before.
    allow: StrictInt | StrictStr | None = Field(default=None, examples=[30, "3%"])

    def command(self) -> ResumeCart:
        return ResumeCart(None if self.allow is None else allowance(self.allow))


class ApproveBody(Body):
    """What is approved."""

    # The number of the wave; None: whichever comes next.
    wave: int | None = Field(default=None, ge=1, le=MAX_ORDER)


class CancelBody(Body):
    """What becomes of what workers hold."""

    running: Literal["stop", "finish"] = "stop"


class RetryBody(Body):
    """Which of the items that have ended run once more; all conditions hold together."""

    select: Literal["failed", "failed+skipped", "all"] = "failed"
    from_wave: int | None = Field(default=None, ge=1, le=MAX_ORDER)
    keys: list[ItemKey] | None = Field(default=None, min_length=1, max_length=MAX_CHANGES)
    cause: Annotated[str, Field(max_length=1_000, pattern=PLAIN)] | None = None

    def selection(self) -> Selection:
        return Selection(SELECTED[self.select], self.from_wave, self.keys, self.cause)


class ItemChangeBody(Body):
    """A change of an item whose wave is not open yet."""

    key: ItemKey
    order: int | None = Field(default=None, ge=1, le=MAX_ORDER)
    inputs: dict[str, Any] | None = Field(default=None, alias="with")
    skip: bool = False


class EditBody(Body):
    """What is to be different; what is left out stays."""

    max_parallel: int | None = Field(default=None, ge=1, le=MAX_ITEMS)
    failures: dict[str, Any] = Field(default_factory=dict, examples=[{"allow": "3%"}])
    between: dict[str, Any] = Field(default_factory=dict, examples=[{"wait": "10m"}])
    items: list[ItemChangeBody] = Field(
        default_factory=list, max_length=MAX_CHANGES, examples=[[{"key": "db-002", "skip": True}]]
    )

    def change(self) -> CartChange:
        items = [ItemChange(it.key, it.order, it.inputs, it.skip) for it in self.items]
        return CartChange(self.max_parallel, self.failures, self.between, items)


def _fields(cart: Cart) -> dict[str, Any]:
    """The fields of a cart, with its rules and what it was submitted with beside them."""
    fields = {name: getattr(cart, name) for name in _SAME}
    document = cart.document
    return fields | {
        **_rules(cart.rules),
        "job": document.get("job", ""),
        "description": document.get("description", ""),
        "labels": dict(document.get("labels", {})),
        "rollback": document.get("rollback", ""),
        "priority": document.get("priority"),
        "pending": cart.pending,
        "url": f"/carts/{cart.id}",
    }


_SAME = tuple(name for name in Cart.__slots__ if name in CartShape.model_fields)


def _rules(rules: CartRules) -> dict[str, Any]:
    return {
        "order": rules.order,
        "group_size": [_written(size) for size in rules.group_sizes],
        "max_parallel": rules.max_parallel,
        "failures": FailuresShape.of_rules(rules.failures),
        "between": BetweenShape.of_rules(rules.between),
        "calendars": list(rules.calendars),
    }


def _written(share: Share) -> int | str:
    return str(share) if share.is_percent else int(share.value)

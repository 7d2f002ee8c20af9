"""A cart as a person looks at it: how far, how bad, what next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from rota.domain.calendars import end_of_blackout
from rota.domain.carts import budget
from rota.domain.carts.commands import in_words
from rota.domain.carts.definition import OnBreach
from rota.domain.carts.facts import CartFacts
from rota.domain.carts.states import (
    FAILED_ITEM_STATES,
    FINAL_CART_STATES,
    FINAL_ITEM_STATES,
    CartState,
    ItemState,
    PauseReason,
    WaitReason,
)
from rota.domain.errors import Invalid
from rota.domain.ids import RunId
from rota.operations.backends import Backends
from rota.operations.calendars import blackouts_of
from rota.operations.carts import WAVES_LOOKED_AT, time_left
from rota.ports.carts import Cart, FailureGroup, Overview

_GROUPS_SHOWN = 10
_STANDING = FINAL_CART_STATES | {CartState.PAUSED}  # nothing more happens by itself


@dataclass(frozen=True, slots=True)
class Gate:
    """What stands before the next wave, or the next items."""

    wave: int | None  # its number
    waits_for: WaitReason
    until: datetime | None  # None: not by time alone
    check_run: RunId | None
    approve_role: str | None


@dataclass(frozen=True, slots=True)
class CartView:
    cart: Cart
    overview: Overview
    facts: CartFacts
    failure_groups: Sequence[FailureGroup]  # the most frequent
    eta: datetime | None  # when it will have ended; None: nobody knows, or it stands still

    @property
    def by_state(self) -> Mapping[ItemState, int]:
        """How many items are in each state."""
        return {state: self.overview.items.get(state, 0) for state in ItemState}

    @property
    def done(self) -> int:
        """Items that have ended, however they did."""
        return sum(self.by_state[state] for state in FINAL_ITEM_STATES)

    @property
    def failures(self) -> int:
        """How many items of the present scope failed: of the cart, or of the current wave."""
        return budget.failures_of(self.facts)

    @property
    def limit(self) -> int:
        """How many of them may."""
        return budget.limit(self.facts)

    @property
    def is_breached(self) -> bool:
        """Whether more of them failed, or of an earlier wave where that did not stop it."""
        goes_on = self.cart.rules.failures.then is OnBreach.CONTINUE
        was_breached = goes_on and self.cart.breach_wave is not None
        return was_breached or budget.is_breached(self.facts)

    @property
    def place(self) -> str:
        """Of the current wave among all: `4 of 13`; "" before the first."""
        place = self.overview.place
        return f"{place} of {self.overview.waves}" if place else ""

    @property
    def gate(self) -> Gate | None:
        """None: it waits for none. A check that did not complete still stands there."""
        cart = self.cart
        if cart.state is not CartState.WAITING and cart.reason != PauseReason.CHECK:
            return None
        reason = WaitReason(cart.reason)
        return Gate(
            wave=self.overview.next_wave,
            waits_for=reason,
            until=self._until(reason),
            check_run=cart.check_run if reason is WaitReason.CHECK else None,
            approve_role=cart.rules.between.approve if reason is WaitReason.APPROVAL else None,
        )

    def _until(self, reason: WaitReason) -> datetime | None:
        match reason:
            case WaitReason.QUOTA:
                return None
            case WaitReason.WINDOW:
                return self.facts.closed_until
            case _:
                return self.cart.look_at

    @property
    def why(self) -> str:
        """What it is doing, in a sentence."""
        return in_words(self.facts)


def _facts(cart: Cart, overview: Overview, closed_until: datetime | None) -> CartFacts:
    """What the engine goes by, as far as a look at a cart needs it."""
    in_wave = overview.in_wave
    return CartFacts(
        rules=cart.rules,
        state=cart.state,
        items=cart.items,
        reason=cart.reason,
        ending=cart.ending,
        unknown=overview.unknown,
        failed=sum(overview.items.get(state, 0) for state in FAILED_ITEM_STATES),
        items_in_wave=sum(in_wave.values()),
        failed_in_wave=sum(in_wave.get(state, 0) for state in FAILED_ITEM_STATES),
        closed_until=closed_until,
    )


async def view(backends: Backends, cart: Cart) -> CartView:
    """A cart with all that its page shows."""
    overview = await backends.store.overview(cart, WAVES_LOOKED_AT)
    facts = _facts(cart, overview, await _closed_until(backends, cart))
    groups = await backends.store.failure_groups(cart.id, _GROUPS_SHOWN)
    return CartView(cart, overview, facts, groups, await _eta(backends, cart, facts, overview))


async def _closed_until(backends: Backends, cart: Cart) -> datetime | None:
    """The end of the blackout that keeps it waiting; None: there is none, or nobody knows."""
    if cart.reason != WaitReason.WINDOW:
        return None
    now = await backends.store.now()
    with suppress(Invalid):
        blackouts = await blackouts_of(backends, cart.project, cart.rules.calendars)
        return end_of_blackout(blackouts, now)
    return None


async def _eta(
    backends: Backends, cart: Cart, facts: CartFacts, overview: Overview
) -> datetime | None:
    if cart.state in _STANDING or _is_up_to_somebody(cart, overview):
        return None
    left = await time_left(backends, cart, facts, overview)
    if left is None:
        return None
    now = await backends.store.now()
    return max(now, _held_until(cart, facts) or now) + left


def _held_until(cart: Cart, facts: CartFacts) -> datetime | None:
    """When it begins or goes on, as far as a clock decides that; None: at once, or nobody knows."""
    if cart.state is CartState.PLANNED:
        return cart.starts_at
    match cart.reason:
        case WaitReason.SOAK:
            return cart.look_at
        case WaitReason.WINDOW:
            return facts.closed_until
        case _:
            return None


def _is_up_to_somebody(cart: Cart, overview: Overview) -> bool:
    """Whether somebody has to approve a wave before all of it can end."""
    if not cart.rules.between.approve:
        return False
    awaited = cart.state is CartState.WAITING and not cart.approved_by
    return awaited or len(overview.left) > 1

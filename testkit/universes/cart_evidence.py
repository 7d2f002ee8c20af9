"""Executions of carts' items, and the invariants that must hold for them.

A cart decides before a run is claimed, so that is judged by claims; what follows a claim is not up
to the cart any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rota.domain.carts.definition import CartRules, OnBreach, Scope, Share
from rota.domain.carts.facts import limit_of
from rota.domain.keys import SECOND
from rota.ports.work import Work

Complain: TypeAlias = Callable[[str, object], None]


@dataclass(slots=True)
class WatchedCart:
    """Cart as people know it, and what was observed of it."""

    rules: CartRules
    waves: Mapping[str, int]  # by item
    is_stopped: bool = False  # somebody paused or cancelled it
    is_cancelled: bool = False
    is_raised: bool = False  # somebody allowed more failures
    wave: int = 0  # the latest of which something was claimed
    # When the latest attempts at its runs ended, in microseconds. A cart soaks from the ends that
    # its store knows: of a reported attempt what the worker took for the store's time.
    ends: dict[str, int] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)  # by item
    failed: set[str] = field(default_factory=set)  # items without an attempt left
    doubtful: set[str] = field(default_factory=set)  # items of which a person had to tell

    @property
    def is_broken(self) -> bool:
        """Return whether more items failed than allowed, so that nothing may begin."""
        return self.rules.failures.then is not OnBreach.CONTINUE and self.is_over(self.failed)

    def is_over(self, failed: set[str]) -> bool:
        """Return whether so many failures are more than allowed."""
        allow = self.rules.failures.allow
        return any(len(failed & scope) > limit_of(allow, len(scope)) for scope in self.scopes)

    @property
    def scopes(self) -> list[set[str]]:
        """Return the sets of items whose failures are counted together."""
        if self.rules.failures.scope is Scope.CART:
            return [set(self.waves)]
        waves = set(self.waves.values())
        return [{item for item, its in self.waves.items() if its == wave} for wave in waves]


class CartWitness:
    """Observes what happens to items, and raises `Violation` at once."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self.carts: dict[str, WatchedCart] = {}
        self._items: dict[str, tuple[WatchedCart, str]] = {}  # by run
        self._executing: defaultdict[str, set[str]] = defaultdict(set)  # items by cart

    # --- what people do

    def submitted(self, cart: str, rules: CartRules, waves: Mapping[str, int]) -> None:
        self.carts[cart] = WatchedCart(rules, waves)

    def stopped(self, cart: str, *, is_cancelled: bool) -> None:
        """Record that somebody was told that nothing of it begins from now on."""
        watched = self.carts[cart]
        watched.is_stopped = True
        watched.is_cancelled |= is_cancelled

    def resumed(self, cart: str, allow: Share | None) -> None:
        watched = self.carts[cart]
        watched.is_stopped = False
        if allow is not None:
            watched.is_raised = True
            failures = replace(watched.rules.failures, allow=allow)
            watched.rules = replace(watched.rules, failures=failures)

    # --- what happens

    def claimed(self, work: Work, now: int) -> None:
        if work.cart is None or work.item is None:
            return
        cart, fence = self.carts[work.cart], work.fence
        wave = cart.waves[work.item]
        self._require(wave >= cart.wave, "an item of an earlier wave after a later one", fence)
        if wave > cart.wave:
            self._judge_gate(cart, now)
        cart.wave = wave
        self._require(not cart.is_stopped, "a cart that was stopped went on", fence)
        self._require(not cart.is_broken, "a cart went on though too many had failed", fence)
        first = cart.runs.setdefault(work.item, work.run)
        self._require(first == work.run, "an item has two runs", (first, work.run))
        self._items[work.run] = cart, work.item

    def _judge_gate(self, cart: WatchedCart, now: int) -> None:
        if cart.ends:
            soak = cart.rules.between.wait.total_seconds() * SECOND
            is_over = now >= max(cart.ends.values()) + soak
            self._require(is_over, "a wave before its time", cart.wave)

    def started(self, work: Work) -> None:
        if work.cart is None or work.item is None:
            return
        cart, executing = self.carts[work.cart], self._executing[work.cart]
        executing.add(work.item)
        waves = {cart.waves[item] for item in executing}
        self._require(len(waves) == 1, "two waves of a cart at once", (work.cart, executing))
        most = cart.rules.max_parallel or len(executing)
        self._require(len(executing) <= most, "max_parallel passed", (work.cart, executing))

    def ended(self, work: Work, now: int) -> None:
        if work.cart is None or work.item is None:
            return
        self._executing[work.cart].remove(work.item)
        self.carts[work.cart].ends[work.run] = now

    def reported(self, run: str, ended_at: int) -> None:
        """Record that a server has accepted the end of an attempt, and when that was."""
        if run in self._items:
            ends = self._items[run][0].ends
            ends[run] = min(ends.get(run, ended_at), ended_at)

    def failed(self, run: str) -> None:
        """Record that a server has accepted a failure after which no attempt is left."""
        if run in self._items:
            cart, item = self._items[run]
            cart.failed.add(item)

    def resolved(self, run: str, *, is_failure: bool) -> None:
        """Record that a person has resolved a run."""
        if run in self._items:
            cart, item = self._items[run]
            cart.doubtful.add(item)
            if is_failure:
                cart.failed.add(item)

    def _require(self, holds: bool, promise: str, about: object) -> None:
        if not holds:
            self._complain(promise, about)

"""Invariants of carts once everything was mended and nothing is left to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.domain.carts.definition import OnBreach
from rota.domain.carts.facts import (
    FAILED_ITEM_STATES,
    FINAL_ITEM_STATES,
    CartState,
    ItemState,
    item_state_of,
    limit_of,
)
from rota.domain.ids import RunId
from rota.domain.states import RunState
from testkit.universes.cart_evidence import WatchedCart
from testkit.universes.evidence import Witness
from testkit.universes.world import SeenCart, SeenItem

# Of an item that was not called off: nobody cancels the run of an item by itself.
_SEEN_THROUGH = FAILED_ITEM_STATES | {ItemState.COMPLETED}


def judge_carts(
    witness: Witness, carts: Sequence[SeenCart], runs: Mapping[RunId, RunState]
) -> None:
    watched = witness.carts.carts
    lost = watched.keys() - {cart.id for cart in carts}
    witness.require(not lost, "acknowledged carts vanished", sorted(lost))
    for cart in carts:
        witness.note(f"cart {cart.state}", cart.id)
        _judge_items(witness, cart, watched[cart.id], runs)
        _judge_end(witness, cart, watched[cart.id])


def _judge_items(
    witness: Witness, cart: SeenCart, watched: WatchedCart, runs: Mapping[RunId, RunState]
) -> None:
    is_whole = cart.items.keys() == watched.waves.keys()
    witness.require(is_whole, "a cart has other items than it had", (cart, watched.waves))
    for key, item in cart.items.items():
        is_so = item.state in FINAL_ITEM_STATES
        if item.run is not None:
            is_so = is_so and item.state is item_state_of(runs[item.run])
        witness.require(is_so, f"item {key} is not as its run", (cart.id, item))


def _judge_end(witness: Witness, cart: SeenCart, watched: WatchedCart) -> None:
    failed = {key for key, item in cart.items.items() if item.state in FAILED_ITEM_STATES}
    ends = _ends(watched, cart.items, failed)
    witness.require(cart.state in ends, f"a cart ended as {cart.state}", (cart, ends))
    failures = watched.rules.failures
    if failures.strict and failures.then is not OnBreach.CONTINUE and not watched.is_raised:
        for scope in watched.scopes:
            most = limit_of(failures.allow, len(scope)) + 1
            is_strict = len(failed & scope) <= most
            witness.require(is_strict, "strict was not strict", (cart, failed, most))


def _ends(watched: WatchedCart, items: Mapping[str, SeenItem], failed: set[str]) -> set[CartState]:
    """Return the states that a cart may have ended in."""
    then, ends = watched.rules.failures.then, set()
    if watched.is_cancelled:
        ends.add(CartState.CANCELLED)
    # Nobody knew of the doubtful ones that they would end well.
    if then is OnBreach.CANCEL and watched.is_over(failed | watched.doubtful):
        ends.add(CartState.FAILED)
    is_kept = then is OnBreach.CONTINUE or not watched.is_over(failed)
    states = {item.state for item in items.values()}
    if is_kept and not watched.is_cancelled and states <= _SEEN_THROUGH:
        is_good = states == {ItemState.COMPLETED}
        ends.add(CartState.COMPLETED if is_good else CartState.PARTIAL)
    return ends

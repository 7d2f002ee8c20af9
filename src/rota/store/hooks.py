"""Where carts take part in the steps of runs.

A run may be of a cart. Scripts about runs, their ends and their gates do not know what a cart is:
they call the hooks of this module, with the ids that runs carry in their column `cart`. `carts.py`
registers what happens there. Without it, no run is of anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rota.domain.gates import Admission
from rota.store.script import Script
from rota.store.tx import Tx


class CartHooks:
    """Hook points; by default nothing happens at them."""

    def lock_carts(self, runs: Sequence[str]) -> Script[list[str]]:
        """Lock the carts of these runs, whose bad ends are about to be counted; returns their ids.

        Before gates and runs are locked: see the order of locks in `script.py`.
        """
        yield from ()
        return []

    def runs_ended(self, tx: Tx, carts: list[str], gates: Collection[str]) -> Script[None]:
        """Runs of these carts, which are locked, have ended.

        Failures are judged in the transaction in which they happened, before anything new can
        start. `gates` are those that the transaction has locked.
        """
        yield from ()

    def share_gates(self, carts: Collection[str]) -> Script[None]:
        """Let no cart of these be paused or resumed until the transaction ends."""
        yield from ()

    def closed_gates(self, carts: Collection[str]) -> Script[Mapping[str, Admission]]:
        """Admissions for runs of those carts that are paused or ending."""
        yield from ()
        return {}


_registered = CartHooks()


def register(hooks: CartHooks) -> None:
    """Have these called from now on."""
    global _registered
    _registered = hooks


def lock_carts(runs: Sequence[str]) -> Script[list[str]]:
    return _registered.lock_carts(runs)


def runs_ended(tx: Tx, carts: list[str], gates: Collection[str]) -> Script[None]:
    return _registered.runs_ended(tx, carts, gates)


def share_gates(carts: Collection[str]) -> Script[None]:
    return _registered.share_gates(carts)


def closed_gates(carts: Collection[str]) -> Script[Mapping[str, Admission]]:
    return _registered.closed_gates(carts)

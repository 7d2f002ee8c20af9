"""Weights of shares: how much of a pool each gets against the others."""

from __future__ import annotations

from rota.operations.backends import Backends
from rota.ports.places import ShareWeight
from rota.ports.records import Wakes


async def set_weight(backends: Backends, share: str, weight: float, *, actor: str) -> ShareWeight:
    """From the next claim on; 1 is what everyone has that nobody said anything about."""
    await backends.store.set_share_weight(share, weight, actor=actor)
    backends.announce(Wakes())
    [saved] = [each for each in await backends.store.share_weights() if each.share == share]
    return saved

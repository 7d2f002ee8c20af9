"""Values that older keys of the ring have sealed: wrapped anew by and by, and counted.

A new key is put first into the ring, and the one before can go once nothing is sealed with it any
more. A key that is gone too early costs what it sealed, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.domain.errors import RotaError
from rota.domain.key_ring import KeyRing
from rota.operations.engine import Engine
from rota.ports.logins import Resealed, SealedValue

_BATCH = 200  # sessions


@dataclass(frozen=True, slots=True)
class Rewrapped:
    """Progress of a pass over the store."""

    count: int = 0  # values that were wrapped anew
    after: str | None = None  # where the pass goes on; None: it is over
    unreadable: Mapping[str, int] = field(default_factory=dict)  # values by the error's key or code


async def rewrap_some(engine: Engine, after: str = "") -> Rewrapped:
    """Wrap some values by the first key of the ring that older ones have wrapped.

    What cannot be unwrapped, as its key is missing, stays as it is.
    """
    ring = engine.key_ring
    if ring is None:
        return Rewrapped()
    found = await engine.store.sealed_logins(ring.ids[0], after, _BATCH)
    # Hundreds of them take milliseconds, and leases are renewed on this loop.
    values = [value for login in found for value in login.values]
    resealed, unreadable = await asyncio.to_thread(_rewrapped, ring, values)
    if resealed:
        await engine.store.reseal_logins(resealed)
    goes_on = len(found) == _BATCH
    return Rewrapped(len(resealed), found[-1].token if goes_on else None, unreadable)


def _rewrapped(ring: KeyRing, values: Iterable[SealedValue]) -> tuple[list[Resealed], Counter[str]]:
    resealed: list[Resealed] = []
    unreadable: Counter[str] = Counter()
    for value in values:
        try:
            again = ring.rewrap(value.sealed)
        except RotaError as error:
            unreadable[str(error.facts.get("key_id", error.code))] += 1
        else:
            if again != value.sealed:
                resealed.append(Resealed(value, again))
    return resealed, unreadable


@dataclass(frozen=True, slots=True)
class SealingKey:
    """How much in the store is sealed with a key."""

    key_id: str
    values: int
    is_first: bool  # it seals what is new
    is_missing: bool  # it is not in the ring of this server


async def key_uses(engine: Engine) -> list[SealingKey]:
    """List the keys of the ring, and those that are missing from it, with what they have sealed."""
    sealed = await engine.store.keys_of_logins()
    ids = engine.key_ring.ids if engine.key_ring else ()
    return [
        SealingKey(key_id, sealed.get(key_id, 0), key_id in ids[:1], key_id not in ids)
        for key_id in dict.fromkeys([*ids, *sorted(sealed)])
    ]

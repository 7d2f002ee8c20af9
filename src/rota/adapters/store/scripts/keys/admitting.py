"""Letting runs through to the queue while there seems to be room in the keys they take.

Nothing is locked: who is one too many is told so when it is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rota.adapters.store.script import Many, Script
from rota.adapters.store.scripts.keys.states import load_states, load_waiters
from rota.domain.key_gates import KeyGate
from rota.domain.shared_keys import Demands, Key, Shortage


class Ask(NamedTuple):
    """A run that passed all gates before those of its keys."""

    id: str
    demands: Demands
    priority: int
    seq: int  # its age


def admit(
    now: int, asks: Sequence[Ask], freed: Collection[Key] = ()
) -> Script[dict[str, tuple[Shortage, ...]]]:
    """What each of these runs is short of, in the order they ask; those left out may go.

    Whoever waits for a key that is `freed` is among those who ask.
    """
    lowest: dict[Key, int] = {}
    for ask in asks:
        for key in ask.demands:
            lowest[key] = min(ask.priority, lowest.get(key, ask.priority))
    states = yield from load_states(lowest)
    waiters = yield from load_waiters(
        {key: priority for key, priority in lowest.items() if key in states and key not in freed}
    )
    gate = KeyGate(now, states, waiters)
    short = {ask.id: gate.ask(ask.demands, (-ask.priority, ask.seq)) for ask in asks}
    return {run: found for run, found in short.items() if found}


def promise(asks: Sequence[Ask]) -> Script[None]:
    """Let others see what these runs, which are in the queue, are going to take."""
    promised = [(key, amount, ask.id) for ask in asks for key, amount in ask.demands.items()]
    if promised:
        yield Many("promise_key", promised)

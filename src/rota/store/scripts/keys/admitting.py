"""Letting runs through to the queue while there seems to be room in the keys they take.

Nothing is locked: who is one too many is told so when it is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rota.domain.key_gates import Kept, KeyGate, Rank, Wait
from rota.domain.keys import Demands, Key, Shortage
from rota.store.rows import from_json
from rota.store.script import Many, Row, Script
from rota.store.scripts.keys.keeping import load_kept
from rota.store.scripts.keys.states import load_states, load_waiters, rank_in


class Ask(NamedTuple):
    """A run that passed all gates before those of its keys."""

    id: str
    demands: Demands
    rank: Rank
    wait: Wait | None = None  # for a key already


class Answers(NamedTuple):
    """What runs are told that asked for their keys."""

    short: Mapping[str, tuple[Shortage, ...]]  # by run; those left out may go
    kept: Mapping[Key, Kept]  # for those that could have a key, and wait for another one now


def ask_of(row: Row) -> Ask:
    """A waiting run that takes shared keys."""
    return Ask(row["id"], from_json(row["keys"]), rank_in(row))


def admit(now: int, asks: Sequence[Ask]) -> Script[Mapping[str, tuple[Shortage, ...]]]:
    """What each of these runs is short of, in the order they ask; those left out may go."""
    answers = yield from answer(now, asks)
    return answers.short


def answer(now: int, asks: Sequence[Ask], freed: Collection[Key] = ()) -> Script[Answers]:
    """The same with what is kept. Whoever waits for a key that is `freed` is among who asks."""
    last: dict[Key, Rank] = {}
    for ask in asks:
        for key in ask.demands:
            last[key] = max(ask.rank, last.get(key, ask.rank))
    states = yield from load_states(now, last)
    waiters = yield from load_waiters(
        {key: rank for key, rank in last.items() if key in states and key not in freed}
    )
    gate = KeyGate(now, states, waiters, (yield from load_kept(now, states)))
    short = {ask.id: gate.ask(ask.demands, ask.rank, ask.wait) for ask in asks}
    return Answers({run: found for run, found in short.items() if found}, gate.kept)


def promise(asks: Sequence[Ask]) -> Script[None]:
    """Let others see what these runs, which are in the queue, are going to take."""
    promised = [(key, amount, ask.id) for ask in asks for key, amount in ask.demands.items()]
    if promised:
        yield Many("promise_key", promised)

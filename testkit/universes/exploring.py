"""Many universes, one after another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from testkit.universes.evidence import Witness
from testkit.universes.memory.world import memory_world
from testkit.universes.sqlite_world import sqlite_world
from testkit.universes.universe import run_universe
from testkit.universes.world import OpenWorld

WORLDS: Mapping[str, OpenWorld] = {"memory": memory_world, "sqlite": sqlite_world}


def explore(world: str, seeds: Iterable[int]) -> Counter[str]:
    """Let universes pass; returns what happened in them, and how often.

    `Violation` at the first one in which a promise is broken; a note has the command to repeat it.
    """

    async def explore_all() -> Counter[str]:
        tally: Counter[str] = Counter()
        for seed in seeds:
            tally += (await _visit(world, seed)).tally
        return tally

    return asyncio.run(explore_all())


def visit(world: str, seed: int) -> Witness:
    """Let one universe pass; returns who saw it."""
    return asyncio.run(_visit(world, seed))


async def _visit(world: str, seed: int) -> Witness:
    try:
        return await run_universe(seed, WORLDS[world])
    except Exception as error:
        error.add_note(f"The same again: python tools/universe.py {seed} --world {world}")
        raise

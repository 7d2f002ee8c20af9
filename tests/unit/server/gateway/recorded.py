"""What a store does for a call: its statements, the rows of each, and SQLite's steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from rota.domain.errors import StaleTransition
from rota.ports.store import Store
from rota.store.script import MakeScript, Many, OnCommit, Rows, Script, Step, Urgency, no_effects
from tests.budgets.counting import Counts, counted_sqlite


@dataclass
class Recorded:
    """What was done since the last `clear`."""

    statements: list[tuple[str, int]] = field(default_factory=list)  # name, rows that it returned
    round_trips: int = 0  # transactions
    counts: Counts = field(default_factory=Counts)

    def clear(self) -> None:
        self.statements.clear()
        self.round_trips = self.counts.steps = 0

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.statements]

    def note(self, step: Step, rows: Rows) -> None:
        count = len(step.rows) if isinstance(step, Many) else len(rows)
        self.statements.append((getattr(step, "name", type(step).__name__), count))


@contextmanager
def recording(patch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Count on connections that are opened inside of the block; `follow` a store for the rest."""
    recorded = Recorded()
    with counted_sqlite(recorded.counts, patch):
        recorded.counts.is_on = True
        yield recorded


def follow(store: Store, recorded: Recorded, patch: pytest.MonkeyPatch) -> None:
    """Record what scripts ask of a store's driver from now on."""
    driver = vars(store)["_driver"]
    read, write = driver.read, driver.write

    async def reading(make: MakeScript[Any], urgency: Urgency = Urgency.API) -> Any:
        recorded.round_trips += 1
        return await read(lambda now: noted(make(now), recorded), urgency)

    async def writing(
        make: MakeScript[Any], urgency: Urgency, on_commit: OnCommit = no_effects
    ) -> Any:
        recorded.round_trips += 1
        return await write(lambda now: noted(make(now), recorded), urgency, on_commit)

    patch.setattr(driver, "read", reading)
    patch.setattr(driver, "write", writing)


def noted(script: Script[Any], recorded: Recorded) -> Script[Any]:
    """The same script, each step of it noted."""
    try:
        step = next(script)
        while True:
            try:
                rows = yield step
            except StaleTransition as error:
                step = script.throw(error)
            else:
                recorded.note(step, rows)
                step = script.send(rows)
    except StopIteration as end:
        return end.value

"""What the store in memory keeps of carts. How they stand is always counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.carts.definition import CartRules
from rota.domain.carts.facts import CartFacts
from rota.domain.carts.states import FAILED_ITEM_STATES, CartState, ItemState, item_state_of
from rota.domain.ids import CartId, instant
from rota.domain.states import WAITING_STATES, RunState
from testkit.universes.catalogue import KnownJob
from testkit.universes.memory.rows import StoredRun


@dataclass(slots=True, eq=False)
class StoredItem:
    key: str
    wave: int
    known: KnownJob
    inputs: Mapping[str, Any] | None
    run: StoredRun | None = None
    is_skipped: bool = False  # before it had a run

    @property
    def state(self) -> ItemState:
        if self.run is not None:
            return item_state_of(self.run.state)
        return ItemState.SKIPPED if self.is_skipped else ItemState.PENDING


@dataclass(slots=True, eq=False)
class StoredCart:
    id: CartId
    created_by: str
    rules: CartRules
    items: Sequence[StoredItem]
    state: CartState = CartState.PLANNED
    reason: str = ""
    ending: CartState | None = None
    wave: int = 0
    current_wave: int = 0
    is_breach_recorded: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it lets nothing of its own go."""
        return self.state is CartState.PAUSED or self.ending is not None

    @property
    def runs(self) -> list[StoredRun]:
        return [item.run for item in self.items if item.run is not None]

    def show(self, state: CartState, reason: str = "") -> None:
        self.state, self.reason = state, reason

    def pending(self, wave: int) -> list[StoredItem]:
        return [it for it in self.items if it.wave == wave and it.state is ItemState.PENDING]

    def facts(self) -> CartFacts:
        states = Counter(item.state for item in self.items)
        runs = Counter(run.state for run in self.runs)
        current = [item for item in self.items if item.wave == self.current_wave]
        pending = [item.wave for item in self.items if item.state is ItemState.PENDING]
        ends = [run.ended_at for run in self.runs if run.ended_at]
        return CartFacts(
            rules=self.rules,
            state=self.state,
            items=len(self.items),
            reason=self.reason,
            ending=self.ending,
            wave=self.wave,
            current_wave=self.current_wave,
            pending_wave=min(pending, default=None),
            pending_in_wave=pending.count(min(pending, default=0)),
            open=states[ItemState.OPEN],
            waiting=sum(runs[state] for state in WAITING_STATES),
            unknown=runs[RunState.UNKNOWN],
            completed=states[ItemState.COMPLETED],
            failed=sum(states[state] for state in FAILED_ITEM_STATES),
            items_in_wave=len(current),
            failed_in_wave=sum(item.state in FAILED_ITEM_STATES for item in current),
            is_breach_recorded=self.is_breach_recorded,
            wave_ended_at=instant(max(ends)) if ends else None,
        )

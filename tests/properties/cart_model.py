"""A cart in memory: its items one by one, and what each step does to them.

It checks every start against the items themselves, not against the counters that were decided on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

from rota.domain.carts import commands
from rota.domain.carts.definition import CartRules, OnBreach, Scope, Share
from rota.domain.carts.facts import (
    CANCELLING,
    FAILED_ITEM_STATES,
    FINAL_CART_STATES,
    FINAL_ITEM_STATES,
    CartFacts,
    CartState,
    ItemState,
    PauseReason,
    WaitReason,
    item_state_of,
    limit_of,
)
from rota.domain.carts.steps import (
    Begin,
    Breach,
    End,
    Open,
    Pause,
    RunCheck,
    SkipRest,
    Stand,
    Start,
    Step,
    decide,
)
from rota.domain.states import RunState

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MOST_STEPS = 9  # before a cart stands still, however it got where it is


@dataclass(slots=True)
class ModelItem:
    wave: int
    run: RunState | None = None  # None: it is PENDING, or was skipped before it had one
    is_skipped: bool = False
    due: int = 1  # how often it was to start
    starts: int = 0

    @property
    def state(self) -> ItemState:
        if self.run is None:
            return ItemState.SKIPPED if self.is_skipped else ItemState.PENDING
        return item_state_of(self.run)

    @property
    def is_open(self) -> bool:
        return self.state is ItemState.OPEN

    @property
    def is_failure(self) -> bool:
        return self.state in FAILED_ITEM_STATES or self.run is RunState.UNKNOWN

    def start(self) -> None:
        assert self.state is ItemState.PENDING
        self.run = RunState.QUEUED
        self.starts += 1

    def skip(self) -> None:
        if self.run is None:
            self.is_skipped = True
            self.due -= 1
        else:
            self.run = RunState.SKIPPED

    def retry(self) -> None:
        assert self.state in FINAL_ITEM_STATES
        self.run, self.is_skipped = None, False
        self.due += 1


@dataclass(slots=True)
class ModelCart:
    rules: CartRules
    items: list[ModelItem]
    starts_at: datetime | None = None
    now: datetime = NOON
    closed_until: datetime | None = None
    state: CartState = CartState.PLANNED
    reason: str = ""
    ending: CartState | None = None
    current_wave: int = 0
    opened: set[int] = field(default_factory=set)
    ended_at: datetime | None = None
    check: RunState | None = None
    approved_by: str = ""
    is_breach_recorded: bool = False
    bounds: dict[int, int] = field(default_factory=dict)  # by scope: how many can have failed

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_CART_STATES

    @property
    def open(self) -> list[ModelItem]:
        return [item for item in self.items if item.is_open]

    @property
    def pending(self) -> list[ModelItem]:
        return [item for item in self.items if item.state is ItemState.PENDING]

    @property
    def ended(self) -> list[ModelItem]:
        return [item for item in self.items if item.state in FINAL_ITEM_STATES]

    def scope_of(self, wave: int) -> int:
        return wave if self.rules.failures.scope is Scope.WAVE else 0

    def in_scope(self, scope: int) -> list[ModelItem]:
        return [item for item in self.items if scope in (0, item.wave)]

    def limit(self, scope: int) -> int:
        return limit_of(self.rules.failures.allow, len(self.in_scope(scope)))

    def failures(self, scope: int) -> int:
        return sum(item.is_failure for item in self.in_scope(scope))

    def facts(self) -> CartFacts:
        current = [item for item in self.items if item.wave == self.current_wave]
        pending = [item.wave for item in self.pending]
        states = Counter(item.state for item in self.items)
        runs = Counter(item.run for item in self.items)
        return CartFacts(
            rules=self.rules,
            state=self.state,
            items=len(self.items),
            reason=self.reason,
            ending=self.ending,
            starts_at=self.starts_at,
            wave=max(self.opened, default=0),
            current_wave=self.current_wave,
            pending_wave=min(pending, default=None),
            pending_in_wave=pending.count(min(pending, default=0)),
            open=states[ItemState.OPEN],
            waiting=runs[RunState.QUEUED],
            unknown=runs[RunState.UNKNOWN],
            completed=states[ItemState.COMPLETED],
            failed=sum(states[state] for state in FAILED_ITEM_STATES),
            items_in_wave=len(current),
            failed_in_wave=sum(item.state in FAILED_ITEM_STATES for item in current),
            is_breach_recorded=self.is_breach_recorded,
            wave_ended_at=self.ended_at,
            check=self.check,
            approved_by=self.approved_by,
            closed_until=self.closed_until,
        )

    def step(self) -> Step:
        """Decide and apply one step. A crash before it was applied changes nothing."""
        facts = self.facts()
        step = decide(facts, self.now)
        assert decide(facts, self.now) == step
        self.apply(step)
        return step

    def advance(self, steps: int = MOST_STEPS) -> None:
        """Go on until it stands still; with fewer steps, whoever does it dies in between."""
        for _ in range(steps):
            if isinstance(self.step(), Stand):
                return
        assert steps < MOST_STEPS, "it never stands still"

    def apply(self, step: Step) -> None:
        match step:
            case Begin():
                assert self.state is CartState.PLANNED
                self._show(CartState.RUNNING)
            case Open():
                self._open(step)
            case Start():
                self._start(step)
            case RunCheck():
                assert self.rules.between.check == step.job
                self.check = RunState.QUEUED
                self._show(CartState.WAITING, WaitReason.CHECK)
            case Stand():
                self._show(step.state, step.reason)
                assert step.until is None or step.until > self.now
            case Pause():
                self._show(CartState.PAUSED, step.reason)
            case Breach():
                self._breach(step)
            case SkipRest():
                self._skip_rest()
            case End():
                assert not self.open
                assert not self.pending
                self._show(step.state)
            case _:
                assert_never(step)

    def _skip_rest(self) -> None:
        assert self.ending is not None
        for item in [*self.pending, *self.open]:
            if item.run in (None, RunState.QUEUED):
                item.skip()

    def _show(self, state: CartState, reason: str = "") -> None:
        assert not self.is_final or state is self.state
        self.state, self.reason = state, reason

    def _open(self, step: Open) -> None:
        self._assert_lowest(step.wave)
        assert not self.open
        assert self.closed_until is None or self.now >= self.closed_until
        assert self.starts_at is None or self.now >= self.starts_at
        assert step.is_first == (step.wave > max(self.opened, default=0))
        if step.is_first and self.opened:
            self._assert_gate_passed()
        self.opened.add(step.wave)
        self.current_wave = step.wave
        if self.rules.failures.scope is Scope.WAVE:
            self.is_breach_recorded = False

    def _assert_gate_passed(self) -> None:
        between = self.rules.between
        assert self.ended_at is None or self.now >= self.ended_at + between.wait
        assert not between.check or self.check is RunState.COMPLETED
        assert not between.approve or self.approved_by

    def _assert_lowest(self, wave: int) -> None:
        assert self.state is not CartState.PAUSED
        assert self.ending is None
        assert wave == min(item.wave for item in self.pending)
        assert all(item.state in FINAL_ITEM_STATES for item in self.items if item.wave < wave)

    def _start(self, step: Start) -> None:
        self._assert_lowest(step.wave)
        assert step.wave in self.opened
        assert {item.wave for item in self.open} <= {step.wave}
        scope = self.scope_of(step.wave)
        is_bound = self.rules.failures.then is not OnBreach.CONTINUE
        assert not is_bound or self.failures(scope) <= self.limit(scope)
        chosen = [item for item in self.pending if item.wave == step.wave][: step.count]
        assert len(chosen) == step.count > 0
        for item in chosen:
            item.start()
        assert len(self.open) <= (self.rules.max_parallel or len(self.items))
        self.check, self.approved_by = None, ""
        self._show(CartState.RUNNING)

    def _breach(self, step: Breach) -> None:
        assert step.then is self.rules.failures.then
        scope = self.scope_of(self.current_wave)
        assert self.failures(scope) > self.limit(scope)
        match step.then:
            case OnBreach.PAUSE:
                self._show(CartState.PAUSED, PauseReason.FAILURES)
            case OnBreach.CANCEL:
                self.ending = CartState.FAILED
                self._show(CartState.RUNNING, CANCELLING)
            case OnBreach.CONTINUE:
                assert not self.is_breach_recorded
                self.is_breach_recorded = True
            case _:
                assert_never(step.then)

    def turn(self, item: ModelItem, run: RunState) -> None:
        """The run of an open item gets into a state; how many more can fail is noted."""
        assert item.is_open
        scope, in_flight = self.scope_of(item.wave), len(self.open)
        before = self.failures(scope)
        item.run = run
        if before <= self.limit(scope) < self.failures(scope):
            self.bounds[scope] = self.limit(scope) + in_flight
        if item_state_of(run) in FINAL_ITEM_STATES:
            self.ended_at = self.now

    def resume(self, state: CartState) -> None:
        if commands.is_check_void(self.facts()):
            self.check = None
        self._show(state)

    def allow(self, failures: int) -> None:
        raised = replace(self.rules.failures, allow=Share(failures))
        self.rules = replace(self.rules, failures=raised)
        self.is_breach_recorded = False

    def retry(self, items: Iterable[ModelItem], state: CartState) -> None:
        for item in items:
            item.retry()
        if self.is_final:
            self.current_wave, self.ending = 0, None
            self.state, self.reason = state, ""
        self.is_breach_recorded = False

    def pass_time(self, span: timedelta) -> None:
        self.now += span
        if self.closed_until is not None and self.now >= self.closed_until:
            self.closed_until = None

"""Passing runs through the gates of their cart, of their job and of the keys that they share."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import assert_never

from rota.domain.carts.definition import OnBreach
from rota.domain.carts.states import CartState, PauseReason
from rota.domain.carts.steps import Breach, decide
from rota.domain.gates import JobRules, admit, cart_key, hold_key, job_key, releasable
from rota.domain.ids import CartId, RunId, instant
from rota.domain.keys import Bucket, Key, KeyKind, KeyState, Rate, Shortage, kind_of, shortage
from rota.domain.order import PoolTags, activation_tag
from rota.domain.states import LEASED_STATES, RunEvent, RunState, is_final
from testkit.universes.catalogue import KnownJob, followers, rule_of
from testkit.universes.memory.cart_rows import StoredCart
from testkit.universes.memory.rows import StoredRun

_UNKNOWN_TOO = LEASED_STATES | {RunState.UNKNOWN}
_AT_A_GATE = (RunState.QUEUED, RunState.BLOCKED)


class Book:
    """All runs, and how lines and buckets stand. What is held is always counted anew."""

    def __init__(self, *, has_quota: bool) -> None:
        self.runs: dict[RunId, StoredRun] = {}
        self.live: dict[RunId, StoredRun] = {}  # those that are not final, by age
        self.tags: dict[str, float] = {}  # by line
        self.buckets: dict[Key, Bucket] = {}
        self.carts: dict[CartId, StoredCart] = {}
        self.ends: dict[RunId, StoredRun] = {}  # completed runs that are to be followed
        self._has_quota = has_quota
        self._seqs = count(1)

    def insert(self, run: StoredRun, now: int) -> None:
        assert run.id not in self.runs, f"{run.id} exists already"
        run.seq, run.created_at = next(self._seqs), now
        run.keys = run.known.keys(run.inputs, has_quota=self._has_quota)
        self.runs[run.id] = self.live[run.id] = run
        if run.eligible_at <= now:
            self.admit(run, now)

    def end(self, run: StoredRun, event: RunEvent, now: int) -> None:
        run.move(event)
        self.settle(run, now)

    def settle(self, run: StoredRun, now: int) -> None:
        """What follows from a run's new state: it may be over, and its cart may have enough."""
        if is_final(run.state):
            del self.live[run.id]
            run.ended_at = now
            if run.state is RunState.COMPLETED and followers(run.job):
                self.ends[run.id] = run
        if run.cart is not None:
            self._judge(self.carts[run.cart], now)

    def in_state(self, state: RunState) -> list[StoredRun]:
        return [run for run in self.live.values() if run.state is state]

    # --- the gates of jobs

    def admit(self, run: StoredRun, now: int) -> None:
        """A run whose time has come is queued, blocked or skipped."""
        if run.cart is not None and self.carts[run.cart].is_held:
            self.block(run, cart_key(run.cart))
            return
        rules = gates_of(run.known)
        others = self._active(run.known, now, without=run)
        admission = admit(rules, run.as_active(), [other.as_active() for other in others])
        for older in admission.supersedes:
            self.end(self.runs[older], RunEvent.SKIPPED, now)
        for older in admission.cancels:
            self.cancel(self.runs[older], now)
        match admission.state:
            case RunState.QUEUED:
                self.queue_or_block(run, now)
            case RunState.BLOCKED:
                self.block(run, admission.blocked_on)
            case _:
                self.end(run, RunEvent.SKIPPED, now)

    def release_waiting(self, known: KnownJob, now: int) -> None:
        """Those that waited for a slot of their job go as far as there is room."""
        key = job_key(known.id)
        waiting = [run for run in self._active(known, now) if run.blocked_on == key]
        if not waiting:
            return
        others = [run.as_active() for run in self._active(known, now) if run.blocked_on != key]
        for run in releasable(gates_of(known), [run.as_active() for run in waiting], others):
            self.queue_or_block(self.runs[run], now)

    def _active(
        self, known: KnownJob, now: int, without: StoredRun | None = None
    ) -> list[StoredRun]:
        """Runs of a job that are due, those in their back-off too."""
        return [
            run
            for run in self.live.values()
            if run.known is known
            and run is not without
            and (run.state is not RunState.SCHEDULED or run.attempt > 0 or run.eligible_at <= now)
        ]

    def cancel(self, run: StoredRun, now: int) -> None:
        if run.state in LEASED_STATES:
            run.is_cancel_requested = True
        elif run.state is not RunState.UNKNOWN:
            self.end(run, RunEvent.CANCELLED, now)

    def let_go(self, run: StoredRun, now: int) -> None:
        """What held it is over: it passes the gates again, once its time has come."""
        run.move(RunEvent.LET_GO)
        run.blocked_on = ""
        if run.eligible_at <= now:
            self.admit(run, now)

    # --- carts

    def _judge(self, cart: StoredCart, now: int) -> None:
        match decide(cart.facts(), instant(now)):
            case Breach(then):
                self.breach(cart, then, now)
            case _:
                pass

    def breach(self, cart: StoredCart, then: OnBreach, now: int) -> None:
        """More items failed than may."""
        match then:
            case OnBreach.PAUSE:
                cart.show(CartState.PAUSED, PauseReason.FAILURES)
                self.hold_cart(cart, now)
            case OnBreach.CANCEL:
                cart.ending = CartState.FAILED
                self.hold_cart(cart, now)
            case OnBreach.CONTINUE:
                cart.is_breach_recorded = True
            case _:
                assert_never(then)

    def hold_cart(self, cart: StoredCart, now: int) -> None:
        """What waits of it waits for the cart instead, but for what a person holds."""
        waiting = [
            run
            for run in cart.runs
            if run.state in _AT_A_GATE and run.blocked_on != hold_key(run.id)
        ]
        for run in waiting:
            self.block(run, cart_key(cart.id))
        for run in waiting:
            self.release_waiting(run.known, now)

    def let_cart_go(self, cart: StoredCart, now: int) -> None:
        for run in cart.runs:
            if run.state is RunState.BLOCKED and run.blocked_on == cart_key(cart.id):
                self.let_go(run, now)

    # --- shared keys

    def queue_or_block(self, run: StoredRun, now: int) -> None:
        """A run that its job lets go also needs what it shares with others."""
        short = self.shortage(run, now, claims=False)
        if short is not None:
            self.block(run, short.key)
            return
        self._activate(run)
        run.move(RunEvent.RELEASED)
        run.blocked_on = ""

    def block(self, run: StoredRun, key: str) -> None:
        if run.state is not RunState.BLOCKED:
            run.move(RunEvent.HELD)
        run.blocked_on = key

    def shortage(self, run: StoredRun, now: int, *, claims: bool) -> Shortage | None:
        for key in sorted(run.keys):
            state = self._key_state(key, now)
            if short := shortage(key, run.keys[key], state, now, claims=claims):
                return short
        return None

    def take_tokens(self, run: StoredRun, now: int) -> None:
        for key, amount in run.keys.items():
            rule = rule_of(key)
            if isinstance(rule, Rate):
                bucket = self.buckets.get(key) or Bucket.full(rule, now)
                self.buckets[key] = bucket.take(amount, now)

    def _key_state(self, key: Key, now: int) -> KeyState:
        holding = _UNKNOWN_TOO if kind_of(key) is KeyKind.EXCLUSIVE else LEASED_STATES
        return KeyState(
            rule_of(key),
            held=_amount(key, (run for run in self.live.values() if run.state in holding)),
            queued=_amount(key, self.in_state(RunState.QUEUED)),
            bucket=self.buckets.get(key),
        )

    # --- lines

    def _activate(self, run: StoredRun) -> None:
        active = {other.line: other for other in self.in_state(RunState.QUEUED)}
        if run.line in active:
            return
        tags = {line: self.tags[line] for line in active}
        same = [
            tags[line]
            for line, other in active.items()
            if other.known.rules.priority == run.known.rules.priority
        ]
        others = PoolTags(
            min(same, default=None),
            min(tags.values(), default=None),
            max(self.tags.values(), default=None),
        )
        self.tags[run.line] = activation_tag(self.tags.get(run.line, 0.0), others)


def gates_of(known: KnownJob) -> JobRules:
    rules = known.rules
    return JobRules(known.id, known.name, rules.overlap, rules.max_concurrency)


def _amount(key: Key, runs: Iterable[StoredRun]) -> int:
    return sum(run.keys.get(key, 0) for run in runs)

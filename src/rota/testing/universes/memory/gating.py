"""Passing runs through the gates of their job and of the keys that they share."""

from __future__ import annotations

from collections.abc import Iterable

from rota.domain.gates import JobRules, admit, job_key, releasable
from rota.domain.ids import RunId
from rota.domain.order import PoolTags, activation_tag
from rota.domain.shared_keys import (
    Bucket,
    Key,
    KeyKind,
    KeyState,
    Rate,
    Shortage,
    kind_of,
    shortage,
)
from rota.domain.states import LEASED_STATES, RunEvent, RunState
from rota.testing.universes.catalogue import KnownJob, rule_of
from rota.testing.universes.memory.rows import StoredRun

_UNKNOWN_TOO = LEASED_STATES | {RunState.UNKNOWN}


class Book:
    """All runs, and how lines and buckets stand. What is held is always counted anew."""

    def __init__(self) -> None:
        self.runs: dict[RunId, StoredRun] = {}
        self.live: dict[RunId, StoredRun] = {}  # those that are not final, by age
        self.tags: dict[str, float] = {}  # by line
        self.buckets: dict[Key, Bucket] = {}

    def end(self, run: StoredRun, event: RunEvent) -> None:
        run.move(event)
        del self.live[run.id]

    def in_state(self, state: RunState) -> list[StoredRun]:
        return [run for run in self.live.values() if run.state is state]

    # --- the gates of jobs

    def admit(self, run: StoredRun, now: int) -> None:
        """A run whose time has come is queued, blocked or skipped."""
        rules = gates_of(run.known)
        others = self._active(run.known, now, without=run)
        admission = admit(rules, run.as_active(), [other.as_active() for other in others])
        for older in admission.supersedes:
            self.end(self.runs[older], RunEvent.SKIPPED)
        for older in admission.cancels:
            self.cancel(self.runs[older])
        match admission.state:
            case RunState.QUEUED:
                self.queue_or_block(run, now)
            case RunState.BLOCKED:
                self.block(run, admission.blocked_on)
            case _:
                self.end(run, RunEvent.SKIPPED)

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

    def cancel(self, run: StoredRun) -> None:
        if run.state in LEASED_STATES:
            run.is_cancel_requested = True
        elif run.state is not RunState.UNKNOWN:
            self.end(run, RunEvent.CANCELLED)

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

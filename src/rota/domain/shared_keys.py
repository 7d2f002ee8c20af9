"""Keys that runs of many jobs share: rate limits, named resources, `exclusive_by`, quotas.

A run that uses keys is let through to the queue while there seems to be room, and takes them when
it is claimed, under the lock of each. It gives them back with the end of its attempt: who holds
what is read from live attempts. Tokens of a rate limit are never given back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

Key: TypeAlias = str  # kind:project/name
Demands: TypeAlias = Mapping[Key, int]  # how much of each key a run takes

SECOND = 1_000_000  # instants are microseconds, as the store has them
FORESEEABLE = 36_525 * 86_400 * SECOND  # a century: nobody is told a time beyond it


class KeyKind(StrEnum):
    """In the order of the gates."""

    EXCLUSIVE = "exclusive"
    RATE = "rate"
    QUOTA = "quota"
    RESOURCE = "resource"


_PLACES = {kind: place for place, kind in enumerate(KeyKind)}


def key_of(kind: KeyKind, project: str, name: str) -> Key:
    return f"{kind}:{project}/{name}"


def kind_of(key: Key) -> KeyKind:
    return KeyKind(key.split(":", 1)[0])


def gate_order(key: Key) -> tuple[int, Key]:
    """What keys are sorted by to come in the order of their gates."""
    return _PLACES[kind_of(key)], key


def name_of(key: Key) -> str:
    """What people call it, without kind and project."""
    return key.split(":", 1)[1].split("/", 1)[1]


@dataclass(frozen=True, slots=True)
class Counted:
    """A number of units that runs hold while they run."""

    total: int


ONE_AT_A_TIME = Counted(1)  # the rule of every `exclusive_by`


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket as declared: in any t seconds at most burst + rate × t tokens are taken."""

    tokens: float
    per: float  # seconds
    burst: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.per


KeyRule: TypeAlias = Counted | Rate


@dataclass(frozen=True, slots=True)
class Bucket:
    """How full a token bucket was, and when."""

    rule: Rate
    level: float
    at: int

    @classmethod
    def full(cls, rule: Rate, now: int) -> Bucket:
        return cls(rule, rule.burst, now)

    def level_at(self, now: int) -> float:
        gained = max(now - self.at, 0) / SECOND * self.rule.rate
        return min(self.level + gained, self.rule.burst)

    def take(self, tokens: float, now: int) -> Bucket:
        """The bucket without these tokens; it never moves back in time."""
        return replace(self, level=self.level_at(now) - tokens, at=max(now, self.at))

    def holds(self, tokens: float, now: int) -> bool:
        return self.level_at(now) >= tokens

    def ready_at(self, tokens: float, now: int) -> int:
        """The first instant at which so many tokens have come, if nobody else takes any before.

        More than the bucket can hold come as well, to those who take them as they come.
        """
        missing = tokens - self.level_at(now)
        if missing <= 0:
            return now
        ready = max(now, self.at) + max(math.ceil(missing / self.rule.rate * SECOND), 1)
        step = 1  # rounding must not promise what is not there yet, and is coarse in deep debt
        while tokens <= self.rule.burst and not self.holds(tokens, ready):
            ready += step
            step *= 2
        return ready

    def foreseen_at(self, tokens: float, now: int) -> int | None:
        """The same; None: never, or so late that nobody is told."""
        return _told(self.ready_at(tokens, now), now) if self.rule.tokens else None


@dataclass(frozen=True, slots=True)
class KeyState:
    """How a key stands: its rule, what live runs hold, and what those in the queue will take."""

    rule: KeyRule
    held: int = 0  # of a counted key, by live attempts
    queued: int = 0  # by runs that were let through and not claimed yet
    bucket: Bucket | None = None  # of a rate; None: full
    kept: int = 0  # for a run that goes before whoever asks, and waits for another key still

    def bucket_of(self, rule: Rate, now: int) -> Bucket:
        """Its bucket, which has this rule."""
        return self.bucket or Bucket.full(rule, now)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a run may not have a key now."""

    key: Key
    eligible_at: int | None  # when it may; None: when others end, or hardly ever
    used: int  # units held and promised, or tokens that are gone
    total: int
    is_behind: bool = False  # there is enough, but others wait for it and go before


def wanted(amount: int, rule: KeyRule) -> int:
    """What a run takes that asks for so much: all there is, if it asks for more than that.

    Of a key that nobody may have it still takes something, so nobody gets it.
    """
    return min(amount, max(_most(rule), 1))


def shortage(key: Key, amount: int, state: KeyState, now: int, *, claims: bool) -> Shortage | None:
    """Why so much of a key cannot be had; None: it can.

    A run that `claims` competes with what is held; one that comes to the queue also with those
    that are there already, so that a key never has many more runs queued than it can serve.
    """
    queued, kept = (0, 0) if claims else (state.queued, state.kept)
    amount = wanted(amount, state.rule)
    match state.rule:
        case Counted(total):
            used = state.held + queued
            if used + kept + amount <= total:
                return None
            return Shortage(key, None, used, total, is_behind=used + amount <= total)
        case Rate() as rule:
            bucket, asked = state.bucket_of(rule, now), amount + queued
            if bucket.holds(asked + kept, now):
                return None
            ready = bucket.foreseen_at(asked + kept, now)
            is_behind = bucket.holds(asked, now)
            return Shortage(key, ready, _used(state, now, queued), _most(rule), is_behind)


def behind(key: Key, amount: int, state: KeyState, now: int, last_at: int | None) -> Shortage:
    """The same for a run that others go before, the last of whom may go at `last_at`."""
    found = shortage(key, amount, state, now, claims=False)
    eligible_at = found.eligible_at if found else None
    match state.rule:
        case Rate() as rule if last_at is not None and rule.tokens:
            later = last_at + math.ceil(wanted(amount, rule) / rule.rate * SECOND)
            eligible_at = _told(max(later, eligible_at or now), now)
    used, total = _used(state, now, state.queued), _most(state.rule)
    is_behind = found is None or found.is_behind
    return Shortage(key, eligible_at, used, total, is_behind)


def _told(at: int | None, now: int) -> int | None:
    return None if at is None or at - now > FORESEEABLE else at


def _most(rule: KeyRule) -> int:
    """How much of it anybody can have at once."""
    return rule.total if isinstance(rule, Counted) else int(rule.burst)


def _used(state: KeyState, now: int, queued: int) -> int:
    match state.rule:
        case Counted():
            return state.held + queued
        case Rate() as rule:
            level = state.bucket_of(rule, now).level_at(now)
            return _most(rule) - max(int(level) - queued, 0)

"""Keys that runs of many jobs share: rate limits, named resources, `exclusive_by`, quotas.

Declarations of keys, the keys that a run takes, and the state of each.

A run that uses keys is let through to the queue while there seems to be room, and takes them when
it is claimed, under the lock of each. It gives them back with the end of its attempt: who has
what is read from live attempts. Tokens of a rate limit are never given back.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

from rota.domain.job import RunRules

Key: TypeAlias = str  # kind:project/name
Demands: TypeAlias = Mapping[Key, int]  # how much of each key a run takes

SECOND = 1_000_000  # instants are microseconds, as the store has them
FORESEEABLE = 36_525 * 86_400 * SECOND  # a century: nobody is told a time beyond it


class KeyKind(StrEnum):
    """Kinds of keys, in the order of the gates."""

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
    """Return what keys are sorted by to come in the order of their gates."""
    return _PLACES[kind_of(key)], key


def name_of(key: Key) -> str:
    """Return the name that people use, without kind and project."""
    return key.split(":", 1)[1].split("/", 1)[1]


@dataclass(frozen=True, slots=True)
class Counted:
    """Number of units that runs occupy while they run."""

    total: int


ONE_AT_A_TIME = Counted(1)  # the rule of every `exclusive_by`


@dataclass(frozen=True, slots=True)
class Rate:
    """Token bucket as declared: in any t seconds at most burst + rate × t tokens are taken."""

    tokens: float
    per: float  # seconds
    burst: float

    @property
    def rate(self) -> float:
        """Rate in tokens a second."""
        return self.tokens / self.per


KeyRule: TypeAlias = Counted | Rate


@dataclass(frozen=True, slots=True)
class Bucket:
    """Level of a token bucket, and when it had that."""

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
        """Return the bucket without these tokens; it never moves back in time."""
        return replace(self, level=self.level_at(now) - tokens, at=max(now, self.at))

    def has(self, tokens: float, now: int) -> bool:
        return self.level_at(now) >= tokens

    def ready_at(self, tokens: float, now: int) -> int:
        """Return the first instant with so many tokens, if nobody else takes any before.

        More than the bucket can hold come as well, to those who take them as they come.
        """
        missing = tokens - self.level_at(now)
        if missing <= 0:
            return now
        ready = max(now, self.at) + max(math.ceil(missing / self.rule.rate * SECOND), 1)
        step = 1  # rounding must not promise what is not there yet, and is coarse in deep debt
        while tokens <= self.rule.burst and not self.has(tokens, ready):
            ready += step
            step *= 2
        return ready

    def foreseen_at(self, tokens: float, now: int) -> int | None:
        """Return `ready_at`; None: never, or so late that nobody is told."""
        return _if_foreseeable(self.ready_at(tokens, now), now) if self.rule.tokens else None


@dataclass(frozen=True, slots=True)
class KeyState:
    """State of a key: its rule, what live runs occupy, and what those in the queue will take."""

    rule: KeyRule
    held: int = 0  # of a counted key, by live attempts
    queued: int = 0  # by runs that were let through and not claimed yet
    bucket: Bucket | None = None  # of a rate; None: full
    kept: int = 0  # for a run that goes before whoever asks, and waits for another key still

    def bucket_of(self, rule: Rate, now: int) -> Bucket:
        """Return its bucket, which has this rule."""
        return self.bucket or Bucket.full(rule, now)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Reason why a run may not have a key now."""

    key: Key
    eligible_at: int | None  # when it may; None: when others end, or hardly ever
    used: int  # units held and promised, or tokens that are gone
    total: int
    is_behind: bool = False  # there is enough, but others wait for it and go before


def wanted(amount: int, rule: KeyRule) -> int:
    """Return what a run takes that demands so much: all there is, if it demands more than that.

    Of a key that nobody may have it still takes something, so nobody gets it.
    """
    return min(amount, max(_most(rule), 1))


def shortage(key: Key, amount: int, state: KeyState, now: int, *, claims: bool) -> Shortage | None:
    """Return why so much of a key cannot be had; None: it can.

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
            if bucket.has(asked + kept, now):
                return None
            ready = bucket.foreseen_at(asked + kept, now)
            is_behind = bucket.has(asked, now)
            return Shortage(key, ready, _used(state, now, queued), _most(rule), is_behind)


def behind(key: Key, amount: int, state: KeyState, now: int, last_at: int | None) -> Shortage:
    """Return the shortage of a run that others go before, the last of whom may go at `last_at`."""
    found = shortage(key, amount, state, now, claims=False)
    eligible_at = found.eligible_at if found else None
    match state.rule:
        case Rate() as rule if last_at is not None and rule.tokens:
            later = last_at + math.ceil(wanted(amount, rule) / rule.rate * SECOND)
            eligible_at = _if_foreseeable(max(later, eligible_at or now), now)
    used, total = _used(state, now, state.queued), _most(state.rule)
    is_behind = found is None or found.is_behind
    return Shortage(key, eligible_at, used, total, is_behind)


def _if_foreseeable(at: int | None, now: int) -> int | None:
    return None if at is None or at - now > FORESEEABLE else at


def _most(rule: KeyRule) -> int:
    """Return how much of it anybody can have at once."""
    return rule.total if isinstance(rule, Counted) else int(rule.burst)


def _used(state: KeyState, now: int, queued: int) -> int:
    match state.rule:
        case Counted():
            return state.held + queued
        case Rate() as rule:
            level = state.bucket_of(rule, now).level_at(now)
            return _most(rule) - max(int(level) - queued, 0)


READERS = 1_000_000  # of a read/write group: a writer takes all of it
# Names of the keys behind a quota.
RUNNING_QUOTA, MINUTE_QUOTA, OUTPUT_QUOTA = "running", "runs-per-minute", "output-bytes-per-day"
WAITING_QUOTA = "queued"  # nobody takes of it: whoever submits runs counts under its lock
_MINUTE, _DAY = 60.0, 86_400.0


class Each(StrEnum):
    """Owner of a separate bucket; such a limit is for all runs of the project."""

    NOBODY = ""  # one bucket, for the jobs that name it
    JOB = "job"
    USER = "user"
    PROJECT = "project"


class Sharing(StrEnum):
    """How runs share a named resource."""

    COUNTED = "counted"
    MUTEX = "mutex"
    READ_WRITE = "read_write"


@dataclass(frozen=True, slots=True)
class Limit:
    """Rate limit: `limits: [{name: s3-put, tokens: 10, per: 1s, burst: 10}]`."""

    project: str
    name: str
    tokens: int
    per: timedelta
    burst: int
    each: Each = Each.NOBODY

    @property
    def rule(self) -> KeyRule:
        return Rate(self.tokens, self.per.total_seconds(), self.burst)


@dataclass(frozen=True, slots=True)
class Resource:
    """Named resource: `resources: [{name: pg-license, total: 4}]`."""

    project: str
    name: str
    total: int = 1
    sharing: Sharing = Sharing.COUNTED

    @property
    def rule(self) -> KeyRule:
        return Counted(READERS if self.sharing is Sharing.READ_WRITE else self.total)


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of a project. None: no bound."""

    name: ClassVar[str] = ""  # a project has one

    project: str
    jobs: int | None = None
    queued: int | None = None  # runs that wait; more are refused
    running: int | None = None
    runs_per_minute: int | None = None
    output_bytes_per_day: int | None = None  # of all attempts, charged when they end
    file_bytes: int | None = None  # of uploads, inputs and artifacts that are kept

    @property
    def rules(self) -> Mapping[str, KeyRule]:
        """Return the keys that every run of the project takes one of, by name.

        Of output that is the first byte: the rest is charged when it is known.
        """
        rules: dict[str, KeyRule] = {}
        if self.runs_per_minute is not None:
            rules[MINUTE_QUOTA] = Rate(self.runs_per_minute, _MINUTE, self.runs_per_minute)
        if self.running is not None:
            rules[RUNNING_QUOTA] = Counted(self.running)
        if self.output_bytes_per_day is not None:
            rules[OUTPUT_QUOTA] = Rate(self.output_bytes_per_day, _DAY, self.output_bytes_per_day)
        return rules


Declaration: TypeAlias = Limit | Resource | Quota

KINDS: Mapping[type[Limit | Resource | Quota], KeyKind] = {
    Limit: KeyKind.RATE,
    Resource: KeyKind.RESOURCE,
    Quota: KeyKind.QUOTA,
}


DeclarationId: TypeAlias = tuple[KeyKind, str, str]  # kind, project, name
_MAX_VALUES = 200  # characters of an `exclusive_by` key, which stores index; longer ones are hashed


@dataclass(frozen=True, slots=True)
class Asker:
    """Attributes of a run on which its keys depend."""

    rules: RunRules
    user: str  # who asked for it
    inputs: Mapping[str, Any]  # those that were given


def demands_of(asker: Asker, declared: Iterable[Declaration]) -> dict[Key, int]:
    """Return the amounts of keys that a run takes, by key; `declared` is for its whole project."""
    rules = asker.rules
    tokens = {key_of(KeyKind.RATE, rules.project, n): t for n, t in rules.rate_limits.items()}
    demands = {key_of(KeyKind.RESOURCE, rules.project, n): u for n, u in rules.uses.items()}
    if rules.exclusive_by:
        demands[exclusive_key(asker)] = 1
    for declaration in declared:
        if isinstance(declaration, Quota):
            names = [key_of(KeyKind.QUOTA, rules.project, name) for name in declaration.rules]
            demands.update(dict.fromkeys(names, 1))
        elif isinstance(declaration, Limit) and is_for_all(declaration):
            shared = key_of(KeyKind.RATE, rules.project, declaration.name)
            demands[shared + _suffix(declaration.each, asker)] = tokens.pop(shared, 1)
    return dict(sorted({**tokens, **demands}.items()))


def takes_keys(rules: RunRules) -> bool:
    """Return whether runs under these rules take keys, apart from those of the whole project."""
    return bool(rules.uses or rules.rate_limits or rules.exclusive_by)


def exclusive_key(asker: Asker) -> Key:
    """Return the key of all runs of the project that have these values of the same inputs."""
    rules = asker.rules
    given = {**rules.exclusive_defaults, **asker.inputs}
    values = {name: _plain(given.get(name)) for name in sorted(rules.exclusive_by)}
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    if len(text) > _MAX_VALUES:
        names = ",".join(values)[:_MAX_VALUES]
        text = f"{names}#{hashlib.sha256(text.encode()).hexdigest()}"
    return key_of(KeyKind.EXCLUSIVE, rules.project, text)


def _plain(value: object) -> object:
    """Normalise numbers, so that equal ones are written alike: 7.0 is 7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def charged_for_output(keys: Iterable[Key]) -> Key | None:
    """Return the key of a run that its output is charged to; None: none is."""
    return next((key for key in keys if is_charged_later(key)), None)


def is_charged_later(key: Key) -> bool:
    """Return whether the amount that runs take of a key is known at their end only."""
    return kind_of(key) is KeyKind.QUOTA and name_of(key) == OUTPUT_QUOTA


def declaration_of(key: Key) -> DeclarationId:
    """Return the declaration that a key is about; `exclusive_by` has none."""
    kind, name = kind_of(key), name_of(key)
    project = key.split(":", 1)[1].split("/", 1)[0]
    return kind, project, "" if kind is KeyKind.QUOTA else name.split("/", 1)[0]


def is_for_all(declaration: Declaration) -> bool:
    """Return whether every run of the project takes its keys, whatever its job says."""
    match declaration:
        case Quota():
            return bool(declaration.rules)
        case Limit():
            return declaration.each is not Each.NOBODY
        case _:
            return False


def keys_of(declaration: Declaration) -> list[Key]:
    """List the keys of a declaration, as far as it alone determines them."""
    match declaration:
        case Limit(each=Each.JOB | Each.USER):
            names: list[str] = []
        case Quota():
            names = list(declaration.rules)
        case _:
            names = [declaration.name]
    return [key_of(KINDS[type(declaration)], declaration.project, name) for name in names]


def prefix_of(declaration: Declaration) -> str | None:
    """Return the prefix of its keys, where each job or user has one of its own."""
    if isinstance(declaration, Limit) and declaration.each in (Each.JOB, Each.USER):
        return key_of(KeyKind.RATE, declaration.project, declaration.name) + "/"
    return None


def rule_of(key: Key, declared: Mapping[DeclarationId, Declaration]) -> KeyRule | None:
    """Return the rule of a key; None: it has none (any more), and everybody may have it."""
    if kind_of(key) is KeyKind.EXCLUSIVE:
        return ONE_AT_A_TIME
    declaration = declared.get(declaration_of(key))
    match declaration:
        case None:
            return None
        case Quota():
            return declaration.rules.get(name_of(key))
        case _:
            return declaration.rule


def _suffix(each: Each, asker: Asker) -> str:
    match each:
        case Each.JOB:
            return f"/job={asker.rules.name}"
        case Each.USER:
            return f"/user={asker.user}"
        case Each.PROJECT | Each.NOBODY:
            return ""

"""Which shared keys a run takes, and which declaration rules a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rota.domain.job import RunRules
from rota.domain.limits import KINDS, OUTPUT_QUOTA, Declaration, Each, Limit, Quota
from rota.domain.shared_keys import (
    ONE_AT_A_TIME,
    Key,
    KeyKind,
    KeyRule,
    key_of,
    kind_of,
    name_of,
)

DeclarationId: TypeAlias = tuple[KeyKind, str, str]  # kind, project, name
_MAX_VALUES = 200  # characters of an `exclusive_by` key, which stores index; longer ones are hashed


@dataclass(frozen=True, slots=True)
class Asker:
    """A run, as far as the keys that it takes depend on it."""

    rules: RunRules
    user: str  # who asked for it
    inputs: Mapping[str, Any]  # those that were given


def demands_of(asker: Asker, declared: Iterable[Declaration]) -> dict[Key, int]:
    """How much of which keys a run takes, sorted by key; `declared` is for its whole project."""
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
    """Whether runs under these rules take keys, whatever is declared for all of the project."""
    return bool(rules.uses or rules.rate_limits or rules.exclusive_by)


def exclusive_key(asker: Asker) -> Key:
    """The key of all runs of the project that have these values of the same inputs."""
    rules = asker.rules
    given = {**rules.exclusive_defaults, **asker.inputs}
    values = {name: _plain(given.get(name)) for name in sorted(rules.exclusive_by)}
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    if len(text) > _MAX_VALUES:
        names = ",".join(values)[:_MAX_VALUES]
        text = f"{names}#{hashlib.sha256(text.encode()).hexdigest()}"
    return key_of(KeyKind.EXCLUSIVE, rules.project, text)


def _plain(value: object) -> object:
    """Equal numbers are written alike: 7.0 is 7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def charged_for_output(keys: Iterable[Key]) -> Key | None:
    """Which of the keys of a run its output is charged to; None: to none."""
    return next((key for key in keys if is_charged_later(key)), None)


def is_charged_later(key: Key) -> bool:
    """Whether what runs take of a key is known at their end only."""
    return kind_of(key) is KeyKind.QUOTA and name_of(key) == OUTPUT_QUOTA


def declaration_of(key: Key) -> DeclarationId:
    """The declaration that a key is about; of `exclusive_by` there is none to be found."""
    kind, name = kind_of(key), name_of(key)
    project = key.split(":", 1)[1].split("/", 1)[0]
    return kind, project, "" if kind is KeyKind.QUOTA else name.split("/", 1)[0]


def is_for_all(declaration: Declaration) -> bool:
    """Whether every run of the project takes its keys, whatever its job says."""
    match declaration:
        case Quota():
            return bool(declaration.rules)
        case Limit():
            return declaration.each is not Each.NOBODY
        case _:
            return False


def keys_of(declaration: Declaration) -> list[Key]:
    """The keys behind a declaration, as far as it alone tells them."""
    match declaration:
        case Limit(each=Each.JOB | Each.USER):
            names: list[str] = []
        case Quota():
            names = list(declaration.rules)
        case _:
            names = [declaration.name]
    return [key_of(KINDS[type(declaration)], declaration.project, name) for name in names]


def prefix_of(declaration: Declaration) -> str | None:
    """What its keys begin with, where each job or user has one of its own."""
    if isinstance(declaration, Limit) and declaration.each in (Each.JOB, Each.USER):
        return key_of(KeyKind.RATE, declaration.project, declaration.name) + "/"
    return None


def rule_of(key: Key, declared: Mapping[DeclarationId, Declaration]) -> KeyRule | None:
    """The rule of a key; None: it has none (any more), and everybody may have it."""
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

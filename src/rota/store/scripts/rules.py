"""The rules of job versions, read once: a version never changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.job import RunRules
from rota.domain.keys import takes_keys
from rota.domain.shape import shape_of
from rota.store.rows import rules_from
from rota.store.script import Row, Script, query

Ref = tuple[str, int]  # job id, version
_MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class VersionRules:
    """What the runs of one version have in common, worked out once and not for each of them."""

    rules: RunRules
    shape: str
    timeout: int | None  # microseconds that an attempt may take
    deadline: int | None  # microseconds after the due time
    objective: int | None  # microseconds after the release
    takes_keys: bool  # whatever is declared for all runs of the project


class RulesBook:
    """A cache of what versions say.

    To be asked only about versions that somebody has seen committed: the version a transaction
    is about to write may be undone and written again with other rules.
    """

    def __init__(self) -> None:
        self._entries: dict[Ref, VersionRules] = {}

    def load(
        self, refs: Collection[Ref], seen: Iterable[Row] = ()
    ) -> Script[Mapping[Ref, VersionRules]]:
        """The rules of each version; those that do not exist are left out.

        What rows that were `seen` say of their jobs' versions is not looked up again.
        """
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.clear()
        missing = {ref for ref in refs if ref not in self._entries}
        if missing:
            missing -= self._learn(row for row in seen if _ref(row) in missing)
        if missing:
            jobs, versions = {job for job, _ in missing}, {version for _, version in missing}
            self._learn((yield query("select_rules", ids=jobs, versions=versions)))
        return {ref: self._entries[ref] for ref in refs if ref in self._entries}

    def _learn(self, rows: Iterable[Row]) -> set[Ref]:
        new = {_ref(row): _compiled(rules_from(row["rules"])) for row in rows}
        self._entries |= new
        return set(new)


def _ref(row: Row) -> Ref:
    return row["job_id"], row["version"]


def _compiled(rules: RunRules) -> VersionRules:
    return VersionRules(
        rules,
        shape_of(rules),
        _micros(rules.timeout),
        _micros(rules.deadline),
        _micros(rules.start_within),
        takes_keys(rules),
    )


def _micros(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(microseconds=1)

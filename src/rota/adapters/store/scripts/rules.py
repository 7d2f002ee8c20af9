"""The rules of job versions, read once: a version never changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rota.adapters.store.rows import rules_from
from rota.adapters.store.script import Script, query
from rota.domain.job import RunRules
from rota.domain.shape import shape_of

Ref = tuple[str, int]  # job id, version
_MAX_ENTRIES = 10_000


class RulesBook:
    """A cache of rules and shapes.

    To be asked only about versions that somebody has seen committed: the version a transaction
    is about to write may be undone and written again with other rules.
    """

    def __init__(self) -> None:
        self._entries: dict[Ref, tuple[RunRules, str]] = {}

    def load(self, refs: Collection[Ref]) -> Script[Mapping[Ref, tuple[RunRules, str]]]:
        """Rules and shape of each version; those that do not exist are left out."""
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.clear()
        missing = [ref for ref in refs if ref not in self._entries]
        if missing:
            jobs, versions = {job for job, _ in missing}, {version for _, version in missing}
            for row in (yield query("select_rules", ids=jobs, versions=versions)):
                rules = rules_from(row["rules"])
                self._entries[row["job_id"], row["version"]] = (rules, shape_of(rules))
        return {ref: self._entries[ref] for ref in refs if ref in self._entries}

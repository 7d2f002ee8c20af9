"""The rules of job versions, read once: a version never changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.adapters.store.rows import rules_from
from rota.adapters.store.script import Script, query
from rota.domain.job import RunRules
from rota.domain.shape import shape_of

Ref = tuple[str, int]  # job id, version
_MAX_ENTRIES = 100_000


class RulesBook:
    """A cache of rules; safe to keep across transactions, even those that were undone."""

    def __init__(self) -> None:
        self._entries: dict[Ref, tuple[RunRules, str]] = {}

    def load(self, refs: Iterable[Ref]) -> Script[Mapping[Ref, tuple[RunRules, str]]]:
        """Rules and shape of each version."""
        wanted = set(refs)
        missing = {job for job, version in wanted if (job, version) not in self._entries}
        if missing:
            if len(self._entries) > _MAX_ENTRIES:
                self._entries.clear()
            rows = yield query("select_rules", ids=missing)
            for row in rows:
                rules = rules_from(row["rules"])
                self._entries[row["job_id"], row["version"]] = (rules, shape_of(rules))
        return self._entries

"""Runs that hints name, gathered until somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.domain.ids import is_run_id
from rota.ports.queue import MAX_NAMED


def run_ids(texts: Iterable[str]) -> tuple[str, ...]:
    """Those of the texts in a message that may reach the store: anybody may have written it."""
    return tuple(filter(is_run_id, texts))


class Names:
    """Run ids, each once and in order; too many, or none named, and it names nothing."""

    def __init__(self, limit: int = MAX_NAMED) -> None:
        self._limit = limit
        self._runs: dict[str, None] = {}
        self._is_vague = False

    def add(self, runs: Sequence[str]) -> None:
        if not self._is_vague:
            self._runs.update(dict.fromkeys(runs))
            self._is_vague = not runs or len(self._runs) > self._limit
        if self._is_vague:
            self._runs.clear()

    def empty(self) -> tuple[str, ...]:
        """What was gathered; nothing is left."""
        runs = tuple(self._runs)
        self._runs.clear()
        self._is_vague = False
        return runs

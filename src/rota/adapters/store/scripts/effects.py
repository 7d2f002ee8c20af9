"""What a transaction tells others: wake-ups, events, tallies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.adapters.store.rows import to_json
from rota.adapters.store.script import Many, Script
from rota.domain.ids import SessionId
from rota.ports.records import Wakes


@dataclass(slots=True)
class Effects:
    """Whom a transaction concerns; filled as it goes."""

    pools: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    times: bool = False

    def wakes(self) -> Wakes:
        return Wakes(
            pools=frozenset(self.pools),
            sessions=frozenset(SessionId(session) for session in self.sessions),
            times=self.times,
        )


def record(event: str, now: int, ids: Sequence[str], *, actor: str, **data: object) -> Many:
    """The event of one batch transition."""
    return Many("insert_event", [(event, now, actor, "", to_json(ids), to_json(data))])


def count_ends(ends: Iterable[tuple[str, str]]) -> Script[None]:
    """Keep the tally of (job, state)."""
    tally = Counter(ends)
    if tally:
        yield Many("count_ends", [(job, state, count) for (job, state), count in tally.items()])

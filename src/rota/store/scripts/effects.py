"""What a transaction leaves behind beside what it is about: wake-ups, events, lines, tallies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.domain.ids import SessionId
from rota.ports.queue import MAX_NAMED
from rota.ports.records import Wakes
from rota.store.rows import to_json
from rota.store.script import Many, Script, query
from rota.store.scripts.lines import Line, Lines
from rota.store.scripts.memory import Memory
from rota.store.scripts.offers import add_up


@dataclass(slots=True)
class Effects:
    """Whom a transaction concerns, and what it counts; filled as it goes."""

    pools: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    sessions: set[str] = field(default_factory=set)
    times: bool = False
    carts: bool = False
    followed: bool = False
    keys: bool = False
    memory: Memory = field(default_factory=Memory)  # of claims
    lines: Lines = field(default_factory=Lines)
    left: dict[str, str] = field(default_factory=dict)  # runs by the session that is to claim them
    served: Counter[str] = field(default_factory=Counter)  # by pool
    offers: set[str] = field(default_factory=set)  # pools whose workers came or went
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)  # by job and state
    delays: defaultdict[tuple[str, float], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )  # seconds, by pool and bound of the bucket

    def queued(self, line: Line, run: str, returned: int | None = None) -> None:
        """A run waits for a worker; `returned` is its number if it is not new."""
        self.lines.enter(line, returned)
        self.pools[line.pool][run] = None

    def claimed(self, runs: Iterable[str]) -> None:
        """Nobody needs to hear of runs that found a worker right away."""
        for run in runs:
            for waiting in self.pools.values():
                waiting.pop(run, None)
            self.left.pop(run, None)

    def conclude(self) -> Script[Wakes]:
        """Write what many transactions write to, as the last thing; returns whom to wake."""
        yield from self.lines.write()
        for pool, served in sorted(self.served.items()):
            yield query("count_served", pool=pool, served=served)
        for pool in sorted(self.offers):
            yield from add_up(pool)
        if self.delays:
            delays = [(*key, len(each), sum(each)) for key, each in sorted(self.delays.items())]
            yield Many("count_delays", delays)
        if self.ends:
            yield Many("count_ends", [(*key, count) for key, count in sorted(self.ends.items())])
        return self._wakes()

    def _wakes(self) -> Wakes:
        return Wakes(
            pools={
                pool: tuple(runs) if len(runs) <= MAX_NAMED else ()
                for pool, runs in self.pools.items()
                if runs
            },
            sessions=frozenset(SessionId(session) for session in self.sessions),
            times=self.times,
            carts=self.carts,
            followed=self.followed,
            workers=bool(self.offers),
            keys=self.keys,
            favoured=frozenset(SessionId(session) for session in self.left.values()),
        )


def record(event: str, now: int, ids: Sequence[str], *, actor: str, **data: object) -> Many:
    """The event of one batch transition."""
    return Many("insert_event", [(event, now, actor, "", to_json(ids), to_json(data))])

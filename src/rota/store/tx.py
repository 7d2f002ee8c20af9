"""One transaction: its time, its effects on others, and the hooks by which carts take part in it.

A script that writes is given a `Tx` of its own for each try: a transaction that is retried keeps
nothing of the try that failed. Its counts are written as the last thing before the commit, as they
lock rows that all jobs share; whom it concerns is notified by `Transactions` after the commit.

Scripts about runs, their ends and their gates do not know what a cart is. They call the functions
at the end of this module with what runs carry in their column `cart`; `carts.py` registers what
happens there. The hooks are here because the locks of carts come first in a transaction, and their
verdict on a failure has to be in the transaction in which the failure happened.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias, TypeVar

from rota.domain.gates import Admission
from rota.domain.ids import SessionId
from rota.domain.lateness import Bucket, histogram
from rota.ports.queue import MAX_NAMED, Wakes
from rota.store.chains import ChainChanges, ChainKey, chain_of
from rota.store.memory import Memory, RulesCache, add_up
from rota.store.rows import by_kind, to_json
from rota.store.script import Many, Row, Rows, Script, Together

INSTALLATION = ""  # what an event has as its project that is not about things of one

T = TypeVar("T")
_id, _project = itemgetter("id"), itemgetter("project")


@dataclass(slots=True)
class Effects:
    """Whom a transaction has to notify, and what it counts; filled as it goes."""

    pools: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    reopened: set[str] = field(default_factory=set)  # pools whose queued runs may find a worker
    sessions: set[str] = field(default_factory=set)
    times: bool = False
    carts: bool = False
    followed: bool = False
    keys: bool = False
    events: bool = False
    callers: bool = False  # what somebody may do has changed: servers forget whom they trust
    learned: list[tuple[object, ...]] = field(default_factory=list)  # durations of jobs
    recorded: list[tuple[object, ...]] = field(default_factory=list)  # rows of events
    chains: ChainChanges = field(default_factory=ChainChanges)
    left: dict[str, str] = field(default_factory=dict)  # runs by the session that is to claim them
    served: Counter[str] = field(default_factory=Counter)  # by pool
    offers: set[str] = field(default_factory=set)  # pools whose workers came or went
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)  # by job and state
    delays: dict[tuple[str, float], Bucket] = field(default_factory=dict)  # by pool and bound

    def queued(self, chain: ChainKey, run: str, returned: int | None = None) -> None:
        """A run waits for a worker; `returned` is its number if it is not new."""
        self.chains.enter(chain, returned)
        self.pools[chain.pool][run] = None

    def returned(self, rows: Iterable[Row]) -> None:
        """Runs that are not new wait for a worker: many of them, in few chains."""
        oldest: dict[str, Row] = {}  # by chain
        for row in rows:
            self.pools[row["pool"]][row["id"]] = None
            if row["seq"] <= oldest.setdefault(row["chain"], row)["seq"]:
                oldest[row["chain"]] = row
        for row in oldest.values():
            self.chains.enter(chain_of(row), row["seq"])

    def claimed(self, runs: Collection[str]) -> None:
        """Offer no runs to others that found a worker in this transaction."""
        for waiting in filter(None, self.pools.values()):
            for run in runs:
                waiting.pop(run, None)
        for run in runs if self.left else ():
            self.left.pop(run, None)

    def started(self, pool: str, delays: Iterable[float]) -> None:
        """Count how late runs of a pool had started, in seconds."""
        for bound, bucket in histogram(delays).items():
            self.delays[pool, bound] = self.delays.get((pool, bound), Bucket()) + bucket

    def conclude(self) -> Script[None]:
        """Write what many transactions write to, as the last thing: others wait for these rows."""
        changes = yield from self.chains.write()
        while self.offers and changes:  # chains before pools, as the order of locks has it
            yield changes.pop(0)
        for pool in sorted(self.offers):
            yield from add_up(pool)
        if self.learned:
            changes.append(Many("learn_duration", self.learned, exactly=False))
        if self.served:
            changes.append(Many("count_served", sorted(self.served.items())))
        if self.delays:
            delays = [
                (pool, bound, bucket.count, bucket.seconds)
                for (pool, bound), bucket in sorted(self.delays.items())
            ]
            changes.append(Many("count_delays", delays))
        if self.ends:
            ends = [(*key, count) for key, count in sorted(self.ends.items())]
            changes.append(Many("count_ends", ends))
        if self.callers:
            changes.append(Many("count_rights_change", [("rights",)]))
        if self.recorded:
            changes.append(Many("insert_event", self.recorded))
        if changes:
            yield Together(tuple(changes)) if len(changes) > 1 else changes[0]

    def wakes(self) -> Wakes:
        """Notifications to publish once the transaction is committed."""
        named = {
            pool: tuple(runs) if len(runs) <= MAX_NAMED else ()
            for pool, runs in self.pools.items()
            if runs
        }
        return Wakes(
            pools={**named, **dict.fromkeys(self.reopened, ())},
            sessions=frozenset(SessionId(session) for session in self.sessions),
            times=self.times,
            carts=self.carts,
            followed=self.followed,
            workers=bool(self.offers),
            keys=self.keys,
            favoured=frozenset(SessionId(session) for session in self.left.values()),
            events=self.events,
            callers=self.callers,
        )


@dataclass(slots=True)
class Tx:
    """The context of a script that writes."""

    now: int  # the store's clock when the transaction began, in microseconds
    rules: RulesCache
    memory: Memory
    effects: Effects = field(default_factory=Effects)

    def record(self, event: str, ids: Sequence[str], *, actor: str, **data: object) -> None:
        """Record the event of something of the installation, such as a worker or a token.

        Whoever follows events is notified. All events of a transaction are written together at its
        end, when the rows of `ids` are locked: what decides their position on PostgreSQL is what
        has ended by then (`insert_event`).
        """
        self.record_in(INSTALLATION, event, ids, actor=actor, **data)

    def record_in(
        self, project: str, event: str, ids: Sequence[str], *, actor: str, **data: object
    ) -> None:
        """Record the event of jobs, carts or other things of a project, by id or by name."""
        self.effects.events = True
        self._record(event, actor, project, ids, to_json(data))

    def record_each(self, event: str, rows: Rows, *, actor: str, **data: object) -> None:
        """Record the event of one batch transition of runs or jobs: one event for each project.

        Given are their rows, of which `id` and `project` are needed.
        """
        self.effects.events = True
        self._record_each(event, rows, actor, to_json(data))

    def record_quietly(self, event: str, rows: Rows, *, actor: str) -> None:
        """Record the event of a step that every run takes: followers find it when they poll next.

        To notify all servers of each claim and each start would cost as much as these do.
        """
        self._record_each(event, rows, actor, "{}")

    def _record_each(self, event: str, rows: Rows, actor: str, data: str) -> None:
        for project, same in by_kind(rows, _project).items():
            self._record(event, actor, project, list(map(_id, same)), data)

    def _record(self, event: str, actor: str, project: str, ids: Sequence[str], data: str) -> None:
        self.effects.recorded.append((event, self.now, actor, project, to_json(ids), data))


WriteScript: TypeAlias = Callable[[Tx], Script[T]]


def concluded(tx: Tx, script: Script[T]) -> Script[T]:
    """A whole transaction: the script, then what it leaves behind."""
    answer = yield from script
    yield from tx.effects.conclude()
    return answer


class CartHooks:
    """Hook points; by default nothing happens at them."""

    def lock_carts(self, runs: Sequence[str]) -> Script[list[str]]:
        """Lock the carts of these runs, whose bad ends are about to be counted; returns their ids.

        Before gates and runs are locked: see the order of locks in `script.py`.
        """
        yield from ()
        return []

    def runs_ended(self, tx: Tx, carts: list[str], gates: Collection[str]) -> Script[None]:
        """Runs of these carts, which are locked, have ended.

        Failures are judged in the transaction in which they happened, before anything new can
        start. `gates` are those that the transaction has locked.
        """
        yield from ()

    def share_gates(self, carts: Collection[str]) -> Script[None]:
        """Let no cart of these be paused or resumed until the transaction ends."""
        yield from ()

    def closed_gates(self, carts: Collection[str]) -> Script[Mapping[str, Admission]]:
        """Admissions for runs of those carts that are paused or ending."""
        yield from ()
        return {}


_registered = CartHooks()


def register(hooks: CartHooks) -> None:
    """Have these called from now on."""
    global _registered
    _registered = hooks


def lock_carts(runs: Sequence[str]) -> Script[list[str]]:
    return _registered.lock_carts(runs)


def runs_ended(tx: Tx, carts: list[str], gates: Collection[str]) -> Script[None]:
    return _registered.runs_ended(tx, carts, gates)


def share_gates(carts: Collection[str]) -> Script[None]:
    return _registered.share_gates(carts)


def closed_gates(carts: Collection[str]) -> Script[Mapping[str, Admission]]:
    return _registered.closed_gates(carts)

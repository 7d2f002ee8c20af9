"""One transaction: its time, what its store remembers, and whom it concerns once committed.

A script that writes is given a `Tx` of its own for each try: a transaction that is retried keeps
nothing of the try that failed. Its effects are written as the last thing before the commit, as they
lock rows that all jobs share, and published by the store's handle after it.

Where carts take part in the steps of runs.

A run may be of a cart. Scripts about runs, their ends and their gates do not know what a cart is:
they call the hooks of this module, with the ids that runs carry in their column `cart`. `carts.py`
registers what happens there. Without it, no run is of anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from rota.domain.gates import Admission
from rota.domain.ids import SessionId
from rota.ports.queue import MAX_NAMED, Wakes
from rota.store.chains import ChainChanges, ChainKey
from rota.store.memory import Memory, RulesBook, add_up
from rota.store.rows import to_json
from rota.store.script import Many, Script, query

T = TypeVar("T")


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
    chains: ChainChanges = field(default_factory=ChainChanges)
    left: dict[str, str] = field(default_factory=dict)  # runs by the session that is to claim them
    served: Counter[str] = field(default_factory=Counter)  # by pool
    offers: set[str] = field(default_factory=set)  # pools whose workers came or went
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)  # by job and state
    delays: defaultdict[tuple[str, float], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )  # seconds, by pool and bound of the bucket

    def queued(self, chain: ChainKey, run: str, returned: int | None = None) -> None:
        """A run waits for a worker; `returned` is its number if it is not new."""
        self.chains.enter(chain, returned)
        self.pools[chain.pool][run] = None

    def claimed(self, runs: Iterable[str]) -> None:
        """Offer no runs to others that found a worker in this transaction."""
        for run in runs:
            for waiting in self.pools.values():
                waiting.pop(run, None)
            self.left.pop(run, None)

    def conclude(self) -> Script[None]:
        """Write what many transactions write to, as the last thing: others wait for these rows."""
        yield from self.chains.write()
        for pool, served in sorted(self.served.items()):
            yield query("count_served", pool=pool, served=served)
        for pool in sorted(self.offers):
            yield from add_up(pool)
        if self.delays:
            delays = [(*key, len(each), sum(each)) for key, each in sorted(self.delays.items())]
            yield Many("count_delays", delays)
        if self.ends:
            yield Many("count_ends", [(*key, count) for key, count in sorted(self.ends.items())])

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
        )


@dataclass(slots=True)
class Tx:
    """The context of a script that writes."""

    now: int  # the store's clock when the transaction began, in microseconds
    rules: RulesBook
    memory: Memory
    effects: Effects = field(default_factory=Effects)

    def record(self, event: str, ids: Sequence[str], *, actor: str, **data: object) -> Many:
        """The event of one batch transition; whoever follows events is notified of it."""
        return self.record_in("", event, ids, actor=actor, **data)

    def record_in(
        self, project: str, event: str, ids: Sequence[str], *, actor: str, **data: object
    ) -> Many:
        """The event of something that has no id of its own, but a name in a project."""
        self.effects.events = True
        values = (event, self.now, actor, project, to_json(ids), to_json(data))
        return Many("insert_event", [values])

    def record_quietly(self, event: str, ids: Sequence[str], *, actor: str) -> Many:
        """The event of a step that every run takes: followers find it when they poll next.

        To notify all servers of each claim and each start would cost as much as these do.
        """
        return Many("insert_event", [(event, self.now, actor, "", to_json(ids), "{}")])


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

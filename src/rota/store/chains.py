"""The chains that runs wait in: which of them have runs, and what they were charged.

Many transactions write to the same few chains, so each does it once, after everything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from rota.domain.order import Chain, PoolTags, activation_tag, chain_id, group_of, share_of
from rota.store.script import Many, Row, Script, lock, query


@dataclass(frozen=True)
class ChainKey:
    """The chain a run waits in."""

    pool: str
    priority: int
    share: str

    @cached_property
    def id(self) -> str:
        return chain_id(self.pool, self.priority, self.share)


@lru_cache(maxsize=10_000)
def known_chain(pool: str, priority: int, share: str) -> ChainKey:
    """A key that is made once: thousands of runs enter few chains."""
    return ChainKey(pool, priority, share)


def chain_of(row: Row) -> ChainKey:
    """The chain of an existing run."""
    return known_chain(row["pool"], row["priority"], share_of(row["chain"]))


def chain_from(row: Row) -> Chain:
    """A chain as the order of service sees it."""
    return Chain(
        id=row["id"],
        priority=row["priority"],
        tag=row["tag"],
        weight=row["weight"],
        group=group_of(row["share"]),
        group_weight=row["group_weight"],
    )


def pool_of(chain: str) -> str:
    """The pool whose workers a chain waits for."""
    return chain.split("/", 1)[0]


@dataclass(slots=True)
class ChainChanges:
    """Changes of chains that a transaction writes at its end; filled as it goes."""

    _entered: dict[str, ChainKey] = field(default_factory=dict)
    _charges: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _left: set[str] = field(default_factory=set)
    _found: dict[str, Chain | None] = field(default_factory=dict)  # entered; None: it had runs
    returned: dict[str, int] = field(default_factory=dict)  # the oldest such run of each chain

    def enter(self, key: ChainKey, returned: int | None = None) -> None:
        """A run waits there from now on; `returned` is its number if it is not new."""
        self._entered[key.id] = key
        if returned is not None:
            self.returned[key.id] = min(returned, self.returned.get(key.id, returned))

    def leave(self, chains: Iterable[str]) -> None:
        """Runs of these wait no more: they may have been the last ones."""
        self._left.update(chains)

    def charge(self, chain: str, cost: float) -> None:
        self._charges[chain] += cost

    def serving(self, pool: str) -> Script[list[Chain]]:
        """The chains of a pool that have runs, as they will be once this is written."""
        rows = yield query("active_chains", pool=pool)
        chains = [chain_from(row) for row in rows]
        known = {chain.id for chain in chains}
        entered = {k: key for k, key in self._entered.items() if key.pool == pool}
        if not entered.keys() <= known:
            chains += (yield from self._resting(entered)).values()
        return [self._charged(chain) for chain in chains]

    def _charged(self, chain: Chain) -> Chain:
        charge = self._charges.get(chain.id)
        return chain if charge is None else replace(chain, tag=chain.tag + charge)

    def write(self) -> Script[list[Many]]:
        """Runs that entered make a chain active, charges move it, and one without runs rests.

        Returns what is left to write: charges, if nothing has to come after them.
        """
        if self._entered:
            yield from self._activate()
        charges = [(cost, chain) for chain, cost in sorted(self._charges.items())]
        if not self._left:
            return [Many("charge_chain", charges)] if charges else []
        if charges:
            yield Many("charge_chain", charges)
        empty = [row["id"] for row in (yield query("empty_chains", ids=self._left))]
        if empty:  # by a new look, now that nobody enters them
            yield query("rest_chains", ids=empty)
        return []

    def _activate(self) -> Script[None]:
        resting = yield from self._resting(self._entered)
        # Activating and charging would lock chains in two rounds, each in its own order. Where both
        # are to be done, all chains are locked before.
        if resting and self._charges:
            yield lock("chains", ids=sorted(resting.keys() | self._charges.keys()))
        for name, chain in resting.items():
            key = self._entered[name]
            yield query(
                "activate_chain",
                id=name,
                pool=key.pool,
                priority=key.priority,
                share=key.share,
                grouped=chain.group,
                tag=chain.tag,
            )

    def _resting(self, keys: Mapping[str, ChainKey]) -> Script[dict[str, Chain]]:
        """Those of these chains that had no runs, each as it starts again.

        One look at a chain will do: none of them rests from then on, and who else has made one
        active meanwhile has done what this transaction would do.
        """
        new = {name: key for name, key in keys.items() if name not in self._found}
        rows = (yield query("chains", ids=new)) if new else ()
        known = {row["id"]: row for row in rows}
        for name, key in sorted(new.items()):
            row = known.get(name)
            is_resting = row is None or not row["active"]
            self._found[name] = (yield from _starting(key, row)) if is_resting else None
        found = ((name, self._found[name]) for name in sorted(keys))
        return {name: chain for name, chain in found if chain is not None}


def _starting(key: ChainKey, row: Row | None) -> Script[Chain]:
    [tags] = yield query("pool_tags", pool=key.pool, priority=key.priority)
    others = PoolTags(tags["least_of_priority"], tags["least"], tags["greatest"])
    group = group_of(key.share)
    if row is None:
        return Chain(key.id, key.priority, activation_tag(0.0, others), group=group)
    tag = activation_tag(row["tag"], others)
    return Chain(key.id, key.priority, tag, row["weight"], group, row["group_weight"])

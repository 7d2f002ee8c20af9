"""Caches of a store's process: what pools offer, where chains begin, what versions say.

None of it is the truth. Where a cache is wrong, a run is found later, never given twice: a claim
changes only rows that are still QUEUED. `Crews` knows which demands workers can meet, `Memory`
where a claim has to look, `RulesCache` the rules of job versions, which never change.

`Memory` trusts what it saw only on PostgreSQL. While any transaction is open, that database keeps
whatever has changed since it began, in tables and in indexes: a chain that a million runs have left
is as long to read as one that they all wait in. So a claim begins where the chain last began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias, TypeVar

from rota.domain.gates import Admission
from rota.domain.job import RunRules
from rota.domain.keys import takes_keys
from rota.domain.resources import Vector, capacity_of, plus, total
from rota.domain.shape import (
    all_labels,
    demand_of,
    shape_of,
    unmet,
    without_its_worker,
    without_worker,
    worker_of,
)
from rota.store.rows import from_json, offered_from, optional_instant, rules_from, to_json
from rota.store.script import Row, Rows, Script, query

PoolShape: TypeAlias = tuple[str, str]  # a pool, and a shape that runs have in it
_MICROSECOND = timedelta(microseconds=1)
# A worker that is restarted is away for a moment: what only it can do stays in the queue.
_GRACE = timedelta(minutes=1) // _MICROSECOND
_TRUST = timedelta(seconds=1) // _MICROSECOND
_MAX_ENTRIES = 10_000


def capacity_in(session: Row) -> dict[str, int]:
    """All that the worker of a session has."""
    return capacity_of(session["slots"], from_json(session["resources"]))


def add_up(pool: str) -> Script[None]:
    """Write down what the workers of a pool offer together, now that some of them came or went.

    Whoever comes or goes at the same time waits for the pool, and then counts us too.
    """
    yield query("pool_to_change", pool=pool)
    offers = yield query("offers", pool=pool)
    totals = total(times(row["workers"], capacity_in(row)) for row in offers)
    yield query("set_totals", pool=pool, totals=to_json(totals))


def used_by(sessions: Rows) -> Script[dict[str, Vector]]:
    """Resources that the attempts of these sessions take of their workers, by session."""
    used: dict[str, Vector] = {}
    capacities = {session["id"]: capacity_in(session) for session in sessions}
    if not capacities:
        return used
    for row in (yield query("leased_shapes", sessions=capacities)):
        demand = demand_of(row["shape"]).on(capacities[row["session"]])
        taken = times(row["attempts"], demand)
        used[row["session"]] = plus(used.get(row["session"], {}), taken)
    return used


def shape_rows(shapes: Iterable[str]) -> list[tuple[str, str | None]]:
    """Rows for statements that keep shapes: each with the only worker that it is for."""
    return [(shape, worker_of(shape) or None) for shape in sorted(shapes)]


def times(count: int, vector: Vector) -> Vector:
    return {name: amount * count for name, amount in vector.items()}


@dataclass(frozen=True, slots=True)
class _Worker:
    labels: Mapping[str, str]
    functions: frozenset[str]
    capacity: Vector
    offers: frozenset[str]


class Crews:
    """Remembers which demands the workers of pools can meet.

    That a pool has a worker for some runs is believed for a second: one that leaves is missed a
    minute later anyway. That it has none is looked at each time, as one may just have come.
    """

    def __init__(self) -> None:
        self._met: dict[PoolShape, int] = {}  # until when that is believed of these demands

    def unfit(self, now: int, demands: Iterable[PoolShape]) -> Script[dict[PoolShape, Admission]]:
        """Which of these demands nobody could ever meet. What asks for nothing always fits.

        Nobody looks through the queue of an empty pool: runs that stay in it are in nobody's way,
        and need not all be moved when its first worker comes.
        """
        answers: dict[PoolShape, Admission] = {}
        for pool, shapes in sorted(self._unknown(now, demands).items()):
            named = {shape: worker for shape in shapes if (worker := worker_of(shape))}
            if named:
                answers |= yield from _without_its_worker(pool, named)
            if len(named) < len(shapes):
                rows = yield query("crew", pool=pool, since=now - _GRACE)
                crew = [_worker(row) for row in rows]
                for shape in shapes - named.keys() if crew else ():
                    if lack := _least_lack(shape, crew):
                        answers[pool, shape] = without_worker(pool, shape, lack)
                    else:
                        self._met[pool, shape] = now + _TRUST
        return answers

    def _unknown(self, now: int, demands: Iterable[PoolShape]) -> dict[str, set[str]]:
        """Those to look at, by pool."""
        if len(self._met) > _MAX_ENTRIES:
            self._met.clear()
        shapes: dict[str, set[str]] = defaultdict(set)
        for pool, shape in demands:
            if shape and self._met.get((pool, shape), 0) <= now:
                shapes[pool].add(shape)
        return shapes


def _without_its_worker(pool: str, named: Mapping[str, str]) -> Script[dict[PoolShape, Admission]]:
    """Which of these the one worker that each is for cannot meet: it is gone, or lacks a thing.

    At once, in an empty pool too, and remembered by nobody: they are few, and people ask why each
    of them waits.
    """
    rows = yield query("named_crew", pool=pool, workers=set(named.values()))
    there: dict[str, list[_Worker]] = defaultdict(list)
    gone_at: dict[str, int] = {}
    for row in rows:
        if row["alive"]:
            found = _worker(row)
            labels = all_labels(row["worker"], found.labels)
            there[row["worker"]].append(replace(found, labels=labels))
        else:
            heard_at = row["expires_at"] - row["lease"]
            gone_at[row["worker"]] = max(gone_at.get(row["worker"], 0), heard_at)
    answers: dict[PoolShape, Admission] = {}
    for shape, worker in named.items():
        if worker in there:
            if lack := _least_lack(shape, there[worker]):
                answers[pool, shape] = without_worker(pool, shape, lack)
        else:
            since = optional_instant(gone_at.get(worker))
            answers[pool, shape] = without_its_worker(pool, shape, since)
    return answers


def _least_lack(shape: str, crew: Sequence[_Worker]) -> list[str]:
    """The lacks of the worker that comes nearest."""
    return min((unmet(shape, w.labels, w.functions, w.capacity, w.offers) for w in crew), key=len)


def _worker(row: Row) -> _Worker:
    functions = frozenset(from_json(row["functions"]))
    offers = offered_from(row["offers"])
    return _Worker(from_json(row["labels"]), functions, capacity_in(row), offers)


T = TypeVar("T")
Ref = tuple[str, int]  # job id, version


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a chain when it was last looked at as a whole."""

    first: int  # no older run waited there
    looked_at: int


@dataclass(frozen=True, slots=True)
class Look:
    """The places where a claim looks for runs."""

    firsts: Mapping[str, int]  # by chain, from which run on
    whole: frozenset[str]  # the chains that it looks at from their beginning

    def as_json(self) -> str:
        return to_json([{"id": chain, "first": first} for chain, first in self.firsts.items()])


class Memory:
    """Remembers claims of one store. Where it is wrong, runs are found later, never given twice.

    `trust` is for how long (microseconds) a chain begins where it began. A run that came back since
    then, or was committed late, is found by the ticket that names it, or after that time.
    """

    def __init__(self, trust: int = 0) -> None:
        self._trust = trust  # 0: nothing is remembered
        self._heads: dict[str, _Head] = {}
        self._newest: dict[str, int] = {}  # by chain, of the runs that were claimed
        self.crews = Crews()
        self._leased: dict[str, tuple[int, list[int]]] = {}  # by session: its stream, and runs

    def look(self, now: int, chains: Collection[str], entered: Mapping[str, int]) -> Script[Look]:
        """Places to look at in these chains; `entered` are the oldest runs that just came back."""
        if not self._trust:
            return Look(dict.fromkeys(chains, 0), frozenset(chains))
        unknown = [chain for chain in chains if not self._is_known(chain, now)]
        if unknown:
            yield from self._look_at_all_of(unknown, now)
        for chain in entered.keys() & self._heads.keys():
            head = self._heads[chain]
            self._heads[chain] = replace(head, first=min(head.first, entered[chain]))
        return Look({chain: self._first(chain) for chain in chains}, frozenset(unknown))

    def leased(self, session: Row) -> Script[Row]:
        """Count attempts that a session has leased: all through this store, in this stream."""
        if not self._trust:
            return (yield query("count_leased", session=session["id"]))[0]
        stream, seqs = self._leased.get(session["id"], (None, []))
        if stream == session["stream"]:
            [row] = yield query("count_leased_of", session=session["id"], seqs=seqs)
        else:
            [row] = yield query("count_leased", session=session["id"])
        _keep(self._leased, session["id"], (session["stream"], list(row["seqs"] or ())))
        return row

    def claimed(self, session: Row, chain: str, given: Sequence[int]) -> None:
        """Remember runs of a chain that were given away, by their numbers.

        A rollback does no harm: what is leased is always counted.
        """
        if not self._trust:
            return
        _, seqs = self._leased.get(
            session["id"], (None, [])
        )  # or forgotten: then it is asked again
        seqs.extend(given)
        _keep(self._newest, chain, max(self._newest.get(chain, 0), *given))

    def _first(self, chain: str) -> int:
        head = self._heads.get(chain)
        return 0 if head is None else head.first

    def _is_known(self, chain: str, now: int) -> bool:
        head = self._heads.get(chain)
        return head is not None and head.looked_at < now < head.looked_at + self._trust

    def _look_at_all_of(self, chains: Sequence[str], now: int) -> Script[None]:
        names = to_json([{"id": chain} for chain in chains])
        found = {row["id"]: row["seq"] for row in (yield query("heads_of_chains", chains=names))}
        for chain in chains:
            first = found.get(chain, self._newest.get(chain, 0))
            _keep(self._heads, chain, _Head(first, now))


def _keep(known: dict[str, T], key: str, value: T) -> None:
    if len(known) > _MAX_ENTRIES:
        known.clear()
    known[key] = value


@dataclass(frozen=True, slots=True)
class VersionRules:
    """Rules of one job version, worked out once and not for each run."""

    rules: RunRules
    shape: str
    timeout: int | None  # microseconds that an attempt may take
    deadline: int | None  # microseconds after the due time
    objective: int | None  # microseconds after the release
    takes_keys: bool  # whatever is declared for all runs of the project


class RulesCache:
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

"""What a store remembers of its claims, so that the next one does not go through all that is over.

While any transaction is open, PostgreSQL keeps whatever has changed since that began, in tables and
in indexes. A line that a million runs have left is then as long as one that they all wait in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from rota.domain.job import RunRules
from rota.domain.keys import takes_keys
from rota.domain.shape import shape_of
from rota.store.pools import Crews
from rota.store.rows import rules_from, to_json
from rota.store.script import Row, Script, query

T = TypeVar("T")
_MAX_ENTRIES = 10_000
Ref = tuple[str, int]  # job id, version


@dataclass(frozen=True, slots=True)
class _Head:
    """Where a line began when it was last looked at as a whole."""

    first: int  # no older run waited there
    looked_at: int


@dataclass(frozen=True, slots=True)
class Look:
    """Where a claim looks for runs."""

    firsts: Mapping[str, int]  # by line, from which run on
    whole: frozenset[str]  # the lines that it looks at from their beginning

    def as_json(self) -> str:
        return to_json([{"id": line, "first": first} for line, first in self.firsts.items()])


class Memory:
    """Of the claims through one store. Where it is wrong runs are found later, never given twice.

    `trust` is for how long (microseconds) a line begins where it began. A run that came back since
    then, or was committed late, is found by the ticket that names it, or after that time.
    """

    def __init__(self, trust: int = 0) -> None:
        self._trust = trust  # 0: nothing is remembered
        self._heads: dict[str, _Head] = {}
        self._newest: dict[str, int] = {}  # by line, of the runs that were claimed
        self.crews = Crews()
        self._held: dict[str, tuple[int, list[int]]] = {}  # by session: its stream, and runs

    def look(self, now: int, lines: Collection[str], entered: Mapping[str, int]) -> Script[Look]:
        """Where to look in these lines; `entered` are the oldest runs that come back just now."""
        if not self._trust:
            return Look(dict.fromkeys(lines, 0), frozenset(lines))
        unknown = [line for line in lines if not self._is_known(line, now)]
        if unknown:
            yield from self._look_at_all_of(unknown, now)
        for line in entered.keys() & self._heads.keys():
            head = self._heads[line]
            self._heads[line] = replace(head, first=min(head.first, entered[line]))
        return Look({line: self._first(line) for line in lines}, frozenset(unknown))

    def held(self, session: Row) -> Script[Row]:
        """How many attempts a session holds: it got them all through this store, in this stream."""
        if not self._trust:
            return (yield query("count_held", session=session["id"]))[0]
        stream, seqs = self._held.get(session["id"], (None, []))
        if stream == session["stream"]:
            [row] = yield query("count_held_of", session=session["id"], seqs=seqs)
        else:
            [row] = yield query("count_held", session=session["id"])
        _keep(self._held, session["id"], (session["stream"], list(row["seqs"] or ())))
        return row

    def claimed(self, session: Row, rows: Sequence[Row]) -> None:
        """What was given. It may still be undone: what is held is counted, never believed."""
        if not self._trust:
            return
        _, seqs = self._held.get(session["id"], (None, []))  # or forgotten: then it is asked again
        seqs.extend(row["seq"] for row in rows)
        for row in rows:
            newest = max(row["seq"], self._newest.get(row["chain"], 0))
            _keep(self._newest, row["chain"], newest)

    def _first(self, line: str) -> int:
        head = self._heads.get(line)
        return 0 if head is None else head.first

    def _is_known(self, line: str, now: int) -> bool:
        head = self._heads.get(line)
        return head is not None and head.looked_at < now < head.looked_at + self._trust

    def _look_at_all_of(self, lines: Sequence[str], now: int) -> Script[None]:
        names = to_json([{"id": line} for line in lines])
        found = {row["id"]: row["seq"] for row in (yield query("line_heads", lines=names))}
        for line in lines:
            first = found.get(line, self._newest.get(line, 0))
            _keep(self._heads, line, _Head(first, now))


def _keep(known: dict[str, T], key: str, value: T) -> None:
    if len(known) > _MAX_ENTRIES:
        known.clear()
    known[key] = value


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

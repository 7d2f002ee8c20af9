"""Shared keys: which ones runs take, who may have them now, and who waits for them.

A run comes to its keys twice. On its way to the queue it is admitted while there seems to be room,
without a lock; the units it will take are promised to it. When it is claimed the keys are locked
and taken, and one run too many waits from then on.

Of some keys only the end of an attempt tells how much it used: output. Whoever ends it writes that
down without a lock (`key_charge`), and whoever locks the key next takes it out of the bucket.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

import msgspec

from rota.domain.key_gates import (
    PROMISED,
    Kept,
    KeyGate,
    Rank,
    Wait,
    Waiter,
    Waiters,
    rank_of,
    reasons_of,
)
from rota.domain.keys import (
    OUTPUT_QUOTA,
    Asker,
    Bucket,
    Counted,
    Declaration,
    DeclarationId,
    Demands,
    Key,
    KeyKind,
    KeyRule,
    KeyState,
    Limit,
    Quota,
    Rate,
    Resource,
    Shortage,
    charged_for_output,
    declaration_of,
    demands_of,
    is_charged_later,
    rule_of,
    takes_keys,
)
from rota.domain.spec import PRIORITIES
from rota.store.rows import from_json, reasons_to, to_json
from rota.store.script import Columns, Many, Row, Rows, Script, query
from rota.store.tx import Tx

_DECODERS: Mapping[KeyKind, msgspec.json.Decoder[Declaration]] = {
    KeyKind.RATE: msgspec.json.Decoder(Limit),
    KeyKind.RESOURCE: msgspec.json.Decoder(Resource),
    KeyKind.QUOTA: msgspec.json.Decoder(Quota),
}
ForAll = Mapping[str, Sequence[Declaration]]  # by project: what concerns all of its runs
_RECONSIDERED = 500  # runs that leave the queue with one that lost
_FORGOTTEN = 100  # rows at a time
_in_order = itemgetter("key", "at", "seq")


def declaration_from(row: Row) -> Declaration:
    return _DECODERS[KeyKind(row["kind"])].decode(row["document"])


def load_states(now: int, keys: Collection[Key]) -> Script[dict[Key, KeyState]]:
    """How these keys stand; those without a rule are left out."""
    rules = yield from rules_of(keys)
    rates = [key for key, rule in rules.items() if isinstance(rule, Rate)]
    rows = (yield query("shared_keys", keys=rates)) if rates else ()
    buckets = yield from with_charges(rules, _buckets(rules, rows))
    return (yield from _states(now, rules, buckets))


def lock_states(now: int, keys: Collection[Key]) -> Script[dict[Key, KeyState]]:
    """Lock keys and load their states: nobody else takes of them until the transaction ends."""
    rows = yield from lock_keys(keys)
    rules = yield from rules_of(keys)
    buckets = yield from take_charges(rules, _buckets(rules, rows))
    return (yield from _states(now, rules, buckets))


def lock_keys(keys: Collection[Key]) -> Script[Rows]:
    """Lock keys, in their order."""
    rows = yield query("shared_keys_to_take", keys=sorted(keys))
    missing = set(keys) - {row["key"] for row in rows}
    if missing:
        # A row that is not there cannot be locked. Whoever inserts it second waits for the first,
        # and then locks what that one has left.
        yield Many("add_shared_key", [(key,) for key in sorted(missing)])
        rows = yield query("shared_keys_to_take", keys=sorted(keys))
    return rows


def load_waiters(ranks: Mapping[Key, Rank]) -> Script[dict[Key, Waiters]]:
    """Waiters for these keys that go before runs of the given ranks."""
    known: dict[Key, list[Waiter]] = defaultdict(list)
    for row in (yield from last_waiters(ranks)):
        known[row["key"]].append(Waiter(rank_in(row), row["eligible_at"]))
    return {key: Waiters.before(ranks[key], waiting) for key, waiting in known.items()}


def last_waiters(keys: Collection[Key]) -> Script[Rows]:
    """The first and the last of those of each priority who wait for these keys."""
    asked = [{"key": key, "priority": priority} for key in keys for priority in PRIORITIES]
    return (yield query("key_waiters", keys=to_json(asked))) if asked else ()


def rank_in(row: Row) -> Rank:
    return rank_of(row["priority"], row["created_at"], row["seq"])


def rules_of(keys: Collection[Key]) -> Script[dict[Key, KeyRule]]:
    """The rules of these keys; those without one are left out."""
    ids = {declaration_of(key) for key in keys}
    declared = yield from _declared({each for each in ids if each[0] is not KeyKind.EXCLUSIVE})
    rules = {key: rule_of(key, declared) for key in keys}
    return {key: rule for key, rule in rules.items() if rule is not None}


def _declared(ids: Iterable[DeclarationId]) -> Script[dict[DeclarationId, Declaration]]:
    kinds, projects, names = ({each[i] for each in ids} for i in range(3))
    if not kinds:
        return {}
    rows = yield query("declarations_of_keys", kinds=kinds, projects=projects, names=names)
    return {
        (KeyKind(row["kind"]), row["project"], row["name"]): declaration_from(row) for row in rows
    }


def _states(
    now: int, rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket]
) -> Script[dict[Key, KeyState]]:
    rows = (yield query("key_amounts", keys=rules, since=now - PROMISED)) if rules else ()
    amounts = {row["key"]: (row["held"], row["queued"]) for row in rows}
    return {
        key: KeyState(rule, *amounts.get(key, (0, 0)), buckets.get(key))
        for key, rule in rules.items()
    }


def _buckets(rules: Mapping[Key, KeyRule], rows: Rows) -> dict[Key, Bucket]:
    """Those that are not full, or were not when somebody last took of them."""
    return {
        row["key"]: Bucket(rule, row["level"], row["at"])
        for row in rows
        if row["level"] is not None and isinstance(rule := rules.get(row["key"]), Rate)
    }


def declared_for_all(jobs: Mapping[str, Row]) -> Script[ForAll]:
    """Declarations for all runs of the projects of these jobs. Most have none."""
    projects = {row["project"] for row in jobs.values() if row["has_limits"]}
    return (yield from declared_in(projects)) if projects else {}


def declared_in(projects: Collection[str]) -> Script[ForAll]:
    """Declarations for all runs of these projects."""
    found: dict[str, list[Declaration]] = defaultdict(list)
    for row in (yield query("declarations_for_all", projects=projects)):
        found[row["project"]].append(declaration_from(row))
    return found


def wanted_by(asker: Asker, for_all: ForAll) -> Demands | None:
    """Demands of a run; None: it takes nothing."""
    declared = for_all.get(asker.rules.project, ())
    if not declared and not takes_keys(asker.rules):
        return None
    return demands_of(asker, declared) or None


class Ask(NamedTuple):
    """A run that passed all gates before those of its keys."""

    id: str
    demands: Demands
    rank: Rank
    wait: Wait | None = None  # for a key already


class Answers(NamedTuple):
    """Answers to runs that asked for their keys."""

    short: Mapping[str, tuple[Shortage, ...]]  # by run; those left out may go
    kept: Mapping[Key, Kept]  # for those that could have a key, and wait for another one now


def ask_of(row: Row) -> Ask:
    """A waiting run that takes shared keys."""
    return Ask(row["id"], from_json(row["keys"]), rank_in(row))


def admit(now: int, asks: Sequence[Ask]) -> Script[Mapping[str, tuple[Shortage, ...]]]:
    """Shortages of these runs, in the order they ask; those left out may go."""
    answers = yield from answer(now, asks)
    return answers.short


def answer(now: int, asks: Sequence[Ask], freed: Collection[Key] = ()) -> Script[Answers]:
    """Shortages, and what is kept. Whoever waits for a key that is `freed` is among who asks."""
    last: dict[Key, Rank] = {}
    for ask in asks:
        for key in ask.demands:
            last[key] = max(ask.rank, last.get(key, ask.rank))
    states = yield from load_states(now, last)
    waiters = yield from load_waiters(
        {key: rank for key, rank in last.items() if key in states and key not in freed}
    )
    gate = KeyGate(now, states, waiters, (yield from load_kept(now, states)))
    short = {ask.id: gate.ask(ask.demands, ask.rank, ask.wait) for ask in asks}
    return Answers({run: found for run, found in short.items() if found}, gate.kept)


def promise(asks: Sequence[Ask]) -> Script[None]:
    """Let others see what these runs, which are in the queue, are going to take."""
    promised = [(key, amount, ask.id) for ask in asks for key, amount in ask.demands.items()]
    if promised:
        yield Many("promise_key", promised)


def wait_for_keys(short: Mapping[int, Sequence[Shortage]]) -> Script[Rows]:
    """Let runs, by their numbers, wait for the first key that each is short of.

    Returns their ids, projects and chains.
    """
    first = [each[0] for each in short.values()]
    columns: dict[str, Sequence[object]] = {
        "seq": list(short),
        "key": [shortage.key for shortage in first],
        "reasons": [reasons_to(reasons_of(each)) for each in short.values()],
        "eligible_at": [shortage.eligible_at for shortage in first],
    }
    return (yield Columns("block_on_keys", columns, {})) if short else ()


def take_keys(tx: Tx, rows: Rows) -> Script[set[int]]:
    """Give keys to queued runs in the order given; returns the numbers of those that got all.

    The runs, of which `seq` and `keys` are needed, are locked. Those that got nothing wait from
    now on for what they are short of.
    """
    # Runs come before keys in the order of locks: from here on no run is waited for.
    wanted: dict[int, Demands] = {row["seq"]: from_json(row["keys"]) for row in rows}
    states = yield from lock_states(tx.now, {key for demands in wanted.values() for key in demands})
    gate = KeyGate(tx.now, states, claims=True)
    short: dict[int, tuple[Shortage, ...]] = {}
    for seq, demands in wanted.items():
        if found := gate.ask(demands, (0, seq)):
            short[seq] = found
    granted = wanted.keys() - short.keys()
    if gate.buckets:
        taken = [(each.level, each.at, key) for key, each in sorted(gate.buckets.items())]
        yield Many("set_bucket", taken)
    yield from _give_keys(wanted, granted, states)
    if short:
        yield from _lose(tx, wanted, short)
    return granted


def _give_keys(
    wanted: Mapping[int, Demands], granted: Collection[int], states: Mapping[str, KeyState]
) -> Script[None]:
    """Give units to runs until they end; tokens are gone, and need no row of their own."""
    units = {key for key, state in states.items() if isinstance(state.rule, Counted)}
    held = [
        (key, seq, amount)
        for seq in sorted(granted)
        for key, amount in wanted[seq].items()
        if key in units
    ]
    if held:
        yield Many("hold_key", held)
    tokens = {key for seq in granted for key in wanted[seq]} - units
    if tokens:
        yield query("drop_run_keys", keys=tokens, seqs=granted)


def _lose(
    tx: Tx,
    wanted: Mapping[int, Demands],
    short: Mapping[int, Sequence[Shortage]],
) -> Script[None]:
    """Runs that came too late to the keys they were let through for."""
    keys = {key for seq in short for key in wanted[seq]}
    yield query("drop_run_keys", keys=keys, seqs=short)
    yield from _wait(tx, short)
    for key in sorted({found[0].key for found in short.values()}):
        yield from _reconsider(tx, key, wanted)


def _reconsider(tx: Tx, key: Key, known: Collection[int]) -> Script[None]:
    """Others in the queue that would lose as well need not be claimed to find out.

    There are many where a limit has become lower.
    """
    found = yield query("queued_for_key", key=key, limit=_RECONSIDERED)
    rows = [row for row in found if row["seq"] not in known]
    if not rows:
        return
    asks = sorted(map(ask_of, rows), key=attrgetter("rank"))
    keys = {key for ask in asks for key in ask.demands}
    # What was promised to them counts as taken: they would be short of it by their own doing.
    yield query("drop_run_keys", keys=keys, seqs={row["seq"] for row in rows})
    short = yield from admit(tx.now, asks)
    yield from promise([ask for ask in asks if ask.id not in short])
    if short:
        losers = {row["seq"]: short[row["id"]] for row in rows if row["id"] in short}
        yield from _wait(tx, losers)


def _wait(tx: Tx, short: Mapping[int, Sequence[Shortage]]) -> Script[None]:
    rows = yield from wait_for_keys(short)
    ids = [row["id"] for row in rows]
    tx.record_each("run.blocked", rows, actor="scheduler")
    tx.effects.claimed(ids)
    tx.effects.chains.leave(row["chain"] for row in rows)
    tx.effects.keys = True


def load_kept(now: int, keys: Collection[Key]) -> Script[dict[Key, Kept]]:
    """Kept amounts of these keys. They end by themselves: with their time, or their run's wait."""
    rows = (yield query("kept_keys", keys=keys, now=now)) if keys else ()
    return {
        row["key"]: Kept(rank_in(row), row["amount"], row["until"], row["waits_for"])
        for row in rows
    }


def keep(now: int, new: Mapping[Key, Kept]) -> Script[None]:
    """Let others see what is kept from now on, and forget some of what is kept no more."""
    if not new:
        return
    yield Many(
        "keep_key",
        [(key, it.rank[1], it.amount, it.until, it.waits_for) for key, it in sorted(new.items())],
    )
    yield query("forget_kept_keys", now=now, limit=_FORGOTTEN)


def charge_output(now: int, ended: Iterable[tuple[Row, int]]) -> Script[None]:
    """Attempts, given by their runs, have ended after so many bytes of output."""
    charged = [
        (row, size) for row, size in ended if size > 0 and OUTPUT_QUOTA in (row["keys"] or "")
    ]
    sizes: Counter[Key] = Counter()
    for row, size in charged:
        if (key := charged_for_output(from_json(row["keys"]))) is not None:
            sizes[key] += size
    if sizes:
        seq = min(row["seq"] for row, _ in charged)
        yield Many("charge_key", [(key, now, seq, size) for key, size in sorted(sizes.items())])


def with_charges(
    rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket]
) -> Script[Mapping[Key, Bucket]]:
    """The buckets of these keys without what is charged and was not taken out of them yet."""
    keys = [key for key in rules if is_charged_later(key)]
    rows = (yield query("key_charges", keys=keys)) if keys else ()
    return _charged(rules, buckets, rows)


def take_charges(
    rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket]
) -> Script[Mapping[Key, Bucket]]:
    """Take charges out of the buckets of keys that are locked."""
    keys = [key for key in rules if is_charged_later(key)]
    rows = (yield query("take_key_charges", keys=keys)) if keys else ()
    # A deletion returns its rows in any order, and a bucket never moves back in time.
    left = _charged(rules, buckets, sorted(rows, key=_in_order))
    changed = sorted({row["key"] for row in rows})
    if changed:
        yield Many("set_bucket", [(left[key].level, left[key].at, key) for key in changed])
    return left


def _charged(
    rules: Mapping[Key, KeyRule], buckets: Mapping[Key, Bucket], charges: Iterable[Row]
) -> Mapping[Key, Bucket]:
    left = dict(buckets)
    for row in charges:
        key, at, rule = row["key"], row["at"], rules[row["key"]]
        assert isinstance(rule, Rate), "only buckets are charged"
        left[key] = (left.get(key) or Bucket.full(rule, at)).take(row["amount"], at)
    return left

"""Taking keys with a claim: the only place where it is decided who has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from rota.domain.key_gates import KeyGate
from rota.domain.keys import Counted, Demands, Key, KeyState, Shortage
from rota.store.rows import from_json
from rota.store.script import Many, Rows, Script, query
from rota.store.scripts.keys.admitting import admit, ask_of, promise
from rota.store.scripts.keys.states import hold_states
from rota.store.scripts.keys.waiting import wait_for_keys
from rota.store.tx import Tx

_RECONSIDERED = 500  # runs that leave the queue with one that lost


def take_keys(tx: Tx, rows: Rows) -> Script[set[int]]:
    """Give keys to queued runs in the order given; returns the numbers of those that got all.

    The runs, of which `seq` and `keys` are needed, are locked. Those that got nothing wait from
    now on for what they are short of.
    """
    wanted: dict[int, Demands] = {row["seq"]: from_json(row["keys"]) for row in rows}
    states = yield from hold_states(tx.now, {key for demands in wanted.values() for key in demands})
    gate = KeyGate(tx.now, states, claims=True)
    short: dict[int, tuple[Shortage, ...]] = {}
    for seq, demands in wanted.items():
        if found := gate.ask(demands, (0, seq)):
            short[seq] = found
    granted = wanted.keys() - short.keys()
    if gate.buckets:
        taken = [(each.level, each.at, key) for key, each in sorted(gate.buckets.items())]
        yield Many("set_bucket", taken)
    yield from _hold(wanted, granted, states)
    if short:
        yield from _lose(tx, wanted, short)
    return granted


def _hold(
    wanted: Mapping[int, Demands], granted: Collection[int], states: Mapping[str, KeyState]
) -> Script[None]:
    """Units are held from now on; tokens are gone, and nobody has to be told that they are used."""
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
    yield query("drop_run_keys", keys=keys, seqs={row["seq"] for row in rows})
    short = yield from admit(tx.now, asks)
    yield from promise([ask for ask in asks if ask.id not in short])
    if short:
        losers = {row["seq"]: short[row["id"]] for row in rows if row["id"] in short}
        yield from _wait(tx, losers)


def _wait(tx: Tx, short: Mapping[int, Sequence[Shortage]]) -> Script[None]:
    rows = yield from wait_for_keys(short)
    ids = [row["id"] for row in rows]
    yield tx.record("run.blocked", ids, actor="scheduler")
    tx.effects.claimed(ids)
    tx.effects.lines.leave(row["chain"] for row in rows)
    tx.effects.keys = True

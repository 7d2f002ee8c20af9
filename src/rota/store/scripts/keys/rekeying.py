"""Runs that were there before something was declared for all runs of their project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.domain.keys import Asker, Counted, Declaration, Demands, is_for_all
from rota.domain.states import LEASED_STATES, RunState
from rota.store.rows import from_json, to_json
from rota.store.script import Many, Row, Script, query
from rota.store.scripts.keys.states import rules_of
from rota.store.scripts.keys.wanting import ForAll, declared_in, wanted_by
from rota.store.tx import Tx


def rekey_later(now: int, declarations: Iterable[Declaration]) -> Script[None]:
    """Let the runs of their projects take their keys, a part at a time."""
    projects = {each.project for each in declarations if is_for_all(each)}
    if projects:
        yield Many("begin_rekeying", [(project, now) for project in sorted(projects)])


def rekey(tx: Tx, limit: int) -> Script[bool]:
    """Look at so many runs of a project where that is to be done; returns whether there was one.

    Those that live hold its units from now on. To those in the queue they are promised, as to
    others who are let through: they take them, or lose them, when they are claimed.
    """
    places = yield query("rekeying")
    if not places:
        return False
    place = dict(places[0])
    found = yield query("active_seqs", project=place["project"], after=place["after"], limit=limit)
    seqs = [row["seq"] for row in found]
    rows = (yield query("runs_to_rekey", seqs=seqs)) if seqs else ()
    yield from _rekey(tx, rows, (yield from declared_in([place["project"]])))
    # Under another `since` somebody has declared more in the meantime, and it begins anew.
    if len(seqs) < limit:
        yield query("end_rekeying", **place)
    else:
        yield query("go_on_rekeying", **place, next_after=seqs[-1])
    return True


def _rekey(tx: Tx, rows: Sequence[Row], for_all: ForAll) -> Script[None]:
    versions = yield from tx.rules.load({(row["job_id"], row["job_version"]) for row in rows})
    wanted: dict[int, Demands] = {}
    for row in rows:
        rules = versions[row["job_id"], row["job_version"]].rules
        inputs = from_json(row["inputs"]) if rules.exclusive_by else None
        wanted[row["seq"]] = wanted_by(Asker(rules, row["asker"], inputs or {}), for_all) or {}
    new = [row for row in rows if wanted[row["seq"]] != (from_json(row["keys"]) or {})]
    if new:
        # Never none at all: who waits for a key that it takes no more is found by having keys.
        yield Many("set_run_keys", [(to_json(wanted[row["seq"]]), row["seq"]) for row in new])
        yield from _take(new, wanted)


def _take(rows: Sequence[Row], wanted: Mapping[int, Demands]) -> Script[None]:
    """Tokens that live runs did not need when they started are not taken of them later."""
    rules = yield from rules_of({key for row in rows for key in wanted[row["seq"]]})
    units = {key for key, rule in rules.items() if isinstance(rule, Counted)}
    taken = [
        (key, row["seq"], amount)
        for row in rows
        for key, amount in wanted[row["seq"]].items()
        if row["state"] == RunState.QUEUED or (row["state"] in LEASED_STATES and key in units)
    ]
    if taken:
        yield Many("hold_key", taken)

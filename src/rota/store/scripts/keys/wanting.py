"""Which keys new runs take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from rota.domain.keys import Asker, Declaration, Demands, demands_of, takes_keys
from rota.store.script import Row, Script, query
from rota.store.scripts.keys.states import declaration_from

ForAll = Mapping[str, Sequence[Declaration]]  # by project: what concerns all of its runs


def declared_for_all(jobs: Mapping[str, Row]) -> Script[ForAll]:
    """What is declared for all runs of the projects of these jobs. Most have nothing."""
    projects = {row["project"] for row in jobs.values() if row["has_limits"]}
    return (yield from declared_in(projects)) if projects else {}


def declared_in(projects: Collection[str]) -> Script[ForAll]:
    """What is declared for all runs of these projects."""
    found: dict[str, list[Declaration]] = defaultdict(list)
    for row in (yield query("declarations_for_all", projects=projects)):
        found[row["project"]].append(declaration_from(row))
    return found


def wanted_by(asker: Asker, for_all: ForAll) -> Demands | None:
    """What a run takes; None: nothing."""
    declared = for_all.get(asker.rules.project, ())
    if not declared and not takes_keys(asker.rules):
        return None
    return demands_of(asker, declared) or None

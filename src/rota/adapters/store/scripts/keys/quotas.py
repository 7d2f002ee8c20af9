"""What a project may not have more of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rota.adapters.store.script import Script, query
from rota.adapters.store.scripts.keys.states import hold_keys
from rota.adapters.store.scripts.keys.wanting import ForAll
from rota.domain.errors import Conflict
from rota.domain.limits import WAITING_QUOTA, Quota
from rota.domain.shared_keys import KeyKind, key_of


def refuse_beyond_quota(submitted: Counter[str], for_all: ForAll) -> Script[None]:
    """`Conflict` if so many more runs, by project, would wait than its quota allows."""
    most = {project: _most_queued(project, for_all) for project in sorted(submitted)}
    limited = {project: limit for project, limit in most.items() if limit is not None}
    if not limited:
        return
    # One at a time counts and adds to what it counted.
    yield from hold_keys([key_of(KeyKind.QUOTA, project, WAITING_QUOTA) for project in limited])
    for project, limit in limited.items():
        [row] = yield query("count_waiting", project=project, limit=limit + 1)
        if row["runs"] + submitted[project] > limit:
            raise _beyond(project, limit, submitted)


def _most_queued(project: str, for_all: ForAll) -> int | None:
    quotas = [each.queued for each in for_all.get(project, ()) if isinstance(each, Quota)]
    return quotas[0] if quotas else None


def _beyond(project: str, limit: int, submitted: Mapping[str, int]) -> Conflict:
    return Conflict(
        f"project {project} would go beyond its quota of runs that wait,"
        f" {limit:,}, with {submitted[project]:,} more",
        code="quota_exceeded",
        hint="wait until some have started, or ask an admin to raise it: rota quota show",
        facts={"quota": WAITING_QUOTA, "limit": limit},
    )

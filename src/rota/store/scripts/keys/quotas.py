"""What a project may not have more of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rota.domain.errors import Conflict
from rota.domain.keys import WAITING_QUOTA, KeyKind, Quota, key_of
from rota.ports.limits import ProjectCounts
from rota.store.script import Script, query
from rota.store.scripts.keys.states import hold_keys
from rota.store.scripts.keys.wanting import ForAll, declared_in


def refuse_beyond_quota(submitted: Counter[str], for_all: ForAll) -> Script[None]:
    """`Conflict` if so many more runs, by project, would wait than its quota allows."""
    limits = _most_waiting(submitted, for_all)
    rooms = yield from _rooms(limits)
    for project, room in rooms.items():
        if submitted[project] > room:
            raise _beyond(project, limits[project], submitted)


def room_to_wait(project: str) -> Script[int | None]:
    """How many more runs of a project may wait, while the transaction lasts; None: any number."""
    limits = _most_waiting([project], (yield from declared_in([project])))
    rooms = yield from _rooms(limits)
    return rooms.get(project)


def counts(project: str) -> Script[ProjectCounts]:
    """How much there is of what is refused beyond a quota."""
    [row] = yield query("count_of_project", project=project)
    return ProjectCounts(row["jobs"], row["waiting"])


def _most_waiting(projects: Iterable[str], for_all: ForAll) -> dict[str, int]:
    """Those of the projects that have such a quota."""
    return {
        project: each.queued
        for project in projects
        for each in for_all.get(project, ())
        if isinstance(each, Quota) and each.queued is not None
    }


def _rooms(limits: Mapping[str, int]) -> Script[dict[str, int]]:
    """What is left of these quotas. One transaction at a time counts and adds to it."""
    if not limits:
        return {}
    yield from hold_keys([key_of(KeyKind.QUOTA, project, WAITING_QUOTA) for project in limits])
    rooms: dict[str, int] = {}
    for project, limit in limits.items():
        [row] = yield query("count_waiting", project=project, limit=limit)
        rooms[project] = limit - row["runs"]
    return rooms


def _beyond(project: str, limit: int, submitted: Mapping[str, int]) -> Conflict:
    return Conflict(
        f"project {project} would go beyond its quota of runs that wait,"
        f" {limit:,}, with {submitted[project]:,} more",
        code="quota_exceeded",
        hint="wait until some have started, or ask an admin to raise it: rota quota show",
        facts={"quota": WAITING_QUOTA, "limit": limit},
    )

"""Projects: created, changed, deleted and found; and pools that are given to some of them.

`bounds` of a project is its policy together with the pools of others, as the gates read it with
each job: who changes one of the two writes it anew, in the transaction of the change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from rota.domain.access import no_such_project
from rota.domain.errors import Conflict, StaleTransition
from rota.domain.ids import JobId, instant
from rota.domain.policy import Bounds, Policy, PoolUse, is_within
from rota.domain.resources import Vector, format_amount
from rota.domain.spec import DEFAULT_PROJECT, Isolation, Network
from rota.domain.walls import WallDefaults
from rota.ports.projects import NewProject, Pool, Project, ProjectFacts
from rota.store.gates import lock_gates
from rota.store.releases import block_job
from rota.store.rows import bounds_from, bounds_to, from_json, rules_from, to_json
from rota.store.script import Many, Row, Script, lock, query
from rota.store.tx import Tx

_NO_BOUNDS = Bounds()
_defaults_decoder = msgspec.json.Decoder(WallDefaults)
_KEEPERS = ("job", "run", "cart", "template", "calendar", "declaration")
_WORDS = {"template": "cart template", "declaration": "limit or resource"}


def find(
    names: Collection[str] | None = None, *, after: str = "", limit: int = 1_000_000
) -> Script[list[Project]]:
    if names is None:
        rows = yield query("select_projects", after=after, limit=limit)
    else:
        rows = yield query("select_projects_by_name", names=names)
    return [_project(row) for row in rows]


def existing(names: Collection[str]) -> Script[frozenset[str]]:
    """Which of these are projects."""
    rows = yield query("existing_projects", names=names)
    return frozenset(row["name"] for row in rows)


def facts(names: Collection[str]) -> Script[dict[str, ProjectFacts]]:
    rows = yield query("select_projects_by_name", names=names)
    return {row["name"]: _facts(row) for row in rows}


def _project(row: Row) -> Project:
    return Project(
        name=row["name"],
        title=row["title"],
        defaults=from_json(row["defaults"]),
        policy=from_json(row["policy"]),
        version=row["version"],
        created_by=row["created_by"],
        created_at=instant(row["created_at"]),
        updated_by=row["updated_by"],
        updated_at=instant(row["updated_at"]),
    )


def _facts(row: Row) -> ProjectFacts:
    bounds = bounds_from(row["bounds"]) or _NO_BOUNDS
    return ProjectFacts(from_json(row["defaults"]), bounds, row["version"])


def share_projects(names: Iterable[str]) -> Script[None]:
    """Let these projects neither change nor go until the transaction ends; all must be there."""
    wanted = sorted(set(names))
    if not wanted:
        return
    yield lock("used_projects", names=wanted)
    found = yield from existing(wanted)
    for name in wanted:
        if name not in found:
            raise no_such_project(name)


def add(tx: Tx, new: NewProject, *, actor: str) -> Script[Project]:
    """Create a project. A second one makes pools shared, in which processes may not run."""
    # Whoever gives pools away has all projects locked, and must not miss this one.
    yield lock("every_project")
    use = yield from _pool_use(more=1)
    bounds = use.bounds(new.name, new.policy)
    made = yield query(
        "insert_project", bounds=bounds_to(bounds), actor=actor, now=tx.now, **_said(new)
    )
    if not made:
        raise (yield from _name_is_taken(new.name))
    yield from _rebound(tx)
    tx.record_in(new.name, "project.created", [new.name], actor=actor)
    return (yield from _found(new.name))


def _said(new: NewProject) -> dict[str, str]:
    return {
        "name": new.name,
        "title": new.title,
        "defaults": to_json(new.defaults or {}),
        "policy": to_json(new.policy_document or {}),
    }


def _name_is_taken(name: str) -> Script[Conflict]:
    if (yield query("deleted_project", name=name)):
        message = f"there was a project {name}, and a name is never given twice"
        return Conflict(message, code="project_exists", hint="choose another name")
    message = f"there is a project {name} already"
    return Conflict(message, code="project_exists", hint=f"rota project show {name}")


def change(tx: Tx, changed: NewProject, *, expected_version: int, actor: str) -> Script[Project]:
    """Replace what is said about a project; its jobs keep to a new policy at once."""
    name = changed.name
    yield lock("projects", names=[name])
    rows = yield query("select_projects_by_name", names=[name])
    if not rows:
        raise no_such_project(name)
    said = _said(changed)
    values = (said["title"], said["defaults"], said["policy"], actor, tx.now, name)
    try:
        yield Many("update_project", [(*values, expected_version)])
    except StaleTransition as error:
        raise _changed_meanwhile(name) from error
    bounds = (yield from _pool_use()).bounds(name, changed.policy)
    if bounds_to(bounds) != rows[0]["bounds"]:
        yield Many("set_bounds", [(bounds_to(bounds), name)])
        asked = yield query("rules_of_project", project=name)
        yield from _stop_excess(tx, {name: bounds}, asked)
    tx.record_in(name, "project.changed", [name], actor=actor)
    return (yield from _found(name))


def _changed_meanwhile(name: str) -> Conflict:
    return Conflict(
        f"project {name} was changed by someone else meanwhile",
        code="etag_mismatch",
        hint="look at it again",
    )


def _found(name: str) -> Script[Project]:
    [row] = yield query("select_projects_by_name", names=[name])
    return _project(row)


def _stop_excess(tx: Tx, bounds: Mapping[str, Bounds], asked: Iterable[Row]) -> Script[None]:
    """Block what is queued of jobs that ask for more than they may; others are let go by the sweep.

    Their gates are locked first: what a firing that went by the old bounds has queued is seen, and
    one that comes later goes by the new ones.
    """
    beyond = {
        row["id"]
        for row in asked
        if row["project"] in bounds
        and not is_within(bounds[row["project"]], rules_from(row["rules"]))
    }
    yield from lock_gates(beyond)
    waiting = (yield query("jobs_with_waiting_runs", ids=beyond)) if beyond else ()
    for job in sorted(row["job_id"] for row in waiting):
        yield from block_job(tx, JobId(job))


def jobs_beyond(project: str, policy: Policy, limit: int) -> Script[list[str]]:
    """Jobs that ask for more than the project may by this policy."""
    bounds = (yield from _pool_use()).bounds(project, policy)
    rows = yield query("rules_of_project", project=project)
    asked = [rules_from(row["rules"]) for row in rows]
    return sorted(rules.name for rules in asked if not is_within(bounds, rules))[:limit]


def delete(tx: Tx, name: str, *, actor: str) -> Script[bool]:
    """Delete a project in which nothing lives. The last but one makes pools the other's own."""
    yield lock("every_project")
    if not (yield from existing([name])):
        return False
    if name == DEFAULT_PROJECT:
        message = f"project {DEFAULT_PROJECT} is always there"
        raise Conflict(message, code="project_is_default")
    [life] = yield query("life_of_project", name=name)
    for keeper in _KEEPERS:
        if life[keeper] is not None:
            raise Conflict(
                f"project {name} still has a {_WORDS.get(keeper, keeper)}: {life[keeper]}",
                code="project_in_use",
                hint="delete what is in it first",
            )
    yield Many("end_project", [(tx.now, actor, name)])
    yield query("forget_roles_in", scope=name)
    yield query("revoke_tokens_of_project", name=name, now=tx.now)
    yield query("forget_quota", name=name)
    # Pools that only it had stay its own: without their rows they would be for all.
    yield from _rebound(tx)
    tx.record_in(name, "project.deleted", [name], actor=actor)
    tx.effects.callers = True
    return True


def pools() -> Script[list[Pool]]:
    use = yield from _pool_use()
    rows = yield query("known_pools")
    return [_pool(row, use) for row in rows]


def _pool(row: Row, use: PoolUse) -> Pool:
    name = row["name"]
    return Pool(
        name,
        row["workers"],
        tuple(use.given.get(name, ())),
        is_private=name in use.private,
        is_shared=use.is_shared(name),
        refuses_processes=use.refuses_processes(name),
        most=from_json(row["most"]) or {},
    )


def most_of_pools(names: Sequence[str]) -> Script[dict[str, Vector]]:
    """The most that one run may ask these pools for; a pool that is missing takes any."""
    rows = yield query("most_of_pools", names=names)
    return {row["name"]: from_json(row["most"]) for row in rows}


def _pool_use(more: int = 0) -> Script[PoolUse]:
    """How pools are used; with so many `more` projects than there are."""
    given: dict[str, list[str]] = defaultdict(list)
    for row in (yield query("given_pools")):
        given[row["pool"]].append(row["project"])
    private = frozenset(row["pool"] for row in (yield query("private_pools")))
    [count] = yield query("count_projects")
    return PoolUse(given, private, count["projects"] + more, (yield from wall_defaults()))


def wall_defaults() -> Script[WallDefaults]:
    """Walls of jobs that ask for none; in a store that no server has used yet, processes."""
    rows = yield query("wall_defaults")
    return _defaults_decoder.decode(rows[0]["value"]) if rows else WallDefaults()


def settle_walls(tx: Tx, defaults: WallDefaults) -> Script[WallDefaults]:
    """Write the walls of a new store down; one that has them keeps its own, and they are told."""
    if (yield query("wall_defaults")):
        return (yield from wall_defaults())
    yield lock("every_project")
    if (yield query("insert_wall_defaults", value=to_json(defaults))):
        yield from _rebound(tx)
        return defaults
    return (yield from wall_defaults())


def change_walls(
    tx: Tx, isolation: Isolation | None, network: Network | None, *, actor: str
) -> Script[WallDefaults]:
    """Change the walls of jobs that ask for none, from their next apply on."""
    yield lock("every_project")
    before = yield from wall_defaults()
    after = replace(
        before,
        isolation=before.isolation if isolation is None else isolation,
        network=before.network if network is None else network,
    )
    if after != before:
        yield Many("set_meta", [("walls", to_json(after))])
        told = {"isolation": after.isolation, "network": after.network}
        tx.record("walls.changed", [], actor=actor, **told)
    return after


def give_pool(
    tx: Tx,
    pool: str,
    projects: Sequence[str] | None,
    *,
    actor: str,
    is_private: bool | None = None,
    most: Vector | None = None,
) -> Script[None]:
    """Let only these projects use a pool, or all; and keep processes out of it while it is shared.

    No run may ask it for more than `most`. What is None stays.
    """
    yield lock("every_project")
    if projects is not None:
        yield from _give(pool, projects)
    if is_private is not None:
        yield query("close_pool" if is_private else "open_pool", pool=pool)
    if most is not None:
        yield query("set_most", pool=pool, most=to_json(dict(most)) if most else None)
    yield from _rebound(tx, pool)
    use = yield from _pool_use()
    told = {"projects": sorted(use.given.get(pool, ()))}
    if most is not None:
        told["max"] = [f"{k}={format_amount(k, most[k])}" for k in sorted(most)]
    tx.record("pool.given", [pool], actor=actor, **told, private=pool in use.private)


def _give(pool: str, projects: Sequence[str]) -> Script[None]:
    wanted = sorted(set(projects))
    known = yield from existing(wanted)
    for name in wanted:
        if name not in known:
            raise no_such_project(name)
    yield query("take_pool", pool=pool)
    if wanted:
        yield Many("give_pool", [(pool, project) for project in wanted])


def _rebound(tx: Tx, pool: str | None = None) -> Script[None]:
    """Write bounds anew after something about a pool changed; None: about projects."""
    use = yield from _pool_use()
    new: dict[str, Bounds] = {}
    for row in (yield query("select_projects", after="", limit=1_000_000)):
        old = bounds_from(row["bounds"]) or _NO_BOUNDS
        bounds = use.bounds(row["name"], old.policy)
        if bounds != old:
            new[row["name"]] = bounds
    if not new:
        return
    yield Many("set_bounds", [(bounds_to(bounds), name) for name, bounds in new.items()])
    asked: list[Row] = []
    if pool is not None:
        asked += yield query("rules_of_pool", pool=pool)
    for name in sorted(new) if pool is None else ():
        asked += yield query("rules_of_project", project=name)
    yield from _stop_excess(tx, new, asked)

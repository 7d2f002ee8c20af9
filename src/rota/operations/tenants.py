"""Visibility across projects: pools, workers, shares and forecasts as a caller may see them.

Pools, workers and shares serve all projects. Whoever has a role in some projects only sees of the
others that they are there, how much they take and for how long: never an id, a name, a user or a
label. All that is taken out of answers for that reason is taken out here.

Of workers they see those of pools that a project of theirs may use, with what `needs` and functions
of jobs are compared with; nothing that is the installation's own, or that may name a foreign run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from rota.domain.forecast.ahead import RunAhead
from rota.domain.ids import RunId
from rota.domain.order import group_of
from rota.domain.simulation.report import Report, Saturation
from rota.domain.walls import NAMED_BY_PEOPLE
from rota.operations.engine import Engine
from rota.operations.workers import ClusterStatus
from rota.ports.forecasts import Reserved, ShareWeight
from rota.ports.records import Session

UNTOLD = "it holds something that no server takes"  # instead of a worker's own words
OTHERS = "(other projects)"  # what stands for their jobs, shares, keys and pools
_POOL = "pool "  # how a simulation calls what runs wait for that wait for a worker


@dataclass(frozen=True, slots=True)
class Sight:
    """Projects and pools that a caller may see."""

    projects: frozenset[str] | None = None  # None: all, and the installation
    closed: frozenset[str] = frozenset()  # pools that none of them may use

    def sees(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def sees_pool(self, pool: str) -> bool:
        return pool not in self.closed

    def sees_share(self, share: str) -> bool:
        """Return whether a share is of such a project or of a user in it: jobs name any others."""
        return self.sees(group_of(share))


EVERYTHING = Sight()


async def sight_of(engine: Engine, projects: Collection[str] | None) -> Sight:
    """Return the sight of a caller with a role in these projects; None: in all."""
    if projects is None:
        return EVERYTHING
    return Sight(frozenset(projects), await engine.store.closed_pools(projects))


async def open_sessions(
    engine: Engine, projects: Collection[str], *, alive_only: bool = True
) -> list[Session]:
    """List the workers whose pools jobs of these projects could name."""
    closed = await engine.store.closed_pools(projects)
    found = await engine.store.sessions(alive_only=alive_only)
    return [session for session in found if session.pool not in closed]


def seen_sessions(sight: Sight, sessions: Iterable[Session]) -> list[Session]:
    """Return the workers of pools that are open to the caller, as far as they are seen."""
    if sight.projects is None:
        return list(sessions)
    return [
        replace(
            session,
            trouble=seen_trouble(sight, session.trouble),
            server="",
            credential=None,
            credential_expires_at=None,
        )
        for session in sessions
        if sight.sees_pool(session.pool)
    ]


def seen_trouble(sight: Sight, trouble: str) -> str:
    """Return what a worker says that it cannot do; it may name runs of any project."""
    return trouble if sight.projects is None or not trouble else UNTOLD


async def seen_workers(engine: Engine, sight: Sight, sessions: Iterable[Session]) -> list[Session]:
    """Return workers without those of others' pools.

    Users, logins and mounts of a worker are named by its admin, perhaps after a project: they are
    shown only where no other project uses the pool.
    """
    seen = seen_sessions(sight, sessions)
    if sight.projects is None or not any(session.offers for session in seen):
        return seen
    pools = await engine.store.pools()
    own = {it.name for it in pools if it.projects and sight.projects.issuperset(it.projects)}
    return [each if each.pool in own else _without_names(each) for each in seen]


def _without_names(session: Session) -> Session:
    offers = tuple(offer for offer in session.offers if offer.kind not in NAMED_BY_PEOPLE)
    return replace(session, offers=offers)


def seen_weights(sight: Sight, weights: Iterable[ShareWeight]) -> list[ShareWeight]:
    return [each for each in weights if sight.sees_share(each.share)]


def seen_status(sight: Sight, status: ClusterStatus, served: Collection[str]) -> ClusterStatus:
    """Return how the cluster stands without its servers, and with the pools that have workers.

    What a pool without workers is called, somebody's job says.
    """
    if sight.projects is None:
        return status
    queues = (each for each in status.queues if each.pool in served and sight.sees_pool(each.pool))
    return replace(status, servers=(), shards=(), queues=tuple(queues))


def seen_reservation(sight: Sight, reserved: Reserved | None) -> Reserved | None:
    """Return for whom a worker is kept free; of another project's run only until when."""
    if reserved is None or sight.sees(reserved.project):
        return reserved
    return replace(reserved, run=RunId(""), project="")


def seen_shortage(sight: Sight, run: RunAhead) -> str:
    """Return the key that a run waits for in a forecast; those of other projects are all one."""
    return run.waits_for if sight.sees(run.job.project) else OTHERS


def seen_report(sight: Sight, report: Report, pools: Collection[str]) -> Report:
    """Return a simulation with these pools by name; of others only when runs wait for them."""
    if sight.projects is None:
        return report
    return replace(
        report,
        uses=[use for use in report.uses if use.pool in pools],
        saturations=[*_seen_saturations(report.saturations, pools)],
    )


def _seen_saturations(found: Iterable[Saturation], pools: Collection[str]) -> Iterator[Saturation]:
    for each in found:
        is_foreign = each.what.startswith(_POOL) and each.what.removeprefix(_POOL) not in pools
        yield replace(each, what=OTHERS) if is_foreign else each

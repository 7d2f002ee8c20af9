"""Questions of a forecast to the store, and what is remembered of the answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from rota.domain.carts.facts import CartState
from rota.domain.forecast.forecast import Outcome
from rota.domain.gates import ClosableJob
from rota.domain.ids import CartId, JobId, RunId, SessionId, instant, micros
from rota.domain.keys import SECOND, Bucket, Key, Rate, is_charged_later
from rota.domain.order import share_of
from rota.domain.run import Trigger
from rota.domain.spec import DEFAULT_PROJECT
from rota.domain.states import RunState
from rota.ports.forecasts import (
    ComingJob,
    OpenCart,
    OpenRun,
    PoolGroup,
    PredictedStart,
    TokensLeft,
)
from rota.store.gates import closable_job
from rota.store.keys import rules_of, with_charges
from rota.store.rows import (
    bounds_from,
    cart_rules_from,
    from_json,
    optional_instant,
    rules_from,
)
from rota.store.script import Many, Row, Script, query
from rota.store.tx import Tx

_MOST_PROJECTS = 100  # of which a forecast is made by themselves
_LOOKED_AT = 2  # times as many runs as are wanted: some did not complete


def pool_group(project: str) -> Script[PoolGroup | None]:
    """The projects that share pools with this one, if nobody else can.

    Only pools that were given to some are closed to all others.
    """
    projects, pools, fresh = set[str](), set[str](), {project}
    while fresh:
        projects |= fresh
        if DEFAULT_PROJECT in projects or len(projects) > _MOST_PROJECTS:
            return None
        named = {row["pool"] for row in (yield query("pools_named", projects=fresh))} - pools
        users = (yield query("users_of_pools", pools=named)) if named else ()
        if not named <= {row["pool"] for row in users}:
            return None
        pools |= named
        fresh = {row["project"] for row in users} - projects
    return PoolGroup(frozenset(projects), frozenset(pools)) if pools else None


def coming_jobs(
    before: datetime, limit: int, projects: Collection[str] | None = None
) -> Script[list[ComingJob]]:
    if projects is not None:
        part = {"before": micros(before), "limit": limit}
        rows = yield query("coming_jobs_of_projects", projects=projects, **part)
        return [_coming_job(row) for row in rows]
    due = yield query("coming_jobs", before=micros(before), limit=limit)
    waiting = yield query("waiting_jobs", before=micros(before), limit=limit)
    by_id = {row["id"]: row for row in (*due, *waiting)}
    return [_coming_job(row) for row in by_id.values()][:limit]


def open_runs(limit: int, projects: Collection[str] | None = None) -> Script[list[OpenRun]]:
    if projects is None:
        rows = yield query("all_open_runs", limit=limit)
    else:
        rows = yield query("open_runs_of_projects", projects=projects, limit=limit)
    jobs = (yield query("job_gates", ids={row["job_id"] for row in rows})) if rows else ()
    closable = {row["id"]: closable_job(row) for row in jobs}
    makers = {row["id"]: row["created_by"] for row in jobs}
    return [_open_run(row, closable.get(row["job_id"]), makers) for row in rows]


def open_carts(limit: int, projects: Collection[str] | None = None) -> Script[list[OpenCart]]:
    if projects is None:
        rows = yield query("open_carts", limit=limit)
    else:
        rows = yield query("open_carts_of_projects", projects=projects, limit=limit)
    return [_open_cart(list(waves)) for _, waves in groupby(rows, key=itemgetter("id"))]


def latest_durations(jobs: Collection[JobId], runs: int) -> Script[dict[JobId, list[float]]]:
    rows = yield query("latest_durations", ids=jobs, looked_at=runs * _LOOKED_AT)
    return {
        JobId(row["id"]): [int(text) / SECOND for text in row["durations"].split(",")[:runs]]
        for row in rows
        if row["durations"]
    }


def tokens_left(limit: int) -> Script[dict[Key, TokensLeft]]:
    """Also without what attempts are charged for and nobody has taken out yet."""
    rows = {row["key"]: row for row in (yield query("tokens_left", limit=limit))}
    rules = yield from rules_of([key for key in rows if is_charged_later(key)])
    known = {
        key: Bucket(rule, rows[key]["level"], rows[key]["at"])
        for key, rule in rules.items()
        if isinstance(rule, Rate)
    }
    charged = yield from with_charges(rules, known)
    left = {key: (row["level"], row["at"]) for key, row in rows.items()}
    left |= {key: (bucket.level, bucket.at) for key, bucket in charged.items()}
    return {key: TokensLeft(level, instant(at)) for key, (level, at) in left.items()}


def completions(
    limit: int, projects: Collection[str] | None = None
) -> Script[dict[tuple[str, str], datetime]]:
    if projects is None:
        rows = yield query("latest_completions", limit=limit)
    else:
        rows = yield query("latest_completions_in_projects", projects=projects, limit=limit)
    return {(row["project"], row["job"]): instant(row["at"]) for row in rows}


def save_predictions(tx: Tx, starts: Sequence[PredictedStart]) -> Script[None]:
    rows = [(start.run, tx.now, micros(start.start_at)) for start in starts]
    yield Many("insert_prediction", rows, exactly=False)


def forget_predictions(tx: Tx, before: datetime) -> Script[None]:
    yield query("forget_predictions", before=micros(before))


def predicted_starts(
    since: datetime, limit: int, projects: Collection[str] | None = None
) -> Script[list[Outcome]]:
    """Also of projects of a group: of each among its newest runs, an equal part."""
    rows: list[Row] = []
    part = {"since": micros(since)}
    if projects is None:
        rows += yield query("predicted_starts", limit=limit, **part)
    for project in sorted(projects or ()):
        share = max(limit // len(projects or ()), 1)
        rows += yield query("predicted_starts_in_project", project=project, limit=share, **part)
    return [
        Outcome(instant(row["made_at"]), instant(row["start_at"]), instant(row["first_started_at"]))
        for row in rows
    ]


def _coming_job(row: Row) -> ComingJob:
    return ComingJob(
        id=JobId(row["id"]),
        project=row["project"],
        name=row["name"],
        version=row["version"],
        created_by=row["created_by"],
        document=from_json(row["document"]),
        rules=rules_from(row["rules"]),
        anchor=instant(row["anchor"]),
        next_at=optional_instant(row["next_at"]),
        held_from=optional_instant(row["held_from"]),
        paused_until=optional_instant(row["paused_until"]),
        waits=bool(row["waits"]),
        created_at=instant(row["created_at"]),
        answered_to=optional_instant(row["answered_to"] or None),
        bounds=bounds_from(row["bounds"]),
    )


def _open_cart(waves: Sequence[Row]) -> OpenCart:
    first = waves[0]
    return OpenCart(
        id=CartId(first["id"]),
        rules=cart_rules_from(first["cart_rules"]),
        state=CartState(first["state"]),
        created_by=first["created_by"],
        starts_at=optional_instant(first["starts_at"]),
        look_at=optional_instant(first["look_at"]),
        open=first["open"],
        job_id=JobId(first["job_id"]),
        job_rules=rules_from(first["rules"]),
        waves=tuple(row["items"] for row in waves),
    )


def _open_run(row: Row, job: ClosableJob | None, makers: Mapping[str, str]) -> OpenRun:
    state = RunState(row["state"])
    is_held = state in (RunState.CLAIMED, RunState.PROCESSING)
    timeout, is_by_job = row["timeout"], row["trigger"] in (Trigger.SCHEDULE, Trigger.AFTER)
    return OpenRun(
        id=RunId(row["id"]),
        project=row["project"],
        job_id=JobId(row["job_id"]),
        job=row["job"],
        state=state,
        trigger=Trigger(row["trigger"]),
        created_at=instant(row["created_at"]),
        due_at=instant(row["due_at"]),
        previous_due=optional_instant(row["previous_due"]),
        release_at=instant(row["release_at"]),
        eligible_at=optional_instant(row["eligible_at"]),
        began_at=optional_instant(row["started_at"] or row["claimed_at"]) if is_held else None,
        session=SessionId(row["session"]) if is_held else None,
        blocked_on=row["blocked_on"] or "",
        pool=row["pool"],
        priority=row["priority"],
        share=share_of(row["chain"]),
        shape=row["shape"],
        expected=row["expected"],
        timeout=None if timeout is None else timeout / SECOND,
        deadline_at=optional_instant(row["deadline_at"]),
        cart=CartId(row["cart"]) if row["cart"] else None,
        created_by=makers.get(row["job_id"], "") if is_by_job else row["created_by"],
        keys=from_json(row["keys"]) or {},
        closable=job,
    )

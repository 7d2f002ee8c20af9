"""Sessions: workers that arrive, renew their lease, leave and vanish.

A worker is drained by its name: that outlives a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

import structlog

from rota.domain.errors import Denied, NotFound
from rota.domain.ids import SessionId, instant, new_session_id
from rota.domain.policy import Bounds
from rota.domain.spec import EXTERNAL_POOL
from rota.domain.states import RunState
from rota.domain.walls import OfferKind, offered_lease
from rota.ports.files import SourceCommit
from rota.ports.records import Heartbeat, KnownType, Renewal, SeenPools, Session
from rota.ports.work import Fence, Hello, OfAttempt, Offer, Start, StartAnswer
from rota.store.ends import LEFT, MISLAID, UNTOLD, VANISHED, Loss, lose
from rota.store.memory import used_by
from rota.store.placement import forget_lone_shapes
from rota.store.rows import bounds_from, duration, from_json, session_from, to_json
from rota.store.runs import tear_output
from rota.store.script import Many, Row, Script, lock, query
from rota.store.tx import Tx

log = structlog.get_logger()

# Sessions with the beats after which nothing was heard of them; None: the session is over, but
# has something leased.
Silent: TypeAlias = Mapping[SessionId, int | None]
Reaped: TypeAlias = frozenset[SessionId]

_REMEMBERED = timedelta(days=90) // timedelta(microseconds=1)  # runs show until then who had them
_MAX_PRESENCES = 100
_MAX_SESSIONS = 1_000


def register(
    tx: Tx, hello: Hello, lease: timedelta, server: str = "", credential: str | None = None
) -> Script[Session]:
    """Register a worker; what its earlier life had leased is lost if that is provably over."""
    yield from _hold_credential(credential)
    if hello.succeeds:
        yield from _end_earlier_life(tx, hello)
    session = new_session_id()
    lease_micros = lease // timedelta(microseconds=1)
    yield query(
        "insert_session",
        id=session,
        worker=hello.worker,
        pool=hello.pool,
        slots=hello.slots,
        labels=to_json(dict(hello.labels)),
        resources=to_json(dict(hello.resources)),
        functions=to_json(hello.functions),
        guard_mode=hello.guard_mode,
        version=hello.version,
        lease=lease_micros,
        now=tx.now,
        expires_at=tx.now + lease_micros,
        server=server,
        offers=to_json(hello.offers),
        credential=credential,
    )
    yield from _learn_types(tx, hello)
    tx.effects.offers.add(hello.pool)
    tx.record("worker.registered", [session], actor=hello.worker, pool=hello.pool)
    [row] = yield query("session", id=session)
    return session_from(row)


def _hold_credential(credential: str | None) -> Script[None]:
    """Let nobody revoke a credential before the session that it opens can be barred with it.

    Nor disable its worker, who is looked at under that lock.
    """
    if credential is None:
        return
    valid = yield query("valid_credential", id=credential)
    if not valid:
        raise Denied("the credential of this worker was revoked", code="unauthenticated")
    if (yield query("disabled_worker", principal=valid[0]["principal"])):
        raise Denied("this worker was disabled", code="unauthenticated")


def _end_earlier_life(tx: Tx, hello: Hello) -> Script[None]:
    """End the session that a worker names: others of its name may be alive somewhere else."""
    session = hello.succeeds
    if (yield query("live_session_of", id=session, worker=hello.worker)):
        yield from _end(tx, [session], VANISHED)
        tx.record("worker.lost", [session], actor=hello.worker, workers=[hello.worker])


def resume(
    tx: Tx, hello: Hello, server: str = "", credential: str | None = None
) -> Script[Session | None]:
    """A worker is back; whatever its former server claims from now on is stale."""
    session = hello.resumes
    yield from _hold_credential(credential)
    yield lock("sessions", ids=[session])
    rows = yield query("session", id=session)
    resumed = yield query(
        "resume_session",
        id=session,
        worker=hello.worker,
        pool=hello.pool,
        server=server,
        offers=to_json(
            [_as_granted(offer, row["lease"]) for offer in hello.offers for row in rows]
        ),
        credential=credential,
        now=tx.now,
    )
    if not resumed:
        return None
    yield from _learn_types(tx, hello)
    [row] = yield query("session", id=session)
    return session_from(row)


def _as_granted(offer: Offer, lease: int) -> Offer:
    """What a worker is taken to offer: its session has the lease that it began with.

    Another server may give another one to those that come new.
    """
    if offer.kind != OfferKind.LEASE:
        return offer
    return Offer(OfferKind.LEASE, offered_lease(timedelta(microseconds=lease)))


def _learn_types(tx: Tx, hello: Hello) -> Script[None]:
    """Keep what a worker tells of types of plug-ins, where that is new. Most have none to tell of.

    Two workers with different releases of a plug-in: the schema of who said hello last holds.
    """
    told = {each.name: each for each in hello.job_types}
    if not told:
        return
    known = {row["name"]: (row["api_version"], row["schema"]) for row in (yield query("job_types"))}
    new = [
        (each.name, each.api_version, each.schema, hello.worker, tx.now)
        for each in told.values()
        if known.get(each.name) != (each.api_version, each.schema)
    ]
    if new:
        yield Many("keep_job_types", sorted(new), exactly=False)


def job_types() -> Script[list[KnownType]]:
    """Types of plug-ins that workers have ever offered."""
    return [
        KnownType(
            row["name"],
            row["api_version"],
            from_json(row["schema"]),
            row["worker"],
            instant(row["offered_at"]),
        )
        for row in (yield query("job_types"))
    ]


def renew(tx: Tx, session: SessionId, *, stopping: bool, trouble: str = "") -> Script[Renewal]:
    """Prolong the lease; the answer carries what the store knows the session has leased."""
    # Without the advisory lock of claims, which share only the key of this row: a renewal waits for
    # no claim, however long that takes.
    renewed = yield query(
        "renew_session", id=session, now=tx.now, stopping=int(stopping), trouble=trouble
    )
    if not renewed:
        return Renewal(alive=False, now=instant(tx.now))
    leased = yield query("leased_runs", sessions=[session])
    return Renewal(
        alive=True,
        now=instant(tx.now),
        cancel=tuple(_fence(row) for row in leased if row["cancel_at"] is not None),
        held=tuple(_fence(row) for row in leased),
        stream=renewed[0]["stream"],
        draining=bool(renewed[0]["draining"]),
    )


def _fence(row: Row) -> Fence:
    return Fence(row["id"], row["attempt"])


def orphaned() -> Script[list[SessionId]]:
    """Sessions that are over but still have runs leased, or output that will not come."""
    return [SessionId(row["id"]) for row in (yield query("orphaned_sessions"))]


def reap(tx: Tx, silent: Silent) -> Script[frozenset[SessionId]]:
    """End those of these sessions that have expired, and those that are over already."""
    over = [session for session, beats in silent.items() if beats is None]
    expected_beats = {s: beats for s, beats in silent.items() if beats is not None}
    gone = yield from _gone(tx.now, expected_beats)
    if gone:
        yield lock("sessions", ids=sorted({*gone, *over}))
        # Read again: a renewal may have come while this waited for the lock.
        gone = yield from _gone(tx.now, {session: expected_beats[session] for session in gone})
    yield from _end(tx, [*gone, *over], VANISHED)
    if gone:
        tx.record("worker.lost", list(gone), actor="reaper", workers=sorted(gone.values()))
    return frozenset(gone)


def _gone(now: int, expected_beats: Mapping[SessionId, int]) -> Script[dict[SessionId, str]]:
    """Sessions that have expired without another beat, with their workers."""
    expired = yield query("expired_sessions", ids=expected_beats, now=now)
    return {
        SessionId(row["id"]): row["worker"]
        for row in expired
        if expected_beats[row["id"]] == row["beats"]
    }


def end_session(tx: Tx, session: SessionId) -> Script[None]:
    """A worker says goodbye."""
    yield lock("sessions", ids=[session])
    rows = yield query("session", id=session)
    if rows and rows[0]["alive"] and not rows[0]["barred"]:
        yield from _end(tx, [session], LEFT)
        tx.record("worker.left", [session], actor=rows[0]["worker"])


def _end(tx: Tx, sessions: Collection[str], loss: Loss) -> Script[None]:
    """End sessions: nobody claims for them any more, and what they have leased is lost."""
    if not sessions:
        return
    yield lock("sessions", ids=sorted(sessions))
    ended = yield query("end_sessions", ids=sessions)
    tx.effects.offers.update(row["pool"] for row in ended)
    leased = yield query("leased_runs", sessions=sessions)
    pending = yield query("runs_with_pending_output", sessions=sessions)
    yield from lose(tx, leased, loss, beside=[row["id"] for row in pending])
    if leased or pending:
        yield from tear_output(sessions)


def forget(tx: Tx, limit: int) -> Script[int]:
    """Presences that ended long ago; returns how many. And what only lost ones left behind."""
    yield from forget_lone_shapes()
    forgotten = yield query("forget_sessions", before=tx.now - _REMEMBERED, limit=limit)
    return len(forgotten)


def lose_leased(
    tx: Tx, session: SessionId, fences: Sequence[Fence], *, is_untold: bool = False
) -> Script[None]:
    """Attempts that a live worker does not know although it should, or whose end it gave up."""
    wanted = set(fences)
    leased = yield query("leased_runs", sessions=[session])
    rows = [row for row in leased if _fence(row) in wanted]
    yield from lose(tx, rows, UNTOLD if is_untold else MISLAID)


def start(tx: Tx, session: SessionId, starts: Sequence[Start]) -> Script[StartAnswer]:
    """PROCESSING, durable. A cancel that came first wins."""
    # No gate is locked: a run has its slot there since it was queued, and keeps it.
    rows = yield query("runs_to_change", ids={start.run for start in starts})
    by_id = {row["id"]: row for row in rows}
    answers: dict[Fence, _Permit] = {}
    fresh: list[tuple[int, str, int, str]] = []
    for item in {start.fence: start for start in starts}.values():
        row = by_id.get(item.run)
        permit = _permit(row, session, item)
        answers[item.fence] = permit
        if row is not None and permit is _Permit.GRANTED and row["state"] == RunState.CLAIMED:
            started_at = max(row["claimed_at"], min(item.started_at, tx.now))
            fresh.append((started_at, item.run, item.number, session))
    if fresh:
        yield Many("start_runs", fresh)
        tx.record_quietly("run.started", [by_id[run] for _, run, _, _ in fresh], actor=session)
    return StartAnswer(
        *(tuple(f for f, given in answers.items() if given is permit) for permit in _Permit)
    )


def note_commits(
    tx: Tx, session: SessionId, commits: Sequence[SourceCommit]
) -> Script[tuple[Fence, ...]]:
    """Keep what runs were fetched at; return those that the session has not leased (any more)."""
    rows = yield query("runs_to_change", ids={each.run for each in commits})
    by_id = {row["id"]: row for row in rows}
    items = {each.fence: each for each in commits}
    refused = tuple(
        fence
        for fence, item in items.items()
        if _permit(by_id.get(item.run), session, item) is _Permit.REFUSED
    )
    kept = [
        (item.commit, item.run, item.number, session)
        for fence, item in items.items()
        if fence not in refused
    ]
    if kept:
        yield Many("note_commits", kept, exactly=False)
    return refused


class _Permit(Enum):
    """In the order of `StartAnswer`."""

    GRANTED = 1
    CANCELLED = 2
    REFUSED = 3


def _permit(row: Row | None, session: SessionId, item: OfAttempt) -> _Permit:
    if row is None or (row["session"], row["attempt"]) != (session, item.number) or row["barred"]:
        return _Permit.REFUSED
    if row["state"] == RunState.PROCESSING:
        return _Permit.GRANTED  # the answer to the first request was lost
    if row["state"] != RunState.CLAIMED:
        return _Permit.REFUSED
    return _Permit.GRANTED if row["cancel_at"] is None else _Permit.CANCELLED


def drain(tx: Tx, name: str, *, actor: str) -> Script[None]:
    """Drain a worker: no claim gives it anything from here on."""
    drained = yield query("drain_worker", name=name, actor=actor, now=tx.now)
    presences = yield from _presences(name)
    yield lock("sessions", ids=sorted(_live(presences)))  # a claim under way comes before
    if drained:
        tx.record("worker.drained", _live(presences), actor=actor, workers=[name])


def undrain(tx: Tx, name: str, *, actor: str) -> Script[None]:
    """Let a drained worker have work again; its pools are notified."""
    presences = yield from _presences(name)
    undrained = yield query("undrain_worker", name=name)
    if not undrained:
        return
    tx.record("worker.undrained", _live(presences), actor=actor, workers=[name])
    tx.effects.reopened.update(row["pool"] for row in presences if row["alive"])


def bar(tx: Tx, credentials: Collection[str], *, actor: str) -> Script[None]:
    """Bar the live sessions of credentials that this transaction has revoked, or locked.

    From its commit on no server claims for them or takes what they send; what they have leased ends
    with their lease, which is not renewed.
    """
    live = [row["id"] for row in (yield query("sessions_of_credentials", credentials=credentials))]
    if not live:
        return
    yield lock("sessions", ids=sorted(live))  # a claim under way comes before
    rows = yield query("bar_sessions", ids=live, credentials=credentials)
    tx.effects.sessions.update(row["id"] for row in rows)
    workers = sorted({row["worker"] for row in rows})
    tx.record("worker.barred", [row["id"] for row in rows], actor=actor, workers=workers)


def _presences(worker: str) -> Script[list[Row]]:
    rows = yield query("presences_of_worker", worker=worker, limit=_MAX_PRESENCES)
    if not rows:
        raise NotFound(
            f"no worker is named {worker}",
            code="worker_not_found",
            hint="rota worker list --all shows the names",
        )
    return list(rows)


def _live(presences: list[Row]) -> list[str]:
    return [row["id"] for row in presences if row["alive"]]


def served_pools() -> Script[frozenset[str]]:
    """The pools that have workers."""
    rows = yield query("served_pools")
    return frozenset(row["pool"] for row in rows)


def closed_pools(projects: Collection[str]) -> Script[frozenset[str]]:
    """The pools that none of these projects may use: given to others, or against their policies."""
    rows = yield query("bounds_of_projects", projects=projects)
    bounds = [bounds_from(row["bounds"]) or Bounds() for row in rows]
    if any(each.are_open for each in bounds):
        return frozenset()
    known = {row["name"] for row in (yield query("known_pools"))}
    known.update(pool for each in bounds for pool in each.barred)
    return frozenset(pool for pool in known if not any(each.allow_pool(pool) for each in bounds))


def seen_pools_for_all(callers: Sequence[tuple[str, str]]) -> Script[list[SeenPools]]:
    """For a project and pools of its runs: whether they have workers, and which others do."""
    served = yield from served_pools()
    closed: frozenset[str] = frozenset()
    if not served.issuperset(pool for _, pool in callers):
        closed = yield from closed_pools([callers[0][0]])
    others = served - closed - {EXTERNAL_POOL}  # that one has no workers to name
    return [SeenPools(pool in served, others) for _, pool in callers]


def find(*, alive_only: bool) -> Script[list[Session]]:
    rows = yield query("select_sessions", any=int(not alive_only), limit=_MAX_SESSIONS)
    used = yield from used_by([row for row in rows if row["held"]])
    return [session_from(row, row["held"], used.get(row["id"])) for row in rows]


def heartbeats() -> Script[list[Heartbeat]]:
    rows = yield query("heartbeats")
    return [Heartbeat(row["id"], row["beats"], duration(row["lease"])) for row in rows]


def cancels(session: SessionId) -> Script[tuple[Fence, ...] | None]:
    """Attempts of a session that somebody asked to stop; None: it is barred."""
    found = yield query("session", id=session)
    if found and found[0]["barred"]:
        return None
    rows = yield query("leased_runs", sessions=[session])
    return tuple(_fence(row) for row in rows if row["cancel_at"] is not None)


def served_pools_for_all(callers: Sequence[None]) -> Script[list[frozenset[str]]]:
    """The pools that have workers, for all who ask."""
    return [(yield from served_pools())] * len(callers)


class Reaping:
    """Ends sessions in one transaction; if that fails, each in one of its own."""

    def __init__(
        self, reap: Callable[[Silent], Awaitable[Reaped]], check: Callable[[], Awaitable[object]]
    ) -> None:
        self._reap = reap
        self._check = check  # raises if it is the store that fails
        self._told: set[SessionId] = set()

    async def reap(self, silent: Silent) -> Reaped:
        """Those that ended. One that cannot end is logged once, and left."""
        self._told &= silent.keys()
        if not silent:
            return frozenset()
        try:
            return await self._reap(silent)
        except Exception:  # noqa: BLE001 - whatever it is, those it is not about go on
            await self._check()
        reaped = [await self._reap_alone(session, beats) for session, beats in silent.items()]
        return frozenset[SessionId]().union(*reaped)

    async def _reap_alone(self, session: SessionId, beats: int | None) -> Reaped:
        try:
            return await self._reap({session: beats})
        except Exception as error:
            await self._check()
            if session not in self._told:
                self._told.add(session)
                log.error("session.cannot_end", session=session, error=str(error), exc_info=True)
            return frozenset()

"""Workers that register and report, and the status of the cluster and its jobs.

Only what adds something to a verb of the store is here: the rest of what workers ask for goes from
the dispatcher to the store directly.
"""

from __future__ import annotations

import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import structlog

from rota.domain.errors import Invalid
from rota.domain.ids import SHARD_COUNT, SessionId, micros
from rota.domain.job import Job
from rota.domain.json_schema import SchemaRefused, checked_schema
from rota.domain.lateness import Lateness, is_stuck, lateness_of
from rota.domain.lease import MAX_LEASE, MIN_LEASE
from rota.domain.run import AttemptResult, why_not_portable
from rota.domain.shape import WORKER
from rota.domain.shards import Server, Shard
from rota.domain.spec import EXTERNAL_POOL, TYPE_NAME, is_plugin_type
from rota.domain.states import RunState
from rota.domain.walls import OfferKind, offered_lease
from rota.operations.engine import Engine
from rota.ports.files import BLOB_READ, BLOB_WRITE, COMMITS
from rota.ports.records import Finished, Session
from rota.ports.work import (
    CREDENTIAL,
    HANDLES,
    MAX_LAST_LINE,
    STEPS,
    UNREADABLE,
    EndBatch,
    Fence,
    Hello,
    JobTypeNote,
    Offer,
    Outcome,
    Report,
    StepNote,
    StepOutcome,
    Welcome,
    WorkerIdentity,
    storable,
)

log = structlog.get_logger()

_TELL_AGAIN = timedelta(minutes=1)
_RUNS = 100  # the latest, of which percentiles of lateness are taken


async def register(
    engine: Engine,
    hello: Hello,
    lease: timedelta,
    server: str = "",
    identity: WorkerIdentity | None = None,
) -> tuple[Session, Welcome]:
    """Register a worker at a server, or resume the session it had.

    `identity` is what its credential says; None: it needs none, on the server's own machine.
    """
    if hello.labels.get(WORKER, hello.worker) != hello.worker:
        raise Invalid(
            f'a worker cannot be given the label "{WORKER}": that is its name',
            code="reserved_label",
            hint="call the label otherwise",
        )
    if hello.pool == EXTERNAL_POOL:
        raise Invalid(
            f"no worker can be in the pool {EXTERNAL_POOL}: other systems do what is in it",
            code="reserved_pool",
            hint="name another pool",
        )
    lease, hello = _granted(with_checked_types(hello), lease)
    credential = identity.credential if identity else None
    own = (CREDENTIAL,) if identity and identity.is_renewable else ()
    requests = (STEPS, HANDLES, COMMITS, BLOB_READ, BLOB_WRITE, *own)
    if hello.resumes:
        resumed = await engine.store.resume(hello, server, credential)
        if resumed is not None:
            return resumed, _welcome(resumed, resumed.expires_at - resumed.lease, tuple(requests))
    session = await engine.store.register(hello, lease, server, credential)
    return session, _welcome(session, session.registered_at, tuple(requests))


def _granted(hello: Hello, usual: timedelta) -> tuple[timedelta, Hello]:
    """Return the lease of a worker, which may ask for one by its offer, and what it offers then.

    All that it executes has the same lease: its guardian has one deadline for everything.
    """
    lease = usual
    for offer in hello.offers:
        if offer.kind == OfferKind.LEASE:
            with suppress(ValueError, OverflowError):
                lease = min(max(timedelta(seconds=float(offer.name)), MIN_LEASE), MAX_LEASE)
    rest = [offer for offer in hello.offers if offer.kind != OfferKind.LEASE]
    granted = Offer(OfferKind.LEASE, offered_lease(lease))
    return lease, msgspec.structs.replace(hello, offers=(*rest, granted))


def _welcome(session: Session, now: datetime, requests: tuple[str, ...]) -> Welcome:
    lease = session.lease.total_seconds()
    return Welcome(session.id, lease, micros(now), session.stream, requests)


def with_checked_types(hello: Hello) -> Hello:
    """Return a hello with what is to be kept of the types of plug-ins that it offers.

    A worker is not trusted: a type whose schema cannot be used is kept without one, as is one that
    it offers without any.
    """
    offered = {
        offer.name
        for offer in hello.offers
        if offer.kind == OfferKind.TYPE and not offer.reason and _may_be_type(offer.name)
    }
    if not offered and not hello.job_types:
        return hello
    told = {note.name: _checked_type(note, hello.worker) for note in hello.job_types}
    kept = tuple(told.get(name, JobTypeNote(name)) for name in sorted(offered))
    return msgspec.structs.replace(hello, job_types=kept)


def _may_be_type(name: str) -> bool:
    return is_plugin_type(name) and TYPE_NAME.fullmatch(name) is not None


def _checked_type(note: JobTypeNote, worker: str) -> JobTypeNote:
    try:
        schema = checked_schema(msgspec.json.decode(note.schema))
    except (*UNREADABLE, SchemaRefused) as error:
        log.warning("job_type.without_schema", worker=worker, type=note.name, error=str(error))
        return JobTypeNote(note.name, note.api_version)
    return JobTypeNote(note.name, note.api_version, json.dumps(schema, sort_keys=True))


_REMEMBERED = 10_000  # workers that were refused


@dataclass(slots=True)
class _Refused:
    told_at: float  # monotonic: when an event was recorded last
    count: int = 0  # since then
    act: str = ""  # the latest
    subject: str = ""
    fences: Sequence[Fence] = ()


class Refusals:
    """Refused acts of workers, for the event history: forged ones are to be seen.

    The first of a worker is recorded at once, then one event a minute at the most, with a count: no
    worker can fill the store by being refused.
    """

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._by_worker: OrderedDict[str, _Refused] = OrderedDict()

    async def note_acts(
        self, session: SessionId, worker: str, act: str, fences: Sequence[Fence]
    ) -> None:
        """Note refused acts, but for those about what once was the worker's own: these are late."""
        if fences and (foreign := await self._engine.store.foreign_attempts(session, fences)):
            await self.note(session, worker, act, foreign)

    async def note(self, subject: str, worker: str, act: str, fences: Sequence[Fence] = ()) -> None:
        """Note a refusal; `subject` is the session, or the credential of a worker without one."""
        if (found := self._by_worker.get(worker)) is None:
            found = self._by_worker[worker] = _Refused(-math.inf)
            if len(self._by_worker) > _REMEMBERED:
                self._by_worker.popitem(last=False)
        found.count += max(len(fences), 1)
        found.act, found.subject, found.fences = act, subject, fences
        await self.tell(worker)

    async def tell(self, worker: str) -> None:
        """Record what was refused of a worker since the last time, if that is a minute ago."""
        found = self._by_worker.get(worker)
        if found is None or not found.count:
            return
        now = self._monotonic()
        if now - found.told_at < _TELL_AGAIN.total_seconds():
            return
        count, found.count, found.told_at = found.count, 0, now
        log.warning("worker.refused", worker=worker, act=found.act, count=count)
        await self._engine.store.record_refusals(
            found.subject, worker, found.act, count, tuple(found.fences)
        )


async def finish(
    engine: Engine,
    session: SessionId,
    report: Report,
    *,
    claim: int = 0,
    stream: int = 1,
) -> Finished:
    """End attempts as a worker reports, and give it the next runs in the same transaction."""
    return await engine.store.finish(session, bounded(report), claim=claim, stream=stream)


def bounded(report: Report) -> Report:
    """Drop outputs that some part could not carry: a worker is not trusted to check that.

    Texts lose the characters that no store can hold.
    An end without its outputs has something to tell, and becomes an outcome. `Invalid` if the
    columns are not of the same length.
    """
    ends = report.ends
    columns = (ends.numbers, ends.started_at, ends.ended_at, ends.cpu_micros)
    if any(len(column) != len(ends) for column in columns):
        raise Invalid("the columns of a report must be of the same length", code="invalid_report")
    checked = {at: _checked(text) for at, text in ends.outputs.items() if at in range(len(ends))}
    complaints = {at: found.complaint for at, found in checked.items() if found.complaint}
    kept = {at: found.text for at, found in checked.items() if not found.complaint}
    if kept != ends.outputs:
        ends = msgspec.structs.replace(ends, outputs=kept)
    told = [_told(ends, at, complaint) for at, complaint in complaints.items()]
    if complaints:
        ends = ends.part([at for at in range(len(ends)) if at not in complaints])
    return Report(ends, (*told, *map(_bounded, report.outcomes)))


class _Checked(NamedTuple):
    text: str  # of outputs, as they are to be kept
    complaint: str  # "": nothing is wrong with them


def _checked(text: str) -> _Checked:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _Checked("", "they are not JSON")
    complaint = why_not_portable(value)
    # Written anew, so that what is kept is what was looked at.
    return _Checked("" if complaint else msgspec.json.encode(value).decode(), complaint)


def _told(ends: EndBatch, at: int, complaint: str) -> Outcome:
    return Outcome(
        ends.runs[at],
        ends.numbers[at],
        AttemptResult.COMPLETED,
        ends.started_at[at],
        ends.ended_at[at],
        message=_not_kept(complaint),
        cpu_seconds=ends.cpu_micros[at] / 1e6,
    )


def _bounded(outcome: Outcome) -> Outcome:
    outputs, message = outcome.outputs, storable(outcome.message)
    if outputs is not None and (complaint := why_not_portable(outputs)):
        outputs, message = None, message or _not_kept(complaint)
    return msgspec.structs.replace(
        outcome,
        outputs=outputs,
        message=message,
        cause=storable(outcome.cause),
        steps=tuple(map(_bounded_step, outcome.steps)),
    )


def _bounded_step(step: StepOutcome) -> StepOutcome:
    return msgspec.structs.replace(step, name=storable(step.name), cause=storable(step.cause))


async def note(engine: Engine, session: SessionId, notes: Sequence[StepNote]) -> frozenset[Fence]:
    """Store how attempts stand that go on, as their worker tells; return those that it has."""
    bounded = [
        msgspec.structs.replace(
            note,
            steps=tuple(map(_bounded_step, note.steps)),
            last_line=storable(note.last_line[:MAX_LAST_LINE]),
        )
        for note in notes
    ]
    return await engine.store.tell_notes(session, bounded)


def _not_kept(complaint: str) -> str:
    return f"its outputs were not kept: {complaint}"


@dataclass(frozen=True, slots=True)
class PoolQueue:
    """Runs of a pool that wait for a worker."""

    pool: str
    queued: int
    oldest_queued_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    now: datetime  # by the store's clock
    servers: tuple[Server, ...]  # of the last day, the newest first
    shards: tuple[Shard, ...]
    oldest_due_at: datetime | None  # due and not fired; None: nothing is
    queues: tuple[PoolQueue, ...]

    def shards_of(self) -> Mapping[str, int]:
        """Number of shards that each live server fires."""
        live = {server.id for server in self.servers if server.is_live(self.now)}
        owned: dict[str, int] = {}
        for shard in self.shards:
            if shard.owner in live:
                owned[shard.owner] = owned.get(shard.owner, 0) + 1
        return owned


async def cluster_status(engine: Engine) -> ClusterStatus:
    """Return the status of the whole cluster; its parts are read moments apart."""
    store = engine.store
    now = await store.now()
    due = await store.due_schedules(now, 1, range(SHARD_COUNT))
    counts = await store.counts()
    queued = {pool: n for (state, pool), n in counts.runs.items() if state == RunState.QUEUED}
    return ClusterStatus(
        now=now,
        servers=tuple(await store.servers()),
        shards=tuple(await store.shards()),
        oldest_due_at=due[0].next_at if due else None,
        queues=tuple(
            PoolQueue(pool, n, counts.oldest_queued_at.get(pool))
            for pool, n in sorted(queued.items())
        ),
    )


async def lateness(engine: Engine, job: Job) -> Lateness | None:
    """Return how late the latest runs started; None: none has started."""
    return lateness_of(await engine.store.start_delays(job.id, _RUNS))


async def watch_congestion(engine: Engine) -> int:
    """Record once that a job is stuck, and once that none of its runs is held back any more."""
    now = await engine.store.now()
    found = await engine.store.congested_jobs()
    stuck = {job: seen for job, seen in found.items() if is_stuck(seen, now)}
    congested = {job for job, seen in found.items() if seen.is_holding_back}
    for job in await engine.store.mark_stuck(stuck, congested):
        log.warning("job.stuck", job_id=job, waiting=stuck[job].waiting)
    return len(stuck)

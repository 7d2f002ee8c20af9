"""What Rota does for workers: admit them, give them work, take their reports, notice their loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from rota.domain.errors import Invalid
from rota.domain.ids import JobId, SessionId, micros
from rota.domain.jobfile import read_job
from rota.domain.portable import why_not_portable
from rota.operations.backends import Backends
from rota.ports.queue import output as output_topic
from rota.ports.records import Finished, Renewal, Session
from rota.ports.work import (
    Fence,
    Hello,
    Outcome,
    Progress,
    SpecEntry,
    Start,
    StartAnswer,
    Welcome,
    Work,
)

Ref = tuple[JobId, int]


async def register(backends: Backends, hello: Hello, lease: timedelta) -> tuple[Session, Welcome]:
    """A worker arrives, or comes back to the session it had."""
    if hello.resumes:
        renewal = await backends.store.renew(SessionId(hello.resumes), stopping=False)
        if renewal.alive:
            known = await backends.store.sessions(alive_only=True)
            for session in known:
                if session.id == hello.resumes:
                    return session, _welcome(session, micros(renewal.now))
    session, wakes = await backends.store.register(hello, lease)
    backends.announce(wakes)
    return session, _welcome(session, micros(session.registered_at))


def _welcome(session: Session, now: int) -> Welcome:
    return Welcome(session.id, session.lease.total_seconds(), now)


async def claim(backends: Backends, session: SessionId, slots: int) -> list[Work]:
    """Runs for a worker with room, in order of service."""
    return await backends.store.claim(session, slots)


async def specs(backends: Backends, refs: Sequence[Ref]) -> list[SpecEntry]:
    """The specs of job versions, for workers that have not seen them.

    What this version of Rota cannot read is left out.
    """
    documents: Mapping[Ref, Mapping[str, object]] = await backends.store.documents(refs)
    entries = []
    for job, version in refs:
        with suppress(Invalid):
            entries.append(SpecEntry(job, version, read_job(documents[job, version])))
    return entries


async def start(backends: Backends, session: SessionId, starts: Sequence[Start]) -> StartAnswer:
    """PROCESSING, durable on return."""
    return await backends.store.start(session, starts)


async def finish(
    backends: Backends, session: SessionId, outcomes: Sequence[Outcome], *, claim: int = 0
) -> Finished:
    """Take a worker's word for how attempts ended, and give it the next runs in the same breath."""
    finished = await backends.store.finish(session, list(map(_bounded, outcomes)), claim=claim)
    backends.announce(finished.wakes)
    for fence in finished.accepted:
        backends.queue.announce(output_topic(fence.run))
    return finished


def _bounded(outcome: Outcome) -> Outcome:
    """Outputs that some part could not carry are left out: a worker is not trusted with that."""
    if outcome.outputs is None or not (complaint := why_not_portable(outcome.outputs)):
        return outcome
    message = outcome.message or f"its outputs were not kept: {complaint}"
    return msgspec.structs.replace(outcome, outputs=None, message=message)


async def renew(backends: Backends, session: SessionId, *, stopping: bool) -> Renewal:
    """Prolong a worker's lease."""
    return await backends.store.renew(session, stopping=stopping)


async def lose(backends: Backends, session: SessionId, fences: Sequence[Fence]) -> None:
    """Attempts that their live worker turned out not to know."""
    backends.announce(await backends.store.lose(session, fences))


async def leave(backends: Backends, session: SessionId) -> None:
    """A worker says goodbye."""
    backends.announce(await backends.store.end_session(session))


async def record_progress(
    backends: Backends, session: SessionId, items: Sequence[Progress]
) -> None:
    await backends.store.record_progress(session, items)


async def reap(backends: Backends, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
    """End the sessions of workers that stopped renewing; their attempts are lost."""
    gone, wakes = await backends.store.reap(expected_beats)
    backends.announce(wakes)
    return gone

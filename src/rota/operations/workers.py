"""What Rota does for workers: admit them, give them work, take their reports, notice their loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.domain.ids import SessionId, micros
from rota.domain.portable import why_not_portable
from rota.operations.engine import Engine
from rota.ports.records import Claimed, Finished, Renewal, Session
from rota.ports.work import Fence, Hello, Outcome, Progress, Start, StartAnswer, Welcome


async def register(
    engine: Engine, hello: Hello, lease: timedelta, server: str = ""
) -> tuple[Session, Welcome]:
    """A worker arrives at a server, or comes back to the session it had."""
    if hello.resumes:
        resumed = await engine.store.resume(hello, server)
        if resumed is not None:
            return resumed, _welcome(resumed, resumed.expires_at - resumed.lease)
    session = await engine.store.register(hello, lease, server)
    return session, _welcome(session, session.registered_at)


def _welcome(session: Session, now: datetime) -> Welcome:
    return Welcome(session.id, session.lease.total_seconds(), micros(now), session.stream)


async def claim(
    engine: Engine,
    session: SessionId,
    slots: int,
    stream: int = 1,
    runs: Sequence[str] = (),
) -> Claimed:
    """Runs for a worker with room: those named, then others in order of service."""
    return await engine.store.claim(session, slots, stream, runs)


async def any_queued(engine: Engine, runs: Sequence[str]) -> bool:
    """Whether one of these runs still waits for a worker."""
    return await engine.store.any_queued(runs)


async def start(engine: Engine, session: SessionId, starts: Sequence[Start]) -> StartAnswer:
    """PROCESSING, durable on return."""
    return await engine.store.start(session, starts)


async def finish(
    engine: Engine,
    session: SessionId,
    outcomes: Sequence[Outcome],
    *,
    claim: int = 0,
    stream: int = 1,
) -> Finished:
    """End attempts as a worker reports, and give it the next runs in the same transaction."""
    return await engine.store.finish(
        session, list(map(_bounded, outcomes)), claim=claim, stream=stream
    )


def _bounded(outcome: Outcome) -> Outcome:
    """Outputs that some part could not carry are left out: a worker is not trusted with that."""
    if outcome.outputs is None or not (complaint := why_not_portable(outcome.outputs)):
        return outcome
    message = outcome.message or f"its outputs were not kept: {complaint}"
    return msgspec.structs.replace(outcome, outputs=None, message=message)


async def renew(engine: Engine, session: SessionId, *, stopping: bool) -> Renewal:
    """Prolong a worker's lease."""
    return await engine.store.renew(session, stopping=stopping)


async def lose(engine: Engine, session: SessionId, fences: Sequence[Fence]) -> None:
    """Attempts that their live worker turned out not to know."""
    await engine.store.lose(session, fences)


async def leave(engine: Engine, session: SessionId) -> None:
    """A worker says goodbye."""
    await engine.store.end_session(session)


async def drain(engine: Engine, worker: str, *, actor: str) -> None:
    """Let a worker finish what it holds and give it nothing new, also after a restart."""
    await engine.store.drain_worker(worker, actor=actor)


async def undrain(engine: Engine, worker: str, *, actor: str) -> None:
    """Give a drained worker work again."""
    await engine.store.undrain_worker(worker, actor=actor)


async def record_progress(engine: Engine, session: SessionId, items: Sequence[Progress]) -> None:
    await engine.store.record_progress(session, items)


async def reap(engine: Engine, expected_beats: Mapping[SessionId, int]) -> frozenset[SessionId]:
    """End the sessions of workers that stopped renewing; their attempts are lost."""
    return await engine.store.reap(expected_beats)

"""Workers, by their sessions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from rota.domain.quantities import format_duration
from rota.domain.resources import Vector, format_amount
from rota.ports.records import Session
from rota.server.gateway.shapes.models import Answer


class WorkerShape(Answer):
    """A live or past presence of a worker."""

    id: str
    worker: str
    state: Literal["alive", "draining", "stopping", "gone"]
    pool: str
    slots: int
    running: int  # attempts it holds now
    labels: dict[str, str]
    resources: dict[str, str]  # what it offers, as job files write it: 4, 0.5, 8GiB
    used: dict[str, str]  # what the attempts it holds take of these
    functions: list[str]
    guard_mode: str
    version: str
    server: str  # id of the one it talks to
    draining: bool  # it gets nothing new until it is resumed
    lease: str
    registered_at: datetime
    expires_at: datetime

    @classmethod
    def of(cls, session: Session) -> WorkerShape:
        return cls(
            id=session.id,
            worker=session.worker,
            state=_state(session),
            pool=session.pool,
            slots=session.slots,
            running=session.held,
            labels=dict(session.labels),
            resources=_amounts(session.resources, session.resources),
            used=_amounts(session.resources, session.used),
            functions=list(session.functions),
            guard_mode=session.guard_mode,
            version=session.version,
            server=session.server,
            draining=session.draining,
            lease=format_duration(session.lease),
            registered_at=session.registered_at,
            expires_at=session.expires_at,
        )


def _amounts(names: Iterable[str], amounts: Vector) -> dict[str, str]:
    return {name: format_amount(name, amounts.get(name, 0)) for name in names}


def _state(session: Session) -> Literal["alive", "draining", "stopping", "gone"]:
    if not session.alive:
        return "gone"
    if session.stopping:
        return "stopping"
    return "draining" if session.draining else "alive"

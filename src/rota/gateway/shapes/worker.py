"""Workers, by their sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from rota.domain.durations import format_duration
from rota.gateway.shapes.models import Answer
from rota.ports.records import Session


class WorkerShape(Answer):
    """A live or past presence of a worker."""

    id: str
    worker: str
    state: Literal["alive", "stopping", "gone"]
    pool: str
    slots: int
    running: int  # attempts it holds now
    labels: dict[str, str]
    functions: list[str]
    guard_mode: str
    version: str
    lease: str
    registered_at: datetime
    expires_at: datetime

    @classmethod
    def of(cls, session: Session) -> WorkerShape:
        return cls(
            id=session.id,
            worker=session.worker,
            state="gone" if not session.alive else "stopping" if session.stopping else "alive",
            pool=session.pool,
            slots=session.slots,
            running=session.held,
            labels=dict(session.labels),
            functions=list(session.functions),
            guard_mode=session.guard_mode,
            version=session.version,
            lease=format_duration(session.lease),
            registered_at=session.registered_at,
            expires_at=session.expires_at,
        )

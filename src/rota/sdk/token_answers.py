"""What the server answers about tokens, and who shows them."""

from __future__ import annotations

from datetime import datetime

from rota.sdk.answers import Answer


class Token(Answer, frozen=True, kw_only=True):
    id: str
    name: str = ""
    role: str = ""
    created_by: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class NewToken(Answer, frozen=True, kw_only=True):
    id: str
    name: str = ""
    role: str = ""
    secret: str  # shown this once


class WorkerToken(Answer, frozen=True, kw_only=True):
    """What a worker shows when it dials in."""

    id: str
    name: str = ""  # of the worker
    pool: str | None = None  # the only one it may serve; None: any
    created_by: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class NewWorkerToken(Answer, frozen=True, kw_only=True):
    id: str
    name: str = ""
    pool: str | None = None
    secret: str  # shown this once


class Caller(Answer, frozen=True, kw_only=True):
    """Who the server takes this client for."""

    name: str = ""
    role: str = ""
    session: str = ""  # id of the token

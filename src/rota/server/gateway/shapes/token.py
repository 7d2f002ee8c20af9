"""Tokens and callers. No shape but one has a secret in it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from rota.operations.tokens import Caller
from rota.ports.records import Role
from rota.server.gateway.shapes.models import Answer, Body, Duration


class TokenShape(Answer):
    """An API token, without its secret."""

    id: str
    name: str
    role: Role
    created_by: str
    created_at: datetime
    expires_at: datetime | None  # None: never
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewTokenShape(Answer):
    """A token that was just made."""

    id: str
    name: str
    role: Role
    secret: str  # shown this once


class NewTokenBody(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,127}$")]
    role: Role
    expires_in: Duration | None = None  # None: never


class WorkerTokenShape(Answer):
    """What a worker shows when it dials in, without its secret."""

    id: str
    name: str  # of the worker
    pool: str | None  # the only one it may serve; None: any
    created_by: str
    created_at: datetime
    expires_at: datetime | None  # None: never
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewWorkerTokenShape(Answer):
    """A worker's token that was just made."""

    id: str
    name: str
    pool: str | None
    secret: str  # shown this once


class NewWorkerTokenBody(Body):
    name: Annotated[str, Field(max_length=128)]  # of the worker
    pool: Annotated[str, Field(max_length=128)] | None = None  # None: any
    expires_in: Duration | None = None  # None: never


class LoginBody(Body):
    secret: Annotated[str, Field(min_length=1, max_length=512, repr=False)]


class CallerShape(Answer):
    """Who the server takes the caller for."""

    name: str
    role: Role
    session: str  # id of the token or session that was shown

    @classmethod
    def of(cls, caller: Caller) -> CallerShape:
        return cls(name=caller.name, role=caller.role, session=caller.token_id)

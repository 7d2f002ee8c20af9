"""Tokens and their owners. No answer but those to a new token has a secret in it."""

from __future__ import annotations

from typing import Annotated

from rota.api.answers import UNSENT, Answer, Instant, one_of

Role = Annotated[
    str,
    one_of(
        "What a caller may do; each includes those before it.",
        "viewer",
        "operator",
        "editor",
        "admin",
    ),
]


class Token(Answer, frozen=True, kw_only=True):
    """An API token, without its secret."""

    id: str
    name: str = ""
    role: Role = ""
    created_by: str = ""
    created_at: Instant = UNSENT
    expires_at: Instant | None = None  # None: never
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None


class NewToken(Answer, frozen=True, kw_only=True):
    """A token that was just made."""

    id: str
    name: str = ""
    role: Role = ""
    secret: str  # shown this once


class WorkerToken(Answer, frozen=True, kw_only=True):
    """Token that a worker shows when it dials in, without its secret."""

    id: str
    name: str = ""  # of the worker
    pool: str | None = None  # the only one it may serve; None: any
    created_by: str = ""
    created_at: Instant = UNSENT
    expires_at: Instant | None = None  # None: never
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None


class NewWorkerToken(Answer, frozen=True, kw_only=True):
    """A worker's token that was just made."""

    id: str
    name: str = ""
    pool: str | None = None
    secret: str  # shown this once


class Caller(Answer, frozen=True, kw_only=True):
    """Who the server takes the caller for."""

    name: str = ""
    role: Role = ""
    session: str = ""  # id of the token or session that was shown

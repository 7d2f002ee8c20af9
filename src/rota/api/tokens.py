"""Tokens and their owners. No answer but those to a new token has a secret in it."""

from __future__ import annotations

from collections.abc import Mapping
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


Verb = Annotated[
    str,
    one_of(
        "What a token may be narrowed to.",
        "read",
        "trigger",
        "cancel",
        "apply",
        "resolve",
        "upload",
        "secrets",
        "metrics",
    ),
]


class Token(Answer, frozen=True, kw_only=True):
    """An API token, without its secret."""

    id: str
    name: str = ""  # of the service that it acts for
    role: Role = ""  # the most that it may do
    project: str | None = None  # the only one it is for; None: the installation
    verbs: tuple[Verb, ...] | None = None  # all that it may do; None: what the role allows
    shown: str = ""  # the beginning of its secret
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
    project: str | None = None  # the only one it is for; None: the installation
    verbs: tuple[Verb, ...] | None = None  # all that it may do; None: what the role allows
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


class JoinToken(Answer, frozen=True, kw_only=True):
    """A token by which workers join, without its secret."""

    id: str
    pool: str | None = None  # the only one whose workers may join; None: any
    uses_left: int = 0
    created_by: str = ""
    created_at: Instant = UNSENT
    expires_at: Instant | None = None
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None


class NewJoinToken(Answer, frozen=True, kw_only=True):
    """A join token that was just made."""

    id: str
    pool: str | None = None
    uses: int = 1
    secret: str  # shown this once


class Caller(Answer, frozen=True, kw_only=True):
    """Who the server takes the caller for."""

    name: str = ""
    kind: Annotated[str, one_of("What the caller is.", "user", "service", "system")] = ""
    role: Role = ""  # the highest of `roles`; "": none
    roles: Mapping[str, Role] = {}  # by project; `*`: in all, and in the installation
    project: str | None = None  # the only one that the token is for; None: any
    verbs: tuple[Verb, ...] | None = None  # all that the token may do; None: what the role allows
    session: str = ""  # id of the token or session that was shown
    expires_at: Instant | None = None  # when that ends; None: when it is revoked

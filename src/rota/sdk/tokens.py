"""Calls about tokens."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api.answers import Page
from rota.api.tokens import (
    Caller,
    JoinToken,
    NewJoinToken,
    NewToken,
    NewWorkerToken,
    Token,
    WorkerToken,
)
from rota.sdk.exchange import Call, get, path_of, post
from rota.sdk.verbs import Verb


def list_tokens(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Token]]:
    """List tokens of programs, newest first."""
    return get(Page[Token], "/tokens", limit=limit, cursor=cursor)


def create_token(
    name: str,
    role: str,
    *,
    installation: bool = False,
    verbs: Sequence[str] | None = None,
    expires_in: str | None = None,
) -> Call[NewToken]:
    """Create a token for the client's project; its secret is in this answer and never again.

    `installation`: for all projects, and what belongs to none. `verbs`: nothing but these, such as
    "read" and "trigger". `expires_in`: "90d".
    """
    document: dict[str, object] = {"name": name, "role": role}
    if installation:
        document["installation"] = True
    if verbs is not None:
        document["verbs"] = list(verbs)
    if expires_in is not None:
        document["expires_in"] = expires_in
    return post(NewToken, "/tokens", document)


def revoke_token(token: str) -> Call[None]:
    return Call(type(None), "DELETE", path_of("tokens", token))


def list_worker_tokens(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[WorkerToken]]:
    """List tokens of workers, newest first."""
    return get(Page[WorkerToken], "/worker_tokens", limit=limit, cursor=cursor)


def create_worker_token(
    name: str, *, pool: str | None = None, expires_in: str | None = None
) -> Call[NewWorkerToken]:
    """Create a token for the worker of that name; its secret is in this answer and never again."""
    given = {"name": name, "pool": pool, "expires_in": expires_in}
    document = {key: value for key, value in given.items() if value is not None}
    return post(NewWorkerToken, "/worker_tokens", document)


def revoke_worker_token(token: str) -> Call[None]:
    return Call(type(None), "DELETE", path_of("worker_tokens", token))


def list_join_tokens(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[JoinToken]]:
    """List tokens by which workers join, newest first."""
    return get(Page[JoinToken], "/join_tokens", limit=limit, cursor=cursor)


def create_join_token(
    *, pool: str | None = None, uses: int | None = None, expires_in: str | None = None
) -> Call[NewJoinToken]:
    """Create a token by which workers join: one within an hour, unless said otherwise."""
    given = {"pool": pool, "uses": uses, "expires_in": expires_in}
    document = {key: value for key, value in given.items() if value is not None}
    return post(NewJoinToken, "/join_tokens", document)


def revoke_join_token(token: str) -> Call[None]:
    """Revoke a join token; workers that have joined with it stay."""
    return Call(type(None), "DELETE", path_of("join_tokens", token))


def whoami() -> Call[Caller]:
    return get(Caller, "/whoami")


def logout() -> Call[None]:
    """End the session whose token is shown; a token of a program stays."""
    return Call(type(None), "POST", "/logout")


class TokenVerbs:
    create_join_token = Verb(create_join_token)
    create_token = Verb(create_token)
    create_worker_token = Verb(create_worker_token)
    list_join_tokens = Verb(list_join_tokens)
    list_tokens = Verb(list_tokens)
    list_worker_tokens = Verb(list_worker_tokens)
    logout = Verb(logout)
    revoke_join_token = Verb(revoke_join_token)
    revoke_token = Verb(revoke_token)
    revoke_worker_token = Verb(revoke_worker_token)
    whoami = Verb(whoami)

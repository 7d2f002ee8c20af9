"""Calls about tokens."""

from __future__ import annotations

from rota.api.answers import Page
from rota.api.tokens import Caller, NewToken, NewWorkerToken, Token, WorkerToken
from rota.sdk.exchange import Call, get, path_of, post
from rota.sdk.verbs import Verb


def list_tokens() -> Call[Page[Token]]:
    return get(Page[Token], "/tokens")


def create_token(name: str, role: str, *, expires_in: str | None = None) -> Call[NewToken]:
    """Create a token; its secret is in this answer and never again. `expires_in`: "90d"."""
    document = {"name": name, "role": role}
    if expires_in is not None:
        document["expires_in"] = expires_in
    return post(NewToken, "/tokens", document)


def revoke_token(token: str) -> Call[None]:
    return Call(type(None), "DELETE", path_of("tokens", token))


def list_worker_tokens() -> Call[Page[WorkerToken]]:
    return get(Page[WorkerToken], "/worker_tokens")


def create_worker_token(
    name: str, *, pool: str | None = None, expires_in: str | None = None
) -> Call[NewWorkerToken]:
    """Create a token for the worker of that name; its secret is in this answer and never again."""
    given = {"name": name, "pool": pool, "expires_in": expires_in}
    document = {key: value for key, value in given.items() if value is not None}
    return post(NewWorkerToken, "/worker_tokens", document)


def revoke_worker_token(token: str) -> Call[None]:
    return Call(type(None), "DELETE", path_of("worker_tokens", token))


def whoami() -> Call[Caller]:
    return get(Caller, "/whoami")


class TokenVerbs:
    create_token = Verb(create_token)
    create_worker_token = Verb(create_worker_token)
    list_tokens = Verb(list_tokens)
    list_worker_tokens = Verb(list_worker_tokens)
    revoke_token = Verb(revoke_token)
    revoke_worker_token = Verb(revoke_worker_token)
    whoami = Verb(whoami)

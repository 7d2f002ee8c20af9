"""Authentication: tokens for programs and workers, login links and sessions for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rota.domain.access import (
    INSTALLATION,
    ProjectSet,
    Rights,
    Role,
    TokenTerms,
    Verb,
    everywhere,
    no_such_project,
    require,
    require_verb,
)
from rota.domain.credentials import (
    SecretKind,
    digest,
    kind_of,
    new_secret,
    new_token_id,
    shown_part,
)
from rota.domain.errors import Denied, Invalid, NotFound, quoted
from rota.domain.external import REPORTER
from rota.domain.identity import is_reserved
from rota.domain.spec import DEFAULT_PROJECT
from rota.operations import logins
from rota.operations.engine import Engine
from rota.ports.external import ReportToken
from rota.ports.logins import ProviderFacts
from rota.ports.records import FoundToken, NewToken
from rota.ports.store import Store
from rota.ports.work import WorkerIdentity

LOGIN_LIFETIME = timedelta(minutes=10)
_KINDS = {  # of tokens, as they are stored, and of their secrets
    "api": SecretKind.PROGRAM,
    "session": SecretKind.SESSION,
    "login": SecretKind.LINK,
    "terminal": SecretKind.TERMINAL,
    "worker": SecretKind.WORKER,
    "join": SecretKind.JOIN,
}
_DOTS_OF_JWT = 2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HANDLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,127}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Identity of whoever makes a request, and what they may do."""

    name: str  # the principal's handle
    token_id: str
    rights: Rights
    kind: str = ""  # of the principal: user, service; "": it is from before there were principals
    via: str = "api"  # kind of the token that was shown: api, session, terminal, provider
    expires_at: datetime | None = None  # when the token ends; None: never
    lasts: timedelta | None = None  # for so long only a change of rights ends it; None: not known
    reports: ReportToken | None = None  # the attempt it may report on, and nothing else; None: all

    def require(self, role: Role, project: str = DEFAULT_PROJECT, verb: Verb | None = None) -> None:
        """Raise an error unless the caller has at least this role in the project, or in `*`.

        Whoever has none there gets the `NotFound` of a project that does not exist.
        """
        require(self.name, self.rights, role, project, verb)

    def require_somewhere(self, verb: Verb) -> None:
        """Raise `Denied` unless the caller has a role in any project."""
        if self.rights.projects() == ():
            raise Denied(
                f"{self.name} has no role in any project",
                code="forbidden",
                hint="ask an admin for one: rota role grant",
            )
        require_verb(self.rights, verb)

    def has_somewhere(self, role: Role) -> bool:
        """Return whether the caller has at least this role in any project."""
        return self.rights.projects(role) != ()

    def role_in(self, project: str) -> Role:
        """Return the role in a project in which the caller is known to have one."""
        role = self.rights.role_in(project)
        assert role is not None, "the gate has let the caller into this project"
        return role

    @property
    def projects(self) -> tuple[str, ...] | None:
        """Return the projects with a role; None: all, and the installation."""
        return self.rights.projects()

    @property
    def is_installation_admin(self) -> bool:
        return self.rights.is_installation_admin


def caller_of(found: FoundToken) -> Caller:
    """Return the caller who shows a token."""
    token = found.token
    # Sessions and terminals end by what their provider says, and last longer when they are used.
    is_program = token.kind == "api" and found.session is None
    forever = timedelta.max if found.ends_in is None else found.ends_in
    return Caller(
        token.principal or token.name,
        token.id,
        found.rights,
        found.principal_kind,
        token.kind,
        token.expires_at,
        forever if is_program else None,
    )


async def create_token(
    store: Store,
    *,
    name: str,
    role: Role,
    actor: str,
    terms: TokenTerms | None = None,
    given_by: Rights | None = None,
) -> tuple[str, str]:
    """Create an API token for the service of this name; return (id, secret), shown this once.

    Without `given_by` whoever owns the machine makes it. Raise `Conflict` if the name is taken.
    """
    _require_handle(name)
    terms = terms or TokenTerms()
    await _require_project(store, terms.project)
    new = _New(
        name,
        role,
        "api",
        actor,
        terms.lifetime,
        project=terms.project,
        verbs=terms.verbs,
        given_by=given_by or everywhere(Role.ADMIN),
    )
    return await _create(store, new)


def _require_handle(name: str) -> None:
    if not _HANDLE.fullmatch(name) or " ".join(name.split()) != name:
        raise Invalid(
            f"{quoted(name)} is not a name",
            hint="use letters, digits, '.', '_', '@', '-' and single spaces, at most 128",
        )


def require_free_handle(name: str) -> None:
    """Raise `Invalid` unless somebody may be called so whom a caller brings along."""
    _require_handle(name)
    if is_reserved(name):
        raise Invalid(
            f"{quoted(name)} is what Rota calls itself, or something else",
            code="name_reserved",
            hint="take another name",
        )


async def _require_project(store: Store, project: str | None) -> None:
    if project in (None, DEFAULT_PROJECT):
        return
    if not await store.existing_projects([project]):
        raise no_such_project(project)


async def grant_token(
    engine: Engine, caller: Caller, *, name: str, role: Role, terms: TokenTerms
) -> tuple[str, str]:
    """Create a token as `create_token` does, for a caller who must be an admin where it is for."""
    caller.require(Role.ADMIN, terms.project or INSTALLATION)
    require_free_handle(name)
    return await create_token(
        engine.store,
        name=name,
        role=role,
        actor=caller.name,
        terms=terms,
        given_by=caller.rights,
    )


async def create_worker_token(
    store: Store,
    *,
    name: str,
    pool: str | None,
    actor: str,
    lifetime: timedelta | None = None,
) -> tuple[str, str]:
    """Create a credential, as (id, secret), for the worker of this name, in this pool or in any."""
    for value, what in ((name, "worker"), (pool or name, "pool")):
        if not _NAME.fullmatch(value):
            raise Invalid(
                f"{what}: {quoted(value)} is not a name",
                hint="use letters, digits, '.', '_' and '-', at most 128",
            )
    return await _create(store, _New(name, Role.VIEWER, "worker", actor, lifetime, pool=pool))


async def create_login_link_secret(store: Store, *, actor: str) -> str:
    """Create the secret of a link that logs its first user in as an admin, once, soon."""
    new = _New(actor, Role.ADMIN, "login", actor, LOGIN_LIFETIME, given_by=everywhere(Role.ADMIN))
    _, secret = await _create(store, new)
    return secret


async def log_in(engine: Engine, secret: str, *, takes_tokens: bool = True) -> tuple[str, Caller]:
    """Exchange a one-time secret, or where these are taken an API token, for a session secret.

    The session has the rights of what opened it, and ends as those of people with a provider do.
    """
    found = await _used_up(engine, secret) or await _valid(
        engine, secret, "api" if takes_tokens else "login", _bad_credentials
    )
    opener = found.token
    new = _New(
        opener.name,
        opener.role,
        "session",
        opener.name,
        engine.logins.lifetime,
        parent=opener.id if opener.kind == "api" else None,
        principal=opener.principal,
        project=opener.project,
        verbs=opener.verbs,
    )
    token, session = _made(new)
    await engine.store.open_login(token, ProviderFacts(), engine.logins.idle)
    return session, await authenticate(engine, session, is_cookie=True)


async def _used_up(engine: Engine, secret: str) -> FoundToken | None:
    """Return the login link of a secret, which is valid no longer; None: it is no valid link."""
    if not _looks_like(secret, "login"):
        return None
    return await engine.store.token_by_digest(digest(secret), uses_up_login=True)


async def log_out(engine: Engine, caller: Caller) -> None:
    """End a session of a browser or terminal."""
    await engine.store.revoke_token(caller.token_id, actor=caller.name)


async def authenticate(engine: Engine, secret: str, *, is_cookie: bool = False) -> Caller:
    """Return the caller of a secret. `Denied` is the same for unknown, expired and revoked ones.

    Sessions are for cookies, and tokens for all else: neither is taken in the other's place.
    """
    if not is_cookie and secret.count(".") == _DOTS_OF_JWT:
        return await _bearer_of_provider(engine, secret)
    if not is_cookie and secret.startswith(f"rota{SecretKind.REPORT}_"):
        return await _reporter(engine, secret)
    is_terminal = secret.startswith(f"rota{SecretKind.TERMINAL}_")
    kind = "session" if is_cookie else "terminal" if is_terminal else "api"
    found = await _valid(engine, secret, kind, lambda: invalid_token(secret))
    if found.session is not None and await logins.attend(engine, found.token, found.session):
        found = await _valid(engine, secret, kind, lambda: invalid_token(secret))
    return caller_of(found)


async def _reporter(engine: Engine, secret: str) -> Caller:
    """Return whoever has the token of an attempt, also of one that has ended."""
    found = await engine.store.report_token(digest(secret)) if _is_whole(secret) else None
    if found is None:
        raise invalid_token(secret)
    return Caller(REPORTER, "", Rights(verbs=frozenset()), via="report", reports=found)


async def _bearer_of_provider(engine: Engine, token: str) -> Caller:
    """Return the user of an access token of the identity provider."""
    if engine.logins.provider is None:
        raise invalid_token(token)
    try:
        person = await logins.person_calling(engine, token)
    except Denied as error:
        raise Denied(error.message, code="unauthenticated", hint=error.hint) from error
    return Caller(person.handle, "", person.rights, "user", "provider")


async def _valid(engine: Engine, secret: str, kind: str, error: Callable[[], Denied]) -> FoundToken:
    """Return the token of this kind with this secret, or raise the error.

    What cannot be one by its looks is refused without asking the store.
    """
    if _looks_like(secret, kind):
        found = await engine.store.token_by_digest(digest(secret))
        if found is not None and found.token.kind == kind:
            return found
    raise error()


def _looks_like(secret: str, kind: str) -> bool:
    try:
        return kind_of(secret) in (_KINDS[kind], None)
    except ValueError:
        return False


def _is_whole(secret: str) -> bool:
    """Return whether a token for reports was copied whole."""
    try:
        return kind_of(secret) is SecretKind.REPORT
    except ValueError:
        return False


def _bad_credentials() -> Denied:
    return Denied("this login link or token is not valid (any more)", code="bad_credentials")


def _bad_worker_token() -> Denied:
    return Denied(
        "this worker token is not valid (any more)",
        code="unauthenticated",
        hint="make one with rota worker token create, or let the worker join again: rota worker"
        " join-token create, then rota worker --join-token … --replace",
    )


def invalid_token(secret: str) -> Denied:
    """Return the error for a bad secret; it reveals nothing that the secret does not show."""
    hint = "make one with rota token create, and set ROTA_TOKEN"
    if secret.startswith(f"rota{SecretKind.WORKER}_"):
        return Denied("this is a worker's token", code="unauthenticated", hint=hint)
    if secret.startswith(f"rota{SecretKind.REPORT}_"):
        hint = "it came with the announcement of the attempt, as token of report: copy it whole"
    return Denied("this token is not valid (any more)", code="unauthenticated", hint=hint)


async def authenticate_worker(engine: Engine, secret: str) -> WorkerIdentity:
    """Return the worker of a secret. `Denied` is the same whatever is wrong with it."""
    token = (await _valid(engine, secret, "worker", _bad_worker_token)).token
    return WorkerIdentity(token.name, token.pool, token.id, token.is_renewable)


async def revoke_token(
    engine: Engine, token_id: str, *, actor: str, project: ProjectSet = None
) -> None:
    """End a token of any kind, which has to be for one of these projects if they are given."""
    if not await engine.store.revoke_token(token_id, actor=actor, project=project):
        raise NotFound(f"no valid token {token_id!r}", code="token_not_found")


@dataclass(frozen=True, slots=True)
class _New:
    """A token to make, but for its secret."""

    name: str
    role: Role
    kind: str
    actor: str
    lifetime: timedelta | None
    parent: str | None = None
    pool: str | None = None
    principal: str = ""  # "": that of its name, if rights are given with which it is made
    project: str | None = None
    verbs: frozenset[Verb] | None = None
    given_by: Rights | None = field(default=None, repr=False)


async def _create(store: Store, new: _New) -> tuple[str, str]:
    token, secret = _made(new)
    await store.add_token(token)
    return token.id, secret


def _made(new: _New) -> tuple[NewToken, str]:
    """Return a token with its secret."""
    secret = new_secret(_KINDS[new.kind])
    token = NewToken(
        id=new_token_id(),
        name=new.name,
        role=new.role,
        digest=digest(secret),
        kind=new.kind,
        created_by=new.actor,
        lifetime=new.lifetime,
        parent=new.parent,
        pool=new.pool,
        principal=new.principal or (new.name if new.given_by is not None else ""),
        project=new.project,
        verbs=new.verbs,
        shown=shown_part(secret),
        given_by=new.given_by,
    )
    return token, secret

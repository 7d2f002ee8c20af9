"""Authentication, and the gate: what each route needs of its caller, and where.

Closed by default: paths that are not in `OPEN` need a credential, and every route declares a role
in the project of the request, one in the installation, or that any known caller will do. An app
with a route that declares nothing does not start. Refusals come in this order, so that nobody
learns of what is not theirs: unknown caller (401), project that is not there or not the caller's
(404), role or verb that is missing in it (403), object that is not in it (404).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from fastapi import Depends, Path, Query
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection, Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.domain.access import (
    INSTALLATION,
    ProjectSet,
    Role,
    Verb,
    no_such_project,
    require_verb,
)
from rota.domain.credentials import digest
from rota.domain.errors import Denied, NotFound
from rota.domain.identity import MAX_TOKEN
from rota.domain.spec import DEFAULT_PROJECT
from rota.operations.engine import Engine
from rota.operations.tokens import Caller, authenticate, invalid_token
from rota.operations.wrong_secrets import WrongSecrets
from rota.ports.queue import CALLERS

API = "/api/v1"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
NAME_OR_ALL = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,127}|\*)$"
# Pages that greet strangers, too; their forms prove by a token that they were meant.
PAGES = frozenset(
    {
        *(("GET", path) for path in ("/", "/login", "/logged-out", "/device")),
        *(("POST", path) for path in ("/logout", "/device")),
    }
)
OPEN = PAGES | {
    *(("GET", path) for path in ("/livez", "/readyz", "/style.css")),
    *(("GET", path) for path in ("/auth/login", "/auth/callback")),
    *(("POST", path) for path in ("/auth/backchannel", "/auth/device", "/auth/device/token")),
    ("POST", f"{API}/login"),
}
REQUEST_HEADER = "X-Rota-Request"  # no foreign page can make a browser send it
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_SECRET = 512  # characters of one of Rota's own
_MAX_TRUSTED = 10_000
_LOOK_EVERY = 60.0  # seconds, where nobody's rights change: that a token is used is noted then
_MAX_PROJECTS = 10_000
_LISTEN = timedelta(minutes=1)
_ONLY_REPORTS = (
    "the token of an attempt is for reports on its run, named by its whole id, and for nothing else"
)


@dataclass(frozen=True, slots=True)
class Credential:
    """Credential that a request carries."""

    secret: str = field(repr=False)
    is_cookie: bool


@dataclass(frozen=True, slots=True)
class _Trusted:
    caller: Caller
    until: float  # monotonic, as the next
    at_most: float  # until when it may be trusted as long as nobody's rights change


class TrustedTokens:
    """Cache of secrets, their owners, and projects, read from the store and kept for a moment.

    Where there are too many, those that were not shown for longest go first. It is emptied when any
    server of the store changes what somebody may do (`run`, a loop of the server). What nobody told
    this server is found by a number in the store, which is read once in a moment for all callers.
    """

    name: ClassVar[str] = "trusted-tokens"

    def __init__(
        self,
        engine: Engine,
        trust_for: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        wrong: WrongSecrets | None = None,
    ) -> None:
        self._engine = engine
        self._wrong = wrong
        self._trust_for = trust_for.total_seconds()
        self._monotonic = monotonic
        self._callers: OrderedDict[tuple[str, bool], _Trusted] = OrderedDict()
        self._seen_changes: int | None = None  # in the store
        self._unchanged_until = 0.0  # monotonic: since they were seen less than a moment has passed
        self._seeing = asyncio.Lock()
        self._projects: dict[str, float] = {}  # until when each is taken to exist
        self.changes = 0  # of anybody's rights, as far as this server was told

    async def run(self) -> None:
        """Forget what is trusted whenever a server says that rights have changed."""
        listener = self._engine.queue.listen(CALLERS)
        try:
            while True:
                if await listener.wait(_LISTEN):
                    self.forget()
        finally:
            listener.close()

    async def caller_at(self, address: str, secret: str, *, is_cookie: bool = False) -> Caller:
        """Return the owner of a secret that came from this address; wrong ones are counted."""
        try:
            return await self.caller(secret, is_cookie=is_cookie)
        except Denied:
            if self._wrong is not None:
                self._wrong.note(address, secret)
            raise

    async def caller(self, secret: str, *, is_cookie: bool = False) -> Caller:
        """Return the owner of this secret; raise `Denied` if there is none."""
        if len(secret) > (MAX_TOKEN if "." in secret else _MAX_SECRET):
            raise invalid_token(secret)
        key, now = (digest(secret), is_cookie), self._monotonic()
        known = self._callers.get(key)
        if known and (known.until > now or (known.at_most > now and await self._is_unchanged(now))):
            if key in self._callers:
                self._callers.move_to_end(key)
            return known.caller
        changes = self.changes
        caller = await authenticate(self._engine, secret, is_cookie=is_cookie)
        # A token that was revoked since the look began may have been read before: it is not kept.
        if changes == self.changes:
            # From `now`, before the look: a slow store does not prolong the life of a token.
            self._keep(key, caller, now)
        return caller

    async def _is_unchanged(self, now: float) -> bool:
        """Return whether a moment ago rights were as when what is kept was read."""
        changes = self.changes
        async with self._seeing:
            if self._unchanged_until <= now:
                seen = await self._engine.store.rights_changes()
                if seen != self._seen_changes:
                    self._seen_changes = seen
                    self.forget()
                # From before the look, as above.
                self._unchanged_until = now + self._trust_for
        return changes == self.changes

    def forget(self) -> None:
        """Clear the cache, because rights have changed; call it after the commit."""
        self.changes += 1
        self._callers.clear()
        self._projects.clear()

    async def require_project(self, caller: Caller, project: str) -> None:
        """Raise the one `NotFound` unless the project exists and the caller has a role in it."""
        if caller.rights.role_in(project) is None:
            raise no_such_project(project, "" if caller.reports is None else _ONLY_REPORTS)
        # Roles count in projects that exist only, so a role of its own says that this one does.
        if project == DEFAULT_PROJECT or caller.rights.is_member(project):
            return
        now = self._monotonic()
        if self._projects.get(project, now) > now:
            return
        changes = self.changes
        if not await self._engine.store.existing_projects([project]):
            raise no_such_project(project)
        if changes == self.changes:
            if len(self._projects) >= _MAX_PROJECTS:
                self._projects.clear()
            self._projects[project] = now + self._trust_for

    def _keep(self, key: tuple[str, bool], caller: Caller, now: float) -> None:
        until = now + self._trust_for
        lasts = min(caller.lasts.total_seconds(), _LOOK_EVERY) if caller.lasts else 0.0
        self._callers[key] = _Trusted(caller, until, now + lasts)
        self._callers.move_to_end(key)
        if len(self._callers) > _MAX_TRUSTED:
            self._callers.popitem(last=False)


def address_of(connection: HTTPConnection) -> str:
    """Return where a request comes from."""
    return connection.client.host if connection.client else ""


class Authentication:
    """Middleware that refuses unknown callers, whatever the path looks like."""

    def __init__(self, app: ASGIApp, tokens: TrustedTokens, cookie: str) -> None:
        self._app = app
        self._tokens = tokens
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = (scope["method"], scope["path"]) if scope["type"] == "http" else None
        if call in PAGES:
            await self._recognize(scope)
        elif call is not None and call not in OPEN:
            credential = self._credential(HTTPConnection(scope))
            scope["state"]["credential"] = credential
            scope["state"]["caller"] = await self._caller(credential, HTTPConnection(scope))
            _refuse_forged(scope["method"], HTTPConnection(scope), credential)
        await self._app(scope, receive, send)

    async def _recognize(self, scope: Scope) -> None:
        """Note whose browser asks for a page; None: a stranger, or a session that has ended."""
        connection = HTTPConnection(scope)
        credential = Credential(connection.cookies.get(self._cookie, ""), is_cookie=True)
        scope["state"] |= {"caller": None, "credential": credential}
        if credential.secret:
            with suppress(Denied):
                scope["state"]["caller"] = await self._caller(credential, connection)

    async def _caller(self, credential: Credential, connection: HTTPConnection) -> Caller:
        return await self._tokens.caller_at(
            address_of(connection), credential.secret, is_cookie=credential.is_cookie
        )

    def _credential(self, connection: HTTPConnection) -> Credential:
        scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secret:
            return Credential(secret.strip(), is_cookie=False)
        if secret := connection.cookies.get(self._cookie, ""):
            return Credential(secret, is_cookie=True)
        raise Denied(
            "not logged in",
            code="unauthenticated",
            hint="rota login logs you in; a program sets both ROTA_TOKEN and ROTA_URL",
        )


def _refuse_forged(method: str, connection: HTTPConnection, credential: Credential) -> None:
    # Browsers add the cookie to requests that other sites make, but not a header of our own.
    is_change = method not in _SAFE_METHODS
    if credential.is_cookie and is_change and connection.headers.get(REQUEST_HEADER) != "1":
        raise Denied(
            "a change with a session cookie needs proof that it was meant",
            code="forged",
            hint=f"send the header {REQUEST_HEADER}: 1",
        )


def cookie_name(*, secure: bool) -> str:
    """Return the cookie's name; only this host can set a `__Host-` cookie, over TLS."""
    return "__Host-rota_session" if secure else "rota_session"


async def _project(
    project: Annotated[str, Query(pattern=NAME, description="the project")] = DEFAULT_PROJECT,
) -> str:
    return project


Project = Annotated[str, Depends(_project)]


class Where(StrEnum):
    """Where a role is needed."""

    PROJECT = "project"  # that of the request
    FILE = "projects of the file"  # that is sent; nobody may send one who has the role nowhere
    INSTALLATION = "installation"
    SOMEWHERE = "some project"
    NOWHERE = "none"  # no role is needed, only a known caller


@dataclass(frozen=True, slots=True)
class Need:
    """Role and verb that a call needs of its caller.

    Where no role is needed, a verb has to be among those of a narrowed token all the same; None:
    any token will do.
    """

    role: Role = Role.VIEWER
    verb: Verb | None = None  # that a narrowed token must have; None: no narrowed one will do
    where: Where = Where.PROJECT

    async def admit(self, tokens: TrustedTokens, caller: Caller, project: str) -> None:
        """Raise an error unless the caller may make such a call in this project."""
        match self.where:
            case Where.PROJECT:
                await self._admit_in(tokens, caller, project)
            case Where.FILE:
                # The route asks again once it has read which projects these are.
                if not (caller.has_somewhere(self.role) and caller.rights.allows(self.verb)):
                    await self._admit_in(tokens, caller, project)
            case Where.INSTALLATION:
                caller.require(self.role, INSTALLATION, self.verb)
            case Where.SOMEWHERE:
                caller.require_somewhere(self.verb or Verb.READ)
            case Where.NOWHERE:
                if self.verb is not None or caller.reports is not None:
                    require_verb(caller.rights, self.verb)

    async def _admit_in(self, tokens: TrustedTokens, caller: Caller, project: str) -> None:
        await tokens.require_project(caller, project)
        caller.require(self.role, project, self.verb)


_SOMEWHERE = Need(Role.VIEWER, Verb.READ, Where.SOMEWHERE)


@dataclass(frozen=True, slots=True)
class Needs:
    """Dependency that returns the caller, who must have what the route needs.

    Routes take a project even where it means nothing: clients send theirs with every request.
    """

    need: Need

    async def __call__(self, request: Request, project: Project) -> Caller:
        return await _admitted(request, self.need, project)


@dataclass(frozen=True, slots=True)
class NeedsReporter(Needs):
    """Dependency of reports on a run, which whoever has the token of its attempt may make, too.

    Which run that is the route compares: the token tells no more than that.
    """

    async def __call__(self, request: Request, project: Project) -> Caller:
        caller: Caller = request.state.caller
        return caller if caller.reports else await _admitted(request, self.need, project)


ProjectName = Annotated[str, Path(pattern=NAME, description="name of the project")]


@dataclass(frozen=True, slots=True)
class NeedsNamed(Needs):
    """Role that a route below `/projects/{name}` needs: in that project."""

    async def __call__(self, request: Request, project: Project, name: ProjectName) -> Caller:  # type: ignore[override]
        return await _admitted(request, self.need, name)


@dataclass(frozen=True, slots=True)
class NeedsSome:
    """Dependency that returns the projects of a list: one, or for `*` all that are the caller's."""

    need: Need  # the role that makes them the caller's
    otherwise: str = DEFAULT_PROJECT  # if the request names none

    async def __call__(
        self,
        request: Request,
        project: Annotated[
            str | None,
            Query(pattern=NAME_OR_ALL, description="the project; `*`: all that you may see"),
        ] = None,
    ) -> ProjectSet:
        project = project or self.otherwise
        if project != INSTALLATION:
            await _admitted(request, self.need, project)
            return project
        caller: Caller = request.state.caller
        found = caller.rights.projects(self.need.role)
        if found == () and self.need.role is not Role.VIEWER:
            caller.require(self.need.role, INSTALLATION, self.need.verb)
        require_verb(caller.rights, self.need.verb)
        request.state.admission = (self.need, found)
        return found


async def _admitted(request: Request, need: Need, project: str) -> Caller:
    caller: Caller = request.state.caller
    tokens: TrustedTokens = request.app.state.tokens
    await need.admit(tokens, caller, project)
    request.state.admission = (need, project)
    return caller


async def _asking(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def is_still_admitted(request: Request) -> bool:
    """Return whether the caller of a request that goes on could still make it."""
    tokens: TrustedTokens = request.app.state.tokens
    credential: Credential = request.state.credential
    try:
        caller = await tokens.caller(credential.secret, is_cookie=credential.is_cookie)
        need, project = request.state.admission
        if not isinstance(project, str):  # of several: whoever has a role in others asks anew
            return caller.rights.allows(need.verb) and caller.rights.projects(need.role) == project
        await need.admit(tokens, caller, project)
    except (Denied, NotFound):
        return False
    return True


def needs_of(route: APIRoute) -> list[Need]:
    """List what a route declares, in the order in which that is checked."""
    return [call.need for call in _calls(route.dependant) if isinstance(call, Needs | NeedsSome)]


def need_of(method: str, route: APIRoute) -> Need | None:
    """Return what a call needs, the strictest of what its route declares; None: it is open.

    Raise `LookupError` if the route declares nothing.
    """
    if (method, route.path) in OPEN:
        return None
    needs = needs_of(route)
    if not needs:
        raise LookupError(f"{method} {route.path} does not declare what it needs of its caller")
    return max(needs, key=lambda need: (need.where is Where.INSTALLATION, need.role.rank))


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for inner in dependant.dependencies:
        yield from _calls(inner)


def check_needs(routes: Iterable[BaseRoute]) -> None:
    """Raise `LookupError` if any route does not declare what it needs."""
    for route in routes:
        if not isinstance(route, APIRoute):
            raise LookupError(f"{route} is no route that can declare what it needs of its caller")
        for method in route.methods or ():
            need_of(method, route)


async def _credential(request: Request) -> Credential:
    credential: Credential = request.state.credential
    return credential


async def _trusted_tokens(request: Request) -> TrustedTokens:
    tokens: TrustedTokens = request.app.state.tokens
    return tokens


# What calls need in the project of the request, by what they do there.
READS = Need(Role.VIEWER, Verb.READ)
TRIGGERS = Need(Role.OPERATOR, Verb.TRIGGER)
CANCELS = Need(Role.OPERATOR, Verb.CANCEL)
RESOLVES = Need(Role.OPERATOR, Verb.RESOLVE)
UPLOADS = Need(Role.OPERATOR, Verb.UPLOAD)
EDITS = Need(Role.EDITOR, Verb.APPLY)
APPLIES = Need(Role.EDITOR, Verb.APPLY, Where.FILE)
MANAGES = Need(Role.ADMIN)


def _in_installation(role: Role, verb: Verb | None = None) -> Needs:
    return Needs(Need(role, verb, Where.INSTALLATION))


# The same, as the first parameter of a route.
Viewer = Annotated[Caller, Depends(Needs(READS))]
Operator = Annotated[Caller, Depends(Needs(TRIGGERS))]
Stopper = Annotated[Caller, Depends(Needs(CANCELS))]
Resolver = Annotated[Caller, Depends(Needs(RESOLVES))]
Reporter = Annotated[Caller, Depends(NeedsReporter(RESOLVES))]
Uploader = Annotated[Caller, Depends(Needs(UPLOADS))]
Editor = Annotated[Caller, Depends(Needs(EDITS))]
Author = Annotated[Caller, Depends(Needs(APPLIES))]  # of a file: see `require_editor`
Admin = Annotated[Caller, Depends(Needs(MANAGES))]
InstallationViewer = Annotated[Caller, Depends(_in_installation(Role.VIEWER, Verb.READ))]
InstallationOperator = Annotated[Caller, Depends(_in_installation(Role.OPERATOR))]
InstallationAdmin = Annotated[Caller, Depends(_in_installation(Role.ADMIN))]
Monitor = Annotated[Caller, Depends(_in_installation(Role.VIEWER, Verb.METRICS))]
Member = Annotated[Caller, Depends(Needs(_SOMEWHERE))]
ViewerOfNamed = Annotated[Caller, Depends(NeedsNamed(READS))]
AdminOfNamed = Annotated[Caller, Depends(NeedsNamed(MANAGES))]
Known = Annotated[Caller, Depends(Needs(Need(where=Where.NOWHERE)))]
Reader = Annotated[Caller, Depends(Needs(Need(verb=Verb.READ, where=Where.NOWHERE)))]
Managed = Annotated[ProjectSet, Depends(NeedsSome(MANAGES, INSTALLATION))]
Listed = Annotated[ProjectSet, Depends(NeedsSome(READS))]
Asking = Annotated[Caller, Depends(_asking)]  # beside one of these: who it is, without a need
ShownCredential = Annotated[Credential, Depends(_credential)]
Tokens = Annotated[TrustedTokens, Depends(_trusted_tokens)]

"""`rota role` and `rota principal`: who may do what, and where."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from rota.api.principals import Binding, Principal
from rota.cli import times
from rota.cli.limits import require_consent
from rota.cli.options import (
    DESTROYING,
    REMOTE,
    WRITING,
    AtMost,
    Destroying,
    Remote,
    Writing,
)
from rota.cli.printing import Column, ListView, print_list, print_one
from rota.cli.references import ask, ask_all, ask_list, complete_principals
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.cli.tokens import Role
from rota.sdk.client import Client
from rota.sdk.exchange import Call

app = App(name="role", help="Who may do what in a project, or in all: grant, revoke, list.")
principal_app = App(name="principal", help="Users, groups and programs: list, disable, enable.")

_DEFAULT = "default"
Who = Annotated[
    str,
    Parameter(
        help="A handle, or as the identity provider knows them: group:NAME, email:ADDRESS, "
        "user:SUB.",
        completer=complete_principals,
    ),
]
Handle = Annotated[str, Parameter(help="Handle of a principal.", completer=complete_principals)]
Installation = Annotated[
    bool,
    Parameter(negative=(), help="In the installation: in all projects, and with what is shared."),
]
Issuer = Annotated[
    str | None,
    Parameter(metavar="URL", help="The identity provider. Default: the configured one."),
]


def _where(binding: Binding) -> str:
    return binding.project or "*"  # as a role in all projects is written


def _name(binding: Binding | Principal) -> str:
    return ", ".join(filter(None, [binding.title, binding.email]))


ROLES: ListView[Binding] = ListView(
    columns=(
        Column("PRINCIPAL", lambda binding: binding.principal, is_whole=True),
        Column("KIND", lambda binding: binding.kind),
        Column("ROLE", lambda binding: binding.role),
        Column("PROJECT", _where),
        Column("NAME", _name),
        Column("STATE", lambda binding: "disabled" if binding.is_disabled else "enabled"),
        Column(
            "SINCE", lambda binding: times.moment(binding.created_at, times.now()), only_wide=True
        ),
        Column("BY", lambda binding: binding.created_by, only_wide=True),
    ),
    name=lambda binding: binding.principal,
    empty="nobody has a role of their own here; rota role list --installation shows who has one "
    "everywhere",
)

PRINCIPALS: ListView[Principal] = ListView(
    columns=(
        Column("HANDLE", lambda principal: principal.handle, is_whole=True),
        Column("KIND", lambda principal: principal.kind),
        Column("NAME", _name),
        Column("STATE", lambda principal: "enabled" if not principal.disabled_at else "disabled"),
        Column("SINCE", lambda principal: times.moment(principal.created_at, times.now())),
        Column("ISSUER", lambda principal: principal.issuer, only_wide=True),
        Column("SUBJECT", lambda principal: principal.subject, only_wide=True),
        Column("BY", lambda principal: principal.created_by, only_wide=True),
    ),
    name=lambda principal: principal.handle,
    empty="nobody yet",
)


def _scope(remote: Remote, installation: bool) -> str | None:
    """Return the project that is meant; None: the installation."""
    if installation and remote.project is not None:
        raise CommandFailed(
            "say where, in one way", code=Exit.USAGE, hint="--project NAME, or --installation"
        )
    return None if installation else remote.project or _DEFAULT


def _in_words(project: str | None) -> str:
    return "the installation" if project is None else f"project {project}"


@app.command
def grant(
    principal: Who,
    role: Annotated[Role, Parameter(help="What they may do there.")],
    /,
    *,
    installation: Installation = False,
    issuer: Issuer = None,
    writing: Writing = WRITING,
) -> None:
    """Give somebody a role in a project (--project), in place of the one that they had there."""
    project = _scope(writing, installation)
    if writing.dry_run:
        writing.rehearse(f"would make {principal} {role} of {_in_words(project)}")
    call: Call[Binding] = (
        Client.grant_installation_role(principal, role, issuer=issuer)
        if project is None
        else Client.grant_role(project, principal, role, issuer=issuer)
    )
    with writing.connect() as client:
        bound = ask(client, call)

    def page(terminal: Terminal, bound: Binding) -> None:
        terminal.tell(inert(f"{bound.principal} is {bound.role} of {_in_words(bound.project)} now"))

    print_one(writing, bound, name=lambda bound: bound.principal, page=page)


@app.command
def revoke(
    principal: Who,
    /,
    *,
    installation: Installation = False,
    issuer: Issuer = None,
    destroying: Destroying = DESTROYING,
) -> None:
    """Take the role that somebody has in a project (--project); it ends within seconds."""
    project = _scope(destroying, installation)
    where = _in_words(project)
    require_consent(destroying, f"take the role of {principal} in {where}")
    with destroying.connect() as client:
        if project is None:
            client.revoke_installation_role(principal, issuer=issuer)
        else:
            client.revoke_role(project, principal, issuer=issuer)
    destroying.terminal().tell(inert(f"{principal} has no role of its own in {where} any more"))


@app.command(name="list")
def list_(
    *,
    installation: Installation = False,
    all_: Annotated[
        bool,
        Parameter(name="--all", negative=(), help="In the installation and in every project."),
    ] = False,
    remote: Remote = REMOTE,
) -> None:
    """List who has a role in a project (--project)."""
    project = _scope(remote, installation or all_)
    call = (
        Client.list_installation_roles(everywhere=all_)
        if project is None
        else Client.list_roles(project)
    )
    with remote.connect() as client:
        listing = ask_all(client, call)
    print_list(remote, listing, ROLES)


@principal_app.command(name="list")
def list_principals(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List users, groups and programs."""
    with remote.connect() as client:
        listing = ask_list(client, Client.list_principals(), limit=limit)
    print_list(remote, listing, PRINCIPALS)


@principal_app.command
def disable(handle: Handle, /, *, destroying: Destroying = DESTROYING) -> None:
    """Let somebody do nothing any more: sessions and tokens end within seconds, jobs go on."""
    require_consent(destroying, f"disable {handle}")
    with destroying.connect() as client:
        found = ask(client, Client.disable_principal(handle))
    print_one(destroying, found, name=lambda it: it.handle, page=_write_state)


@principal_app.command
def enable(handle: Handle, /, *, writing: Writing = WRITING) -> None:
    """Let somebody do again what their roles allow."""
    if writing.dry_run:
        writing.rehearse(f"would enable {handle}")
    with writing.connect() as client:
        found = ask(client, Client.enable_principal(handle))
    print_one(writing, found, name=lambda it: it.handle, page=_write_state)


def _write_state(terminal: Terminal, principal: Principal) -> None:
    state = "enabled" if principal.disabled_at is None else "disabled"
    terminal.tell(inert(f"{principal.handle} is {state}"))

"""Principals: users, groups and programs, and the roles that they have."""

from __future__ import annotations

from typing import Annotated

from rota.api.answers import UNSENT, Answer, Instant, one_of
from rota.api.tokens import Role

PrincipalKind = Annotated[
    str, one_of("What a principal is.", "user", "service", "group", "worker", "system")
]


class Principal(Answer, frozen=True, kw_only=True):
    """Whoever can act, or a group of people."""

    handle: str
    kind: PrincipalKind = ""
    title: str = ""
    email: str = ""  # verified by the issuer; "": none
    issuer: str = ""  # who vouches for a user or a group; "": this installation
    subject: str = ""  # what the issuer calls it; `✉ ADDRESS` before its first login
    created_by: str = ""
    created_at: Instant = UNSENT
    disabled_at: Instant | None = None  # it may do nothing since; None: it may


class Binding(Answer, frozen=True, kw_only=True):
    """A role of a principal."""

    principal: str  # its handle
    kind: PrincipalKind = ""
    title: str = ""
    email: str = ""
    project: str | None = None  # None: the installation, with all projects
    role: Role = ""
    is_disabled: bool = False  # the principal may do nothing
    created_by: str = ""
    created_at: Instant = UNSENT


class Advice(Answer, frozen=True, kw_only=True):
    """Something that an admin of the installation may want to tighten."""

    subject: str  # token, job, pool, key ring
    message: str = ""
    action: str = ""  # what to type
    is_note: bool = False  # worth knowing, and perhaps as it is meant to be

"""Who is meant by a name, and who may give which role."""

from __future__ import annotations

from contextlib import suppress

import pytest

from rota.domain.access import INSTALLATION, Rights, Role
from rota.domain.errors import Denied, Invalid
from rota.domain.identity import handle_from
from rota.operations.principals import grant_role, read_principal
from rota.ports.projects import PrincipalKind, PrincipalRef
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

ISSUER = "https://login.example.org/"
TEAM = PrincipalRef(PrincipalKind.GROUP, ISSUER, "team", "team")


@pytest.mark.parametrize(
    ("names", "handle"),
    [
        (("ann",), "ann"),
        (("Ann Müller",), "ann-m-ller"),
        (("", "ann@x"), "ann-x"),
        (("--", "..", "u1"), "u1"),
        (("日本",), "somebody"),
        (("x" * 500,), "x" * 100),
        (("a/b\x00c:d",), "a-b-c-d"),
    ],
)
def test_handles_are_made_of_letters_digits_and_little_else(
    names: tuple[str, ...], handle: str
) -> None:
    assert handle_from(*names) == handle


def test_somebody_is_named_by_handle_or_as_their_provider_does() -> None:
    assert read_principal("ann", "") == "ann"
    assert read_principal("group:team:a", ISSUER) == PrincipalRef(
        PrincipalKind.GROUP, ISSUER, "team:a", "team-a", "team:a"
    )
    assert read_principal("email:Ann@X.org", ISSUER) == PrincipalRef(
        PrincipalKind.USER, ISSUER, "✉ ann@x.org", "ann", email="ann@x.org"
    )
    assert read_principal("user:auth0|1", ISSUER) == PrincipalRef(
        PrincipalKind.USER, ISSUER, "auth0|1", "auth0-1"
    )


@pytest.mark.parametrize("text", ["team:a", "group:", "email:ann", "user:" + "x" * 1_001, ":a"])
def test_what_names_nobody_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_principal(text, ISSUER)

    assert refused.value.code == "bad_principal"


def test_a_user_cannot_be_called_as_an_address_that_is_awaited() -> None:
    """Else its roles would be given and taken in Ann's name."""
    with pytest.raises(Invalid):
        read_principal("user:✉ ann@x.org", ISSUER)


@pytest.mark.parametrize(
    ("roles", "scope", "role", "is_given"),
    [
        ({"default": Role.ADMIN}, "default", Role.ADMIN, True),
        ({"default": Role.EDITOR}, "default", Role.ADMIN, False),
        ({"default": Role.ADMIN}, INSTALLATION, Role.VIEWER, False),
        ({INSTALLATION: Role.ADMIN}, "default", Role.ADMIN, True),
        ({INSTALLATION: Role.EDITOR}, INSTALLATION, Role.ADMIN, False),
        ({}, "default", Role.VIEWER, False),
    ],
)
async def test_nobody_gives_more_than_they_have_there(
    timeline: Timeline, roles: dict[str, Role], scope: str, role: Role, is_given: bool
) -> None:
    with suppress(Denied):
        await grant_role(timeline.engine, TEAM, scope, role, by=Rights(roles), actor="ann")

    assert bool(await timeline.store.bindings(scope=scope)) == is_given


async def test_a_narrowed_token_gives_no_more_than_itself(timeline: Timeline) -> None:
    rights = Rights({INSTALLATION: Role.ADMIN}, ceiling=Role.EDITOR, project="default")

    with pytest.raises(Denied):
        await grant_role(timeline.engine, TEAM, "default", Role.ADMIN, by=rights, actor="ann")
    with pytest.raises(Denied):
        await grant_role(timeline.engine, TEAM, INSTALLATION, Role.VIEWER, by=rights, actor="ann")

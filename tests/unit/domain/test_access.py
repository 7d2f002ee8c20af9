from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.access import (
    INSTALLATION,
    Rights,
    Role,
    Verb,
    combined,
    everywhere,
    is_in,
    may_give_secret,
    no_such_project,
    require,
)
from rota.domain.errors import Denied, NotFound

PROJECTS = ("default", "etl", "web")
roles = st.sampled_from(Role)
projects = st.sampled_from(PROJECTS)
rights = st.builds(
    Rights,
    roles=st.dictionaries(st.sampled_from((*PROJECTS, INSTALLATION)), roles),
    ceiling=roles,
    project=st.none() | projects,
    verbs=st.none() | st.frozensets(st.sampled_from(Verb)),
)


def refused(check: Callable[[], None]) -> type[Exception] | None:
    try:
        check()
    except (Denied, NotFound) as error:
        return type(error)
    return None


@given(rights, projects)
def test_no_role_is_above_the_token_s_own(having: Rights, project: str) -> None:
    has = having.role_in(project)

    assert has is None or having.ceiling.includes(has)


@given(rights, projects)
def test_a_token_of_one_project_sees_no_other_and_nothing_of_the_installation(
    having: Rights, project: str
) -> None:
    if having.project is not None:
        assert having.installation_role is None
        assert project == having.project or having.role_in(project) is None


@given(rights, projects)
def test_a_role_in_the_installation_is_that_role_in_every_project(
    having: Rights, project: str
) -> None:
    everywhere_role = having.installation_role
    if everywhere_role is not None:
        has = having.role_in(project)
        assert has is not None
        assert has.includes(everywhere_role)


@given(rights, projects, roles, st.none() | st.sampled_from(Verb))
def test_what_is_allowed_is_allowed_to_whoever_has_more(
    having: Rights, project: str, role: Role, verb: Verb | None
) -> None:
    more = Rights({**having.roles, project: Role.ADMIN}, Role.ADMIN, having.project, None)
    if refused(lambda: require("ann", having, role, project, verb)) is None:
        require("ann", more, role, project, verb)


@given(rights, projects, roles)
def test_a_project_without_a_role_is_as_if_it_were_not_there(
    having: Rights, project: str, role: Role
) -> None:
    if having.role_in(project) is None:
        with pytest.raises(NotFound) as refusal:
            require("ann", having, role, project, Verb.READ)
        missing = no_such_project(project)
        told = (refusal.value.message, refusal.value.code, refusal.value.hint)
        assert told == (missing.message, missing.code, missing.hint)


@given(rights, projects, roles)
def test_only_who_has_a_role_is_told_that_it_is_too_low(
    having: Rights, project: str, role: Role
) -> None:
    if refused(lambda: require("ann", having, role, project)) is Denied:
        assert having.role_in(project) is not None


@given(rights, st.sampled_from((*PROJECTS, INSTALLATION)))
def test_a_narrowed_token_does_nothing_that_has_no_verb(having: Rights, scope: str) -> None:
    if having.verbs is not None:
        assert refused(lambda: require("ann", having, Role.VIEWER, scope)) is not None


@given(rights, roles)
def test_the_projects_that_are_listed_are_those_with_the_role(having: Rights, role: Role) -> None:
    listed = having.projects(role)

    for project in PROJECTS:
        has = having.role_in(project)
        assert is_in(project, listed) == (has is not None and has.includes(role))


@given(rights)
def test_what_is_shown_of_rights_is_what_counts(having: Rights) -> None:
    shown = having.by_scope()

    assert shown.get(INSTALLATION) == having.installation_role
    for project in PROJECTS:
        if project in shown:
            has = having.role_in(project)
            assert has is not None
            assert has.includes(shown[project])


@given(st.lists(st.tuples(projects, roles)))
def test_of_several_bindings_the_highest_counts(bindings: list[tuple[str, Role]]) -> None:
    found = combined(bindings)

    for scope in found:
        assert found[scope] == max(
            (role for each, role in bindings if each == scope), key=lambda role: role.rank
        )


@given(rights, st.sets(st.sampled_from((*PROJECTS, INSTALLATION)), min_size=1))
def test_only_an_admin_of_all_its_scopes_may_give_away_a_service(
    having: Rights, scopes: set[str]
) -> None:
    may = may_give_secret(having, "service", scopes)

    assert may == all(having.role_at(scope) is Role.ADMIN for scope in scopes)
    assert not may_give_secret(everywhere(Role.ADMIN), "user", scopes)


def test_a_token_from_before_there_were_principals_has_its_role_everywhere() -> None:
    old = everywhere(Role.EDITOR)

    assert (old.role_in("any"), old.installation_role) == (Role.EDITOR, Role.EDITOR)
    assert not old.is_installation_admin
    assert everywhere(Role.ADMIN).is_installation_admin

"""Addresses of repositories, and what a command looks for in an empty folder."""

from __future__ import annotations

import pytest

from rota.domain.errors import Invalid
from rota.domain.git import (
    GIT,
    WALLED_FILES,
    WALLED_GIT,
    capabilities_of,
    parse_repository,
    program_beside,
    step_numbered,
    submodule_url,
)
from rota.domain.spec import Git, Input, InputType, Isolation, JobSpec, Step, Upload

AT = "https://git.example.org/team/app.git"
CODE = Git(AT)
UPLOAD = Upload("sha256:" + "0" * 64, "code.tar")
FILE = {"data": Input(InputType.FILE)}
WALLED = Step("walled", "make", isolation=Isolation.SANDBOX)
STEPS = (Step("build", "make"), Step("test", "make test"))


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        (AT, AT),
        ("git@git.example.org:team/app.git", "ssh://git@git.example.org/team/app.git"),
        ("ssh://git@git.example.org:2222/app", "ssh://git@git.example.org:2222/app"),
    ],
)
def test_addresses_of_repositories(url: str, normal: str) -> None:
    assert str(parse_repository(url)) == normal


@pytest.mark.parametrize(
    "url",
    [
        "http://git.example.org/app",
        "git://git.example.org/app",
        "file:///srv/app",
        "/srv/app",
        "../app",
        "ext::sh -c id",
        "--upload-pack=id",
        "https://user:word@git.example.org/app",
        "ssh://-oProxyCommand=id/app",
        "git@-oProxyCommand=id:app",
        "https://127.1/app",
    ],
)
def test_what_is_none(url: str) -> None:
    with pytest.raises(Invalid):
        parse_repository(url)


def test_who_writes_http_is_told_the_setting_that_allows_it() -> None:
    with pytest.raises(Invalid, match=r"http is not https or ssh: .* git_http = true"):
        parse_repository("http://git.example.org/app.git")
    assert parse_repository("http://git.example.org/app.git", allows_http=True).scheme == "http"


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("../library.git", "https://git.example.org/team/library.git"),
        ("../../other/library.git", "https://git.example.org/other/library.git"),
        ("./part.git", "https://git.example.org/team/app.git/part.git"),
        ("https://elsewhere.example.org/x", "https://elsewhere.example.org/x"),
    ],
)
def test_relative_submodules(url: str, resolved: str) -> None:
    assert submodule_url(AT, url) == resolved


def test_a_relative_submodule_never_leaves_its_host() -> None:
    with pytest.raises(Invalid, match="leads beyond"):
        submodule_url(AT, "../../../evil.git")
    assert submodule_url("git@host:a/b.git", "../c.git") == "ssh://git@host/a/c.git"


@pytest.mark.parametrize(
    ("run", "program"),
    [
        ("./ship.sh", "./ship.sh"),
        ("\n# says why\nexec ./ship.sh --all\n", "./ship.sh"),
        ("../tools/ship", "../tools/ship"),
        (("./ship.sh", "--all"), "./ship.sh"),
        ('"./ship.sh" x', "./ship.sh"),
        ("/srv/ship.sh", ""),
        ("go build -o ship && ./ship", ""),
        ("ship.sh", ""),
        ("", ""),
        ((), ""),
    ],
)
def test_programs_that_are_looked_for_beside(run: str | tuple[str, ...], program: str) -> None:
    assert program_beside(run) == program


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (JobSpec("a", steps=STEPS), ()),
        (JobSpec("a", steps=STEPS, git=CODE), (GIT,)),
        (JobSpec("a", steps=STEPS, git=CODE, isolation=Isolation.SANDBOX), (WALLED_GIT,)),
        (JobSpec("a", steps=(WALLED,), git=CODE), (WALLED_GIT,)),
        (JobSpec("a", steps=STEPS, upload=UPLOAD), ()),
        (JobSpec("a", steps=STEPS, upload=UPLOAD, isolation=Isolation.CONTAINER), (WALLED_FILES,)),
        (JobSpec("a", steps=STEPS, inputs=FILE, isolation=Isolation.SANDBOX), (WALLED_FILES,)),
    ],
)
def test_what_a_worker_must_be_able_to_do(spec: JobSpec, needed: tuple[str, ...]) -> None:
    assert capabilities_of(spec) == needed


def test_steps_have_the_numbers_of_their_attempts() -> None:
    assert step_numbered(JobSpec("a", steps=STEPS), 0) == STEPS[0]
    fetched = JobSpec("a", steps=STEPS, git=CODE)
    assert [step_numbered(fetched, number) for number in range(4)] == [None, *STEPS, None]

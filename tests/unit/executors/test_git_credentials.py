"""Credentials for git: whose they are, and what is wrong with a file of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.git import parse_repository
from rota.executors.git_credentials import find_credential, read_credentials
from rota.sources.wish import SourceRefused

OURS = """
[ours]
host = "git.example.org"
user = "ci"
password = "hunter2"
projects = ["default", "ops"]
"""
AT = parse_repository("https://git.example.org/app.git")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "credentials.toml"
    path.write_text(OURS)
    path.chmod(0o600)
    return path


def test_a_job_of_its_project_shows_it_to_its_host(file: Path) -> None:
    login = find_credential(file, "ours", "ops", AT)

    assert login is not None
    assert (login.user, login.password, login.origin) == (
        "ci",
        "hunter2",
        "https://git.example.org",
    )
    assert "hunter2" not in repr(login)
    assert find_credential(file, "", "ops", AT) is None


def test_files_are_read_at_each_use(tmp_path: Path) -> None:
    word, file = tmp_path / "word", tmp_path / "credentials.toml"
    word.write_text("first\n")
    file.write_text(OURS.replace('password = "hunter2"', f'password_file = "{word}"'))
    before = find_credential(file, "ours", "ops", AT)
    word.write_text("second\n")
    after = find_credential(file, "ours", "ops", AT)

    assert before is not None
    assert after is not None
    assert (before.password, after.password) == ("first", "second")
    word.unlink()
    with pytest.raises(SourceRefused, match="what the credential ours shows cannot be read"):
        find_credential(file, "ours", "ops", AT)


@pytest.mark.parametrize(
    ("name", "project", "url", "reason"),
    [
        (
            "ours",
            "sales",
            "https://git.example.org/app",
            "no credential ours for the project sales",
        ),
        (
            "theirs",
            "ops",
            "https://git.example.org/app",
            "no credential theirs for the project ops",
        ),
        ("ours", "ops", "https://git.example.com/app", "is for https://git.example.org"),
        ("ours", "ops", "https://git.example.org:8443/app", "is for https://git.example.org"),
        ("ours", "ops", "ssh://git.example.org/app", "is for https://git.example.org"),
    ],
)
def test_what_is_not_for_a_job_is_refused(
    file: Path, name: str, project: str, url: str, reason: str
) -> None:
    with pytest.raises(SourceRefused, match=reason):
        find_credential(file, name, project, parse_repository(url))


def test_without_a_file_there_is_none() -> None:
    with pytest.raises(SourceRefused, match="has no credential ours"):
        find_credential(None, "ours", "ops", AT)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('host = "git.example.org"\n', "", "needs host"),
        ('user = "ci"\n', "", "needs user"),
        ('password = "hunter2"\n', "", "needs password, password_file or key_file"),
        ('password = "hunter2"', 'password = "x"\nkey_file = "/k"', "one of them"),
        ("projects = [", "project = [", "unknown project"),
        ('projects = ["default", "ops"]', 'projects = "ops"', "whose jobs may use it"),
        ('"git.example.org"', '"ssh://git.example.org"', "ssh takes key_file"),
        ('"git.example.org"', '"user@git.example.org"', "a user or password"),
        ('"git.example.org"', '"git.example.org/team"', "a path is not looked at"),
        ('user = "ci"', "user = 7", "user is no text"),
        ("[ours]", "ours = 1\n[x]", "ours is no table"),
        ("[ours]", "[[[", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_file(file: Path, old: str, new: str, reason: str) -> None:
    file.write_text(OURS.replace(old, new))

    with pytest.raises(ValueError, match=reason):
        read_credentials(file)


def test_passwords_that_others_may_read_are_refused(file: Path) -> None:
    file.chmod(0o644)

    with pytest.raises(ValueError, match="chmod 600"):
        read_credentials(file)


def test_a_key_is_for_ssh(tmp_path: Path) -> None:
    key, file = tmp_path / "key", tmp_path / "credentials.toml"
    key.write_text("PRIVATE")
    file.write_text(
        f'[deploy]\nhost = "git.example.org:2222"\nkey_file = "{key}"\nprojects = ["*"]\n'
    )

    login = find_credential(
        file, "deploy", "any", parse_repository("ssh://git@git.example.org:2222/a")
    )

    assert login is not None
    assert (login.key, login.origin) == ("PRIVATE", "ssh://git.example.org:2222")

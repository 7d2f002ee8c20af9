"""Files of secrets for requests: where each may go, and what is wrong with a file of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.addresses import parse_target
from rota.domain.errors import Invalid
from rota.executors.http_secrets import WorkerSecrets, read_secrets

PAY = """
[PAY_TOKEN]
value = "hunter2-hunter2"
hosts = ["Pay.example.org"]
projects = ["payments"]
"""
AT = parse_target("https://pay.example.org/charge")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.toml"
    path.write_text(PAY)
    path.chmod(0o600)
    return path


def test_a_job_of_its_project_sends_it_to_its_host(file: Path) -> None:
    secrets = read_secrets(file)

    assert WorkerSecrets(secrets).values(["PAY_TOKEN"], "payments", AT) == {
        "PAY_TOKEN": "hunter2-hunter2"
    }
    assert "hunter2" not in repr(secrets)


@pytest.mark.parametrize(
    ("name", "project", "url", "reason"),
    [
        ("PAY_TOKEN", "sales", "https://pay.example.org", "not for the project sales"),
        ("PAY_TOKEN", "payments", "https://pay.example.com", "not for https://pay.example.com"),
        ("OTHER", "payments", "https://pay.example.org", "no secret OTHER"),
    ],
)
def test_what_is_not_for_a_request_is_refused(
    file: Path, name: str, project: str, url: str, reason: str
) -> None:
    secrets = WorkerSecrets(read_secrets(file))

    with pytest.raises(Invalid, match=reason):
        secrets.values([name], project, parse_target(url))


def test_files_are_read_at_each_use(tmp_path: Path, file: Path) -> None:
    word = tmp_path / "word"
    word.write_text("first\n")
    file.write_text(PAY.replace('value = "hunter2-hunter2"', f'value_file = "{word}"'))
    file.chmod(0o644)  # there is no value in it
    secret = read_secrets(file)["PAY_TOKEN"]

    assert (secret.read(), secret.trouble()) == ("first", "")
    word.write_text("second\n")
    assert secret.read() == "second"
    word.unlink()
    assert secret.trouble() == f"the secret PAY_TOKEN cannot be read: {word}: {NOT_THERE}"
    word.write_bytes(b"\xff")
    assert secret.trouble().endswith("it is not UTF-8")


NOT_THERE = "No such file or directory"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('value = "hunter2-hunter2"\n', "", "needs value or value_file, one of them"),
        ('value = "hunter2-hunter2"', 'value = "x"\nvalue_file = "/x"', "one of them"),
        ('value = "hunter2-hunter2"', "value = 7", "value and value_file are text"),
        ('hosts = ["Pay.example.org"]', "hosts = []", "needs hosts"),
        ('"Pay.example.org"', '"pay.example.org/path"', "PAY_TOKEN"),
        ('projects = ["payments"]', "projects = []", "needs projects"),
        ('projects = ["payments"]', 'projects = "payments"', "needs projects"),
        ("projects =", "project =", "has an unknown project"),
        ("[PAY_TOKEN]", "PAY_TOKEN = 1\n[x]", "PAY_TOKEN is no table"),
        ("[PAY_TOKEN]", "[[[", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_file(file: Path, old: str, new: str, reason: str) -> None:
    file.write_text(PAY.replace(old, new))

    with pytest.raises(ValueError, match=reason):
        read_secrets(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"cannot be read: {NOT_THERE}"):
        read_secrets(tmp_path / "none.toml")


def test_values_that_others_may_read_are_refused(file: Path) -> None:
    file.chmod(0o640)

    with pytest.raises(ValueError, match="has secrets, and others may read it: chmod 600"):
        read_secrets(file)

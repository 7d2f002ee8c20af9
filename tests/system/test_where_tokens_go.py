"""A token goes to no server that somebody else has named, by CLI and SDK alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from testkit.processes import run_rota
from tests.unit.sdk.answering import Answering, AnsweringServer, document

pytestmark = pytest.mark.timeout(60)

Ended = subprocess.CompletedProcess[str]
Ask = Callable[[Path, Mapping[str, str]], Ended]
SCRIPT = "import rota; print(rota.Client().list_jobs().items)"


def by_command(folder: Path, environ: Mapping[str, str]) -> Ended:
    return run_rota("job", "list", environ=environ, cwd=folder)


def by_program(folder: Path, environ: Mapping[str, str]) -> Ended:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=dict(environ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture(params=[by_command, by_program])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Asks for the jobs in a folder, with an environment."""
    asking: Ask = request.param
    return asking


@pytest.fixture
def server() -> Iterator[Answering]:
    with AnsweringServer() as server:
        server.on("GET /jobs", document({"items": [], "next_cursor": None}))
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where somebody else may have put something, and where the user just is."""
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    user = tmp_path / "user"
    (user / ".config" / "rota").mkdir(parents=True)
    return {"PATH": os.environ["PATH"], "HOME": str(user), "LANG": "C.UTF-8"}


def settings(folder: Path, **values: str) -> None:
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    (folder / "rota.toml").write_text("\n".join(lines))


def leave_note(home: Path, url: str) -> None:
    home.mkdir()
    note = {"url": url, "token": "noted", "pid": os.getpid()}
    (home / "client.json").write_text(json.dumps(note))


def sent(server: Answering) -> list[str | None]:
    return [asked.headers.get("Authorization") for asked in server.asked]


def assert_withheld(ended: Ended, server: Answering, *words: str) -> None:
    assert ended.returncode != 0
    assert server.asked == []
    for word in ("is not sent to", server.url, "ROTA_URL", *words):
        assert word in ended.stderr
    assert "s3cret" not in ended.stdout + ended.stderr


class TestWithheld:
    def test_from_the_address_of_a_settings_file_found_here(
        self, ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
    ) -> None:
        settings(folder, url=server.url)

        ended = ask(folder, environ | {"ROTA_TOKEN": "s3cret"})

        assert_withheld(ended, server, "ROTA_TOKEN", "rota.toml")

    def test_from_the_address_of_a_data_folder_found_here(
        self, ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
    ) -> None:
        leave_note(folder / ".rota", server.url)
        (folder / "token").write_text("s3cret")

        ended = ask(folder, environ | {"ROTA_TOKEN_FILE": "token"})

        assert_withheld(ended, server, "ROTA_TOKEN_FILE", ".rota/client.json")

    def test_although_the_user_has_settings_of_his_own(
        self, ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
    ) -> None:
        own = Path(environ["HOME"], ".config", "rota")
        settings(own, url="http://127.0.0.1:1", token="s3cret")
        settings(folder, url=server.url)

        assert_withheld(ask(folder, environ), server, f"{own}/rota.toml")


class TestSent:
    def test_to_the_address_of_the_environment_whatever_lies_here(
        self, ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
    ) -> None:
        settings(folder, url="http://127.0.0.1:1", token="theirs", tls_ca="theirs.pem")
        (folder / "token").write_text("s3cret\n")

        ended = ask(folder, environ | {"ROTA_URL": server.url, "ROTA_TOKEN_FILE": "token"})

        assert ended.returncode == 0, ended.stderr
        assert sent(server) == ["Bearer s3cret"]

    def test_by_the_settings_of_the_user(
        self, ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
    ) -> None:
        settings(Path(environ["HOME"], ".config", "rota"), url=server.url, token="mine")

        assert ask(folder, environ).returncode == 0
        assert sent(server) == ["Bearer mine"]

    def test_by_a_settings_file_found_here_with_a_token_of_its_own(
        self, ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
    ) -> None:
        settings(folder, url=server.url, token="theirs")

        assert ask(folder, environ).returncode == 0
        assert sent(server) == ["Bearer theirs"]

    def test_by_a_data_folder_found_here_with_a_token_of_its_own(
        self, ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
    ) -> None:
        leave_note(folder / ".rota", server.url)

        assert ask(folder, environ).returncode == 0
        assert sent(server) == ["Bearer noted"]


def test_data_folder_of_another_user_is_not_used(
    ask: Ask, server: Answering, folder: Path, environ: dict[str, str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    leave_note(folder / ".rota", server.url)
    os.chown(folder / ".rota", 65534, 65534)

    ended = ask(folder, environ)

    assert ended.returncode != 0
    assert "belongs to uid 65534" in ended.stderr
    assert server.asked == []


def test_settings_are_shown_as_they_are_used(
    server: Answering, folder: Path, environ: dict[str, str]
) -> None:
    settings(folder, url=server.url, tls_ca="theirs.pem")
    environ["ROTA_TOKEN"] = "s3cret"

    def shown(**variables: str) -> dict[str, tuple[str, str]]:
        words = ("config", "show", "--json")
        ended = run_rota(*words, environ=environ | variables, cwd=folder)
        return {it["name"]: (it["value"], it["origin"]) for it in json.loads(ended.stdout)}

    withheld = shown()
    assert withheld["url"] == (server.url, "rota.toml")
    assert withheld["token"] == ("(set, but not sent to this url)", "ROTA_TOKEN")
    used = shown(ROTA_URL=server.url)
    assert used["url"] == (server.url, "ROTA_URL")
    assert used["token"] == ("(set)", "ROTA_TOKEN")
    assert used["tls_ca"] == ("theirs.pem", "rota.toml, not for the url of ROTA_URL")
    doctor = run_rota("doctor", environ=environ, cwd=folder)
    assert "is not sent to" in doctor.stdout
    assert server.asked == []

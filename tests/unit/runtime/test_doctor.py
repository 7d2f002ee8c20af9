from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from rota.queue import nats_connection
from rota.runtime import config
from rota.runtime.doctor import Finding, Verdict, look_at_proxies, run
from rota.runtime.settings import Settings
from rota.store.sqlite.opening import open_sqlite
from tests.unit.sdk.answering import AnsweringServer, Given, document, problem


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = tmp_path / "home"
    home.mkdir()
    return Settings(home=home)


@pytest.fixture
def listening() -> Iterator[str]:
    """The address of somebody who listens, on no port that any setting names."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def server(settings: Settings) -> Finding:
    """What was found out about the server."""
    [finding] = [each for each in run(settings) if each.subject == "server"]
    return finding


def leave_note(settings: Settings, **note: object) -> None:
    (settings.home / "client.json").write_text(json.dumps(note))


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_server_is_looked_for_where_its_note_says(settings: Settings, listening: str) -> None:
    leave_note(settings, url=listening, pid=os.getpid())

    found = server(settings)

    assert found.verdict is Verdict.OK
    assert f"answers on {listening} (pid {os.getpid()})" in found.message


def test_no_note_means_no_server_and_that_is_not_well(settings: Settings) -> None:
    found = server(settings)

    assert found.verdict is Verdict.WARNING
    assert found.message == "none runs on this data folder, and no ROTA_URL names another"
    assert found.advice == "start one with: rota up"


def test_note_of_a_killed_server_is_told(settings: Settings, listening: str) -> None:
    leave_note(settings, url=listening, pid=ended_process())

    found = server(settings)

    assert found.verdict is Verdict.WARNING
    assert "was killed" in found.message
    assert "rota up" in found.advice


def test_server_that_lives_but_does_not_answer_is_told(settings: Settings) -> None:
    leave_note(settings, url="http://127.0.0.1:1", pid=os.getpid())

    found = server(settings)

    assert found.verdict is Verdict.WARNING
    assert "http://127.0.0.1:1" in found.message


@pytest.mark.parametrize("text", ["", "[]", '{"url": "http://127.0.0.1:1"}'])
def test_note_that_makes_no_sense_is_told(settings: Settings, text: str) -> None:
    (settings.home / "client.json").write_text(text)

    found = server(settings)

    assert found.verdict is Verdict.WARNING
    assert "client.json" in found.message


def test_folder_above_that_everybody_may_change_is_told(settings: Settings) -> None:
    settings.home.parent.chmod(0o777)

    [found] = [each for each in run(settings) if each.subject == "data folder"]

    assert found.verdict is Verdict.WARNING
    assert str(settings.home.parent) in found.message
    assert "ROTA_HOME" in found.advice


class TestServerOfTheCommandLine:
    def findings(self, settings: Settings, **variables: str) -> dict[str, Finding]:
        environ = {"ROTA_HOME": str(settings.home), **variables}
        return {found.subject: found for found in run(config.load(environ=environ), environ)}

    def test_ready_server_and_valid_token(self, settings: Settings) -> None:
        with AnsweringServer() as server:
            server.on("GET /whoami", document({"name": "me", "role": "admin"}))
            found = self.findings(settings, ROTA_URL=server.url, ROTA_TOKEN="rota_x")

        assert (found["token"].verdict, found["token"].message) == (Verdict.OK, "me, admin")
        assert server.url in found["server"].message

    def test_server_of_this_folder_is_asked_with_the_token_that_is_left_here(
        self, settings: Settings
    ) -> None:
        with AnsweringServer() as server:
            server.on("GET /whoami", document({"name": "local", "role": "admin"}))
            leave_note(settings, url=server.url, token="rota_left", pid=os.getpid())
            found = self.findings(settings, ROTA_URL=f"{server.url}/")["token"]

        assert found.message == "local, admin"
        assert "Bearer rota_left" in server.asked[-1].headers.values()

    def test_token_that_is_not_taken(self, settings: Settings) -> None:
        with AnsweringServer() as server:
            server.on(
                "GET /whoami", problem(401, detail="this token is not valid", hint="make one")
            )
            found = self.findings(settings, ROTA_URL=server.url)["token"]

        assert (found.verdict, found.message, found.advice) == (
            Verdict.PROBLEM,
            "this token is not valid",
            "make one",
        )

    def test_address_of_another_server(self, settings: Settings) -> None:
        with AnsweringServer() as other:
            other.on("GET /readyz", Given(b"<html>welcome</html>", 200, "text/html"), prefix="")
            found = self.findings(settings, ROTA_URL=other.url, ROTA_TOKEN="rota_x")

        assert found["server"].verdict is Verdict.PROBLEM
        assert "does not answer like a Rota server" in found["server"].message
        assert "token" not in found
        assert len(other.asked) == 1  # and the token was not sent there

    def test_server_that_is_away(self, settings: Settings) -> None:
        found = self.findings(settings, ROTA_URL="http://127.0.0.1:1")

        assert found["server"].verdict is Verdict.PROBLEM
        assert "no answer from http://127.0.0.1:1" in found["server"].message
        assert "token" not in found

    def test_token_of_a_file_is_used(self, settings: Settings, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("rota_filed\n")
        with AnsweringServer() as server:
            server.on("GET /whoami", document({"name": "me", "role": "viewer"}))
            variables = {"ROTA_URL": server.url, "ROTA_TOKEN_FILE": str(tmp_path / "token")}
            found = self.findings(settings, **variables)["token"]

        assert found.message == "me, viewer"
        assert "Bearer rota_filed" in server.asked[-1].headers.values()

    def test_token_that_is_withheld_from_the_server_of_this_folder_is_told(
        self, settings: Settings, listening: str
    ) -> None:
        leave_note(settings, url=listening, token="rota_left", pid=os.getpid())

        found = self.findings(settings, ROTA_TOKEN="rota_x")

        assert found["token"].verdict is Verdict.PROBLEM
        assert "the token of ROTA_TOKEN is not sent" in found["token"].message
        assert f"set ROTA_URL={listening}" in found["token"].advice


class TestBackends:
    def finding(self, settings: Settings, subject: str) -> Finding:
        [found] = [each for each in run(settings) if each.subject == subject]
        return found

    def test_store_that_is_not_there_yet_is_no_problem(self, settings: Settings) -> None:
        found = self.finding(settings, "store")

        assert (found.verdict, "rota up" in found.message) == (Verdict.OK, True)
        assert not settings.store_path.exists()

    def test_store_that_is_no_database(self, settings: Settings) -> None:
        settings.store_path.write_text("nothing of the kind" * 100)

        found = self.finding(settings, "store")

        assert found.verdict is Verdict.PROBLEM
        assert str(settings.store_path) in found.message

    def test_store_of_rota_is_whole(self, settings: Settings) -> None:
        asyncio.run(make_store(settings))

        assert self.finding(settings, "store").verdict is Verdict.OK
        assert self.finding(settings, "clock").verdict is Verdict.OK

    def test_database_that_is_away_is_told_without_its_password(self, settings: Settings) -> None:
        away = replace(settings, store="postgresql://rota:s3cret@127.0.0.1:1/rota")

        found = self.finding(away, "store")

        assert found.verdict is Verdict.PROBLEM
        assert "127.0.0.1:1" in found.message
        assert "s3cret" not in found.message

    def test_nats_that_is_away_costs_only_time(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nats_connection, "_ANSWER_SECONDS", 0.05)

        found = self.finding(replace(settings, queue="nats://127.0.0.1:1"), "queue")

        assert found.verdict is Verdict.WARNING

    def test_wake_ups_by_way_of_a_database_that_is_away_cost_only_time(
        self, settings: Settings
    ) -> None:
        away = replace(settings, queue="postgresql://rota:s3cret@127.0.0.1:1/rota")

        found = self.finding(away, "queue")

        assert found.verdict is Verdict.WARNING
        assert "s3cret" not in found.message

    def test_files_beside_a_shared_store_are_seen_by_one_server(self, settings: Settings) -> None:
        shared = replace(settings, store="postgresql://rota@127.0.0.1:1/rota")

        assert self.finding(shared, "blobs").verdict is Verdict.WARNING

    def test_missing_extra_is_named(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "grpc", None)

        found = self.finding(replace(settings, grpc_listen="127.0.0.1:0"), "gRPC")

        assert (found.verdict, found.advice) == (Verdict.PROBLEM, 'pip install "rota[cluster]"')
        assert "grpc" in found.message

    def test_servers_of_the_worker_are_tried(self, settings: Settings, listening: str) -> None:
        address = listening.removeprefix("http://")
        both = replace(settings, server=(address, "127.0.0.1:1"))

        verdicts = [each.verdict for each in run(both) if each.subject == "gRPC"]

        assert verdicts == [Verdict.OK, Verdict.WARNING]


async def make_store(settings: Settings) -> None:
    store = await open_sqlite(settings.store_path)
    await store.check()
    await store.close()


class TestProxies:
    def found(self, **settings: Any) -> list[tuple[Verdict, str]]:
        return [(each.verdict, each.message) for each in look_at_proxies(Settings(**settings))]

    def test_a_public_address_without_trusted_proxies_is_a_warning(self) -> None:
        [(verdict, message)] = self.found(public_url="https://example.org")

        assert verdict is Verdict.WARNING
        assert "https://example.org" in message

    def test_trusted_proxies_are_named(self) -> None:
        networks = (ip_network("10.0.0.0/8"), ip_network("::1"))

        assert self.found(trusted_proxies=networks) == [
            (Verdict.OK, "forwarded headers are believed from 10.0.0.0/8, ::1/128")
        ]

    def test_without_either_there_is_nothing_to_tell(self) -> None:
        assert self.found() == []

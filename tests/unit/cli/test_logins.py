from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli.terminal import Exit
from rota.sdk.credentials import read_credentials, save_credential
from tests.unit.cli.console import Console
from tests.unit.sdk.answering import Answering, AnsweringServer, Given, document, problem

PENDING = document({"error": "authorization_pending"}, 400)
GRANTED = document({"access_token": "rotac_1", "token_type": "Bearer", "expires_in": 43200})


@pytest.fixture
def answering() -> Iterator[Answering]:
    with AnsweringServer() as server:
        asked = {
            "device_code": "secret",
            "user_code": "BCDF-GHJK",
            "verification_uri": f"{server.url}/device",
            "expires_in": 0.05,
            "interval": 0.001,
        }
        server.on("POST /auth/device", document(asked), prefix="")
        server.on("GET /whoami", document({"name": "ann"}))
        yield server


def waits_for(server: Answering, *answers: Given) -> None:
    server.on("POST /auth/device/token", *answers, prefix="")


def test_a_person_lets_the_terminal_in(rota: Console, answering: Answering) -> None:
    waits_for(answering, PENDING, PENDING, GRANTED)

    ended = rota("login", "--url", answering.url)

    assert ended.code == Exit.DONE, ended.err
    assert f"Open {answering.url}/device" in ended.err
    assert "BCDF-GHJK" in ended.err
    assert "as ann" in ended.err
    assert read_credentials() == {answering.url: "rotac_1"}
    begun, *polls, who = answering.asked
    assert socket.gethostname() in begun.body.decode()
    assert {poll.body for poll in polls} == {polls[0].body}
    assert b"device_code=secret" in polls[0].body
    assert "Authorization" not in begun.headers
    assert who.headers["Authorization"] == "Bearer rotac_1"


def test_nothing_of_the_secret_is_printed(rota: Console, answering: Answering) -> None:
    waits_for(answering, GRANTED)

    ended = rota("login", "--url", answering.url)

    assert "rotac_1" not in ended.out + ended.err
    assert "secret" not in ended.out + ended.err


def test_a_refused_terminal_says_so(rota: Console, answering: Answering) -> None:
    waits_for(answering, document({"error": "access_denied"}, 400))

    ended = rota("login", "--url", answering.url)

    assert ended.code == Exit.DENIED
    assert "refused" in ended.err
    assert read_credentials() == {}


@pytest.mark.parametrize("answer", [PENDING, document({"error": "expired_token"}, 400)])
def test_a_terminal_does_not_wait_for_ever(
    rota: Console, answering: Answering, answer: Given
) -> None:
    waits_for(answering, answer)

    ended = rota("login", "--url", answering.url)

    assert ended.code == Exit.DENIED
    assert "in time" in ended.err


def test_another_server_is_told_apart(rota: Console, answering: Answering) -> None:
    waits_for(answering, Given(b"<html>"))

    ended = rota("login", "--url", answering.url)

    assert ended.code != Exit.DONE
    assert "does not answer like a Rota server" in ended.err


def test_a_server_that_is_busy_is_heard(rota: Console) -> None:
    with AnsweringServer() as server:
        server.on(
            "POST /auth/device", problem(429, code="too_many_logins", detail="too many"), prefix=""
        )
        ended = rota("login", "--url", server.url)

    assert "too many" in ended.err


def test_without_a_server_it_says_how_to_name_one(rota: Console) -> None:
    ended = rota("login")

    assert ended.code == Exit.UNREACHABLE
    assert "rota login --url" in ended.err


def test_a_logout_ends_the_session_there_and_here(rota: Console, answering: Answering) -> None:
    save_credential(answering.url, "rotac_1")
    answering.on("POST /logout", Given(b"", 204))

    ended = rota("logout", "--url", answering.url)

    assert ended.code == Exit.DONE, ended.err
    assert answering.asked[-1].headers["Authorization"] == "Bearer rotac_1"
    assert read_credentials() == {}


def test_a_session_is_forgotten_although_the_server_is_away(rota: Console) -> None:
    url = "http://127.0.0.1:1"
    save_credential(url, "rotac_1")

    ended = rota("logout", "--url", url)

    assert ended.code == Exit.DONE
    assert "did not end the session" in ended.err
    assert read_credentials() == {}


def test_whoever_is_not_logged_in_is_told(rota: Console, tmp_path: Path) -> None:
    ended = rota("logout", "--url", "http://127.0.0.1:1")

    assert ended.code == Exit.NOT_FOUND
    assert "credentials.json" in ended.err
    assert not (tmp_path / ".config").exists()


def test_other_commands_use_the_session(rota: Console, answering: Answering) -> None:
    save_credential(answering.url, "rotac_1")
    answering.on("GET /jobs", document({"items": [], "next_cursor": None}))

    ended = rota("job", "list", "-o", "json")

    assert ended.code == Exit.DONE, ended.err
    assert json.loads(ended.out)["items"] == []
    assert answering.asked[-1].headers["Authorization"] == "Bearer rotac_1"

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.sdk.errors import Invalid, Unreachable
from rota.sdk.server import Server, find_server

LOCAL = Server("http://127.0.0.1:7700", "local-token")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder as `rota up` leaves it."""
    home = tmp_path / "data"
    home.mkdir()
    note = {"url": LOCAL.url, "token": LOCAL.token, "pid": 1}
    (home / "client.json").write_text(json.dumps(note))
    return home


def environ(home: Path, **variables: str) -> dict[str, str]:
    return {"ROTA_HOME": str(home), **variables}


def test_server_of_this_machine_is_found_with_its_token(home: Path) -> None:
    assert find_server(environ=environ(home)) == LOCAL


def test_data_folder_is_looked_for_where_the_program_was_started(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.rename(tmp_path / ".rota")
    monkeypatch.chdir(tmp_path)

    assert find_server(environ={}) == LOCAL


def test_environment_goes_before_what_lies_in_the_data_folder(home: Path) -> None:
    variables = environ(home, ROTA_URL="http://rota.example/", ROTA_TOKEN="other")

    assert find_server(environ=variables) == Server("http://rota.example", "other")


def test_arguments_go_before_the_environment(home: Path) -> None:
    variables = environ(home, ROTA_URL="http://b:2", ROTA_TOKEN="other")

    assert find_server("http://c:3", "mine", variables) == Server("http://c:3", "mine")


def test_local_token_is_never_sent_to_another_server(home: Path) -> None:
    variables = environ(home, ROTA_URL="http://rota.example")

    assert find_server(environ=variables).token is None


def test_local_server_named_by_its_address_keeps_its_token(home: Path) -> None:
    assert find_server(LOCAL.url + "/", environ=environ(home)) == LOCAL


def test_without_any_server_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="rota up") as caught:
        find_server(environ=environ(tmp_path))

    assert caught.value.code == "no_server"


@pytest.mark.parametrize("text", ["", "[]", '{"url": "http://a:1"}', '{"url": 3, "token": ""}'])
def test_unreadable_note_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "client.json").write_text(text)

    with pytest.raises(Unreachable, match=r"client\.json"):
        find_server(environ=environ(tmp_path))


@pytest.mark.parametrize("url", ["127.0.0.1:7700", "ftp://a", "http://", "http://a/?project=b"])
def test_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(Invalid, match="not the address of a server"):
        find_server(url, environ=environ(tmp_path))


def test_token_is_not_shown() -> None:
    assert "local-token" not in repr(LOCAL)

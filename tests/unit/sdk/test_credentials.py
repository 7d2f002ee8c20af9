from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rota.sdk.credentials import (
    credentials_path,
    drop_credential,
    read_credentials,
    save_credential,
)
from rota.sdk.errors import Denied, Invalid
from rota.sdk.server import Source, Value, decide, find_server, resolve

URL, OTHER = "https://rota.example.org", "https://other.example.org"


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_session_is_kept_by_the_address_of_its_server_for_its_owner_alone() -> None:
    save_credential(URL, "rotac_1")
    save_credential(OTHER, "rotac_2")
    save_credential(URL, "rotac_3")

    assert read_credentials() == {URL: "rotac_3", OTHER: "rotac_2"}
    assert stat.S_IMODE(credentials_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(credentials_path().parent.stat().st_mode) == 0o700


def test_a_session_that_is_dropped_leaves_the_others() -> None:
    save_credential(URL, "rotac_1")
    save_credential(OTHER, "rotac_2")

    drop_credential(URL)
    drop_credential(URL)

    assert read_credentials() == {OTHER: "rotac_2"}


def test_a_file_that_others_may_look_at_is_not_used() -> None:
    save_credential(URL, "rotac_1")
    credentials_path().chmod(0o640)

    with pytest.raises(Denied, match="not yours alone"):
        read_credentials()


def test_a_link_to_a_file_is_not_followed(tmp_path: Path) -> None:
    save_credential(URL, "rotac_1")
    credentials_path().rename(tmp_path / "elsewhere")
    credentials_path().symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Invalid):
        read_credentials()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"servers": []}', '{"servers": {"u": 1}}'])
def test_a_damaged_file_is_told_by_its_name(text: str) -> None:
    save_credential(URL, "rotac_1")
    credentials_path().write_text(text)

    with pytest.raises(Invalid, match=r"credentials\.json"):
        read_credentials()


def test_a_session_goes_to_its_server_and_to_no_other() -> None:
    save_credential(URL, "rotac_1")
    save_credential(OTHER, "rotac_2")

    assert find_server(URL, environ={}).token == "rotac_1"
    assert find_server(f"{URL}/", environ={}).token == "rotac_1"
    assert find_server("https://third.example.org", environ={}).token is None
    assert find_server("http://rota.example.org", environ={}).token is None


def test_a_token_that_is_set_goes_before_a_session() -> None:
    save_credential(URL, "rotac_1")

    assert find_server(URL, "rotat_9", environ={}).token == "rotat_9"
    assert find_server(URL, environ={"ROTA_TOKEN": "rotat_8"}).token == "rotat_8"


def test_the_only_server_that_somebody_is_logged_in_to_needs_no_name() -> None:
    save_credential(URL, "rotac_1")
    one = find_server(environ={})
    save_credential(OTHER, "rotac_2")

    assert (one.url, one.token) == (URL, "rotac_1")
    assert resolve(environ={}).url is None


def test_a_folder_may_name_the_server_but_not_who_vouches_for_it() -> None:
    """Otherwise ./rota.toml and a certificate beside it would get the session."""
    url = Value(URL, Source.CURRENT_FOLDER, "rota.toml")
    evil = Value("evil.pem", Source.CURRENT_FOLDER, "rota.toml")
    sessions = {URL: "rotac_1"}

    named = decide([url], [], [], None, sessions)
    passed_off = decide([url], [], [evil], None, sessions)

    assert named.token is not None
    assert not named.is_withheld
    assert passed_off.token is None

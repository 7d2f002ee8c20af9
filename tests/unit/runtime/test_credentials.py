"""The credential of a worker that has joined: where it is, who may read it, when it is used."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.errors import Denied
from rota.domain.ids import micros
from rota.ports.work import Credential
from rota.runtime.credentials import CredentialFile, Joining
from rota.runtime.home import credential_file
from rota.runtime.settings import Settings

DAY = timedelta(days=1) // timedelta(microseconds=1)


def now() -> int:
    return micros(SystemClock().now())


def keep(folder: Path, *, days: int = 30, token: str = "secret") -> CredentialFile:
    kept = CredentialFile(folder)
    kept.keep(Credential(token, now() + days * DAY), now())
    return kept


def test_what_is_kept_is_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    kept = keep(tmp_path)

    again = CredentialFile(tmp_path)

    assert again.load()
    assert (again.token, again.expires_at) == ("secret", kept.expires_at)
    assert stat.S_IMODE(credential_file(tmp_path).stat().st_mode) == 0o600


def test_it_is_renewed_once_two_thirds_of_its_time_are_over(tmp_path: Path) -> None:
    kept = CredentialFile(tmp_path)

    kept.keep(Credential("secret", 130 * DAY), 100 * DAY)

    assert kept.renew_at == 120 * DAY


@pytest.mark.parametrize("content", [None, "", "{", '{"token": 1}'])
def test_what_cannot_be_read_is_not_there(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        credential_file(tmp_path).write_text(content)
        credential_file(tmp_path).chmod(0o600)

    assert not CredentialFile(tmp_path).load()


def test_what_others_may_change_is_not_used(tmp_path: Path) -> None:
    keep(tmp_path)
    credential_file(tmp_path).chmod(0o666)

    with pytest.raises(Denied, match="is not used"):
        CredentialFile(tmp_path).load()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    keep(tmp_path / "elsewhere")
    credential_file(tmp_path).symlink_to(credential_file(tmp_path / "elsewhere"))

    with pytest.raises(Denied, match="symbolic links"):
        CredentialFile(tmp_path).load()


def test_what_could_not_be_written_is_not_shown(tmp_path: Path) -> None:
    kept = keep(tmp_path)
    credential_file(tmp_path).with_name("credential.json.new").mkdir()

    with pytest.raises(OSError, match=r"directory|permitted"):
        kept.keep(Credential("the next", now() + DAY), now())

    assert kept.token == "secret"


SERVER = ("server:7701",)


@pytest.mark.parametrize(
    ("settings", "days", "replaces", "is_needed"),
    [
        (Settings(server=SERVER, join_token="j"), None, False, True),
        (Settings(server=SERVER, join_token="j"), 30, False, False),
        (Settings(server=SERVER, join_token="j"), -1, False, True),
        (Settings(server=SERVER, join_token="j"), 30, True, True),
        (Settings(server=SERVER, join_token="j", worker_token="w"), None, False, False),
        (Settings(server=SERVER), None, False, False),
        (Settings(join_token="j"), None, False, False),
    ],
    ids=["first", "joined", "expired", "replaces", "has a token", "no token", "by the socket"],
)
def test_a_join_token_is_used_by_whoever_has_nothing_that_is_good(
    tmp_path: Path, settings: Settings, days: int | None, replaces: bool, is_needed: bool
) -> None:
    if days is not None:
        keep(tmp_path, days=days)

    joining = Joining(settings, tmp_path, SystemClock())

    assert joining.is_needed(replaces=replaces) is is_needed

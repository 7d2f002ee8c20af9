"""Nothing in a data folder is used that another user owns or may change."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.domain.errors import Denied, Unavailable
from rota.runtime.home import (
    check_home,
    client_file,
    exchangeable_at,
    read_private,
    secure_home,
    secure_worker_folder,
    token_file,
    worker_socket,
    write_private,
)

SOMEBODY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder of ours."""
    home = tmp_path / "home"
    secure_home(home)
    return home


@pytest.fixture
def give_away(home: Path) -> Iterator[None]:
    """For tests in which files belong to somebody else."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    yield
    os.chown(home, 0, 0)


@pytest.fixture
def _no_umask() -> Iterator[None]:
    previous = os.umask(0)
    yield
    os.umask(previous)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.usefixtures("_no_umask")
def test_what_is_made_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    home = tmp_path / "home"

    folder = secure_worker_folder(home, "w")
    write_private(token_file(home), "secret")

    assert [mode(path) for path in (home, folder.parent, folder)] == [0o700] * 3
    assert mode(token_file(home)) == 0o600
    check_home(home)


@pytest.mark.usefixtures("give_away")
class TestForeign:
    def test_folder_is_refused_with_owner_mode_and_what_to_do(self, home: Path) -> None:
        os.chown(home, SOMEBODY, SOMEBODY)

        with pytest.raises(Denied) as refused:
            secure_home(home)

        assert f"{home} is not used" in refused.value.message
        assert f"(uid {SOMEBODY}), mode 0700" in refused.value.message
        assert "ROTA_HOME" in refused.value.hint

    @pytest.mark.parametrize("name", ["rota.db", "local.token", "client.json", "rota.lock"])
    def test_file_in_it_is_refused(self, home: Path, name: str) -> None:
        (home / name).touch()
        os.chown(home / name, SOMEBODY, SOMEBODY)

        with pytest.raises(Denied, match=name):
            check_home(home)

    @pytest.mark.parametrize("name", ["run", "workers", "blobs"])
    def test_folder_in_it_is_refused(self, home: Path, name: str) -> None:
        (home / name).mkdir()
        os.chown(home / name, SOMEBODY, SOMEBODY)

        with pytest.raises(Denied, match=name):
            secure_home(home)

    def test_folder_of_a_worker_is_refused(self, home: Path) -> None:
        os.chown(secure_worker_folder(home, "w"), SOMEBODY, SOMEBODY)

        with pytest.raises(Denied, match="workers/w"):
            secure_worker_folder(home, "w")

    def test_link_is_refused_although_it_leads_to_a_folder_of_ours(
        self, home: Path, tmp_path: Path
    ) -> None:
        link = tmp_path / "link"
        link.symlink_to(home)
        os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)

        with pytest.raises(Denied, match="link is not used"):
            secure_home(link)

    def test_link_of_ours_is_refused_where_it_leads_to_what_is_not(
        self, home: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        os.chown(tmp_path / "elsewhere", SOMEBODY, SOMEBODY)
        (home / "blobs").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(Denied, match="blobs"):
            secure_home(home)

    def test_other_files_are_nobodys_business(self, home: Path) -> None:
        (home / "notes.txt").touch()
        os.chown(home / "notes.txt", SOMEBODY, SOMEBODY)

        secure_home(home)


def test_folder_above_that_everybody_may_change_is_named(home: Path) -> None:
    assert exchangeable_at(home) == ""

    home.parent.chmod(0o777)
    assert exchangeable_at(home) == f"{home.parent} may be changed by everybody"

    home.parent.chmod(0o1777)
    assert exchangeable_at(home) == ""


@pytest.mark.usefixtures("give_away")
def test_folder_above_of_another_user_is_named(home: Path) -> None:
    os.chown(home.parent, SOMEBODY, SOMEBODY)

    assert str(SOMEBODY) in exchangeable_at(home)


@pytest.mark.parametrize("bits", [0o720, 0o702, 0o777])
def test_folder_that_others_may_change_is_refused(home: Path, bits: int) -> None:
    home.chmod(bits)

    with pytest.raises(Denied, match=f"mode {bits:04o}") as refused:
        secure_home(home)

    assert f"chmod go-w {home}" in refused.value.hint
    home.chmod(0o755)
    secure_home(home)


def test_file_that_others_may_change_is_refused(home: Path) -> None:
    token_file(home).touch()
    token_file(home).chmod(0o660)
    home.chmod(0o755)

    with pytest.raises(Denied, match=r"local\.token"):
        secure_home(home)


def test_what_an_umask_let_others_change_is_mended_where_they_cannot_come(home: Path) -> None:
    (home / "workers").mkdir()
    (home / "workers").chmod(0o775)

    secure_home(home)

    assert mode(home / "workers") == 0o755


def test_blobs_may_lie_elsewhere_by_a_link_of_ours(home: Path, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (home / "blobs").symlink_to(tmp_path / "large")

    secure_home(home)


def test_link_that_leads_nowhere_is_not_filled(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(tmp_path / "nowhere")

    with pytest.raises(Unavailable, match="File exists"):
        secure_home(tmp_path / "home")

    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["client.json", "client.json.new"])
def test_secret_is_never_written_through_a_link(home: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    (home / name).symlink_to(target)

    write_private(client_file(home), "secret")

    assert target.read_text() == "theirs"
    assert not client_file(home).is_symlink()
    assert read_private(client_file(home)) == "secret"


def test_secret_is_not_read_through_a_link(home: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("theirs")
    token_file(home).symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="symbolic links"):
        read_private(token_file(home))


def test_socket_is_in_the_data_folder_however_long_its_path(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 50)

    assert worker_socket(home).is_relative_to(home)

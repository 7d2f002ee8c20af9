"""Other users of the machine: what they prepare is not used, and what is ours they do not get."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes import RotaUp, environment, run_rota
from tests.system.jobs import apply, job, settle

pytestmark = pytest.mark.timeout(60)

SOMEBODY = 65534


@pytest.fixture
def prepared(home: Path) -> Path:
    """A data folder that another user has made, with files that he could read later."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    home.mkdir(mode=0o755)
    for name in ("local.token", "client.json", "client.json.new"):
        (home / name).touch(mode=0o644)
        os.chown(home / name, SOMEBODY, SOMEBODY)
    os.chown(home, SOMEBODY, SOMEBODY)
    return home


@pytest.mark.parametrize(
    "words",
    [
        ("up",),
        ("server",),
        ("worker",),
        ("worker", "--server", "127.0.0.1:1"),
        ("token", "create", "--name", "me", "--role", "admin"),
    ],
    ids=" ".join,
)
def test_data_folder_that_another_user_prepared_is_refused(
    prepared: Path, words: tuple[str, ...]
) -> None:
    before = sorted(prepared.iterdir())

    done = run_rota(*words, environ=environment(prepared, worker_token="rotaw_x"))

    assert done.returncode == 4, done.stderr
    assert f"{prepared} is not used: it belongs to" in done.stderr
    assert f"(uid {SOMEBODY}), mode 0755" in done.stderr
    assert "ROTA_HOME" in done.stderr
    assert sorted(prepared.iterdir()) == before
    assert not any(file.read_text() for file in before)


def test_file_that_another_user_put_into_our_folder_is_refused(prepared: Path) -> None:
    os.chown(prepared, 0, 0)

    done = run_rota("up", environ=environment(prepared))

    assert done.returncode == 4
    assert f"{prepared / 'client.json'} is not used" in done.stderr


def test_doctor_tells(prepared: Path) -> None:
    done = run_rota("doctor", "--json", environ=environment(prepared))

    [folder] = [each for each in json.loads(done.stdout) if each["subject"] == "data folder"]
    assert folder["verdict"] == "problem"
    assert f"uid {SOMEBODY}" in folder["message"]


def test_secrets_can_be_read_by_their_owner_alone(rota: RotaUp) -> None:
    modes = {
        name: stat.S_IMODE((rota.home / name).stat().st_mode)
        for name in (".", "run", "client.json", "local.token", "rota.db", "run/worker.sock")
    }

    assert modes == {
        **dict.fromkeys((".", "run"), 0o700),
        **dict.fromkeys(("client.json", "local.token", "rota.db", "run/worker.sock"), 0o600),
    }


@pytest.fixture
def lurking(home: Path) -> Iterator[tuple[Path, socket.socket]]:
    """A temporary folder of all users, where one waits for the worker of a data folder with a
    long path: where its socket would have to be if that were told by the path alone."""
    wanted = os.fsencode(long_path(home) / "worker.sock")
    digest = hashlib.blake2b(wanted, digest_size=8).hexdigest()
    with tempfile.TemporaryDirectory() as shared, socket.socket(socket.AF_UNIX) as listener:
        folder = Path(shared, f"rota-{os.geteuid()}-{digest}")
        folder.mkdir()
        listener.bind(str(folder / "worker.sock"))
        listener.listen()
        listener.setblocking(False)
        yield Path(shared), listener


def long_path(home: Path) -> Path:
    """More than the 107 bytes that the kernel takes for a socket."""
    return home.with_name("long" * 40) / "home"


def test_worker_of_a_data_folder_with_a_long_path_meets_its_own_server(
    home: Path, lurking: tuple[Path, socket.socket]
) -> None:
    shared, listener = lurking
    rota = RotaUp(long_path(home), environ={"TMPDIR": str(shared)})
    rota.home.parent.mkdir()
    before = list(shared.rglob("*"))
    try:
        rota.start()
        apply(rota.client, job("there", "true"))

        assert settle(rota.client, rota.client.trigger("there")).state == "COMPLETED"
        assert (rota.home / "run" / "worker.sock").is_socket()
    finally:
        rota.close()
    assert list(shared.rglob("*")) == before
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_modules_of_the_folder_that_a_user_stands_in_are_not_imported(
    rota: RotaUp,
) -> None:
    """`rota up` is started in the folder above its home."""
    (rota.home.parent / "structlog.py").write_text("raise SystemExit('imported')")

    rota.stop()
    rota.start()

    apply(rota.client, job("hello", "true"))
    assert settle(rota.client, rota.client.trigger("hello")).state == "COMPLETED"

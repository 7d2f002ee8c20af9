"""What cannot work is refused with a message that says what to do, and nothing is damaged."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rota.sdk.client import Client
from rota.sdk.errors import Unavailable
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.processes import RotaUp, environment, run_rota
from testkit.waiting import eventually
from tests.system.jobs import apply, file_of, job, settle

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts small file systems in memory."""
    mounted: list[Path] = []

    def mount_one(options: str) -> Path:
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this user may not mount")
        mounted.append(folder)
        return folder

    yield mount_one
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def refused(home: Path, *words: str, **settings: str) -> tuple[int, str]:
    """How `rota up` ends that cannot start, and what it says."""
    done = run_rota("up", *words, environ=environment(home, **settings))
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


class TestStarting:
    def test_port_that_is_taken(self, rota: RotaUp, tmp_path: Path) -> None:
        taken = rota.client.server.url.removeprefix("http://")

        code, told = refused(tmp_path / "other", listen=taken)

        assert code == 5
        assert f"{taken} is already in use" in told
        assert "ROTA_LISTEN" in told

    def test_second_server_on_the_same_data(self, rota: RotaUp) -> None:
        code, told = refused(rota.home)

        assert code == 5
        assert f"pid {rota.process.pid}" in told
        assert "ROTA_HOME" in told
        assert rota.client.list_jobs().items == ()

    def test_folder_that_cannot_be_written(self, mount: Mount) -> None:
        code, told = refused(mount("ro,size=1m") / "home")

        assert code == 7
        assert "Read-only file system" in told
        assert "ROTA_HOME" in told

    def test_folder_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "home").touch()

        code, told = refused(tmp_path / "home")

        assert code == 7
        assert "File exists" in told

    def test_disk_that_is_full(self, mount: Mount) -> None:
        code, told = refused(mount("size=64k") / "home")

        assert code == 7
        assert "full" in told
        assert "free" in told

    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"listen": "0.0.0.0:0"}, "0.0.0.0 would expose"),
            ({"listen": "nowhere"}, "not host:port"),
            ({"lease": "10ms"}, "between 1s and 1d"),
            ({"lease": "soon"}, "lease"),
            ({"slots": "many"}, "slots"),
            ({"store": "mysql://db"}, "no address of a store"),
            ({"log_level": "loud"}, "debug, info, warning, error"),
        ],
    )
    def test_setting_that_cannot_be(self, home: Path, settings: dict[str, str], named: str) -> None:
        code, told = refused(home, **settings)

        assert code == 2
        assert named in told
        assert not home.exists()

    def test_unknown_setting_is_named_with_the_nearest(self, home: Path) -> None:
        folder = home.parent / ".config/rota"
        folder.mkdir(parents=True)
        (folder / "rota.toml").write_text('lisen = "127.0.0.1:1"\nslots = 0\n')

        code, told = refused(home)

        assert code == 2
        assert 'did you mean "listen"?' in told
        assert "slots" in told

    def test_job_file_with_errors(self, home: Path, tmp_path: Path) -> None:
        file = tmp_path / "jobs.yaml"
        file.write_text("jobs:\n  - name: a\n    shedule: '* * * * *'\n    steps: []\n")

        code, told = refused(home, "--apply", str(file))

        assert code == 6
        assert "jobs.yaml:3:5" in told
        assert 'did you mean "schedule"?' in told
        assert not home.exists()

    def test_app_that_cannot_be_loaded(self, home: Path) -> None:
        done = run_rota("up", "--app", "no_such_module:app", environ=environment(home))

        assert done.returncode == 2
        assert done.stderr.count("the app no_such_module:app cannot be loaded") == 1
        assert "killed everything" not in done.stderr

    def test_job_file_that_is_not_there(self, home: Path) -> None:
        code, told = refused(home, "--apply", "absent.yaml")

        assert code == 3
        assert "absent.yaml" in told

    def test_job_file_is_applied_before_it_says_that_it_is_ready(
        self, home: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / "jobs.yaml"
        file.write_text(file_of(job("given", "true")))
        rota = RotaUp(home, apply=[file])
        try:
            assert [each.name for each in rota.start().client.list_jobs()] == ["given"]
            assert "1 job" in rota.printed()
        finally:
            rota.close()


class TestFullDisk:
    def test_server_refuses_while_full_and_goes_on_afterwards(
        self, mount: Mount, evidence: Evidence
    ) -> None:
        disk = mount("size=6m")
        rota = RotaUp(disk / "home", lease="3s")
        try:
            rota.start()
            apply(rota.client, job("small", evidence.script()))
            first = settle(rota.client, rota.client.trigger("small"))
            fill(disk / "ballast")

            eventually(lambda: "disk is full" in refusal_of(rota.client))
            assert rota.client.get_run(first.id).state == "COMPLETED"

            (disk / "ballast").unlink()
            second = settle(rota.client, eventually(lambda: rota.client.trigger("small")))
            assert second.state == "COMPLETED"
            assert rota.process.poll() is None
        finally:
            rota.close()
        others = {run for run, _ in evidence.started()}
        assert check(evidence.marks(), [first.id, second.id], others, lost=others) == []


def refusal_of(client: Client) -> str:
    """Why a run is not taken; the first pages may still fit into space the store has reserved."""
    try:
        client.trigger("small", key="again-and-again")
    except Unavailable as error:
        return error.message
    return ""


def fill(path: Path) -> None:
    """Takes all the space that is left."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(descriptor, b"x" * 4096)
    os.close(descriptor)


class TestStaleNotes:
    def test_note_of_a_dead_server_does_not_mislead(self, rota: RotaUp) -> None:
        rota.kill()
        assert json.loads((rota.home / "client.json").read_text())["url"]

        done = rota.command("job", "list")

        assert done.returncode == 7
        assert "rota up" in done.stderr
        assert rota.start().command("job", "list").returncode == 0

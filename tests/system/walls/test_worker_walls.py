"""What a worker offers, and what becomes of sandboxes when things around them end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testkit.processes import cmdline, processes_of
from testkit.waiting import eventually
from testkit.walled import SOMEBODY
from tests.system.jobs import apply, execute, job, settle
from tests.system.walls.conftest import Build, Machine, seconds

pytestmark = pytest.mark.timeout(120)


def offers(machine: Machine) -> dict[str, str]:
    [worker] = machine.rota.client.list_workers().items
    return {f"{each.kind}/{each.name}": each.reason for each in worker.offers}


class TestOffers:
    """X7: what is missing is told, and nothing runs without it."""

    def test_a_machine_without_bubblewrap_says_what_to_install(self, build: Build) -> None:
        machine = build(0, hidden=["/usr/bin/bwrap"])

        reason = "bubblewrap is not installed: apt-get install bubblewrap"
        told = offers(machine)
        assert (told["wall/sandbox"], told["network/sandbox/none"]) == (reason, reason)
        run = machine.start("echo unguarded")
        eventually(lambda: machine.rota.client.get_run(run.id).state == "BLOCKED")
        assert "apt-get install bubblewrap" in repr(machine.rota.client.explain(run.id))

    def test_a_machine_without_slirp4netns_has_sandboxes_without_a_network(
        self, build: Build
    ) -> None:
        machine = build(0, hidden=["/usr/bin/slirp4netns"])

        told = offers(machine)
        assert told["network/sandbox/outbound"].endswith("apt-get install slirp4netns")
        assert told["network/sandbox/none"] == ""
        assert machine.run("true").state == "COMPLETED"

    def test_limits_that_the_machine_does_not_give_are_not_offered(self, build: Build) -> None:
        machine = build(SOMEBODY)

        told = offers(machine)

        assert "control group" in told["limit/memory"]
        assert (told["limit/disk"], told["limit/open_files"]) == ("", "")
        run = machine.start("true", limits={"memory": "64MiB"})
        eventually(lambda: machine.rota.client.get_run(run.id).state == "BLOCKED")


class TestAnotherUser:
    def test_only_users_that_are_there_are_offered(self, liberal: Machine) -> None:
        told = offers(liberal)

        assert (told["run_as/nobody"], told["run_as/daemon"]) == ("", "")
        assert told["run_as/no-such-user"] == "this machine has no user no-such-user"

    def test_a_process_is_that_user_and_can_tell_rota(self, liberal: Machine) -> None:
        run = liberal.run(
            "id -un; id -G; pwd; echo $HOME $USER; echo '[1]' > $ROTA_OUTPUT; touch made",
            isolation="process",
            run_as="daemon",
        )

        name, groups, folder, home = liberal.printed(run).splitlines()
        assert (name, groups, home) == ("daemon", "1", "/usr/sbin daemon")
        assert folder.startswith(("/run/rota-walls", str(liberal.rota.home)))
        assert (run.state, run.outputs) == ("COMPLETED", [1])

    def test_long_scripts_and_those_of_other_shells_can_be_read(self, liberal: Machine) -> None:
        script = f"my $x = '{'x' * 120_000}'; print length($x), getpwuid($<) . \"\\n\";"

        run = execute(
            liberal.rota.client,
            {"run": script, "interpreter": ["perl"]},
            name="long",
            isolation="process",
            run_as="nobody",
        )

        assert liberal.printed(run) == "120000nobody\n"

    def test_it_has_no_rights_of_the_worker(self, liberal: Machine) -> None:
        run = liberal.run(
            f"cat {liberal.rota.home}/local.token || ls /root || kill -0 1 || exit 0",
            isolation="process",
            run_as="nobody",
        )

        printed = liberal.printed(run)
        assert printed.count("Permission denied") + printed.count("not permitted") == 3, printed

    def test_a_sandbox_can_be_another_user_too(self, liberal: Machine) -> None:
        mark = seconds()
        run = liberal.start_and_wait(f"exec sleep {mark}", f"sleep\0{mark}", run_as="daemon")

        pid = liberal.rota.inside(f"sleep\0{mark}")
        uid = Path(f"/proc/{pid}").stat().st_uid
        liberal.finish(run)

        assert uid == 1

    def test_a_user_that_is_not_on_the_list_is_no_user_of_jobs(self, liberal: Machine) -> None:
        run = liberal.start("true", isolation="process", run_as="root")

        eventually(lambda: liberal.rota.client.get_run(run.id).state == "BLOCKED")
        liberal.rota.client.cancel_run(run.id)

    def test_links_to_other_users_files_are_no_outputs(self, liberal: Machine) -> None:
        """A hard link has no target that could be refused: its owner tells it."""
        secret = liberal.bound / "numbers"
        secret.write_text("[1, 2, 3]")
        secret.chmod(0o644)

        run = liberal.run(
            f"ln {secret} $ROTA_OUTPUT || ln -s {secret} $ROTA_OUTPUT",
            isolation="process",
            run_as="nobody",
        )

        assert run.outputs is None


class TestSteps:
    def test_memory_that_is_booked_is_enforced(self, liberal: Machine) -> None:
        """Where a job gives no limit, it gets what it books."""
        run = liberal.run(
            """perl -e '$x = "x" x 200000000'""",
            isolation="process",
            resources={"memory": "64MiB"},
        )

        assert run.state == "FAILED"
        assert "used more memory than it may" in run.message

    def test_source_path_must_be_shown_by_the_worker(self, liberal: Machine) -> None:
        (liberal.bound / "inner").mkdir()
        (liberal.bound / "inner").chmod(0o777)

        shown = liberal.run("pwd; touch made", source={"path": str(liberal.bound / "inner")})
        hidden = liberal.run("pwd", source={"path": "/srv"})

        assert liberal.printed(shown).split() == [str(liberal.bound / "inner")]
        assert (liberal.bound / "inner/made").exists()
        assert hidden.state == "FAILED"
        assert "does not show /srv" in hidden.message
        assert "sandbox_binds" in hidden.message

    def test_a_program_that_is_not_there_is_told_as_by_plain_processes(
        self, liberal: Machine
    ) -> None:
        apply(
            liberal.rota.client,
            job("none", {"run": ["no-such-program"]}, isolation="sandbox", network="none"),
        )
        run = settle(liberal.rota.client, liberal.rota.client.trigger("none"))

        assert run.state == "FAILED"
        assert "cannot execute no-such-program: No such file or directory" in run.message

    def test_variables_of_a_job_do_not_reach_what_builds_its_wall(self, liberal: Machine) -> None:
        """A library that bubblewrap loads would be executed before the wall stands."""
        mark = seconds()
        run = liberal.start_and_wait(
            f"exec sleep {mark}", f"sleep\0{mark}", env={"LD_PRELOAD": "/no/evil-library"}
        )
        monitors = [
            pid for pid in processes_of("bwrap") if cmdline(pid).split(b"\0")[0].endswith(b"bwrap")
        ]
        environs = [Path(f"/proc/{pid}/environ").read_bytes() for pid in monitors]
        liberal.finish(run)

        assert len(monitors) >= 2
        assert not any(b"evil-library" in environ for environ in environs)


class TestFolders:
    def test_folders_that_are_shown_read_only_are_not_written(self, build: Build) -> None:
        folder = Path(f"/var/tmp/rota-shown-{os.getpid()}")
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        try:
            machine = build(0, sandbox_binds=str(folder))
            run = machine.run("touch made", source={"path": str(folder)})
        finally:
            folder.rmdir()

        assert run.state == "FAILED"
        assert "Read-only file system" in run.message


@pytest.mark.parametrize("user", [0, SOMEBODY], ids=["root", "somebody"])
class TestSuddenEnds:
    def test_after_kill_9_of_everything_the_next_start_finds_nothing_left(
        self, build: Build, user: int
    ) -> None:
        machine = build(user, lease="3s")
        rota = machine.rota
        mark = seconds()
        script = f"touch kept; (setsid sleep {mark} &); exec sleep {mark}"
        run = machine.start_and_wait(script, f"sleep\0{mark}", network="outbound")
        assert machine.rooms()
        for pid in processes_of(rota.home):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        rota.wait()
        eventually(lambda: processes_of(f"sleep\0{mark}") == [])

        rota.start()

        eventually(lambda: rota.client.get_run(run.id).attempt >= 1)
        rota.client.cancel_run(run.id)
        assert settle(rota.client, run).is_settled
        machine.assert_nothing_is_left(f"sleep\0{mark}")


def test_a_worker_with_too_little_disk_takes_nothing_and_says_so(build: Build) -> None:
    machine = build(0, disk_floor="1000TiB", lease="3s")

    def says_so() -> bool:
        [worker] = machine.rota.client.list_workers().items
        assert "takes nothing new" in worker.trouble
        assert "disk_floor" in worker.trouble
        return True

    eventually(says_so)
    run = machine.start("true", isolation="process")
    assert machine.rota.client.get_run(run.id).state in ("QUEUED", "BLOCKED")
    machine.rota.client.cancel_run(run.id)

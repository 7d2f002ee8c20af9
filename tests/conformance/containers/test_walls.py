from __future__ import annotations

import errno
import platform
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import Mount, RunLimits, Step
from rota.walls.container import MountRoot
from testkit.servers.engines import Engine
from tests.conformance.containers.bench import Bench, job

pytestmark = pytest.mark.anyio
MIB = 1 << 20


class TestWalls:
    async def test_image_cannot_be_written_to(self, bench: Bench) -> None:
        outcome, _ = await bench.run(job("touch /bin/mine"))

        assert outcome.message.endswith("/bin/mine: Read-only file system")

    async def test_folders_for_files_can_be_written_to(self, bench: Bench) -> None:
        script = "touch /tmp/a /var/tmp/a $HOME/a /job/a && df -m /tmp | tail -1"

        outcome, sink = await bench.run(job(script, limits=RunLimits(disk=20 * MIB)))

        assert outcome.result == AttemptResult.COMPLETED, outcome.message
        assert sink.text().split()[1] == "20"

    async def test_user_is_nobody_without_any_rights(self, bench: Bench) -> None:
        script = "id -u; id -g; grep -E 'Cap|NoNewPrivs' /proc/self/status"

        _, sink = await bench.run(job(script))

        lines = sink.text().split("\n")
        assert lines[:2] == ["65534", "65534"]
        rights = dict(line.split(":\t") for line in lines[2:-1])
        assert rights.pop("NoNewPrivs") == "1"
        assert set(rights.values()) == {"0" * 16}

    async def test_user_of_the_job_has_no_rights_either(self, bench: Bench) -> None:
        script = "id -u; id -g; grep CapEff /proc/self/status; chown 1 /tmp"

        outcome, sink = await bench.run(job(script, user="0"))

        assert sink.text(Stream.STDOUT).split("\n")[:3] == ["0", "0", f"CapEff:\t{'0' * 16}"]
        assert "not permitted" in outcome.message

    async def test_user_may_be_named_as_the_image_does(self, bench: Bench) -> None:
        _, sink = await bench.run(job("id -un", user="nobody"))

        assert sink.text() == "nobody\n"

    async def test_job_cannot_end_what_holds_its_container_open(self, bench: Bench) -> None:
        attack = Step("a", "set +e; kill -9 1; kill -9 -1; kill -9 $$", continue_on_error=True)

        outcome, sink = await bench.run(job(attack, "echo next"))

        assert [step.exit_code for step in outcome.steps] == [137, 0]
        assert sink.text(Stream.STDOUT) == "next\n"

    async def test_worker_writes_no_script_where_a_link_of_the_job_leads(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        """As root it could write to any file of the machine."""
        kept = tmp_path / "kept"
        kept.write_text("kept")
        kept.chmod(0o640)
        places = "/run/rota /run/rota-scripts /job"
        link = f"for place in {places}; do ln -s {kept} $place/step1.sh || true; done"
        script = Step("b", "echo written", interpreter=("/bin/sh",))

        outcome, sink = await bench.run(job(link, script))

        assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("kept", 0o640)
        assert outcome.result == AttemptResult.COMPLETED, outcome.message
        assert sink.text(Stream.STDOUT) == "written\n"

    async def test_network_is_only_its_own_loopback(self, bench: Bench) -> None:
        _, sink = await bench.run(job("ls /sys/class/net; cat /proc/net/route | wc -l"))

        assert sink.text().split() == ["lo", "1"]


_SYSTEM = ("/usr", "/lib", "/lib64")
# Numbers of calls on x86-64.
_CALLS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    answer = libc.syscall(*map(ctypes.c_long, arguments))
    print(name, 0 if answer >= 0 else ctypes.get_errno())
for family in (1, 2, 10, 16, 40, 17, 38, 3, 9, 11, 15, 44):
    call(f"socket-{family}", 41, family, 1 if family < 3 or family == 10 else 3, 0)
call("unshare", 272, 0x10000000)
call("keyctl", 250, 0, -3, 0)
call("ptrace", 101, 0, 0, 0, 0)
call("io_uring", 425, 8, 0)
call("clone3", 435, 0, 0)
call("personality", 135, 0x0040000)
call("tiocsti", 16, 0, 0x5412, 0)
call("tiocsti-high", 16, 0, 0x100005412, 0)
call("clone-user", 56, 0x10000000 | 17, 0, 0, 0, 0)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls have other numbers there")
class TestCalls:
    """The image has the machine's Python: by mounts, as no base image has one."""

    @pytest.fixture
    async def bench(self, engine: Engine, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = Bench(engine, tmp_path, roots=[MountRoot(Path(path)) for path in _SYSTEM])
        yield bench
        await bench.close()

    async def test_filter_of_sandboxes_is_there(self, bench: Bench) -> None:
        mounts = tuple(Mount(path, path) for path in _SYSTEM)
        step = Step("a", ("/usr/bin/python3", "-c", _CALLS))

        outcome, sink = await bench.run(job(step, mounts=mounts))

        assert outcome.result == AttemptResult.COMPLETED, sink.text()
        answers = dict(line.split() for line in sink.text(Stream.STDOUT).splitlines())
        families = {name for name, answer in answers.items() if answer == str(errno.EAFNOSUPPORT)}
        assert families == {f"socket-{each}" for each in (40, 17, 38, 3, 9, 11, 15, 44)}
        assert {answers[f"socket-{each}"] for each in (1, 2, 10, 16)} == {"0"}
        refused = {name for name, answer in answers.items() if answer == str(errno.EPERM)}
        assert refused >= {
            *("unshare", "keyctl", "ptrace", "personality", "tiocsti", "tiocsti-high"),
            "clone-user",
        }
        assert answers["io_uring"] == answers["clone3"] == str(errno.ENOSYS)


class TestLimits:
    async def test_memory_is_limited_and_told_as_the_cause(self, bench: Bench) -> None:
        spec = job("head -c 200m /dev/zero | tail -c 150m", limits=RunLimits(memory=64 * MIB))
        spec_main = job("exec tail -c 150m /dev/zero", limits=RunLimits(memory=64 * MIB))

        piped, _ = await bench.run(spec)
        outcome, _ = await bench.run(spec_main)

        assert piped.result == outcome.result == AttemptResult.FAILED
        assert (outcome.exit_code, outcome.cause) == (137, "oom")
        assert (piped.cause, outcome.steps[0].cause) == ("oom", "oom")

    async def test_memory_that_is_enough_is_no_cause(self, bench: Bench) -> None:
        outcome, _ = await bench.run(job("exit 137", limits=RunLimits(memory=64 * MIB)))

        assert (outcome.exit_code, outcome.cause) == (137, "")

    async def test_processes_are_limited(self, bench: Bench) -> None:
        script = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done"

        outcome, _ = await bench.run(job(script, limits=RunLimits(processes=20)))
        within, _ = await bench.run(job(script, limits=RunLimits(processes=80)))

        assert "fork" in outcome.message
        assert within.result == AttemptResult.COMPLETED, within.message

    async def test_next_step_finds_a_container_full_of_processes_empty(self, bench: Bench) -> None:
        bomb = Step("bomb", "b() { b | b & }; b; sleep 1; exit 1", continue_on_error=True)

        outcome, sink = await bench.run(job(bomb, "echo next", limits=RunLimits(processes=20)))

        if outcome.result == AttemptResult.COMPLETED:
            assert "next\n" in sink.text(Stream.STDOUT)
        else:  # not even the engine could bring a process in
            assert outcome.message.startswith("step 2: ")

    async def test_folder_that_is_too_large_ends_its_run(self, bench: Bench) -> None:
        script = "head -c 30m /dev/zero > a; sleep 100"

        outcome, _ = await bench.run(job(script, limits=RunLimits(disk=20 * MIB)))

        assert (outcome.result, outcome.cause) == (AttemptResult.FAILED, "disk")

    @pytest.mark.parametrize("place", ["/run/rota", "/run/rota/inner"])
    async def test_so_does_any_other_that_is_not_in_memory(self, bench: Bench, place: str) -> None:
        script = f"mkdir -p {place}; head -c 30m /dev/zero > {place}/a; sleep 100"

        outcome, _ = await bench.run(job(script, limits=RunLimits(disk=20 * MIB)))

        assert (outcome.result, outcome.cause) == (AttemptResult.FAILED, "disk")

    async def test_open_files_are_limited(self, bench: Bench) -> None:
        _, sink = await bench.run(job("ulimit -n; ulimit -c", limits=RunLimits(open_files=77)))

        assert sink.text() == "77\n0\n"

    async def test_processor_and_memory_that_were_used_are_told(self, bench: Bench) -> None:
        burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
        eat = "x=$(head -c 30m /dev/zero | tr '\\0' x); echo ${#x}"

        outcome, _ = await bench.run(job(burn, eat))

        assert 0.05 < outcome.steps[0].cpu_seconds < 30
        assert outcome.steps[1].max_memory_bytes > 25 * MIB
        assert outcome.cpu_seconds > outcome.steps[0].cpu_seconds


class TestMounts:
    @pytest.fixture
    def shared(self, tmp_path: Path) -> Path:
        folder = tmp_path / "shared"
        for name in ("read", "write/inner"):
            (folder / name).mkdir(parents=True)
        (folder / "write").chmod(0o777)
        (folder / "read" / "a").write_text("a\n")
        (folder / "out").symlink_to("/etc")
        return folder

    @pytest.fixture
    async def bench(self, engine: Engine, tmp_path: Path, shared: Path) -> AsyncIterator[Bench]:
        roots = MountRoot(shared), MountRoot(shared / "write", writable=True)
        folder = tmp_path / "own"
        folder.mkdir()
        bench = Bench(engine, folder, roots=roots)
        yield bench
        await bench.close()
        assert engine.names(**bench.labels) == []

    async def test_folder_on_the_list_is_read_only(self, bench: Bench, shared: Path) -> None:
        spec = job("cat /data/a; touch /data/b", mounts=(Mount(f"{shared}/read", "/data"),))

        outcome, sink = await bench.run(spec)

        assert sink.text(Stream.STDOUT) == "a\n"
        assert "Read-only file system" in outcome.message

    async def test_folder_may_be_written_where_the_worker_lets_it(
        self, bench: Bench, shared: Path
    ) -> None:
        mounts = (Mount(f"{shared}/write", "/data", writable=True),)

        outcome, _ = await bench.run(job("echo b > /data/b", mounts=mounts))

        assert outcome.result == AttemptResult.COMPLETED, outcome.message
        assert (shared / "write" / "b").read_text() == "b\n"

    @pytest.mark.parametrize(
        ("source", "writable", "reason"),
        [
            ("/etc", False, "/etc is not below any of the worker's container_mounts"),
            ("{shared}/out", False, "{shared}/out is /etc, which is not below any"),
            ("{shared}/out/ssl", False, "which is not below any"),
            ("{shared}/read", True, "{shared}/read may only be read"),
            (
                "{shared}/write/inner",
                False,
                "jobs may write to {shared}/write: it is mounted whole",
            ),
            ("{shared}/missing", False, "cannot be mounted: No such file or directory"),
        ],
    )
    async def test_what_is_not_on_the_list_is_refused(
        self, bench: Bench, shared: Path, source: str, writable: bool, reason: str
    ) -> None:
        mount = Mount(source.format(shared=shared), "/data", writable)

        outcome, _ = await bench.run(job("ls /data", mounts=(mount,)))

        assert outcome.result == AttemptResult.FAILED
        assert reason.format(shared=shared) in outcome.message
        assert [step.result for step in outcome.steps] == ["skipped"]

    async def test_nothing_is_mounted_over_what_is_rotas(self, bench: Bench, shared: Path) -> None:
        mount = Mount(f"{shared}/read", "/run/rota")

        outcome, _ = await bench.run(job("true", mounts=(mount,)))

        assert outcome.message == "/run/rota would hide /run/rota, which every container has"

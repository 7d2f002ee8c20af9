"""Jobs that attack what is around their sandbox; what they got is judged from outside.

Each attack is also made by a plain process, where that can be: so that it is known to work.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from testkit.processes import processes_of
from testkit.waiting import eventually
from testkit.walled import GROUPS, INTERNET, METADATA, OWN, OWN_PUBLIC, PRIVATE
from tests.system.jobs import execute, settle
from tests.system.walls.conftest import Machine, seconds

pytestmark = pytest.mark.timeout(120)


def token() -> str:
    return f"canary{secrets.token_hex(8)}"


def pattern(text: str) -> str:
    """A pattern that finds a text, but not itself."""
    return f"[{text[0]}]{text[1:]}"


class TestFiles:
    """X1: what is not the job's own is not there to be read or written."""

    def look(self, found: str, places: str = "/etc /home /job /run /srv /var/tmp") -> str:
        return f"""
            grep -rsaoh --devices=skip -e '{pattern(found)}' \
              {places} \
              /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/cwd/own | sort -u
            cat /etc/shadow /proc/1/root/etc/shadow /proc/[0-9]*/root/etc/shadow; exit 0
        """

    @pytest.fixture
    def canary(self, machine: Machine) -> Iterator[str]:
        """A text in all places that a job must not see, of another run for example."""
        text = token()
        secret = machine.bound / "secret"
        secret.write_text(text)
        secret.chmod(0o600)
        kept = machine.rota.home / "kept"
        kept.write_text(text)
        kept.chmod(0o600)
        os.chown(kept, machine.user, machine.user)
        mark = seconds()
        own = f"echo {text} | tee own $HOME/own $TMPDIR/own /run/rota/own; exec sleep {mark}"
        other = machine.start_and_wait(own, f"sleep\0{mark}", env={"MY": text})
        yield text
        machine.finish(other)
        secret.unlink()
        kept.unlink()

    def test_secrets_of_the_machine_and_of_others_are_not_found(
        self, machine: Machine, canary: str
    ) -> None:
        run = machine.run(self.look(canary))

        printed = machine.printed(run)
        assert canary not in printed
        assert "root:" not in printed.replace("root:x:0:0", "")
        assert "worker's-own" not in printed

    def test_the_attack_finds_them_without_a_sandbox(self, machine: Machine, canary: str) -> None:
        script = self.look(canary, str(machine.rota.home))
        run = machine.run(script, isolation="process")

        assert canary in machine.printed(run)

    def test_a_bound_folder_shows_what_is_for_all_and_no_secret(self, machine: Machine) -> None:
        (machine.bound / "open").write_text("for-all")
        (machine.bound / "closed").write_text("for-root")
        (machine.bound / "closed").chmod(0o600)

        run = machine.run(f"cat {machine.bound}/open; cat {machine.bound}/closed; exit 0")

        assert "for-all" in machine.printed(run)
        assert "for-root" not in machine.printed(run)

    def test_nothing_can_be_written_but_its_own_folders(self, machine: Machine) -> None:
        name = token()
        places = "/ /bin /dev /dev/pts /etc /etc/ssl /home /opt /proc /proc/sys /run /sys /usr"
        places += " /usr/bin /usr/local/bin /var /var/tmp"

        run = machine.run(f"""
            for place in {places} /job /tmp /home/job /dev/shm /run/rota {machine.bound}; do
              (: > $place/{name}) 2>/dev/null && echo $place
            done; exit 0
        """)

        assert set(machine.printed(run).split()) == {
            "/job",
            "/tmp",
            "/home/job",
            "/dev/shm",
            "/run/rota",
            str(machine.bound),
        }
        shared = (*places.split(), "/tmp", "/dev/shm", "/root", "/var/lib", str(machine.rota.home))
        assert [each for each in shared if Path(each, name).exists()] == []
        assert (machine.bound / name).exists()  # where it may

    def test_outputs_that_are_links_lead_nowhere(self, machine: Machine) -> None:
        """The worker reads them: as root, it could read anything."""
        (machine.bound / "numbers").write_text("[1, 2, 3]")
        (machine.bound / "numbers").chmod(0o600)
        link = f"ln -s {machine.bound}/numbers $ROTA_OUTPUT"
        hard = f"ln {machine.bound}/numbers $ROTA_OUTPUT"
        kept = f"mkfifo $ROTA_PROGRESS; {link} || {hard}; exit 0"

        run = machine.run(kept)

        assert run.outputs is None
        assert "could not be read" in machine.printed(run)

    def test_results_and_progress_come_out(self, machine: Machine) -> None:
        run = machine.run(
            """echo '{"answer": 42}' > $ROTA_OUTPUT; echo 1/2 half > $ROTA_PROGRESS"""
        )

        assert run.state == "COMPLETED"
        assert run.outputs == {"answer": 42}

    def test_folders_of_steps_do_not_lead_out(self, machine: Machine) -> None:
        run = execute(
            machine.rota.client,
            "mkdir -p a/b; ln -s a/b in; ln -s /tmp out; ln -s ../../.. up",
            {"run": "pwd", "folder": "in"},
            {"run": "pwd", "folder": "out", "if": "always"},
            {"run": "pwd", "folder": "up", "if": "always"},
            isolation="sandbox",
            network="none",
        )

        assert machine.printed(run).splitlines() == [
            "/job/a/b",
            "the step could not be started: the folder out leads out of its work folder",
            "the step could not be started: the folder up leads out of its work folder",
        ]

    def test_steps_of_an_attempt_share_their_folders(self, machine: Machine) -> None:
        run = execute(
            machine.rota.client,
            "echo one > kept; echo two > $HOME/kept; echo three > /tmp/kept",
            "cat kept $HOME/kept /tmp/kept",
            isolation="sandbox",
            network="none",
        )

        assert machine.printed(run).split() == ["one", "two", "three"]


class TestProcesses:
    """X2: others are neither seen nor signalled, and nothing survives."""

    def test_all_signals_reach_only_its_own(self, machine: Machine) -> None:
        with resting(machine) as neighbour:
            run = machine.run("""
                for pid in $(seq 1 300); do [ $pid = $$ ] || kill -9 $pid 2>/dev/null || true; done
                ls /proc | grep -c '^[0-9]'
                kill -TERM -1; kill -9 -1
            """)

            assert int(machine.printed(run).split()[0]) <= 6  # itself, and bubblewrap
            assert is_alive(neighbour)

    @pytest.mark.parametrize("end", ["its own", "cancel", "timeout"])
    def test_nothing_survives_the_end_of_its_run(self, machine: Machine, end: str) -> None:
        mark = seconds()
        daemons = f"""
            for i in 1 2 3; do
              (setsid sh -c 'trap "" TERM HUP INT; (setsid sleep {mark} &) ; sleep {mark}' &)
            done
            until [ $(ps ax | grep -c '[s]leep {mark}') -ge 6 ]; do sleep 0.05; done
        """
        last = "" if end == "its own" else f"trap '' TERM; sleep {mark}; sleep {mark}"
        fields = {"timeout": "2s"} if end == "timeout" else {}
        run = machine.start(daemons + last, grace="200ms", **fields)
        if end == "cancel":
            machine.rota.inside(f"sleep\0{mark}")
            machine.rota.client.cancel_run(run.id)

        ended = settle(machine.rota.client, run)

        expected = {"its own": "COMPLETED", "cancel": "CANCELLED", "timeout": "TIMED_OUT"}[end]
        assert ended.state in (expected, "FAILED")
        assert processes_of(mark) == []
        machine.assert_nothing_is_left(mark)

    def test_a_job_that_is_cancelled_has_its_grace(self, machine: Machine) -> None:
        mark = f"sleep\0{seconds()}"
        run = machine.start_and_wait(
            f"trap 'sleep 0.3; echo tidied; exit 0' TERM; {mark.replace(chr(0), ' ')} & wait", mark
        )

        ended = machine.finish(run)

        assert ended.state == "CANCELLED"
        assert "tidied" in machine.printed(run)
        machine.assert_nothing_is_left(mark)


@contextmanager
def resting(machine: Machine, **fields: object) -> Iterator[int]:
    """The pid, as the outside sees it, of a job that sleeps."""
    mark = seconds()
    run = machine.start_and_wait(f"exec sleep {mark}", f"sleep\0{mark}", **fields)
    try:
        yield machine.rota.inside(f"sleep\0{mark}")
    finally:
        machine.finish(run)


def is_alive(pid: int) -> bool:
    return "Z" not in status_of(pid)["State"]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


# Calls by number, for perl, which every Debian has: (number, arguments…) → the error's name.
SYSCALLS = """
use Errno; my %names = map { Errno->can($_)->() => $_ } grep { /^E/ } keys %Errno::EXPORT_TAGS ?
  @{$Errno::EXPORT_TAGS{POSIX}} : (); $names{97} = 'EAFNOSUPPORT'; $names{38} = 'ENOSYS';
$names{1} = 'EPERM';
for (@ARGV) { my ($name, @words) = split /,/; my @numbers = map { $_ + 0 } @words; $! = 0;
  my $done = syscall(shift @numbers, @numbers);
  print "$name ", ($done >= 0 ? 'done' : $names{$! + 0} // $! + 0), "\\n"; }
"""
X86_CALLS = {
    "vsock": (41, 40, 1, 0),
    "packet": (41, 17, 3, 0),
    "alg": (41, 38, 5, 0),
    "unshare_user": (272, 0x10000000),
    "mount": (165, 0, 0, 0, 0, 0),
    "mount_api": (430, 0, 0),
    "keyctl": (250, 0, -3, 0),
    "add_key": (248, 0, 0, 0, 0, -4),
    "bpf": (321, 0, 0, 0),
    "perf": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "ptrace": (101, 0, 0, 0, 0),
    "io_uring": (425, 1, 0),
    "tiocsti": (16, 0, 0x5412, 0),
    "handle": (304, 0, 0, 0),
}
REFUSED = {
    **dict.fromkeys(X86_CALLS, "EPERM"),
    **dict.fromkeys(("vsock", "packet", "alg"), "EAFNOSUPPORT"),
    "io_uring": "ENOSYS",
}


class TestPrivileges:
    """X3: nothing that a job has, is or inherits gives it a right outside."""

    def test_it_is_nobody_outside(self, machine: Machine) -> None:
        with resting(machine) as pid:
            facts = status_of(pid)

            uids = {int(uid) for uid in facts["Uid"].split()}
            if machine.is_root:
                assert uids <= set(range(65_536, 75_536)), uids
                assert facts["Groups"].strip() == ""
            else:
                assert uids == {machine.user}
            assert {facts[name] for name in facts if name.startswith("Cap")} == {"0" * 16}
            assert facts["NoNewPrivs"] == "1"
            assert facts["Seccomp"] == "2"

    def test_two_jobs_are_not_the_same_nobody(self, machine: Machine) -> None:
        if not machine.is_root:
            pytest.skip("a worker that is not root has one user only, as the table says")
        with resting(machine) as one, resting(machine) as other:
            assert owner_of(one) != owner_of(other)

    def test_all_its_namespaces_are_its_own(self, machine: Machine) -> None:
        with resting(machine) as one, resting(machine) as other:
            for name in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"):
                spaces = {link(pid, f"ns/{name}") for pid in (one, other, "self")}
                assert len(spaces) == 3, name

    def test_it_inherits_nothing_but_its_output(self, machine: Machine) -> None:
        with resting(machine, network="outbound") as pid:
            files = {int(path.name): path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir()}

            assert files.keys() == {0, 1, 2}
            assert files[0] == Path("/dev/null")
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"CANARY" not in environ
            assert b"ROTA_GUARD" not in environ

    def test_calls_that_lead_out_are_refused(self, machine: Machine) -> None:
        if os.uname().machine != "x86_64":
            pytest.skip("numbers are those of x86-64")
        told = " ".join(f"{name},{','.join(map(str, call))}" for name, call in X86_CALLS.items())

        run = machine.run(f"cat > /tmp/calls <<'END'\n{SYSCALLS}\nEND\nperl /tmp/calls {told}")

        assert dict(line.split() for line in machine.printed(run).splitlines()) == REFUSED

    def test_devices_and_setuid_programs_are_of_no_use(self, machine: Machine) -> None:
        run = machine.run("""
            (mknod /tmp/disk b 8 0 && echo got-device
            cp /bin/sh /tmp/sh && chmod 4755 /tmp/sh && /tmp/sh -pc '[ $(id -u) = 0 ]' && echo got-0
            su -c 'echo got-root' root </dev/null
            unshare -Ur echo got-namespace
            dd if=/dev/mem of=/dev/null count=1 && echo got-memory) 2>/dev/null || true
            cd /dev; echo *
        """)

        devices = {"full", "null", "random", "tty", "urandom", "zero"}
        links = {"core", "fd", "ptmx", "pts", "shm", "stderr", "stdin", "stdout"}
        assert set(machine.printed(run).split()) == devices | links

    def test_what_it_marks_as_root_s_is_not(self, machine: Machine) -> None:
        """A set-uid file in a folder that it shares with the machine belongs to nobody there."""
        mark = token()
        machine.run(f"cp /bin/true {machine.bound}/{mark}; chmod 6755 {machine.bound}/{mark}")

        made = (machine.bound / mark).stat()

        assert made.st_uid != 0
        assert stat.S_ISREG(made.st_mode)


def link(pid: int | str, name: str) -> str:
    return str(Path(f"/proc/{pid}/{name}").readlink())


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


CONNECT = """
cat > connect <<'END'
use Socket;
for (@ARGV) {
  my $to = /^@(.*)/ ? pack_sockaddr_un("\\0$1") : pack_sockaddr_in(7999, inet_aton($_));
  socket(my $s, /^@/ ? AF_UNIX : AF_INET, SOCK_STREAM, 0) or next;
  local $SIG{ALRM} = sub { die };
  eval { alarm 2; connect($s, $to) and sysread($s, my $word, 100); alarm 0; };
}
END
perl connect 127.0.0.1 @rota-abstract 10.0.2.2 10.0.2.3 """
# Datagrams, in all ways that might go around the routes: by the address of the device
# (IP_MULTICAST_IF), by the device itself (SO_BINDTODEVICE), and SO_DONTROUTE; with SO_BROADCAST
# and a time to live (IP_MULTICAST_TTL) that is not used up on the way.
SEND = """
cat > send <<'END'
use Socket;
for my $way (0 .. 3) {
  for (@ARGV) {
    socket(my $s, AF_INET, SOCK_DGRAM, 0) or die;
    setsockopt($s, 1, 6, pack('i', 1));
    setsockopt($s, 0, 33, pack('i', 32));
    bind($s, pack_sockaddr_in(0, inet_aton('10.0.2.100'))) if $way > 0;
    setsockopt($s, 0, 32, inet_aton('10.0.2.100')) if $way > 0;
    setsockopt($s, 1, 25, "tap0" . chr(0)) if $way == 2;
    setsockopt($s, 1, 5, pack('i', 1)) if $way == 3;
    send($s, $_, 0, pack_sockaddr_in(7999, inet_aton($_)));
  }
}
END
perl send """
ALL = (INTERNET, OWN, OWN_PUBLIC, *PRIVATE)
MACHINES_OWN = {"127.0.0.1", "rota-abstract", OWN, OWN_PUBLIC}


class TestNetwork:
    """X4: whom a job reaches is noted by those who are reached."""

    def connect(self, machine: Machine, **fields: object) -> set[str]:
        machine.network.came.clear()
        run = machine.run(CONNECT + " ".join(ALL), **fields)
        assert run.state == "COMPLETED", machine.printed(run)
        return set(machine.network.came)

    def test_a_plain_process_reaches_everything(self, machine: Machine) -> None:
        assert self.connect(machine, isolation="process") == {*ALL, *MACHINES_OWN}

    def test_without_a_network_nothing_is_reached(self, machine: Machine) -> None:
        assert self.connect(machine, network="none") == set()

    def test_with_one_only_the_internet_is(self, machine: Machine) -> None:
        came = self.connect(machine, network="outbound")

        assert came == {INTERNET}
        assert METADATA not in came

    def test_without_asking_the_routes_nobody_is_reached_either(self, machine: Machine) -> None:
        """Sockets bound to the device, or to its address, send whatever the routes say."""
        everybody = {*ALL, *GROUPS, "127.0.0.1"}
        machine.network.came.clear()
        run = machine.run(SEND + " ".join(sorted(everybody)), isolation="process")
        assert run.state == "COMPLETED", machine.printed(run)
        eventually(lambda: set(machine.network.came) >= {*GROUPS, INTERNET, PRIVATE[0]})
        machine.network.came.clear()

        run = machine.run(SEND + " ".join(sorted(everybody)), network="outbound")

        assert run.state == "COMPLETED", machine.printed(run)
        eventually(lambda: machine.network.came)
        # What was sent last arrives last.
        machine.run(SEND + INTERNET, network="outbound")
        assert set(machine.network.came) == {INTERNET}

    def test_the_network_of_the_machine_must_be_allowed_to_sandboxes(
        self, machine: Machine
    ) -> None:
        run = machine.start("true", network="host")

        eventually(lambda: machine.rota.client.get_run(run.id).state == "BLOCKED")
        why = machine.rota.client.explain(run.id)
        assert "sandbox_network_host" in repr(why)
        machine.rota.client.cancel_run(run.id)

    def test_a_step_whose_network_is_gone_is_ended(self, machine: Machine) -> None:
        mark = seconds()
        run = machine.start_and_wait(f"exec sleep {mark}", f"sleep\0{mark}", network="outbound")
        [helper] = helpers(machine)

        os.kill(helper, 9)

        ended = settle(machine.rota.client, run)
        assert ended.state == "FAILED"
        assert "slirp4netns was killed by signal 9" in ended.message
        machine.assert_nothing_is_left(f"sleep\0{mark}")

    def test_helpers_end_with_their_steps(self, machine: Machine) -> None:
        machine.run("true", network="outbound")

        eventually(lambda: not helpers(machine))

    def test_helper_is_not_root(self, machine: Machine) -> None:
        with resting(machine, network="outbound"):
            [helper] = helpers(machine)

            facts = status_of(helper)

        assert "0" not in facts["Uid"].split()
        assert facts["CapEff"] == "0" * 16


def helpers(machine: Machine) -> list[int]:
    """Processes that keep networks of this machine's steps open."""
    found = []
    for pid in processes_of("slirp4netns"):
        with suppress(OSError):
            is_here = Path(f"/proc/{pid}/ns/net").stat().st_ino == machine.network.inode
            if is_here and link(pid, "exe").endswith("slirp4netns"):
                found.append(pid)
    return found


class TestBombs:
    """X5: what one job takes, its worker and its neighbours keep."""

    def test_memory(self, machine: Machine) -> None:
        self.needs_limits(machine)
        with resting(machine) as neighbour:
            run = machine.run(
                """perl -e '$x .= "x" x 1048576 while 1'""", limits={"memory": "64MiB"}
            )

            assert run.state == "FAILED"
            assert "used more memory than it may" in run.message
            assert [step.cause for step in run.attempts[-1].steps] == ["oom"]
            assert is_alive(neighbour)

    def test_processes(self, machine: Machine) -> None:
        self.needs_limits(machine)
        mark = seconds()
        run = machine.start(
            f"i=0; while [ $i -lt 300 ]; do sleep {mark} & i=$((i+1)); done; wait",
            limits={"processes": 40},
        )

        most = 0
        while machine.rota.client.get_run(run.id).state not in ("FAILED", "COMPLETED"):
            most = max(most, len(processes_of(f"sleep\0{mark}")))
        ended = settle(machine.rota.client, run)

        assert ended.state == "FAILED"
        assert "started more processes than it may" in ended.message
        assert most <= 42
        machine.assert_nothing_is_left(f"sleep\0{mark}")

    def test_disk(self, machine: Machine) -> None:
        run = machine.run(
            "while :; do head -c 1000000 /dev/zero >> $HOME/big; sleep 0.1; done",
            limits={"disk": "5MB"},
        )

        assert run.state == "FAILED"
        assert "filled more disk than it may" in run.message
        assert run.attempts[-1].steps[0].cause == "disk"
        machine.assert_nothing_is_left()

    def test_inodes(self, machine: Machine) -> None:
        run = machine.run(
            "i=0; while :; do : > f$i; i=$((i+1)); [ $((i % 500)) = 0 ] && sleep 0.2; done",
            limits={"disk": "2MiB"},
        )

        assert run.attempts[-1].steps[0].cause == "disk"
        machine.assert_nothing_is_left()

    def test_folders_that_are_too_deep_to_be_measured(self, machine: Machine) -> None:
        run = machine.run(
            "i=0; while [ $i -lt 400 ]; do mkdir d; cd d; i=$((i+1)); done; exec sleep 1014",
            limits={"disk": "1GiB"},
        )

        assert run.attempts[-1].steps[0].cause == "disk"
        machine.assert_nothing_is_left()

    def test_folders_that_are_not_to_be_looked_into(self, machine: Machine) -> None:
        """Their owner is who looks, where the worker is not root."""
        run = machine.run(
            "mkdir h; chmod 300 h; head -c 10000000 /dev/zero > h/big; exec sleep 1015",
            limits={"disk": "5MB"},
        )

        assert run.attempts[-1].steps[0].cause == "disk"
        machine.assert_nothing_is_left()

    def test_files_with_holes_cost_nothing(self, machine: Machine) -> None:
        run = machine.run("truncate -s 1T hole; sleep 2.5", limits={"disk": "5MB"})

        assert run.state == "COMPLETED"

    def test_memory_that_looks_like_a_disk_is_small(self, machine: Machine) -> None:
        run = machine.run(
            "head -c 100000000 /dev/zero 2>/dev/null > /dev/shm/big || stat -c %s /dev/shm/big"
        )

        assert int(machine.printed(run)) <= 64 * 1024 * 1024

    def test_open_files_and_cores(self, machine: Machine) -> None:
        run = machine.run("ulimit -n; ulimit -c", limits={"open_files": 77})

        assert machine.printed(run).split() == ["77", "0"]

    def test_rights_that_a_job_takes_from_itself(self, machine: Machine) -> None:
        """What it leaves is removed nevertheless."""
        machine.run("mkdir -p a/b/c; touch a/b/c/f; chmod 000 a/b a; chmod 000 /job /tmp; true")

        machine.assert_nothing_is_left()

    def needs_limits(self, machine: Machine) -> None:
        if not machine.is_root:
            pytest.skip("this machine delegates no control group to other users")

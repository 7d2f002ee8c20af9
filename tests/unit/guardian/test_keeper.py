from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from rota.guardian import linux
from rota.guardian.containers import Container, Ending, pidfd_of
from rota.guardian.keeper import Memory
from rota.guardian.linux import boottime


class TestMemory:
    def test_it_begins_with_neither_lease_nor_containers(self) -> None:
        memory = Memory()

        assert (memory.deadline, memory.is_over(), memory.containers()) == (0.0, False, {})

    def test_deadline_is_over_when_it_has_passed(self) -> None:
        memory = Memory()
        memory.set_deadline(boottime() + 60)
        assert not memory.is_over()

        memory.set_deadline(boottime())

        assert memory.is_over()

    def test_what_is_written_is_seen_by_others_and_outlives_them(self) -> None:
        memory = Memory()
        containers = [Container("/run/docker.sock", "rota-1", 1.5), Container("/e", "grüße", 2, 7)]
        pid = os.fork()
        if pid == 0:
            memory.set_deadline(77.25)
            memory.set_containers(containers)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)

        assert memory.deadline == 77.25
        assert memory.containers() == {each.name: each for each in containers}

    def test_list_that_is_half_written_does_not_hold(self) -> None:
        memory = Memory()
        first = Container("/e", "first", 1.0)
        memory.set_containers([first])

        torn = b"\x40\0\0\0" + json.dumps([{"engine": "/e"}]).encode()[:9]
        os.pwrite(memory._fd, torn, 4096)  # the first list was written to the second place

        assert memory.containers() == {"first": first}
        memory.set_containers([])
        assert memory.containers() == {}

    def test_list_that_is_too_long_is_refused_and_the_old_one_stays(self) -> None:
        memory = Memory()
        memory.set_containers([Container("/e", "first", 1.0)])

        with pytest.raises(OSError, match="too many"):
            memory.set_containers([Container("/e" * 600_000, "x", 1.0), Container("", "y", 1.0)])

        assert list(memory.containers()) == ["first"]


def test_own_process_is_no_containers_first() -> None:
    assert pidfd_of(Container("/e", "one", 0.0, os.getpid())) is None


def test_engine_that_is_gone_is_not_waited_for_longer_than_wanted(tmp_path: Path) -> None:
    ending = Ending([Container(str(tmp_path / "nothing"), "one", 0.0)], {})
    began = boottime()

    ending.begin()
    ending.wait(began + 0.2)

    assert 0.2 <= boottime() - began < 1


def test_process_is_named_for_people() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        linux.set_name("rota-keeper")
        os.write(write, Path("/proc/self/comm").read_bytes())
        os._exit(0)
    os.waitpid(pid, 0)

    assert os.read(read, 100) == b"rota-keeper\n"
    os.close(read)
    os.close(write)

from __future__ import annotations

import pytest

from rota.guardian import cgroups
from rota.guardian.cgroups import Place, places

HYBRID_MOUNTS = """\
24 1 0:22 / /proc rw,nosuid - proc proc rw
31 24 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw
33 31 0:29 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory
34 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
"""
HYBRID_MEMBERSHIPS = """\
9:name=systemd:/system.slice/rota.service
4:memory:/system.slice/rota.service
2:cpu,cpuacct:/
0::/system.slice/rota.service
"""


def test_hybrid_machine_has_a_group_in_each_hierarchy() -> None:
    found = places(HYBRID_MOUNTS, HYBRID_MEMBERSHIPS)

    cpu = Place("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct")
    assert found["cpu"] == found["cpuacct"] == cpu
    for key, name in (("memory", "memory"), ("", "unified")):
        mount = f"/sys/fs/cgroup/{name}"
        assert found[key] == Place(mount, f"{mount}/system.slice/rota.service")
    assert "pids" not in found


def test_machine_of_version_2_has_one() -> None:
    mounts = "29 24 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"

    found = places(mounts, "0::/user.slice/user-1000.slice/run-1.scope")

    own = "/sys/fs/cgroup/user.slice/user-1000.slice/run-1.scope"
    assert found == {"": Place("/sys/fs/cgroup", own)}


def test_container_sees_its_own_group_as_the_mount() -> None:
    mounts = "40 31 0:29 /docker/4e6f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"

    found = places(mounts, "4:memory:/docker/4e6f\n0::/\n")

    assert found == {"memory": Place("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory")}


def test_group_outside_of_what_is_mounted_is_none() -> None:
    mounts = "40 31 0:29 /docker/4e6f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"

    assert places(mounts, "4:memory:/docker/other") == {}


def test_places_with_spaces_are_read() -> None:
    mounts = r"29 24 0:25 / /mnt/my\040groups rw - cgroup2 cgroup2 rw"

    assert places(mounts, "0::/a b") == {"": Place("/mnt/my groups", "/mnt/my groups/a b")}


@pytest.mark.parametrize(
    ("thousandths", "share"), [(1_500, "150000 100000"), (10, "1000 100000"), (1, "1000 1000000")]
)
def test_quota_is_never_below_what_the_kernel_takes(thousandths: int, share: str) -> None:
    [(name, text)] = cgroups._settings("cpu", thousandths, is_version_2=True)

    assert (name, text) == ("cpu.max", share)
    period, quota = cgroups._settings("cpu", thousandths, is_version_2=False)
    assert f"{quota[1]} {period[1]}" == share


def test_memory_includes_swap() -> None:
    assert cgroups._settings("memory", 5, is_version_2=True) == [
        ("memory.max", "5"),
        ("memory.swap.max", "0"),
    ]
    assert cgroups._settings("memory", 5, is_version_2=False) == [
        ("memory.limit_in_bytes", "5"),
        ("memory.memsw.limit_in_bytes", "5"),
    ]


def test_names_of_groups_can_be_no_paths_and_no_prefixes_of_others() -> None:
    assert cgroups.cleaned("../w 1.é") == "___w_1__"
    assert len(cgroups.cleaned("x" * 300)) == 100
    assert not cgroups._prefix("w.1").startswith(cgroups._prefix("w"))

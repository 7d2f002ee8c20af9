from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.ports.work import Offer
from rota.runtime.worker_process import offered, offers

MEBIBYTE = 1024 * 1024


def machine(root: Path, membership: str, **files: str) -> Path:
    """One whose control groups say this; in names of files, `__` stands for a folder."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_max", ".max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_worker_offers_all_that_it_may_use_of_the_machine(tmp_path: Path) -> None:
    offer = offered({}, tmp_path)

    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 1_000
    assert offer["cpu"] == len(os.sched_getaffinity(0)) * 1_000
    assert whole - MEBIBYTE * 1_000 < offer["memory"] <= whole


@pytest.mark.parametrize("group", ["jobs", "jobs__worker"])
def test_limits_of_its_control_group_and_those_above_count(tmp_path: Path, group: str) -> None:
    limits = {f"{group}__cpu_max": "50000 100000\n", f"{group}__memory_max": "10485760\n"}
    root = machine(tmp_path, "0::/jobs/worker\n", **limits)

    assert offered({}, root) == {"cpu": 500, "memory": 10 * MEBIBYTE * 1_000}


def test_limits_of_the_older_control_groups_count(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "5:memory:/jobs\n3:cpu,cpuacct:/\n",
        memory__jobs__memory_limit_in_bytes="",
    )
    (root / "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes").write_text("10485760\n")

    assert offered({}, root)["memory"] == 10 * MEBIBYTE * 1_000


def test_what_was_declared_counts_instead(tmp_path: Path) -> None:
    offer = offered({"cpu": 250, "licence": 2_000}, tmp_path)

    assert (offer["cpu"], offer["licence"], "memory" in offer) == (250, 2_000, True)


def test_a_worker_says_what_it_has_and_why_it_lacks_the_rest() -> None:
    told = {(offer.kind, offer.name): offer.reason for offer in offers(has_app=False)}

    assert told == {
        ("type", "shell"): "",
        ("type", "python"): "started without --app",
        ("capability", "files"): "",
        ("capability", "probes"): "",
    }
    assert Offer("type", "python") in offers(has_app=True)

from __future__ import annotations

from pathlib import Path

from rota.walls.usage import discard_groups, find_group

ID = "0123456789abcdef" * 4


def test_group_of_version_2_is_found_by_the_id_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    folder = tmp_path / "system.slice" / f"docker-{ID}.scope"
    folder.mkdir(parents=True)
    (folder / "memory.peak").write_text("4096\n")
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")

    group = find_group(ID, tmp_path)

    assert group is not None
    assert (group.most_memory(), group.out_of_memory(), group.cpu_seconds()) == (4096, 2, 1.5)


def test_group_of_version_1_is_in_several_trees(tmp_path: Path) -> None:
    memory, cpu = (
        tmp_path / each / "libpod_parent" / f"libpod-{ID}" for each in ("memory", "cpuacct")
    )
    for folder in (memory, cpu):
        folder.mkdir(parents=True)
    (memory / "memory.max_usage_in_bytes").write_text("8192\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (cpu / "cpuacct.usage").write_text("2500000000\n")

    group = find_group(ID, tmp_path)

    assert group is not None
    assert (group.most_memory(), group.out_of_memory(), group.cpu_seconds()) == (8192, 1, 2.5)


def test_group_that_cannot_be_seen_is_none(tmp_path: Path) -> None:
    assert find_group(ID, tmp_path) is None
    assert find_group("short", tmp_path) is None


def test_what_an_engine_left_of_a_groups_trees_is_removed(tmp_path: Path) -> None:
    other = tmp_path / "memory" / "docker" / ("f" * 64)
    for each in (other, tmp_path / "memory" / "docker" / ID, tmp_path / f"docker-{ID}.scope"):
        each.mkdir(parents=True)

    discard_groups(ID, tmp_path)
    discard_groups("", tmp_path)

    assert [path.name for path in tmp_path.rglob("*")] == ["memory", "docker", other.name]

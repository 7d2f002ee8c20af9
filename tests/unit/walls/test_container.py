from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.spec import Container, Mount, Network, RunLimits
from rota.walls.container import (
    ContainerSettings,
    Frame,
    MountRefused,
    MountRoot,
    allowed_source,
    config_of,
    find_socket,
    offers_of,
    parse_roots,
    user_of,
    why_no_socket,
    why_no_target,
)


def frame(**fields: object) -> Frame:
    given: dict[str, object] = {
        "image_id": "sha256:1",
        "volumes": (),
        "user": "65534:65534",
        "labels": {},
        "job_folder": "/w/1",
        "told_folder": "/w/1.told",
        "scripts": "/w/1.scripts",
        "programs": "/w/programs",
    }
    return Frame(**{**given, **fields})  # type: ignore[arg-type]


class TestConfig:
    def test_everything_that_is_not_needed_is_taken_away(self) -> None:
        host = config_of(frame())["HostConfig"]

        assert (host["NetworkMode"], host["ReadonlyRootfs"]) == ("none", True)
        assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
        assert host["LogConfig"]["Type"] == "none"
        assert all(mount["BindOptions"]["NonRecursive"] for mount in host["Mounts"])
        read_only = {mount["Target"]: mount["ReadOnly"] for mount in host["Mounts"]}
        own = {"/run/rota-init": True, "/run/rota-scripts": True}
        assert read_only == {"/job": False, "/run/rota": False, **own}

    def test_limits_are_those_of_the_job(self) -> None:
        limits = RunLimits(cpu=1500, memory=1 << 26, processes=10, open_files=77, disk=1 << 20)

        host = config_of(frame(limits=limits))["HostConfig"]

        assert (host["NanoCpus"], host["PidsLimit"]) == (1_500_000_000, 26)
        assert host["Memory"] == host["MemorySwap"] == 1 << 26
        assert {"Name": "nofile", "Soft": 77, "Hard": 77} in host["Ulimits"]
        assert all(f"size={1 << 20}" in options for options in host["Tmpfs"].values())

    def test_volumes_that_an_image_wants_are_in_memory(self) -> None:
        wanted = ("/var/lib/data", "/var", "/home/", "/run/rota/x", "/job/", "/run/rota", "x")

        host = config_of(frame(volumes=wanted))["HostConfig"]

        assert {"/var/lib/data", "/var", "/home", "/run/rota/x"} <= host["Tmpfs"].keys()
        assert {"/job", "/job/", "/run/rota", "x"}.isdisjoint(host["Tmpfs"])

    def test_scripts_are_where_no_job_can_put_a_link_in_their_place(self) -> None:
        mounts = config_of(frame())["HostConfig"]["Mounts"]

        assert ("/w/1.scripts", True) in [(each["Source"], each["ReadOnly"]) for each in mounts]

    def test_network_of_the_machine_has_its_name_too(self) -> None:
        config = config_of(frame(network=Network.HOST))

        assert config["HostConfig"]["NetworkMode"] == "host"
        assert "Hostname" not in config

    @pytest.mark.parametrize(
        ("user", "inside", "holder"),
        [
            ("", "65534:65534", "65533:65533"),
            ("1000", "1000:1000", "65533:65533"),
            ("1000:20", "1000:20", "65533:65533"),
            ("65533", "65533:65533", "65532:65532"),
            ("www-data", "www-data", "65533:65533"),
        ],
    )
    def test_container_is_held_by_another_than_its_job(
        self, user: str, inside: str, holder: str
    ) -> None:
        found = user_of(Container("app", user=user))

        assert found == inside
        assert config_of(frame(user=found))["User"] == holder


class TestMounts:
    def test_roots_are_read_only_unless_they_say_otherwise(self) -> None:
        assert parse_roots(["/data", "/srv/cache:rw", "/a:ro"]) == (
            MountRoot(Path("/data")),
            MountRoot(Path("/srv/cache"), writable=True),
            MountRoot(Path("/a")),
        )

    @pytest.mark.parametrize("text", ["data", "/", "/a/../b", "", "/:rw"])
    def test_what_is_no_root_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a folder such as"):
            parse_roots([text])

    def test_root_that_may_be_written_holds_no_other(self) -> None:
        with pytest.raises(ValueError, match="a job could put a link in its place"):
            parse_roots(["/srv:rw", "/srv/cache"])

    def test_nearest_root_decides(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        roots = parse_roots([str(tmp_path), f"{tmp_path}/out:rw"])

        assert allowed_source(Mount(f"{tmp_path}/out", "/o", True), roots) == f"{tmp_path}/out"
        with pytest.raises(MountRefused, match="may only be read"):
            allowed_source(Mount(str(tmp_path), "/o", True), roots)

    def test_root_that_is_a_link_is_what_it_leads_to(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")

        source = allowed_source(Mount(f"{tmp_path}/link", "/o"), parse_roots([f"{tmp_path}/link"]))

        assert source == f"{tmp_path}/real"

    @pytest.mark.parametrize(
        ("target", "is_free"),
        [
            ("/data", True),
            ("/job/data", True),
            ("/tmp/data", True),
            ("/etc/app", True),
            ("/", False),
            ("/job", False),
            ("/home", False),
            ("/run", False),
            ("/run/rota/x", False),
            ("/proc/sys", False),
            ("data", False),
            ("/a/../proc", False),
        ],
    )
    def test_nothing_hides_what_every_container_has(self, target: str, is_free: bool) -> None:
        assert (why_no_target(target) == "") is is_free


class TestSockets:
    def test_socket_is_told_with_or_without_its_scheme(self) -> None:
        assert find_socket("unix:///run/docker.sock") == find_socket("/run/docker.sock")

    def test_what_is_no_socket_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()

        assert why_no_socket(f"{tmp_path}/none") == (
            f"there is no socket at {tmp_path}/none: is the engine started?"
        )
        assert why_no_socket(f"{tmp_path}/file") == f"{tmp_path}/file is no socket"


def test_offers_without_an_engine_all_say_why() -> None:
    settings = ContainerSettings(mounts=parse_roots(["/data", "/srv:rw"]))

    reasons = {f"{each.kind}/{each.name}": each.reason for each in offers_of(settings, "no engine")}

    assert set(reasons.values()) == {"no engine"}
    assert {"wall/container", "limit/container/cpu", "mount//data", "mount//srv:rw"} <= set(reasons)


def test_disk_is_not_limited_by_who_cannot_look_at_it() -> None:
    offers = offers_of(ContainerSettings(), "", no_disk="not root")

    reasons = {each.name: each.reason for each in offers if each.kind == "limit"}

    assert reasons.pop("container/disk") == "not root"
    assert set(reasons.values()) == {""}

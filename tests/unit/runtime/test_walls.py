from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from rota.runtime import walls
from rota.walls.enclosing import WallSettings
from rota.walls.sandbox import Bind


class TestBinds:
    def test_they_are_read_only_unless_said_otherwise(self) -> None:
        assert walls.binds(["/data", "/cache:rw", "/models:ro"]) == (
            Bind(Path("/data")),
            Bind(Path("/cache"), writable=True),
            Bind(Path("/models")),
        )

    @pytest.mark.parametrize(
        "text", ["/", "/etc", "/home:rw", "/var", "/root", "/run", "/sys", "/tmp", "/proc/self"]
    )
    def test_what_a_sandbox_hides_is_not_shown_as_a_whole(self, text: str) -> None:
        with pytest.raises(ValueError, match="sandboxes"):
            walls.binds([text])

    @pytest.mark.parametrize("text", ["data", "/data/../etc", "~/data", ""])
    def test_other_paths_than_absolute_ones_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="absolute path"):
            walls.binds([text])

    @pytest.mark.parametrize("text", ["/usr/local/bin", "/job", "/tmp/x", "/dev/kvm"])
    def test_what_a_sandbox_has_already_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="sandboxes have already"):
            walls.binds([text])


@pytest.mark.parametrize("text", ["0-10", "65536", "70000-60000", "1-", "1000-2000000", "a-b"])
def test_ranges_that_are_none_or_hold_people_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range of users"):
        walls.uids(text)


@pytest.mark.parametrize(
    "text", ["10.0.0.0/33", "fc00::/7", "0.0.0.0/0", "127.0.0.0/8", "10.1.2.3/8"]
)
def test_networks_that_would_open_too_much_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"network|IPv6|single networks"):
        walls.networks([text])


def test_settings_come_to_the_worker_as_they_were() -> None:
    settings = WallSettings(
        binds=(Bind(Path("/data"), writable=True),),
        uids=range(70_000, 70_009),
        networks=(IPv4Network("10.1.0.0/16"),),
        network_host=True,
        run_as=("nobody",),
        disk_floor=7,
    )

    assert walls.from_option(walls.as_option(settings)) == settings
    assert walls.from_option(walls.as_option(walls.DEFAULT)) == walls.DEFAULT


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (walls.binds(["/data", "/cache:rw"]), "/data,/cache:rw"),
        (range(70_000, 70_010), "70000-70009"),
        (True, "true"),
        (64 << 20, "64MiB"),
        ((), ""),
    ],
)
def test_settings_are_shown_as_they_are_written(value: object, text: str) -> None:
    assert walls.shown(value) == text


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_switch_is_true_or_false(text: str) -> None:
    with pytest.raises(ValueError, match="neither true nor false"):
        walls.switch(text)

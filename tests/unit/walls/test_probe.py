from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rota.ports.executor import Confinement, Exit
from rota.walls import probe
from rota.walls.enclosing import Walls, WallSettings
from rota.walls.probe import Prober
from rota.walls.rooms import Rooms

pytestmark = pytest.mark.anyio


GOOD = Exit(0, None)


class Process:
    """Implements `rota.ports.executor.Process`."""

    def __init__(self, ending: Exit) -> None:
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.ended.set_result(ending)

    def signal(self, number: int) -> None: ...

    def kill(self) -> None: ...


class Spawner:
    """Implements `rota.ports.executor.Spawner`: bubblewrap complains, what is limited ends."""

    def __init__(self, complaint: str = "", limited: Exit = GOOD) -> None:
        self._complaint = complaint
        self._limited = limited
        self.confined: list[Confinement] = []

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        stderr: int,
        confinement: Confinement | None = None,
    ) -> Process:
        assert confinement is not None
        self.confined.append(confinement)
        is_sandbox = argv[0].endswith("bwrap")
        if is_sandbox and not self._complaint:
            os.write(confinement.descriptors[3], b'{"exit-code": 0}\n')
        if is_sandbox and self._complaint:
            os.write(stderr, f"bwrap: {self._complaint}\n".encode())
        for descriptor in (stdout, stderr, *confinement.descriptors.values()):
            os.close(descriptor)
        ending = Exit(1 if self._complaint else 0, None) if is_sandbox else self._limited
        return Process(ending)


class Scene:
    """A machine of which a test says what is on it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.root = folder / "root"
        monkeypatch.setattr(probe, "_PLACES", str(self.programs))

    def install(self, name: str, told: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\necho '{told}'\n")
        path.chmod(0o755)

    def switch(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    async def probe(self, spawner: Spawner, **settings: object) -> dict[str, str]:
        rooms = Rooms(self._folder / "rooms", range(70_000, 70_010), may_mount=False)
        rooms.trouble = ""
        told = WallSettings(**settings)  # type: ignore[arg-type]
        offers = await Prober(Walls(told, spawner, rooms), spawner, self.root).probe()
        return {f"{each.kind}/{each.name}": each.reason for each in offers}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


async def test_without_bubblewrap_there_is_no_sandbox_but_a_way_to_get_one(scene: Scene) -> None:
    told = await scene.probe(Spawner())

    assert told["wall/sandbox"] == "bubblewrap is not installed: apt-get install bubblewrap"
    assert told["network/sandbox/outbound"] == told["wall/sandbox"]
    assert told["wall/process"] == ""


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("git version 2.34.1", "git 2.34.1 is too old: 2.37 or newer is needed"),
        ("something", "git of an unknown version is too old: 2.37 or newer is needed"),
        ("git version 2.37.0.windows.1", ""),
    ],
)
async def test_an_old_git_fetches_nothing(scene: Scene, version: str, told: str) -> None:
    """It would look names up again, instead of going to the addresses that were checked."""
    scene.install("git", version)

    found = await scene.probe(Spawner())

    assert found["capability/git"] == told


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("bubblewrap 0.4.1", "bubblewrap 0.4.1 is too old: 0.8.0 or newer is needed"),
        ("something", "bubblewrap of an unknown version is too old: 0.8.0 or newer is needed"),
    ],
)
async def test_an_old_bubblewrap_is_not_used(scene: Scene, version: str, told: str) -> None:
    scene.install("bwrap", version)
    spawner = Spawner()

    assert (await scene.probe(spawner))["wall/sandbox"] == told
    assert not any(each.descriptors for each in spawner.confined)


async def test_what_worked_is_offered(scene: Scene) -> None:
    scene.install("bwrap", "bubblewrap 0.8.0")

    told = await scene.probe(Spawner())

    assert (told["wall/sandbox"], told["network/sandbox/none"]) == ("", "")
    assert told["network/sandbox/outbound"].endswith("apt-get install slirp4netns")
    assert "sandbox_network_host" in told["network/sandbox/host"]


async def test_host_network_is_offered_where_it_is_allowed(scene: Scene) -> None:
    scene.install("bwrap", "bubblewrap 0.8.0")

    assert (await scene.probe(Spawner(), network_host=True))["network/sandbox/host"] == ""


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("slirp4netns version 0.4.3 libslirp: 4.7.0", "slirp4netns 0.4.3 is too old"),
        ("slirp4netns version 1.2.0 libslirp: 4.4.0", "libslirp 4.4.0 is too old"),
        ("slirp4netns version 1.2.0 libslirp: 4.7.0", "there is no /dev/net/tun"),
    ],
)
async def test_helpers_with_known_holes_are_not_used(scene: Scene, told: str, reason: str) -> None:
    scene.install("bwrap", "bubblewrap 0.11.0")
    scene.install("slirp4netns", told)

    assert reason in (await scene.probe(Spawner()))["network/sandbox/outbound"]


FORBIDDEN = "No permissions to create new namespace, likely because the kernel does not allow it"


@pytest.mark.parametrize(
    ("path", "text", "remedy"),
    [
        ("proc/sys/user/max_user_namespaces", "0\n", "sysctl user.max_user_namespaces=10000"),
        (
            "proc/sys/kernel/unprivileged_userns_clone",
            "0\n",
            "sysctl kernel.unprivileged_userns_clone=1",
        ),
        (
            "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1\n",
            "AppArmor profile for bwrap",
        ),
    ],
)
async def test_a_machine_that_forbids_namespaces_tells_which_switch_does(
    scene: Scene, path: str, text: str, remedy: str
) -> None:
    scene.install("bwrap", "bubblewrap 0.8.0")
    scene.switch(path, text)

    reason = (await scene.probe(Spawner(FORBIDDEN)))["wall/sandbox"]

    assert reason.startswith("user namespaces are forbidden on this machine")
    assert remedy in reason


@pytest.mark.parametrize(
    "complaint", [FORBIDDEN, "Can't mount proc on /newroot/proc: Operation not permitted"]
)
async def test_in_a_container_it_tells_how_that_must_be_run(scene: Scene, complaint: str) -> None:
    scene.install("bwrap", "bubblewrap 0.8.0")

    reason = (await scene.probe(Spawner(complaint)))["wall/sandbox"]

    assert "systempaths=unconfined" in reason
    assert complaint in reason


async def test_any_other_complaint_is_told_as_it_is(scene: Scene) -> None:
    scene.install("bwrap", "bubblewrap 0.8.0")

    told = await scene.probe(Spawner("the moon is full"))

    assert told["wall/sandbox"] == "the moon is full"


async def test_limits_that_the_guardian_refuses_are_not_offered(scene: Scene) -> None:
    told = await scene.probe(Spawner(limited=Exit(None, None, error="no control groups")))

    assert {name for name, reason in told.items() if reason == "no control groups"} == {
        "limit/cpu",
        "limit/memory",
        "limit/processes",
        "limit/open_files",
    }
    assert told["limit/disk"] == ""


async def test_users_that_are_not_there_are_told(scene: Scene) -> None:
    told = await scene.probe(Spawner(), run_as=("no-such-user",))

    expected = "this machine has no user no-such-user"
    if os.geteuid() != 0:
        expected = "only a worker that is root can become another user"
    assert told["run_as/no-such-user"] == expected

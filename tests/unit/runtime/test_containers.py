from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from rota.clock import SystemClock
from rota.ports.executor import AttemptReports, Keeper, Spawner
from rota.runtime import containers, walls
from rota.runtime.containers import ContainerPlace, Containers, open_containers
from rota.runtime.settings import READERS
from rota.walls import container_probe, leftovers
from rota.walls.container import ContainerSettings, MountRoot


class Unused:
    """Whatever is asked of it was not to be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


class Impatient(SystemClock):
    """Sleeps by moving on; what happens at its third sleep is given."""

    def __init__(self, third: Callable[[], Awaitable[object]] | None = None) -> None:
        self.slept = timedelta(0)
        self._third = third
        self._count = 0

    def monotonic(self) -> float:
        return self.slept.total_seconds()

    async def sleep(self, duration: timedelta) -> None:
        self.slept += duration
        self._count += 1
        if self._third is not None and self._count == 3:
            await self._third()


def opened(
    folder: Path, settings: ContainerSettings, clock: SystemClock | None = None
) -> Containers:
    folder.mkdir(exist_ok=True)
    place = ContainerPlace(
        "w1",
        folder,
        cast(AttemptReports, Unused()),
        cast(Keeper, Unused()),
        clock or SystemClock(),
        lambda: True,
        cast(Spawner, Unused()),
        (),
    )
    return asyncio.run(open_containers(settings, place))


def reason(containers: Containers) -> str:
    [told] = {each.reason for each in containers.offers}
    return told


def test_worker_without_an_engine_says_how_to_get_one(tmp_path: Path) -> None:
    opened_now = opened(tmp_path / "w", ContainerSettings())

    assert opened_now.is_swept
    assert opened_now.executor is None
    assert reason(opened_now) == (
        "no engine is named: set container_engine to its socket, or to auto"
    )


def test_engine_that_is_not_there_is_told(tmp_path: Path) -> None:
    opened_now = opened(tmp_path / "w", ContainerSettings(engine=f"{tmp_path}/none.sock"))

    assert opened_now.is_swept
    assert reason(opened_now).startswith(f"there is no socket at {tmp_path}/none.sock")


def abandoned(path: Path) -> Path:
    """Make a socket as a killed engine leaves it behind."""
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))
    return path


def test_an_engine_that_is_being_started_is_waited_for(tmp_path: Path) -> None:
    path = abandoned(tmp_path / "engine.sock")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        answered.append(clock.slept)
        listening[0].close()

    async def start() -> None:
        path.unlink()
        listening.append(await asyncio.start_unix_server(answer, path))

    clock = Impatient(start)
    listening: list[asyncio.Server] = []
    answered: list[timedelta] = []

    opened(tmp_path / "w", ContainerSettings(engine=str(path)), clock)

    assert answered == [3 * timedelta(seconds=0.5)]


def test_an_engine_that_does_not_come_is_waited_for_half_a_minute(tmp_path: Path) -> None:
    path, clock = abandoned(tmp_path / "engine.sock"), Impatient()

    opened_now = opened(tmp_path / "w", ContainerSettings(engine=str(path)), clock)

    assert f"the container engine cannot be reached at {path}" in reason(opened_now)
    assert timedelta(seconds=30) <= clock.slept <= timedelta(seconds=31)


def test_a_worker_lives_until_its_engine_has_had_all_its_turns() -> None:
    """It is waited for, cleared, tried, tried again if it went away, and once with a network."""
    turns = containers._STARTED_WITHIN + leftovers._SWEEPS_WITHIN
    turns += 3 * container_probe._TRIED_WITHIN

    assert turns < containers.OPENED_WITHIN.total_seconds()


def test_nothing_is_claimed_of_an_earlier_life_while_its_engine_is_away(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "containers.journal").write_text(
        '{"container": "rota-r_1-1-s", "engine": "/no/engine.sock"}\n'
    )

    opened_now = opened(tmp_path / "w", ContainerSettings())

    assert not opened_now.is_swept
    assert not opened(tmp_path / "w", ContainerSettings()).is_swept  # it is remembered


@pytest.mark.parametrize("text", ["docker.sock", "tcp://127.0.0.1:2375", "true"])
def test_engine_is_a_path(text: str) -> None:
    with pytest.raises(ValueError, match="is not the path of a socket"):
        READERS["container_engine"](text)


def test_settings_reach_the_worker_whole(tmp_path: Path) -> None:
    settings = ContainerSettings(
        engine=READERS["container_engine"]("unix:///run/docker.sock"),
        mounts=READERS["container_mounts"]("/data,/srv/cache:rw"),
        registries=tmp_path / "logins.toml",
        network_host=True,
    )

    again = walls.containers_from_option(walls.containers_as_option(settings))

    assert again == settings
    assert settings.engine == "/run/docker.sock"
    assert settings.mounts[1] == MountRoot(Path("/srv/cache"), writable=True)

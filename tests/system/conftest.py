"""A real server, worker and guardian for each test that asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.sdk.client import Client
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.servers.postgres import PostgresServer, server_folder

Up = Callable[..., RotaUp]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "evidence")


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    """Once this file is there, items of carts that are broken no longer fail."""
    return tmp_path / "mended"


@pytest.fixture
def up(home: Path) -> Iterator[Up]:
    """Starts `rota up` with given settings; one at a time on the data folder."""
    started: list[RotaUp] = []

    def start(**settings: Any) -> RotaUp:
        rota = RotaUp(home, **settings)
        started.append(rota)
        return rota.start()

    try:
        yield start
    finally:
        for rota in started:
            rota.close()


@pytest.fixture
def rota(up: Up) -> RotaUp:
    return up()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RotaUp]:
    """One server for tests that change nothing but their own jobs."""
    rota = RotaUp(tmp_path_factory.mktemp("shared") / "home")
    try:
        yield rota.start()
    finally:
        rota.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """With an empty database `rota`."""
    with server_folder() as folder, PostgresServer(folder / "server") as server:
        asyncio.run(server.execute("CREATE DATABASE rota"))
        yield server


@pytest.fixture
def client(shared: RotaUp) -> Client:
    return shared.client

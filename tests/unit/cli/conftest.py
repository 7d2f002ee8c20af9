"""The command line as a person or a script meets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota.domain.access import Role
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server, Web, running_server, running_web


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server, no settings and no terminal of whoever runs the tests."""
    for name in ("ROTA_URL", "ROTA_TOKEN", "ROTA_LISTEN", "ROTA_STORE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROTA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TZ", "UTC")  # times are printed on the reader's clocks
    monkeypatch.delenv("ROTA_TZ", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def rota(capfdbinary: pytest.CaptureFixture[bytes]) -> Console:
    return Console(capfdbinary)


@pytest.fixture(scope="session")
def web() -> Iterator[Web]:
    with running_web() as web:
        yield web


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: Web) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    # Its log is not the command's output.
    with capture_logs(), running_server(folder, web) as server:
        monkeypatch.setenv("ROTA_URL", server.url)
        monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.ADMIN])
        yield server

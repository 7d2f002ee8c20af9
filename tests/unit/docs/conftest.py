from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.console import Console


@pytest.fixture
def rota(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Console:
    """The command line in an empty folder."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Console(capfdbinary)

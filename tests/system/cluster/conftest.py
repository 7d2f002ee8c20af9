"""One cluster for all tests of this folder: it takes longer to start than to test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.testing.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # Not below pytest's folder, which only its own user may enter: PostgreSQL runs as another.
    with tempfile.TemporaryDirectory(prefix="rota-cluster-") as folder:
        Path(folder).chmod(0o755)
        with Cluster(Path(folder)) as running:
            running.wait_until_shared()
            yield running

"""One cluster for all tests of this folder: it takes longer to start than to test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.cluster import Cluster


@pytest.fixture(scope="session")
def one_cluster() -> Iterator[Cluster]:
    # Not below pytest's folder, which only its own user may enter: PostgreSQL runs as another.
    with tempfile.TemporaryDirectory(prefix="rota-cluster-") as folder:
        Path(folder).chmod(0o755)
        with Cluster(Path(folder)) as running:
            yield running


@pytest.fixture
def cluster(one_cluster: Cluster) -> Cluster:
    """At rest: the test before may have stopped servers, and tests run in any order."""
    one_cluster.wait_until_shared()
    return one_cluster

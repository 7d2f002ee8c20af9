"""A thousand items on a cluster: servers and workers die along the way, and nothing comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.cluster import Cluster
from testkit.evidence import Evidence
from testkit.nodes import Node
from tests.system.carts import TWICE, upgrade
from tests.system.jobs import apply
from tests.system.thousand import (
    check_completed,
    go_on_after_breach,
    mend_and_retry,
    submit_thousand,
    wait_for_starts,
)

SLOTS = 16  # of all workers


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_budget_pauses_retry_completes_and_kills_cost_nothing(
    cluster: Cluster, evidence: Evidence, mended: Path
) -> None:
    client, servers, workers = cluster.client(), cluster.servers, cluster.workers
    apply(client, upgrade(evidence, mended, retry=TWICE))
    cart = submit_thousand(client)
    wait_for_starts(evidence, 20)
    replace(servers[2])
    wait_for_starts(evidence, 200)
    replace(workers[0])

    go_on_after_breach(client, cart, SLOTS)
    wait_for_starts(evidence, 600)
    replace(servers[1], workers[1])
    wait_for_starts(evidence, 800)
    replace(servers[0], servers[2])

    mend_and_retry(client, cart, evidence, mended)
    replace(servers[1], workers[2])

    check_completed(client, cart, evidence)


def replace(*nodes: Node) -> None:
    """They die without a warning, all at once, and come back."""
    for node in nodes:
        node.kill()
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_ready()

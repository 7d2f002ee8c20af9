"""Carts on a cluster: a server and a worker die along the way, and nothing comes of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.system.carts import (
    RAMP,
    TWICE,
    chains,
    check_evidence,
    databases,
    settle,
    submit,
    upgrade,
)
from tests.system.jobs import apply

from rota.testing.cluster import Cluster
from rota.testing.evidence import Evidence
from rota.testing.nodes import Node
from rota.testing.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ITEMS = 300
LIMIT = 6  # 2 % of them
SLOTS = 16  # of all workers
QUIET = timedelta(minutes=2)  # a lease of the dead has to pass, on a busy machine


class TestThreeHundred:
    def test_budget_pauses_retry_completes_and_kills_cost_nothing(
        self, cluster: Cluster, evidence: Evidence, mended: Path
    ) -> None:
        client = cluster.client()
        apply(client, upgrade(evidence, mended, retry=TWICE))
        items = databases(ITEMS, broken=12, flaky=7)
        cart = submit(client, items, order="groups", group_size=RAMP, failures={"allow": "2%"})

        kill_after(evidence, 20, cluster.servers[2])
        paused = settle(client, cart, QUIET)
        assert (paused.state, paused.reason, paused.limit) == ("PAUSED", "failures", LIMIT)
        assert LIMIT + 1 <= paused.failed <= LIMIT + SLOTS
        client.resume_cart(cart, allow="20%")
        kill_after(evidence, len(evidence.started()) + 40, cluster.workers[0])
        partial = settle(client, cart, QUIET)
        assert (partial.state, partial.failed) == ("PARTIAL", ITEMS // 12)

        mended.touch()
        assert client.retry_cart(cart, "failed+skipped").affected == ITEMS // 12
        kill_after(evidence, len(evidence.started()) + 5, cluster.servers[1])

        ended = settle(client, cart, QUIET)
        assert (ended.state, ended.completed) == ("COMPLETED", ITEMS)
        check_evidence(client, cart, evidence)
        again = {key for key, own in chains(client, cart).items() if len(own) > 1}
        assert again == {item["key"] for item in items[11::12]}


def kill_after(evidence: Evidence, starts: int, node: Node) -> None:
    """Kill it once so many attempts have begun; it comes back."""
    eventually(lambda: len(evidence.started()) >= starts, QUIET)
    node.kill()
    node.start()

"""Workers lost while they hold resources: never more in use than there is, and all free after.

What was in use is what the jobs themselves wrote, on every worker and in the whole cluster.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from rota.sdk.client import Client
from testkit.checker import check, most_in_use
from testkit.cluster import Cluster, Size
from testkit.evidence import Evidence, Mark
from testkit.nodes import WorkerNode
from testkit.waiting import eventually
from tests.system.jobs import all_completed, apply, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

QUIET = timedelta(minutes=1)
GIB_OF_WORKER, LICENCES = 8, 4
SETTINGS = {"lease": "4s", "resources": f"cpu=64,memory={GIB_OF_WORKER}GiB"}
GIB = {"licensed": 2, "large": GIB_OF_WORKER}
RUNS = {"licensed": 40, "large": 6}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """With a short lease, and workers that have less memory than slots."""
    with tempfile.TemporaryDirectory(prefix="rota-resources-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        size = Size(servers=2, workers=3, slots=8)
        with Cluster(Path(folder), size, SETTINGS) as running:
            running.wait_until_shared()
            yield running


def begin(client: Client, evidence: Evidence) -> None:
    """Much more work than there is room for."""
    client.put_resource("licence", total=LICENCES)
    work = evidence.script(evidence.beats(3))
    licensed = {"memory": f"{GIB['licensed']}GiB", "licence": 1}
    apply(
        client,
        job("licensed", work, resources=licensed),
        job("large", work, resources={"memory": f"{GIB['large']}GiB"}),
    )
    for name, count in RUNS.items():
        client.trigger_many(name, [{}] * count)


def kill_at_work(client: Client, node: WorkerNode) -> None:
    """It dies with what it holds, and comes back."""
    wait_until_at_work(client, node)
    node.kill()
    node.start()


def stall_at_work(client: Client, node: WorkerNode) -> None:
    """It stands still with what it holds; its guardian puts another in its place."""
    wait_until_at_work(client, node)
    os.kill(node.worker_pid, signal.SIGSTOP)


def wait_until_at_work(client: Client, node: WorkerNode) -> None:
    eventually(lambda: memory_in_use(client, node.name) - {"0B"}, QUIET)


def memory_in_use(client: Client, worker: str) -> set[str]:
    return {each.used["memory"] for each in client.list_workers() if each.worker == worker}


def by_worker(client: Client, marks: list[Mark]) -> Mapping[str, list[Mark]]:
    details = map(client.get_run, {mark.run for mark in marks})
    workers = {(run.id, each.number): each.worker for run in details for each in run.attempts}
    found: defaultdict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        found[workers[mark.run, mark.attempt]].append(mark)
    return found


def test_lost_workers_give_back_what_they_held_and_nothing_is_ever_used_twice(
    cluster: Cluster, evidence: Evidence
) -> None:
    client = cluster.client()
    begin(client, evidence)

    stall_at_work(client, cluster.workers[0])
    for node in cluster.workers[1:]:
        kill_at_work(client, node)
    runs = eventually(lambda: all_completed(client, sum(RUNS.values())), QUIET)

    marks = evidence.marks()
    lost = [run.id for run in runs if run.losses]
    assert lost, "the workers had nothing in their hands"
    assert check(marks, [run.id for run in runs], lost=lost) == []
    assert most_in_use(marks, {"licensed": 1}) == LICENCES
    for own in by_worker(client, marks).values():
        assert most_in_use(own, GIB) <= GIB_OF_WORKER
    assert f"0 of {LICENCES}" in cluster.command("resource", "show", "licence").stdout
    assert {worker.used["memory"] for worker in client.list_workers()} == {"0B"}

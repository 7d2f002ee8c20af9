"""`exclusive_by` with real processes: no two runs for the same thing, whatever job they are of."""

from __future__ import annotations

from collections.abc import Mapping

from tests.system.conftest import Up
from tests.system.jobs import Document, apply, job

from rota.sdk import calls
from rota.sdk.answers import Run
from rota.sdk.client import Client
from rota.testing.checker import check, most_at_once
from rota.testing.evidence import Evidence, Mark
from rota.testing.waiting import eventually

HOSTS = ("db-1", "db-2", "db-3")
JOBS = ("patch", "backup")
EACH = 2  # runs of each job for each host, beside the items of the cart
COUNT = len(HOSTS) * (len(JOBS) * EACH + 1)


def work(name: str, evidence: Evidence) -> Document:
    return job(
        name,
        evidence.script(evidence.beats(3)),
        inputs={"host": {"type": "string"}},
        exclusive_by=["host"],
    )


def all_completed(client: Client) -> list[Run]:
    runs = list(client.each(calls.list_runs(limit=1000)))
    assert [run.state for run in runs] == ["COMPLETED"] * COUNT
    return runs


def by_host(marks: list[Mark], hosts: Mapping[str, str]) -> dict[str, list[Mark]]:
    return {host: [mark for mark in marks if hosts[mark.run] == host] for host in HOSTS}


def test_same_value_is_never_worked_on_twice_at_once_across_jobs_and_carts(
    up: Up, evidence: Evidence
) -> None:
    client = up(slots=str(COUNT)).client
    apply(client, *(work(name, evidence) for name in JOBS))

    for name in JOBS:
        client.trigger_many(name, [{"host": host} for host in HOSTS] * EACH)
    items = [{"key": host, "with": {"host": host}} for host in HOSTS]
    client.submit_cart({"name": "rollout", "job": "patch", "order": "parallel"}, items)
    runs = eventually(lambda: all_completed(client))

    marks = evidence.marks()
    assert check(marks, [run.id for run in runs]) == []
    hosts = {run.id: (run.inputs or {})["host"] for run in runs}
    assert {host: most_at_once(own) for host, own in by_host(marks, hosts).items()} == dict.fromkeys(
        HOSTS, 1
    )
    assert most_at_once(marks) > 1

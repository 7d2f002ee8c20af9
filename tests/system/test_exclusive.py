"""`exclusive_by` with real processes: no two runs for the same thing, whatever job they are of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from testkit.checker import check, most_at_once
from testkit.evidence import Evidence, Mark
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import Document, all_completed, apply, job

QUIET = timedelta(seconds=45)  # for a busy machine
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


def marks_of(host: str, marks: list[Mark], hosts: Mapping[str, str]) -> list[Mark]:
    return [mark for mark in marks if hosts[mark.run] == host]


def test_same_value_is_never_worked_on_twice_at_once_across_jobs_and_carts(
    up: Up, evidence: Evidence
) -> None:
    client = up(slots=str(COUNT)).client
    apply(client, *(work(name, evidence) for name in JOBS))

    for name in JOBS:
        client.trigger_many(name, [{"host": host} for host in HOSTS] * EACH)
    items = [{"key": host, "with": {"host": host}} for host in HOSTS]
    client.submit_cart({"name": "rollout", "job": "patch", "order": "parallel"}, items)
    runs = eventually(lambda: all_completed(client, COUNT), QUIET)

    marks = evidence.marks()
    assert check(marks, [run.id for run in runs]) == []
    hosts = {run.id: (run.inputs or {})["host"] for run in runs}
    assert [most_at_once(marks_of(host, marks, hosts)) for host in HOSTS] == [1] * len(HOSTS)
    assert most_at_once(marks) > 1

"""Policy and defaults of a project, in the words of the job file."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.jobfile import read_file
from rota.domain.jobfile.projects import (
    checked_defaults,
    checked_policy,
    problems_of_bounds,
    read_policy,
)
from rota.domain.jobfile.read import with_defaults
from rota.domain.policy import Bounds, Policy
from rota.domain.spec import Isolation, Network, RunLimits


def problems(document: dict[str, Any]) -> list[str]:
    with pytest.raises(Invalid) as refused:
        read_policy(document)
    return [str(problem) for problem in refused.value.problems]


def test_a_policy_is_read_with_its_units() -> None:
    policy = read_policy(
        {
            "pools": ["default", "gpu"],
            "timeout": "1h",
            "attempts": 3,
            "priority": 7,
            "resources": {"cpu": 4, "memory": "8GiB"},
            "log_limit": "10MiB",
            "max_concurrency": 20,
        }
    )

    assert policy == Policy(
        pools=("default", "gpu"),
        timeout=timedelta(hours=1),
        attempts=3,
        priority=7,
        resources={"cpu": 4_000, "memory": 8 * 2**30 * 1_000},
        log_limit=10 * 2**20,
        max_concurrency=20,
    )


def test_a_policy_is_kept_in_one_form() -> None:
    assert checked_policy({"priority": 7, "timeout": "60m", "pools": None}) == {
        "timeout": "1h",
        "priority": 7,
    }


def test_a_policy_tells_which_walls_jobs_may_have() -> None:
    written = {
        "isolation": ["sandbox", "container"],
        "network": [False, "outbound"],
        "run_as": [],
        "limits": {"cpu": 0.5, "memory": "4GiB", "processes": 500},
        "registries": ["registry.example.org:5000"],
        "pinned_images": True,
        "mounts": ["/srv/models", "/srv/out:rw"],
        "executors": ["shell", "container"],
    }

    policy = read_policy(written)

    assert policy.isolation == (Isolation.SANDBOX, Isolation.CONTAINER)
    assert policy.network == (Network.NONE, Network.OUTBOUND)
    assert policy.run_as == ()
    assert policy.limits == RunLimits(cpu=500, memory=4 * 2**30, processes=500)
    assert checked_policy(written) == written | {"network": ["none", "outbound"]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"isolation": ["vm"]}, "isolation[0] must be process, sandbox or container"),
        ({"isolation": "sandbox"}, 'write ["sandbox"]'),
        ({"run_as": ["a b"]}, "run_as[0] must be the name of a user"),
        ({"limits": {"memory": 5}}, "memory must be a size"),
        ({"registries": ["a/b"]}, "registries[0] must be the host of a registry"),
        ({"mounts": ["srv"]}, "mounts[0] must be an absolute path"),
        ({"executors": ["HTTP"]}, "executors[0] must be a name of lower case letters"),
    ],
)
def test_wrong_walls_of_a_policy_are_refused(document: dict[str, Any], message: str) -> None:
    [problem] = problems(document)

    assert message in problem


def test_all_that_is_wrong_with_a_policy_is_told() -> None:
    found = problems({"priority": 12, "tiemout": "1h", "resources": {"cpu": "lots"}})

    assert len(found) == 3
    assert any('did you mean "timeout"?' in problem for problem in found)


def test_defaults_are_fields_of_jobs_that_may_stand_for_many() -> None:
    assert checked_defaults({"retry": 3, "timezone": "Europe/Berlin"}) == {
        "timezone": "Europe/Berlin",
        "retry": {"attempts": 3},
    }
    with pytest.raises(Invalid):
        checked_defaults({"schedule": "@daily"})


FILE = """
defaults: {priority: 6, env: {A: file}}
jobs:
  - name: tidy
    timeout: 5m
    env: {B: job}
    steps: [{run: x}]
  - name: bare
    timeout:
    retry: {delay: 3s}
    steps: [{run: x}]
"""


class TestDefaults:
    def test_a_job_has_its_own_then_its_file_s_then_its_project_s(self) -> None:
        defaults = {
            "priority": 1,
            "timeout": "1h",
            "retry": {"attempts": 3, "delay": "1s"},
            "env": {"A": "project", "B": "project", "C": "project"},
        }

        file = with_defaults(read_file(FILE, name="f"), {"default": defaults})

        tidy, bare = (entry.spec for entry in file.jobs)
        assert (tidy.priority, tidy.timeout) == (6, timedelta(minutes=5))
        assert tidy.env == {"A": "file", "B": "job", "C": "project"}
        assert (tidy.retry.attempts, tidy.retry.delay) == (3, timedelta(seconds=1))
        assert (bare.retry.attempts, bare.retry.delay) == (3, timedelta(seconds=3))

    def test_a_field_that_is_left_empty_takes_no_default(self) -> None:
        file = with_defaults(read_file(FILE, name="f"), {"default": {"timeout": "1h"}})

        assert file.jobs[1].spec.timeout is None

    def test_defaults_of_another_project_are_not_taken(self) -> None:
        file = read_file(FILE, name="f")

        assert with_defaults(file, {"shop": {"priority": 1}, "default": {}}) == file

    def test_what_is_merged_is_what_is_stored(self) -> None:
        text = "jobs: [{name: tidy, steps: [{run: x}]}]"

        file = with_defaults(read_file(text, name="f"), {"default": {"pool": "gpu"}})

        [entry] = file.jobs
        assert entry.document["pool"] == "gpu"
        assert entry.pool is not None
        assert entry.pool.name == "gpu"

    def test_defaults_that_a_job_cannot_have_are_told_at_the_job(self) -> None:
        text = "jobs:\n  - name: tidy\n    steps: [{run: x}]\n"
        with pytest.raises(Invalid) as refused:
            with_defaults(read_file(text, name="f"), {"default": {"late": "drop"}})

        assert refused.value.problems[0].line == 2


class TestPlaces:
    """What a job may not have is told where it is written."""

    TEXT = """
defaults:
  priority: 9
jobs:
  - name: tidy
    pool: gpu
    timeout: 2h
    retry: {attempts: 9}
    resources: {cpu: 8}
    log_limit: 1GiB
    max_concurrency: 50
    steps: [{run: x}]
"""

    def test_by_line_and_column(self) -> None:
        [entry] = read_file(self.TEXT, name="f").jobs
        policy = read_policy(
            {
                "pools": ["default"],
                "timeout": "1h",
                "attempts": 3,
                "priority": 5,
                "resources": {"cpu": 4},
                "log_limit": "1MiB",
                "max_concurrency": 5,
            }
        )

        found = list(problems_of_bounds(entry, Bounds(policy), frozenset()))

        assert [(each.path, each.line, each.column) for each in found] == [
            ("jobs[0].max_concurrency", 11, 22),
            ("defaults.priority", 3, 13),
            ("jobs[0].pool", 6, 11),
            ("jobs[0].resources.cpu", 9, 17),
            ("jobs[0].timeout", 7, 14),
            ("jobs[0].retry.attempts", 8, 23),
            ("jobs[0].log_limit", 10, 16),
        ]

    def test_what_is_missing_is_told_at_the_job(self) -> None:
        [entry] = read_file("jobs:\n  - name: tidy\n    steps: [{run: x}]\n", name="f").jobs

        [found] = problems_of_bounds(entry, Bounds(Policy(timeout=timedelta(hours=1))), frozenset())

        assert (found.path, found.line, found.hint) == ("jobs[0]", 2, "write timeout: 1h")
        assert found.message == (
            "tidy: timeout must be set, to at most 1h by the policy of project default"
        )

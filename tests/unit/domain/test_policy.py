"""What the policy of a project lets its jobs ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.job import RunRules
from rota.domain.policy import (
    Bounds,
    Policy,
    PoolUse,
    excess_of_priority,
    excesses,
    is_within,
)
from rota.domain.spec import Retry

HOUR = timedelta(hours=1)


def job(**fields: Any) -> RunRules:
    return RunRules("tidy", "shop", **fields)


def told(policy: Policy, **fields: Any) -> list[tuple[str, str]]:
    """What a job asks for beyond a policy: fields and messages."""
    found = excesses(Bounds(policy), job(**fields))
    return [(".".join(excess.path), excess.message) for excess in found]


def test_an_empty_policy_lets_jobs_ask_for_anything() -> None:
    greedy = job(
        pool="gpu",
        priority=9,
        resources={"cpu": 10**9},
        retry=Retry(attempts=1_000),
        log_limit=10**12,
        max_concurrency=10**5,
    )

    assert is_within(Bounds(), greedy)
    assert Bounds().are_open


@pytest.mark.parametrize(
    ("policy", "within", "beyond", "field"),
    [
        (Policy(pools=("a",)), {"pool": "a"}, {"pool": "b"}, "pool"),
        (Policy(timeout=HOUR), {"timeout": HOUR}, {"timeout": 2 * HOUR}, "timeout"),
        (Policy(timeout=HOUR), {"timeout": HOUR}, {}, "timeout"),
        (
            Policy(attempts=3),
            {"retry": Retry(attempts=3)},
            {"retry": Retry(attempts=4)},
            "retry.attempts",
        ),
        (Policy(priority=5), {"priority": 5}, {"priority": 6}, "priority"),
        (
            Policy(resources={"cpu": 2_000}),
            {"resources": {"cpu": 2_000, "gpu": 9_000}},
            {"resources": {"cpu": 2_001}},
            "resources.cpu",
        ),
        (
            Policy(resources={"licence": 2_000}),
            {"uses": {"licence": 2}},
            {"uses": {"licence": 3}},
            "resources.licence",
        ),
        (Policy(log_limit=1024), {"log_limit": 1024}, {"log_limit": 1025}, "log_limit"),
        (
            Policy(max_concurrency=4),
            {"max_concurrency": 4},
            {"max_concurrency": 5},
            "max_concurrency",
        ),
        (Policy(max_concurrency=4), {"max_concurrency": 1}, {}, "max_concurrency"),
    ],
)
def test_a_ceiling_is_what_may_just_be_asked_for(
    policy: Policy, within: dict[str, Any], beyond: dict[str, Any], field: str
) -> None:
    assert told(policy, **within) == []
    assert [path for path, _ in told(policy, **beyond)] == [field]


def test_a_job_is_told_all_that_it_may_not_have_and_what_it_may() -> None:
    policy = Policy(
        pools=("linux",), timeout=HOUR, priority=5, resources={"memory": 4 * 2**30 * 1000}
    )

    found = told(policy, pool="gpu", priority=7)

    assert found == [
        ("priority", "priority 7 is above 5, the most that is allowed"),
        ("pool", "pool gpu is not allowed"),
        ("timeout", "timeout must be set, to at most 1h"),
    ]


def test_rules_of_an_earlier_release_do_not_tell_their_log_limit() -> None:
    assert told(Policy(log_limit=1024), log_limit=None) == []


def test_pools_that_were_given_to_others_are_barred_whatever_the_policy_allows() -> None:
    given = {"gpu": ["shop"], "old": ["gone"], "both": ["shop", "ops"]}

    assert PoolUse(given).bounds("shop", Policy()).barred == ("old",)
    assert PoolUse(given).bounds("web", Policy()).barred == ("both", "gpu", "old")
    [excess] = excesses(Bounds(Policy(pools=("gpu",)), ("gpu",)), job(pool="gpu"))
    assert excess.message == "pool gpu is not for this project"


def test_priority_of_a_single_run_keeps_to_the_policy() -> None:
    policy = Policy(priority=5)

    assert excess_of_priority(policy, None) is None
    assert excess_of_priority(policy, 5) is None
    assert excess_of_priority(policy, 6) is not None
    assert excess_of_priority(Policy(), 9) is None

"""Policies: tightening never lets more through, and what is written is what is read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.job import RunRules
from rota.domain.jobfile.projects import policy_document, read_policy
from rota.domain.policy import Bounds, Policy, barred_pools, excesses, is_within
from rota.domain.spec import Retry

POOLS = st.sampled_from(["default", "gpu", "arm"])
NAMES = st.sampled_from(["cpu", "memory", "gpu", "licence"])
TIMES = st.integers(1, 10_000).map(lambda seconds: timedelta(seconds=seconds))


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


POLICIES = st.builds(
    Policy,
    pools=optional(st.lists(POOLS, max_size=3, unique=True).map(tuple)),
    timeout=optional(TIMES),
    attempts=optional(st.integers(1, 10)),
    priority=optional(st.integers(0, 9)),
    resources=st.dictionaries(NAMES, st.integers(1, 8).map(lambda units: units * 1000)),
    log_limit=optional(st.integers(1024, 2**30)),
    max_concurrency=optional(st.integers(1, 50)),
)
JOBS = st.builds(
    RunRules,
    name=st.just("tidy"),
    project=st.just("shop"),
    pool=POOLS,
    priority=st.integers(0, 9),
    timeout=optional(TIMES),
    retry=st.integers(1, 10).map(lambda attempts: Retry(attempts=attempts)),
    resources=st.dictionaries(NAMES, st.integers(1, 8_000)),
    log_limit=optional(st.integers(1024, 2**30)),
    max_concurrency=optional(st.integers(1, 50)),
)


@given(POLICIES, POLICIES, JOBS)
def test_a_job_within_two_policies_is_within_each_ceiling_of_both(
    one: Policy, other: Policy, job: RunRules
) -> None:
    together = tightest(one, other)

    both = is_within(Bounds(one), job) and is_within(Bounds(other), job)
    assert is_within(Bounds(together), job) == both


def tightest(one: Policy, other: Policy) -> Policy:
    """The policy that allows what both do."""

    def least(name: str) -> Any:
        given = [value for each in (one, other) if (value := getattr(each, name)) is not None]
        return min(given, default=None)

    pools = [set(each.pools) for each in (one, other) if each.pools is not None]
    names = one.resources.keys() | other.resources.keys()
    return Policy(
        pools=tuple(sorted(set.intersection(*pools))) if pools else None,
        timeout=least("timeout"),
        attempts=least("attempts"),
        priority=least("priority"),
        resources={
            name: min(each.resources[name] for each in (one, other) if name in each.resources)
            for name in names
        },
        log_limit=least("log_limit"),
        max_concurrency=least("max_concurrency"),
    )


@given(POLICIES, JOBS)
def test_what_is_told_is_all_that_keeps_a_job_out(policy: Policy, job: RunRules) -> None:
    bounds = Bounds(policy)
    without = policy
    for excess in excesses(bounds, job):
        match excess.path:
            case ("resources", name):
                left = {key: most for key, most in without.resources.items() if key != name}
                without = replace(without, resources=left)
            case ("pool",):
                without = replace(without, pools=None)
            case ("retry", "attempts"):
                without = replace(without, attempts=None)
            case ("timeout",):
                without = replace(without, timeout=None)
            case ("priority",):
                without = replace(without, priority=None)
            case ("log_limit",):
                without = replace(without, log_limit=None)
            case _:
                assert excess.path == ("max_concurrency",)
                without = replace(without, max_concurrency=None)

    assert is_within(Bounds(without), job)


@given(POLICIES)
def test_a_policy_is_read_as_it_is_written(policy: Policy) -> None:
    assert read_policy(policy_document(policy)) == policy


@given(st.dictionaries(POOLS, st.lists(st.sampled_from(["shop", "web", "ops"]), min_size=1)))
def test_a_pool_is_barred_to_those_who_were_not_given_it(given_: dict[str, list[str]]) -> None:
    for project in ("shop", "web", "ops"):
        barred = barred_pools(given_, project)
        assert set(barred) == {pool for pool, users in given_.items() if project not in users}

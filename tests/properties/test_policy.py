"""Policies: tightening never lets more through, and what is written is what is read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.job import RunRules
from rota.domain.jobfile.projects import policy_document, read_policy
from rota.domain.policy import Bounds, Policy, PoolUse, excesses, is_within
from rota.domain.spec import Isolation, JobType, Mount, Network, Retry, RunLimits
from rota.domain.walls import LIMITS, Walls

POOLS = st.sampled_from(["default", "gpu", "arm"])
NAMES = st.sampled_from(["cpu", "memory", "gpu", "licence"])
TIMES = st.integers(1, 10_000).map(lambda seconds: timedelta(seconds=seconds))


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def some(words: type[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.sampled_from(words), unique=True).map(tuple)


USERS = st.sampled_from(["reports", "ann", "backup"])
HOSTS = st.sampled_from(["docker.io", "registry.example.org"])
ROOTS = st.sampled_from(["/srv", "/srv:rw", "/srv/models"])
LIMITS_OF_RUNS = st.builds(
    RunLimits,
    cpu=optional(st.integers(10, 4_000)),
    memory=optional(st.integers(4, 64).map(lambda size: size * 2**20)),
    processes=optional(st.integers(1, 100)),
    open_files=optional(st.integers(16, 100)),
    disk=optional(st.integers(1, 64).map(lambda size: size * 2**20)),
)
POLICIES = st.builds(
    Policy,
    pools=optional(st.lists(POOLS, max_size=3, unique=True).map(tuple)),
    timeout=optional(TIMES),
    attempts=optional(st.integers(1, 10)),
    priority=optional(st.integers(0, 9)),
    resources=st.dictionaries(NAMES, st.integers(1, 8).map(lambda units: units * 1000)),
    log_limit=optional(st.integers(1024, 2**30)),
    max_concurrency=optional(st.integers(1, 50)),
    isolation=optional(some(Isolation)),
    network=optional(some(Network)),
    run_as=optional(st.lists(USERS, max_size=3, unique=True).map(tuple)),
    limits=LIMITS_OF_RUNS,
    registries=optional(st.lists(HOSTS, max_size=2, unique=True).map(tuple)),
    pinned_images=st.booleans(),
    mounts=optional(st.lists(ROOTS, max_size=3, unique=True).map(tuple)),
    executors=optional(some(JobType)),
)
WALLS = st.builds(
    Walls,
    isolation=st.lists(st.sampled_from(Isolation), min_size=1, unique=True).map(tuple),
    network=st.lists(
        st.sampled_from(["sandbox/none", "sandbox/outbound", "container/host"]), unique=True
    ).map(tuple),
    run_as=st.lists(USERS, max_size=2, unique=True).map(tuple),
    limits=LIMITS_OF_RUNS,
    image=st.sampled_from(["", "app:1", "registry.example.org/app@sha256:" + "a" * 64]),
    mounts=st.lists(
        st.builds(Mount, st.sampled_from(["/srv", "/srv/models"]), st.just("/m"), st.booleans())
    ).map(tuple),
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
    function=st.sampled_from(["", "send"]),
    walls=optional(WALLS),
)


@given(POLICIES, POLICIES, JOBS)
def test_a_job_within_two_policies_is_within_each_ceiling_of_both(
    one: Policy, other: Policy, job: RunRules
) -> None:
    one, other = replace(one, mounts=None), replace(other, mounts=None)  # roots have no ceiling
    together = tightest(one, other)

    both = is_within(Bounds(one), job) and is_within(Bounds(other), job)
    assert is_within(Bounds(together), job) == both


def tightest(one: Policy, other: Policy) -> Policy:
    """The policy that allows what both do."""

    def least(name: str) -> Any:
        given = [value for each in (one, other) if (value := getattr(each, name)) is not None]
        return min(given, default=None)

    def common(name: str) -> Any:
        given = [set(value) for each in (one, other) if (value := getattr(each, name)) is not None]
        return tuple(sorted(set.intersection(*given))) if given else None

    limits = {
        name: min(
            (most for each in (one, other) if (most := getattr(each.limits, name)) is not None),
            default=None,
        )
        for name in LIMITS
    }
    names = one.resources.keys() | other.resources.keys()
    return Policy(
        pools=common("pools"),
        timeout=least("timeout"),
        attempts=least("attempts"),
        priority=least("priority"),
        resources={
            name: min(each.resources[name] for each in (one, other) if name in each.resources)
            for name in names
        },
        log_limit=least("log_limit"),
        max_concurrency=least("max_concurrency"),
        isolation=common("isolation"),
        network=common("network"),
        run_as=common("run_as"),
        limits=RunLimits(**limits),
        registries=common("registries"),
        pinned_images=one.pinned_images or other.pinned_images,
        executors=common("executors"),
    )


@given(POLICIES, JOBS)
def test_what_is_told_is_all_that_keeps_a_job_out(  # noqa: C901 (a case for each field)
    policy: Policy, job: RunRules
) -> None:
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
            case ("limits", name):
                without = replace(without, limits=replace(without.limits, **{name: None}))
            case ("type",):
                without = replace(without, executors=None)
            case ("image",):
                without = replace(without, registries=None, pinned_images=False)
            case (("isolation" | "network" | "run_as" | "mounts") as name,):
                without = replace(without, **dict.fromkeys([name]))  # type: ignore[arg-type]
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
        barred = PoolUse(given_).bounds(project, Policy()).barred
        assert set(barred) == {pool for pool, users in given_.items() if project not in users}

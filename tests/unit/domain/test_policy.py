"""What the policy of a project lets its jobs ask for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
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
from rota.domain.spec import Isolation, JobType, Mount, Network, Retry, RunLimits
from rota.domain.walls import WallDefaults, Walls

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
    assert excess.message == "pool gpu was given to other projects"


def test_priority_of_a_single_run_keeps_to_the_policy() -> None:
    policy = Policy(priority=5)

    assert excess_of_priority(policy, None) is None
    assert excess_of_priority(policy, 5) is None
    assert excess_of_priority(policy, 6) is not None
    assert excess_of_priority(Policy(), 9) is None


class TestWalls:
    SANDBOX = Walls(isolation=(Isolation.SANDBOX,), network=("sandbox/none",))
    MIXED = Walls(isolation=(Isolation.PROCESS, Isolation.SANDBOX), network=("sandbox/outbound",))
    BOX = Walls(
        isolation=(Isolation.CONTAINER,),
        network=("container/none",),
        image="registry.example.org/app:1",
        mounts=(Mount("/srv/models", "/m"), Mount("/srv/out", "/o", writable=True)),
    )

    def test_a_wall_that_is_not_allowed_is_named(self) -> None:
        policy = Policy(isolation=(Isolation.SANDBOX,))

        assert told(policy, walls=self.SANDBOX) == []
        assert told(policy) == [("isolation", "isolation process is not allowed")]
        assert told(policy, function="send") == [("isolation", "isolation process is not allowed")]
        assert told(policy, walls=self.MIXED) == [("isolation", "isolation process is not allowed")]

    def test_a_plain_process_has_the_network_of_the_host(self) -> None:
        policy = Policy(network=(Network.NONE,))

        assert told(policy, walls=self.SANDBOX) == []
        assert told(policy) == [("network", "network host is not allowed")]
        assert [field for field, _ in told(policy, walls=self.MIXED)] == ["network", "network"]

    def test_a_job_needs_the_limits_that_have_a_ceiling(self) -> None:
        policy = Policy(limits=RunLimits(memory=2**30, processes=100))
        within = replace(self.SANDBOX, limits=RunLimits(memory=2**30, processes=5))
        beyond = replace(self.SANDBOX, limits=RunLimits(memory=2**31))

        assert told(policy, walls=within) == []
        assert told(policy, walls=beyond) == [
            ("limits.memory", "limits.memory 2GiB is above 1GiB, the most that is allowed"),
            ("limits.processes", "limits.processes must be set, to at most 100"),
        ]
        assert len(told(policy)) == 2

    def test_types_and_users_are_bounded(self) -> None:
        policy = Policy(executors=(JobType.SHELL,), run_as=("ann",))

        assert told(policy, walls=replace(self.SANDBOX, run_as=("ann",))) == []
        assert told(policy, function="send") == [("type", "type python is not allowed")]
        assert told(policy, walls=self.BOX) == [("type", "type container is not allowed")]
        assert told(policy, walls=replace(self.SANDBOX, run_as=("bob",))) == [
            ("run_as", "run_as bob is not allowed")
        ]

    def test_images_come_from_known_registries_by_digest(self) -> None:
        policy = Policy(registries=("docker.io",), pinned_images=True)

        assert told(policy, walls=self.BOX) == [
            ("image", "an image of registry.example.org is not allowed"),
            ("image", "image must be named by its digest"),
        ]
        pinned = replace(self.BOX, image="app@sha256:" + "0" * 64)
        assert told(policy, walls=pinned) == []
        assert told(policy, walls=self.SANDBOX) == []

    @pytest.mark.parametrize("user", ["", "1000", "1000:20", "65534:65534"])
    def test_numbers_but_root_s_need_no_policy_in_containers(self, user: str) -> None:
        assert told(Policy(), walls=replace(self.BOX, user=user)) == []

    @pytest.mark.parametrize(
        ("user", "message"),
        [
            ("root", "user root in a container is not allowed"),
            ("0", "user root in a container is not allowed"),
            ("0:1000", "user root in a container is not allowed"),
            ("000", "user 000, who may be root, in a container is not allowed"),
            ("1000:0", "user 1000:0, who may be root, in a container is not allowed"),
            ("1000:root", "user 1000:root, who may be root, in a container is not allowed"),
            ("toor", "user toor, who may be root, in a container is not allowed"),
            ("4294967296", "user 4294967296, who may be root, in a container is not allowed"),
        ],
    )
    def test_root_and_whoever_may_be_root_must_be_on_the_list(
        self, user: str, message: str
    ) -> None:
        walls = replace(self.BOX, user=user)

        assert told(Policy(), walls=walls) == [("user", message)]
        assert told(Policy(container_users=(user,)), walls=walls) == []
        assert told(Policy(container_users=("app",)), walls=walls) == [
            ("user", f"user {user} in a container is not allowed")
        ]

    def test_a_list_of_users_allows_nobody_else(self) -> None:
        policy = Policy(container_users=("root",))

        assert told(policy, walls=self.BOX) == []
        assert told(policy, walls=replace(self.BOX, user="1000")) == [
            ("user", "user 1000 in a container is not allowed")
        ]

    def test_mounts_lie_below_roots_and_write_only_where_that_is_allowed(self) -> None:
        assert told(Policy(mounts=("/srv:rw",)), walls=self.BOX) == []
        assert told(Policy(mounts=("/srv",)), walls=self.BOX) == [
            ("mounts", "mount /srv/out, writable, is not allowed")
        ]
        assert len(told(Policy(mounts=()), walls=self.BOX)) == 2


class TestSharedPools:
    GIVEN = MappingProxyType({"own": ["shop"], "both": ["shop", "ops"]})
    CLOSED = WallDefaults(has_shared_process=False)

    def refused(self, use: PoolUse, pool: str, **fields: Any) -> bool:
        return bool(excesses(use.bounds("shop", Policy()), job(pool=pool, **fields)))

    @pytest.mark.parametrize(
        ("use", "pool", "is_refused"),
        [
            (PoolUse({}, projects=1, walls=CLOSED), "default", False),
            (PoolUse({}, projects=2, walls=CLOSED), "default", True),
            (PoolUse(GIVEN, projects=2, walls=CLOSED), "own", False),
            (PoolUse(GIVEN, projects=2, walls=CLOSED), "both", True),
            (PoolUse(GIVEN, projects=2), "default", False),
            (PoolUse(GIVEN, private={"default"}, projects=2), "default", True),
            (PoolUse(GIVEN, private={"own"}, projects=2), "own", False),
            (PoolUse(GIVEN, private={"default"}, projects=1), "default", False),
        ],
    )
    def test_processes_are_kept_out_of_what_several_projects_use(
        self, use: PoolUse, pool: str, is_refused: bool
    ) -> None:
        walled = TestWalls.SANDBOX

        assert self.refused(use, pool) is is_refused
        assert self.refused(use, pool, function="send") is is_refused
        assert not self.refused(use, pool, walls=walled)
        assert use.refuses_processes(pool) is is_refused

    def test_one_project_in_any_store_has_no_bounds(self) -> None:
        assert PoolUse({}, projects=1, walls=self.CLOSED).bounds("shop", Policy()).are_open
        assert PoolUse({}, projects=9).bounds("shop", Policy()).are_open

    def test_the_way_out_is_told(self) -> None:
        bounds = PoolUse({}, projects=2, walls=self.CLOSED).bounds("shop", Policy())

        [process] = excesses(bounds, job())
        [function] = excesses(bounds, job(function="send"))

        assert process.pool == function.pool == "default"
        assert process.hint == (
            "write isolation: sandbox; or an admin gives it to you alone:"
            " rota pool set default --project shop"
        )
        assert function.hint == (
            "an admin gives it to you alone: rota pool set default --project shop"
        )


@pytest.mark.parametrize(
    ("fields", "executors", "is_refused"),
    [
        ({"function": "pay"}, ("python",), True),
        ({"function": "pay"}, ("python", "shell"), False),
        ({"kind": "ticket"}, ("ticket",), True),
        ({"kind": "ticket", "probe": None}, ("ticket",), False),
        ({"walls": Walls(isolation=(Isolation.CONTAINER,))}, ("container",), False),
        ({}, None, False),
    ],
)
def test_a_probe_is_a_command_whatever_its_job_is(
    fields: dict[str, Any], executors: tuple[str, ...] | None, is_refused: bool
) -> None:
    found = told(Policy(executors=executors), **{"probe": Retry(), **fields})

    message = "a probe, which is a command of type shell, is not allowed"
    assert found == ([("probe", message)] if is_refused else [])

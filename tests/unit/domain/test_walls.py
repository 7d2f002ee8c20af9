"""What a job asks for of walls, and which offers of a worker answer it."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.job import rules_of
from rota.domain.shape import shape_of, unmet
from rota.domain.spec import (
    Container,
    Git,
    Isolation,
    JobSpec,
    JobType,
    Mount,
    Network,
    RunLimits,
    Step,
)
from rota.domain.walls import (
    demanded,
    field_of,
    is_pinned,
    missing,
    network_of_source,
    registry_of,
    type_of,
    walls_of,
    why_not_mounted,
    words_of,
)

SANDBOX = {"wall/sandbox", "network/sandbox/none", "network/sandbox/outbound"}


def job(**fields: Any) -> JobSpec:
    return JobSpec("tidy", steps=fields.pop("steps", (Step("step 1", "true"),)), **fields)


def demands(**fields: Any) -> list[str]:
    return list(demanded(walls_of(job(**fields))))


def test_a_plain_process_asks_for_nothing_and_keeps_the_empty_shape() -> None:
    assert walls_of(job()) is None
    assert shape_of(rules_of(job())) == ""


def test_a_sandbox_asks_for_its_network_too() -> None:
    wanted = demands(isolation=Isolation.SANDBOX, network=Network.OUTBOUND)

    assert wanted == ["wall/sandbox", "network/sandbox/outbound"]


def test_limits_and_users_of_processes_are_asked_for() -> None:
    wanted = demands(limits=RunLimits(memory=2**30, processes=5), run_as="ann")

    assert wanted == ["limit/memory", "limit/processes", "run_as/ann"]


def test_what_is_booked_is_not_asked_for_as_a_limit() -> None:
    assert demands(resources={"memory": 2**30 * 1_000}) == []


def test_a_container_asks_for_its_login_and_mounts() -> None:
    container = Container(
        "app", registry="team", mounts=(Mount("/srv", "/srv"), Mount("/out", "/out", writable=True))
    )

    wanted = demands(isolation=Isolation.CONTAINER, network=Network.NONE, container=container)

    assert wanted == [
        "wall/container",
        "network/container/none",
        "registry/team",
        "mount//srv",
        "mount//out:rw",
    ]


def test_all_steps_are_asked_for_together() -> None:
    steps = (
        Step("a", "x", isolation=Isolation.SANDBOX, network=Network.NONE),
        Step("b", "x", run_as="ann", limits=RunLimits(cpu=500)),
        Step("c", "x", limits=RunLimits(cpu=900)),
    )

    walls = walls_of(job(steps=steps, limits=RunLimits(processes=7)))

    assert walls is not None
    assert demanded(walls) == (
        "wall/sandbox",
        "network/sandbox/none",
        "limit/cpu",
        "limit/processes",
        "run_as/ann",
    )
    assert walls.isolation == (Isolation.PROCESS, Isolation.SANDBOX)
    assert walls.limits == RunLimits(processes=7), "a step without a limit of cpu has none"


@pytest.mark.parametrize(
    ("offers", "lacks"),
    [
        (SANDBOX, []),
        ({"wall/process", "type/shell"}, ["wall/sandbox"]),
        (set(), ["wall/sandbox"]),
        ({"wall/sandbox", "network/sandbox/none"}, ["network/sandbox/outbound"]),
    ],
)
def test_of_a_missing_wall_its_network_is_not_told(offers: set[str], lacks: list[str]) -> None:
    wanted = demands(isolation=Isolation.SANDBOX, network=Network.OUTBOUND)

    assert missing(wanted, offers) == lacks


@pytest.mark.parametrize(
    ("source", "is_writable", "roots", "is_there"),
    [
        ("/srv/models", False, {"mount//srv/models"}, True),
        ("/srv/models", True, {"mount//srv/models:rw"}, True),
        ("/srv/models", False, {"mount//srv/models:rw"}, True),
        ("/srv/models/a", False, {"mount//srv/models"}, True),
        # Below what they may write, jobs could put links in the place of what others mount.
        ("/srv/models/a", True, {"mount//srv/models:rw"}, False),
        ("/srv/models/a", False, {"mount//srv/models:rw"}, False),
        ("/srv/models", True, {"mount//srv"}, False),
        ("/srv/models2", False, {"mount//srv/models"}, False),
        ("/srv", False, {"mount//srv/models"}, False),
        ("/srv", False, set(), False),
    ],
)
def test_a_mount_lies_at_or_below_a_root(
    source: str, is_writable: bool, roots: set[str], is_there: bool
) -> None:
    container = Container("app", mounts=(Mount(source, "/m", is_writable),))
    wanted = demanded(walls_of(job(isolation=Isolation.CONTAINER, container=container)))

    lacks = missing(wanted, {"wall/container", "network/container/host", *roots})

    assert (lacks == []) is is_there


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        ("mount//srv:rw", "it has /srv, which jobs may only read"),
        ("mount//srv/a:rw", "it has /srv, which jobs may only read"),
        ("mount//out/a", "it has /out:rw, which jobs may write to, so it is mounted whole"),
        ("mount//out/a:rw", "it has /out:rw, which jobs may write to, so it is mounted whole"),
        ("mount//var", ""),
    ],
)
def test_a_root_that_holds_a_folder_is_told_where_it_is_not_mounted(
    demand: str, reason: str
) -> None:
    offered = {"wall/container", "mount//srv", "mount//out:rw"}

    assert missing([demand], offered) == [demand]
    assert why_not_mounted(demand, offered) == reason


def test_what_a_worker_lacks_is_told_in_words() -> None:
    shape = shape_of(
        rules_of(
            job(
                isolation=Isolation.SANDBOX,
                network=Network.NONE,
                limits=RunLimits(open_files=64),
                needs={"site": "fra"},
            )
        )
    )

    assert unmet(shape, {}, ()) == ["label site=fra", "sandbox", "limit of open files"]
    assert unmet(shape, {"site": "fra"}, (), offers={*SANDBOX, "limit/open_files"}) == []


@pytest.mark.parametrize(
    ("demand", "words", "field"),
    [
        ("wall/container", "containers", ("isolation",)),
        ("network/sandbox/outbound", "outbound network in sandboxes", ("network",)),
        ("limit/memory", "limit of memory", ("limits", "memory")),
        ("limit/container/cpu", "limit of cpu in containers", ("limits", "cpu")),
        ("run_as/ann", "user ann (run_as)", ("run_as",)),
        ("registry/team", "login for registry team", ("registry",)),
        ("mount//srv", "mount /srv", ("mounts",)),
        ("mount//srv:rw", "mount /srv, writable", ("mounts",)),
    ],
)
def test_a_demand_has_words_and_a_field(demand: str, words: str, field: tuple[str, ...]) -> None:
    assert (words_of(demand), field_of(demand)) == (words, field)


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("app", "docker.io"),
        ("library/app:1", "docker.io"),
        ("registry.example.org/app", "registry.example.org"),
        ("localhost/app", "localhost"),
        ("engine:5000/app:2", "engine:5000"),
    ],
)
def test_an_image_comes_from_a_registry(image: str, registry: str) -> None:
    assert registry_of(image) == registry


def test_an_image_by_digest_is_pinned() -> None:
    assert is_pinned("app:1@sha256:" + "0" * 64)
    assert not is_pinned("app:1")


def test_the_type_of_a_job_is_told_by_its_rules() -> None:
    container = walls_of(job(isolation=Isolation.CONTAINER, container=Container("app")))

    assert type_of("", "send", None) is JobType.PYTHON
    assert type_of("", "", None) is JobType.SHELL
    assert type_of("", "", container) is JobType.CONTAINER
    assert type_of("http", "", None) == JobType.HTTP


CODE = Git("https://git.example.org/app.git")
NOTHING = Step("a", "x", isolation=Isolation.SANDBOX, network=Network.NONE)
OUTSIDE = {"isolation": Isolation.SANDBOX, "network": Network.HOST}


@pytest.mark.parametrize(
    ("fields", "network"),
    [
        ({"isolation": Isolation.SANDBOX, "network": Network.NONE}, Network.OUTBOUND),
        ({"isolation": Isolation.SANDBOX, "network": Network.OUTBOUND}, Network.OUTBOUND),
        (OUTSIDE, Network.HOST),
        ({}, Network.HOST),
        ({**OUTSIDE, "steps": (Step("a", "x", network=Network.NONE),)}, Network.OUTBOUND),
        (
            {"steps": (NOTHING,)},
            Network.OUTBOUND,
        ),
        (
            {"steps": (NOTHING, Step("b", "x"))},
            Network.HOST,
        ),
    ],
)
def test_code_comes_over_no_network_that_no_step_has_asked_for(
    fields: dict[str, Any], network: Network
) -> None:
    """A step's wall counts instead of the job's: nobody was asked for the network of the host."""
    assert network_of_source(job(git=CODE, **fields)) is network


def test_what_fetches_the_source_has_the_limits_of_the_job_not_those_of_its_steps() -> None:
    steps = (Step("a", "x", limits=RunLimits(memory=2**20)),)
    walled = {"isolation": Isolation.SANDBOX, "steps": steps}

    plain, fetching = (walls_of(job(**walled, git=git)) for git in (None, CODE))

    assert plain is not None
    assert fetching is not None
    assert plain.limits == RunLimits(memory=2**20)
    assert fetching.limits == RunLimits()
    assert fetching.limited == plain.limited

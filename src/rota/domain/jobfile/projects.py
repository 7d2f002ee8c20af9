"""Projects in the words of the job file: its policy, and defaults of its jobs.

Both are documents, checked by tables of fields as jobs are. Defaults of a project stand below those
of a file: a job has what it writes, else what its file says for all, else what its project does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from rota.domain.errors import Problem
from rota.domain.job import rules_of
from rota.domain.jobfile.demands import Amount, build_resources
from rota.domain.jobfile.fields import DEFAULTS
from rota.domain.jobfile.kinds import Choice, Duration, Flag, Integer, Size
from rota.domain.jobfile.parts import SHORTEST
from rota.domain.jobfile.read import JobEntry
from rota.domain.jobfile.sections import NAME, Field, ListOf, MapOf, Section
from rota.domain.jobfile.text import At, Report
from rota.domain.jobfile.types import TypeName
from rota.domain.jobfile.walls import (
    REGISTRY_HOST,
    ROOT,
    RUN_LIMITS,
    USER,
    USER_INSIDE,
    NetworkChoice,
    build_limits,
)
from rota.domain.policy import Bounds, Excess, Policy, excesses, format_limit
from rota.domain.quantities import format_duration, format_size, parse_duration, parse_size
from rota.domain.resources import format_amount
from rota.domain.spec import (
    GREATEST_PRIORITY,
    LEAST_PRIORITY,
    Isolation,
    Network,
    RunLimits,
)
from rota.domain.walls import LIMITS

T = TypeVar("T")

POLICY = Section(
    "policy",
    (
        Field("pools", ListOf(NAME, most=1_000), "Pools that jobs may name; any, unless given."),
        Field("timeout", Duration(SHORTEST), "The longest `timeout`; every job needs one then."),
        Field("attempts", Integer(1, 1_000), "The most attempts of a run."),
        Field("priority", Integer(LEAST_PRIORITY, GREATEST_PRIORITY), "The highest priority."),
        Field(
            "resources",
            MapOf(NAME, Amount(), most=64, instead="write it as {NAME: AMOUNT}"),
            "The most that a run may take of each; names that are not there have no bound.",
            examples=({"cpu": 4, "memory": "8GiB"},),
        ),
        Field("log_limit", Size(1024, 10 * 1024**3), "The most output that an attempt may keep."),
        Field(
            "max_concurrency",
            Integer(1, 100_000),
            "The highest `max_concurrency`; every job needs one then.",
        ),
        Field(
            "isolation",
            ListOf(Choice(Isolation), most=len(Isolation)),
            "The walls that jobs may have; any, unless given.",
            examples=(["sandbox", "container"],),
        ),
        Field(
            "network",
            ListOf(NetworkChoice(), most=len(Network)),
            "The networks that jobs may have; a plain process has that of the `host`.",
            examples=(["none", "outbound"],),
        ),
        Field(
            "run_as",
            ListOf(USER, most=100),
            "Users of workers' machines that jobs may run as; an empty list allows none.",
        ),
        Field(
            "limits",
            RUN_LIMITS,
            "The highest limits of a run; every job needs those that are given here.",
            examples=({"memory": "4GiB", "processes": 500},),
        ),
        Field(
            "registries",
            ListOf(REGISTRY_HOST, most=100),
            "Where images may come from; `docker.io` is that of images without a host.",
            examples=(["registry.example.org"],),
        ),
        Field("pinned_images", Flag(), "Whether images have to be named by their digest.", False),
        Field(
            "mounts",
            ListOf(ROOT, most=100),
            "Folders of workers' machines that containers may see, with all below them; "
            "`/FOLDER:rw`: also to write there.",
            examples=(["/srv/models", "/srv/out:rw"],),
        ),
        Field(
            "container_users",
            ListOf(USER_INSIDE, most=100),
            "Users that jobs may have inside containers (`user`); any number but that of root, "
            "unless given.",
            examples=(["1000", "root"],),
        ),
        Field(
            "executors",
            ListOf(TypeName(), most=100),
            "Types of jobs that are allowed, those of plug-ins too.",
            examples=(["shell", "container"],),
        ),
    ),
)


def read_policy(document: object) -> Policy:
    """Read a policy; `Invalid` has every problem in it."""
    return build_policy(_checked(POLICY, document, "the policy"))


def checked_policy(document: object) -> dict[str, Any]:
    """Return a policy as it is kept: checked, in the order of its table."""
    return policy_document(read_policy(document))


def checked_defaults(document: object) -> dict[str, Any]:
    """Return defaults of a project as they are kept; `Invalid` has every problem in them."""
    checked = _checked(DEFAULTS, document, "the defaults")
    return {row.name: checked[row.name] for row in DEFAULTS.fields if row.name in checked}


def _checked(section: Section, document: object, what: str) -> dict[str, Any]:
    report = Report()
    checked = section.check(document, At.root(report))
    report.raise_errors(what)
    return checked if isinstance(checked, dict) else {}


def build_policy(document: Mapping[str, Any]) -> Policy:
    """Build the policy of a checked document."""
    timeout, size = document.get("timeout"), document.get("log_limit")
    pools = document.get("pools")
    return Policy(
        pools=None if pools is None else tuple(pools),
        timeout=None if timeout is None else parse_duration(timeout),
        attempts=document.get("attempts"),
        priority=document.get("priority"),
        resources=build_resources(document.get("resources", {})),
        log_limit=None if size is None else parse_size(size),
        max_concurrency=document.get("max_concurrency"),
        isolation=_each(document.get("isolation"), Isolation),
        network=_each(document.get("network"), Network),
        run_as=_each(document.get("run_as"), str),
        limits=build_limits(document.get("limits", {})),
        registries=_each(document.get("registries"), str),
        pinned_images=document.get("pinned_images", False),
        mounts=_each(document.get("mounts"), str),
        container_users=_each(document.get("container_users"), str),
        executors=_each(document.get("executors"), str),
    )


def _each(written: list[str] | None, read: Callable[[str], T]) -> tuple[T, ...] | None:
    return None if written is None else tuple(map(read, written))


def policy_document(policy: Policy) -> dict[str, Any]:
    """Return a policy as people write it; what it leaves open is left out."""
    written: dict[str, Any] = {
        "pools": None if policy.pools is None else list(policy.pools),
        "timeout": None if policy.timeout is None else format_duration(policy.timeout),
        "attempts": policy.attempts,
        "priority": policy.priority,
        "resources": {name: _written(name, most) for name, most in policy.resources.items()}
        or None,
        "log_limit": None if policy.log_limit is None else format_size(policy.log_limit),
        "max_concurrency": policy.max_concurrency,
        "isolation": _listed(policy.isolation),
        "network": _listed(policy.network),
        "run_as": _listed(policy.run_as),
        "limits": _limits(policy.limits) or None,
        "registries": _listed(policy.registries),
        "pinned_images": policy.pinned_images or None,
        "mounts": _listed(policy.mounts),
        "container_users": _listed(policy.container_users),
        "executors": _listed(policy.executors),
    }
    return {name: value for name, value in written.items() if value is not None}


def _listed(allowed: tuple[str, ...] | None) -> list[str] | None:
    return None if allowed is None else list(map(str, allowed))


def _limits(limits: RunLimits) -> dict[str, int | float | str]:
    amounts = {name: getattr(limits, name) for name in LIMITS}
    return {
        name: _number(format_limit(name, amount))
        for name, amount in amounts.items()
        if amount is not None
    }


def _written(name: str, amount: int) -> int | float | str:
    """Return an amount as the job file has it: a number, or a size."""
    return _number(format_amount(name, amount))


def _number(text: str) -> int | float | str:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def problems_of_bounds(
    entry: JobEntry, bounds: Bounds, shared: frozenset[str]
) -> Iterator[Problem]:
    """Yield what a job asks for beyond the bounds of its project, where it is written."""
    for excess in excesses(bounds, rules_of(entry.spec, shared)):
        yield _problem(entry, excess)


def _problem(entry: JobEntry, excess: Excess) -> Problem:
    project = entry.spec.project
    if excess.pool:
        return entry.problem_at(excess.path, f"{entry.name}: {excess.message}", excess.hint)
    message = f"{excess.message} by the policy of project {project}"
    hint = excess.hint or f"rota project show {project} tells what is allowed"
    return entry.problem_at(excess.path, f"{entry.name}: {message}", hint)

"""Policy of a project: what its jobs may ask for, whatever their files say.

Installation admins set it. It is checked once all defaults are merged: when jobs are applied, when
somebody asks for a run with a priority of its own, and at the gate (`domain.gates`), where a job
that asks for too much since the policy was tightened starts nothing until one of the two changes.

Pools belong to it as well: one that is given to some projects is closed to the jobs of all others,
and where several projects use one no run may be a plain process, which sees all that its worker
sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from rota.domain.git import WALLED_GIT
from rota.domain.job import RunRules
from rota.domain.quantities import format_duration, format_size
from rota.domain.resources import UNIT, format_amount
from rota.domain.spec import EXTERNAL_POOL, NO_LIMITS, Isolation, JobType, Mount, Network, RunLimits
from rota.domain.walls import (
    LIMITS,
    PLAIN,
    WallDefaults,
    Walls,
    is_mounted_below,
    is_pinned,
    may_be_root,
    registry_of,
    type_of,
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The most that jobs of a project may ask for; None: any."""

    pools: tuple[str, ...] | None = None
    timeout: timedelta | None = None  # a job without a timeout asks for more than any
    attempts: int | None = None  # of a run, the first included
    priority: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths; others have no bound
    log_limit: int | None = None  # bytes
    max_concurrency: int | None = None  # a job without one asks for more than any
    isolation: tuple[Isolation, ...] | None = None
    network: tuple[Network, ...] | None = None  # a plain process has that of the host
    run_as: tuple[str, ...] | None = None
    limits: RunLimits = NO_LIMITS  # a job without such a limit asks for more than any
    registries: tuple[str, ...] | None = None  # hosts
    pinned_images: bool = False  # images must be named by digest
    mounts: tuple[str, ...] | None = None  # roots; `ROOT:rw`: also to write there
    container_users: tuple[str, ...] | None = None  # None: any number but that of root
    executors: tuple[str, ...] | None = None  # types of jobs


@dataclass(frozen=True, slots=True)
class Bounds:
    """All that bounds the jobs of a project."""

    policy: Policy = Policy()
    barred: tuple[str, ...] = ()  # pools that were given to other projects
    own: tuple[str, ...] | None = None  # the only pools for processes; None: any, but `walled`
    walled: tuple[str, ...] = ()  # pools without processes: others use them, and they are private

    @property
    def are_open(self) -> bool:
        """Return whether nothing is bounded."""
        return self == _NO_BOUNDS

    def allow_pool(self, pool: str) -> bool:
        """Return whether jobs of the project may name this pool."""
        allowed = self.policy.pools
        if pool == EXTERNAL_POOL:  # whether there may be such jobs is said of their type
            return True
        return pool not in self.barred and (allowed is None or pool in allowed)


_NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Excess:
    """Something that a job asks for and may not have."""

    path: tuple[str, ...]  # of the field in the job file: ("resources", "cpu")
    message: str
    hint: str = ""
    pool: str = ""  # that is in the way, as who may use it has changed; "": the policy is
    action: str = ""  # what may be done about the pool


def excesses(bounds: Bounds, asked: RunRules) -> list[Excess]:
    """List what a job asks for beyond its bounds, in the order of the job file's fields."""
    return list(_excesses(bounds, asked))


def is_within(bounds: Bounds, asked: RunRules) -> bool:
    return next(_excesses(bounds, asked), None) is None


def bounds_on(asked: RunRules, bounds: Bounds | None) -> Bounds | None:
    """Return what bounds a job, given what bounds its project; None: nothing does.

    Users inside containers are bounded without a policy, too.
    """
    if bounds is None and asked.walls is not None and asked.walls.user:
        return _NO_BOUNDS
    return bounds


def excess_of_priority(policy: Policy, priority: int | None) -> Excess | None:
    """Return why a run may not have this priority; `None` is that of its job."""
    most = policy.priority
    if priority is None or most is None or priority <= most:
        return None
    return Excess(("priority",), f"priority {priority} is above {most}, the most that is allowed")


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Who may use which pools, and where plain processes may run."""

    given: Mapping[str, Collection[str]]  # projects of pools that are given to some; else to all
    private: Collection[str] = ()  # pools closed to processes while they are shared
    projects: int = 1  # how many there are
    walls: WallDefaults = WallDefaults()

    def is_shared(self, pool: str) -> bool:
        """Return whether several projects may use a pool."""
        return self.projects > 1 and len(self.given.get(pool, ())) != 1

    def refuses_processes(self, pool: str) -> bool:
        is_open = self.walls.has_shared_process and pool not in self.private
        return self.is_shared(pool) and not is_open

    def bounds(self, project: str, policy: Policy) -> Bounds:
        """Return all that bounds the jobs of a project."""
        barred = sorted(pool for pool, users in self.given.items() if project not in users)
        if self.walls.has_shared_process:
            walled = sorted(pool for pool in self.private if self.is_shared(pool))
            return Bounds(policy, tuple(barred), walled=tuple(walled))
        if self.projects <= 1:
            return Bounds(policy, tuple(barred))
        own = sorted(pool for pool, users in self.given.items() if [*users] == [project])
        return Bounds(policy, tuple(barred), own=tuple(own))


def _excesses(bounds: Bounds, asked: RunRules) -> Iterator[Excess]:
    policy = bounds.policy
    if policy.max_concurrency is not None:
        yield from _of_concurrency(policy.max_concurrency, asked.max_concurrency)
    if excess := excess_of_priority(policy, asked.priority):
        yield excess
    yield from _of_pool(bounds, asked)
    yield from _of_walls(bounds, asked)
    yield from _of_resources(policy.resources, asked)
    if policy.timeout is not None:
        yield from _of_timeout(policy.timeout, asked.timeout)
    if policy.attempts is not None and asked.retry.attempts > policy.attempts:
        yield Excess(
            ("retry", "attempts"),
            f"{asked.retry.attempts:,} attempts are more than {policy.attempts:,}, the most that"
            " are allowed",
        )
    # Rules that an earlier release wrote do not tell it: the next apply finds out.
    if policy.log_limit is not None and (asked.log_limit or 0) > policy.log_limit:
        kept, most = (format_size(size) for size in (asked.log_limit or 0, policy.log_limit))
        hint = f"write log_limit: {most}"
        message = f"log_limit {kept} is above {most}, the most that is allowed"
        yield Excess(("log_limit",), message, hint)


def _of_concurrency(most: int, asked: int | None) -> Iterator[Excess]:
    hint = f"write max_concurrency: {most}"
    if asked is None:
        yield Excess(
            ("max_concurrency",), f"max_concurrency must be set, to at most {most:,}", hint
        )
    elif asked > most:
        message = f"max_concurrency {asked:,} is above {most:,}, the most that is allowed"
        yield Excess(("max_concurrency",), message)


def _of_timeout(most: timedelta, asked: timedelta | None) -> Iterator[Excess]:
    shown = format_duration(most)
    if asked is None:
        message = f"timeout must be set, to at most {shown}"
        yield Excess(("timeout",), message, f"write timeout: {shown}")
    elif asked > most:
        message = f"timeout {format_duration(asked)} is above {shown}, the most that is allowed"
        yield Excess(("timeout",), message)


def _of_pool(bounds: Bounds, asked: RunRules) -> Iterator[Excess]:
    allowed, pool = bounds.policy.pools, asked.pool
    if bounds.allow_pool(pool):
        return
    if pool in bounds.barred:
        what = f"name another pool, or let an admin give this one to {asked.project}, too"
        action = f"{what}: rota pool list"
        yield Excess(("pool",), f"pool {pool} was given to other projects", action, pool, action)
    elif allowed is not None and pool not in allowed:
        hint = f"allowed: {', '.join(allowed)}" if allowed else "no pool is allowed"
        yield Excess(("pool",), f"pool {pool} is not allowed", hint)


def _of_resources(most: Mapping[str, int], asked: RunRules) -> Iterator[Excess]:
    shared = {name: amount * UNIT for name, amount in asked.uses.items()}
    for name, amount in sorted({**asked.resources, **shared}.items()):
        bound = most.get(name)
        if bound is not None and amount > bound:
            taken, allowed = (format_amount(name, each) for each in (amount, bound))
            message = f"{taken} {name} are more than {allowed}, the most that is allowed"
            yield Excess(("resources", name), message)


def _of_walls(bounds: Bounds, asked: RunRules) -> Iterator[Excess]:
    policy, walls = bounds.policy, asked.walls or PLAIN
    kind = type_of(asked.kind, asked.function, asked.walls)
    if kind in (
        JobType.HTTP,
        JobType.EXTERNAL,
    ):  # nothing of it is executed on the worker's machine
        if policy.executors is not None and kind not in policy.executors:
            yield _not_allowed(("type",), f"type {kind}", policy.executors)
        return
    choices: tuple[tuple[str, Collection[str], Collection[str] | None], ...] = (
        ("type", [kind], policy.executors),
        ("isolation", walls.isolation, policy.isolation),
        ("network", _networks(walls), policy.network),
        ("run_as", walls.run_as, policy.run_as),
    )
    for field_name, chosen, allowed in choices:
        for each in sorted(chosen) if allowed is not None else ():
            if each not in (allowed or ()):
                yield _not_allowed((field_name,), f"{field_name} {each}", allowed or ())
    if asked.probe is not None and kind != JobType.CONTAINER and not _allows_commands(policy):
        what = "a probe, which is a command of type shell,"
        yield _not_allowed(("probe",), what, policy.executors or ())
    if Isolation.PROCESS in walls.isolation:
        yield from _of_shared_pool(bounds, asked)
    yield from _of_limits(policy.limits, walls.limits, asked)
    if walls.image:
        yield from _of_image(policy, walls)


def _allows_commands(policy: Policy) -> bool:
    return policy.executors is None or JobType.SHELL in policy.executors


def _not_allowed(path: tuple[str, ...], what: str, allowed: Collection[str]) -> Excess:
    hint = f"allowed: {', '.join(allowed)}" if allowed else "none is allowed"
    return Excess(path, f"{what} is not allowed", hint)


def _of_shared_pool(bounds: Bounds, asked: RunRules) -> Iterator[Excess]:
    pool = asked.pool
    is_refused = pool in bounds.walled if bounds.own is None else pool not in bounds.own
    if not is_refused or pool in bounds.barred:
        return
    command = f"rota pool set {pool} --project {asked.project}"
    what = "functions are plain processes, which" if asked.function else "plain processes"
    if asked.kind:
        what = f"jobs of type {asked.kind} are work of plain processes, which"
    message = f"{what} may not run in pool {pool}: several projects use it"
    wall = "" if asked.function or asked.kind else "write isolation: sandbox; or "
    hint = f"{wall}an admin gives it to you alone: {command}"
    yield Excess(("isolation",), message, hint, pool, command)


def _networks(walls: Walls) -> set[str]:
    behind = {each.partition("/")[2] for each in walls.network}
    if WALLED_GIT in walls.capabilities and behind == {Network.NONE}:
        behind.add(Network.OUTBOUND)  # its steps have none, but its code comes from somewhere
    return behind | ({Network.HOST} if Isolation.PROCESS in walls.isolation else set())


def _of_limits(most: RunLimits, asked: RunLimits, rules: RunRules) -> Iterator[Excess]:
    for name in LIMITS:
        bound, taken = getattr(most, name), getattr(asked, name)
        if bound is None or (taken is not None and taken <= bound):
            continue
        shown = format_limit(name, bound)
        if taken is None:
            hint = f"write limits: {{{name}: {shown}}}"
            if rules.function:
                hint = "functions cannot have limits: run a command with type shell"
            yield Excess(("limits", name), f"limits.{name} must be set, to at most {shown}", hint)
        else:
            message = f"limits.{name} {format_limit(name, taken)} is above {shown}"
            yield Excess(("limits", name), f"{message}, the most that is allowed")


def format_limit(name: str, amount: int) -> str:
    """Format a limit as people write it."""
    if name == "cpu":
        return format_amount(name, amount)
    return format_size(amount) if name in {"memory", "disk"} else str(amount)


def _of_image(policy: Policy, walls: Walls) -> Iterator[Excess]:
    registry = registry_of(walls.image)
    if policy.registries is not None and registry not in policy.registries:
        yield _not_allowed(("image",), f"an image of {registry}", policy.registries)
    if policy.pinned_images and not is_pinned(walls.image):
        message = "image must be named by its digest"
        yield Excess(("image",), message, f"write image: {walls.image}@sha256:…")
    if excess := _of_user(policy.container_users, walls.user):
        yield excess
    for mount in walls.mounts if policy.mounts is not None else ():
        if not is_mounted_below(mount, policy.mounts or ()):
            yield _not_allowed(("mounts",), f"mount {_shown(mount)}", policy.mounts or ())


_NO_ROOT = (
    "write a number but 0, or nothing; an admin allows others: rota project set PROJECT --policy"
    " container_users="
)


def _of_user(allowed: Collection[str] | None, user: str) -> Excess | None:
    """Return why a container's steps may not be this user; "" is nobody, and always allowed.

    Root in a container is root to whatever of the machine the container sees.
    """
    if not user or user in (allowed or ()) or (allowed is None and not may_be_root(user)):
        return None
    if allowed is not None:
        return _not_allowed(("user",), f"user {user} in a container", allowed)
    who = "root" if user.partition(":")[0] in ("0", "root") else f"{user}, who may be root,"
    return Excess(("user",), f"user {who} in a container is not allowed", f"{_NO_ROOT}{user}")


def _shown(mount: Mount) -> str:
    return f"{mount.source}{', writable,' if mount.writable else ''}"

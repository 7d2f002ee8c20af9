"""Walls: what a job asks for beyond a plain process, and how workers' offers answer it.

A worker tries each wall when it starts and tells the server its *offers*: what worked, and for the
rest why not. A run names what it needs in the same words, `kind/name`. A plain process asks for
nothing: any worker has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum

from rota.domain.files import FILES, needs_files
from rota.domain.git import GIT, WALLED_FILES, WALLED_GIT, capabilities_of, fetches
from rota.domain.quantities import format_duration
from rota.domain.spec import (
    NO_LIMITS,
    Isolation,
    JobSpec,
    JobType,
    Mount,
    Network,
    RunLimits,
    Step,
    run_limits,
)

PROBES = "probes"  # it knows a probe from the run that this asks about
LIMITS = tuple(each.name for each in fields(RunLimits))


class OfferKind(StrEnum):
    WALL = "wall"  # a name of `Isolation`
    NETWORK = "network"  # `sandbox/none`, `container/outbound`, …
    LIMIT = "limit"  # a field of `RunLimits`; in containers `container/cpu`, …
    RUN_AS = "run_as"  # a user whom runs of this worker may be
    TYPE = "type"  # of jobs that it executes: a `JobType`
    SECRET = "secret"  # noqa: S105 (a kind, no secret): a value of its settings, for headers of requests
    REGISTRY = "registry"  # a login of its settings
    CAPABILITY = "capability"  # something that its program can, such as `files`
    LEASE = "lease"  # seconds, that the server granted: one of more does, too
    MOUNT = "mount"  # a root of what containers may see; `ROOT:rw` where they may also write


# Kinds whose names an admin of the machine chose: they may tell of one tenant to another.
NAMED_BY_PEOPLE = frozenset(
    {OfferKind.RUN_AS, OfferKind.REGISTRY, OfferKind.MOUNT, OfferKind.SECRET}
)
_WRITABLE = ":rw"
_LEASE = f"{OfferKind.LEASE}/"
_BY_ENGINE = f"{Isolation.CONTAINER}/"
_SHA256 = "@sha256:"
_USUAL_REGISTRY = "docker.io"
_MOST_USERS = 2**31  # engines know no user of a higher number


@dataclass(frozen=True, slots=True)
class WallDefaults:
    """Walls of jobs that ask for none, as the store keeps them."""

    isolation: Isolation = Isolation.PROCESS
    network: Network = Network.NONE  # of jobs behind a wall
    # Processes may run in pools that several projects use: of stores that were there before walls.
    has_shared_process: bool = True


NEW_CLUSTER = WallDefaults(Isolation.SANDBOX, Network.OUTBOUND, has_shared_process=False)
NEW_MACHINE = WallDefaults(has_shared_process=False)


@dataclass(frozen=True, slots=True)
class Walls:
    """Walls that a job asks for, all its steps together."""

    isolation: tuple[Isolation, ...] = (Isolation.PROCESS,)
    network: tuple[str, ...] = ()  # `sandbox/none`: of those behind a wall
    run_as: tuple[str, ...] = ()
    limits: RunLimits = NO_LIMITS  # the most that a step may take; None: one has no limit
    limited: tuple[str, ...] = ()  # limits that a step has: its worker must be able to keep them
    image: str = ""
    registry: str = ""
    mounts: tuple[Mount, ...] = ()
    capabilities: tuple[str, ...] = ()  # what the worker's program must be able to do
    user: str = ""  # inside a container; "": 65534


PLAIN = Walls()


def walls_of(spec: JobSpec) -> Walls | None:
    """Return what a job asks for; None: plain processes."""
    # The probe has the walls of the job itself.
    steps = (*spec.steps, None) if spec.probe else spec.steps or (None,)
    behind = [_wall_of(spec, step) for step in steps]
    # What is fetched before the steps has the limits of the job, whatever theirs are.
    limits = [run_limits(spec, step) for step in ((None, *steps) if fetches(spec) else steps)]
    container = spec.container
    found = Walls(
        isolation=tuple(sorted({isolation for isolation, _, _ in behind})),
        network=tuple(
            sorted({f"{wall}/{network}" for wall, network, _ in behind if wall != "process"})
        ),
        run_as=tuple(sorted({user for _, _, user in behind if user})),
        limits=_most(limits),
        limited=tuple(name for name in LIMITS if any(_has(each, name) for each in limits)),
        image=container.image if container else "",
        registry=container.registry if container else "",
        mounts=container.mounts if container else (),
        capabilities=(*([FILES] if needs_files(spec) else []), *capabilities_of(spec)),
        user=container.user if container else "",
    )
    return None if found == PLAIN else found


def _wall_of(spec: JobSpec, step: Step | None) -> tuple[Isolation, Network, str]:
    if step is None:
        return spec.isolation, spec.network, spec.run_as
    return (
        spec.isolation if step.isolation is None else step.isolation,
        spec.network if step.network is None else step.network,
        spec.run_as if step.run_as is None else step.run_as,
    )


def network_of_source(spec: JobSpec) -> Network:
    """Return the network that code from git comes over: that of the host only if a step has it.

    What the job itself names is not asked for where each of its steps names another.
    """
    steps = spec.steps or (None,)
    if any(_wall_of(spec, step)[1] is Network.HOST for step in steps):
        return Network.HOST
    return Network.OUTBOUND


def _has(limits: RunLimits, name: str) -> bool:
    return getattr(limits, name) is not None


def _most(limits: Sequence[RunLimits]) -> RunLimits:
    """Return the greatest of each limit; None where one of them has none."""
    most: dict[str, int | None] = {}
    for name in LIMITS:
        values = [getattr(each, name) for each in limits]
        most[name] = None if None in values else max(values)
    return RunLimits(**most)


def demanded(walls: Walls | None, kind: str = "", secrets: Collection[str] = ()) -> tuple[str, ...]:
    """List the offers that a worker must make to take such runs.

    `kind` is the type of the job, where it is none that all workers have.
    """
    if walls is None and not kind and not secrets:
        return ()
    types = (f"{OfferKind.TYPE}/{kind}",) if kind else ()
    values = tuple(f"{OfferKind.SECRET}/{name}" for name in secrets)
    if walls is None:
        return (*types, *values)
    return (
        *types,
        *values,
        *(f"{OfferKind.WALL}/{wall}" for wall in walls.isolation if wall is not Isolation.PROCESS),
        *(f"{OfferKind.NETWORK}/{network}" for network in walls.network),
        *(f"{OfferKind.LIMIT}/{_kept_by(walls)}{name}" for name in walls.limited),
        *(f"{OfferKind.RUN_AS}/{user}" for user in walls.run_as),
        *([f"{OfferKind.REGISTRY}/{walls.registry}"] if walls.registry else []),
        *(f"{OfferKind.MOUNT}/{_mounted(mount)}" for mount in walls.mounts),
        *(f"{OfferKind.CAPABILITY}/{name}" for name in walls.capabilities),
    )


def offered_lease(lease: timedelta) -> str:
    """Return the name of the offer of a lease, and of the demand for one of that length."""
    return f"{lease.total_seconds():g}"


def _kept_by(walls: Walls) -> str:
    """Return what goes before the name of a limit: those of containers are kept by the engine."""
    return _BY_ENGINE if Isolation.CONTAINER in walls.isolation else ""


def _mounted(mount: Mount) -> str:
    return mount.source + (_WRITABLE if mount.writable else "")


def is_mounted_below(mount: Mount, roots: Iterable[str]) -> bool:
    """Return whether one of these roots is or contains what is mounted."""
    inside = f"{mount.source.rstrip('/')}/"
    return any(
        inside.startswith(f"{root.removesuffix(_WRITABLE).rstrip('/')}/")
        for root in roots
        if root.endswith(_WRITABLE) or not mount.writable
    )


def missing(demands: Iterable[str], offered: Collection[str]) -> list[str]:
    """List the demands that offers do not meet; of a missing wall not what belongs to it."""
    lacks = [each for each in demands if each not in offered and not _is_met(each, offered)]
    walls = [each.partition("/")[2] for each in lacks if each.startswith(f"{OfferKind.WALL}/")]
    kinds = OfferKind.NETWORK, OfferKind.LIMIT
    parts = tuple(f"{kind}/{wall}/" for kind in kinds for wall in walls)
    return [each for each in lacks if not (parts and each.startswith(parts))]


def _is_met(demand: str, offered: Collection[str]) -> bool:
    """Return whether another offer than that of the same words meets a demand."""
    if demand.startswith(_LEASE):
        return any(
            float(each.removeprefix(_LEASE)) >= float(demand.removeprefix(_LEASE))
            for each in offered
            if each.startswith(_LEASE)
        )
    return _is_below(demand, offered)


def _is_below(demand: str, offered: Collection[str]) -> bool:
    """Return whether a demand is for a mount that a root of containers allows.

    One that may be written to is mounted whole: below it jobs could put links in the place of what
    others mount.
    """
    kind, _, name = demand.partition("/")
    if kind != OfferKind.MOUNT:
        return False
    mount = Mount(name.removesuffix(_WRITABLE), "", writable=name.endswith(_WRITABLE))
    prefix = f"{OfferKind.MOUNT}/"
    roots = [each.removeprefix(prefix) for each in offered if each.startswith(prefix)]
    read_only = [root for root in roots if not root.endswith(_WRITABLE)]
    is_whole = f"{mount.source}{_WRITABLE}" in roots
    return is_whole or is_mounted_below(mount, read_only)


def why_not_mounted(demand: str, offered: Collection[str]) -> str:
    """Return why a worker with these offers does not mount a folder; "": it has none such.

    It names no root but one that holds the folder: others are not everybody's business.
    """
    name = demand.partition("/")[2]
    source = name.removesuffix(_WRITABLE)
    prefix = f"{OfferKind.MOUNT}/"
    roots = [each.removeprefix(prefix) for each in offered if each.startswith(prefix)]
    holding = [root for root in roots if is_mounted_below(Mount(source, ""), [root])]
    writable = [root for root in holding if root.endswith(_WRITABLE)]
    if writable:
        return f"it has {writable[0]}, which jobs may write to, so it is mounted whole"
    return f"it has {holding[0]}, which jobs may only read" if holding else ""


_WALL_WORDS = {"process": "plain processes", "sandbox": "sandbox", "container": "containers"}
_NETWORK_WORDS = {
    "none": "empty network",
    "outbound": "outbound network",
    "host": "network of the host",
}
_INSIDE = {"sandbox": "in sandboxes", "container": "in containers"}


def words_of(demand: str) -> str:
    """Say a demand for the end of "missing …", or of "worker w has no …"."""
    kind, _, name = demand.partition("/")
    match kind:
        case OfferKind.WALL:
            return _WALL_WORDS.get(name, name)
        case OfferKind.NETWORK:
            wall, _, network = name.partition("/")
            return f"{_NETWORK_WORDS.get(network, network)} {_INSIDE.get(wall, wall)}"
        case OfferKind.LIMIT:
            inside = f" {_INSIDE['container']}" if name.startswith(_BY_ENGINE) else ""
            return f"limit of {name.removeprefix(_BY_ENGINE).replace('_', ' ')}{inside}"
        case OfferKind.RUN_AS:
            return f"user {name} (run_as)"
        case OfferKind.REGISTRY:
            return f"login for registry {name}"
        case OfferKind.MOUNT:
            writes = ", writable" if name.endswith(_WRITABLE) else ""
            return f"mount {name.removesuffix(_WRITABLE)}{writes}"
        case OfferKind.CAPABILITY:
            return _CAPABILITY_WORDS.get(name, name)
        case OfferKind.LEASE:
            return f"lease of {format_duration(timedelta(seconds=float(name)))}"
        case _:
            return _NAMED[kind].format(name) if kind in _NAMED else demand


_NAMED: Mapping[str, str] = {
    OfferKind.TYPE: "executor for jobs of type {}",
    OfferKind.SECRET: "secret {}",
}
_CAPABILITY_WORDS = {
    FILES: "transfer of files",
    PROBES: "probes",
    GIT: "code from git",
    WALLED_GIT: "code from git behind walls",
    WALLED_FILES: "files behind walls",
}
_FIELDS = {
    OfferKind.WALL: "isolation",
    OfferKind.MOUNT: "mounts",
    OfferKind.CAPABILITY: "source",
}


def field_of(demand: str) -> tuple[str, ...]:
    """Return the field of the job file that makes a demand."""
    kind, _, name = demand.partition("/")
    if kind == OfferKind.LIMIT:
        return "limits", name.removeprefix(_BY_ENGINE)
    return (_FIELDS.get(OfferKind(kind), kind),)


def type_of(kind: str, function: str, walls: Walls | None) -> str:
    """Return the type of a job with these rules."""
    if kind:
        return kind
    if function:
        return JobType.PYTHON
    is_container = walls is not None and Isolation.CONTAINER in walls.isolation
    return JobType.CONTAINER if is_container else JobType.SHELL


def registry_of(image: str) -> str:
    """Return where an image comes from, as engines read its name."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first if is_host else _USUAL_REGISTRY


def may_be_root(user: str) -> bool:
    """Return whether a user of a container may be root there: a name is what its image makes of it.

    Only numbers tell who somebody is; what is root's group may be root's, too.
    """
    parts = user.split(":") if user else []
    return not all(part.isdecimal() and 0 < int(part) < _MOST_USERS for part in parts)


def is_pinned(image: str) -> bool:
    """Return whether it names the content of an image, not a tag that may move."""
    return _SHA256 in image

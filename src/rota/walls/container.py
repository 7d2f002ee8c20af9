"""Description of an attempt's container, as its engine gets it.

Nothing of the image can be written to, and nothing of it is kept: what a job writes goes to its
folder, or to memory that counts for it. No capabilities, no new privileges, and a user that has no
files anywhere unless the job asks for another.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

from rota.domain.spec import Container, Mount, Network, RunLimits
from rota.domain.walls import LIMITS, OfferKind
from rota.ports.work import Offer
from rota.walls import seccomp

JOB = "/job"
TOLD = "/run/rota"  # what a job is told in files, and tells
HOME = "/home/job"
NO_NEW_PRIVILEGES = "no-new-privileges"
PROGRAMS_AT = "/run/rota-init"  # of `rota.walls.hold`
SCRIPTS = "/run/rota-scripts"
_NOBODY = 65534
_HOLDERS = (65533, 65532)  # who holds a container open: not whom its job runs as
# Threads that are not the job's: who holds it open, and the engine's own helper for as long as it
# brings another process in, which it must be able to do when the job has all that it may have.
_OTHERS = 16
_MOST_PROCESSES = 32_768  # of a user: Podman itself may have no more, and could not give it
_TMP_SIZE = 1 << 30
_SCRATCH = ("/tmp", "/var/tmp", "/run")  # noqa: S108 (in the container)
_WHOLE = (
    "/proc",
    "/sys",
    "/dev",
    TOLD,
    PROGRAMS_AT,
    SCRIPTS,
)  # nothing may be mounted below these either
_TAKEN = (*_WHOLE, *_SCRATCH, JOB, HOME)


class MountRefused(Exception):
    """The worker does not let a container have this folder."""


@dataclass(frozen=True, slots=True)
class MountRoot:
    """Folder of this machine that containers may have."""

    path: Path
    writable: bool = False

    def __str__(self) -> str:
        return f"{self.path}:rw" if self.writable else str(self.path)


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """Settings of a worker about containers."""

    engine: str = ""  # path of its socket, or auto; "": none
    mounts: tuple[MountRoot, ...] = ()
    registries: Path | None = None  # file of logins
    network_host: bool = False


def parse_roots(texts: Iterable[str]) -> tuple[MountRoot, ...]:
    """Parse `/data` and `/srv/cache:rw`; raise `ValueError`."""
    roots = tuple(map(_root, texts))
    for root in roots:
        inner = [each for each in roots if root.path in each.path.parents]
        if root.writable and inner:
            raise ValueError(
                f"{root.path} may be written and holds {inner[0].path}: a job could put a link in"
                " its place"
            )
    return roots


def _root(text: str) -> MountRoot:
    path, colon, mode = text.rpartition(":")
    if not colon or mode not in ("ro", "rw"):
        path, mode = text, "ro"
    pure = PurePosixPath(path)
    if not pure.is_absolute() or ".." in pure.parts or pure == PurePosixPath("/"):
        raise ValueError(f'"{text}" is not a folder such as /data or /srv/cache:rw')
    return MountRoot(Path(path), writable=mode == "rw")


def allowed_source(mount: Mount, roots: Sequence[MountRoot]) -> str:
    """Return the folder behind a mount, its links resolved, or raise `MountRefused`.

    Between this look and the engine's mount nobody may put a link in its place. Jobs can do so
    below a root that they may write to, so such a root is mounted whole or not at all.
    """
    try:
        source = Path(os.path.realpath(mount.source, strict=True))
        found = [(root, Path(os.path.realpath(root.path))) for root in roots]
    except OSError as error:
        raise MountRefused(f"{mount.source} cannot be mounted: {error.strerror}") from error
    around = [(root, path) for root, path in found if path == source or path in source.parents]
    if not around:
        told = f"{mount.source} is {source}, which" if str(source) != mount.source else mount.source
        raise MountRefused(f"{told} is not below any of the worker's container_mounts")
    root, path = max(around, key=lambda each: len(each[1].parts))
    if mount.writable and not root.writable:
        raise MountRefused(f"{mount.source} may only be read: container_mounts has {root}")
    if root.writable and path != source:
        raise MountRefused(
            f"jobs may write to {root.path}: it is mounted whole, or container_mounts names"
            f" {mount.source} instead"
        )
    return str(source)


def user_of(container: Container) -> str:
    """Return the user as engines want it; a number alone is its group, too, or it would be 0."""
    user = container.user or str(_NOBODY)
    return f"{user}:{user}" if user.isdecimal() else user


def _holder(user: str) -> str:
    number = next(uid for uid in _HOLDERS if str(uid) != user.partition(":")[0])
    return f"{number}:{number}"


def security_options(folder: Path, *, is_podman: bool) -> tuple[str, ...]:
    """Return options that give containers the same filter of system calls as sandboxes have.

    What engines have by default is different from one to the other and from year to year: some let
    through vsock, which no network namespace holds back, and new user namespaces. Docker wants the
    filter itself, Podman the file of it.
    """
    text = json.dumps(seccomp.profile())
    path = folder / "seccomp.json"
    path.write_text(text, "ascii")
    return NO_NEW_PRIVILEGES, f"seccomp={path.absolute() if is_podman else text}"


@dataclass(frozen=True, slots=True)
class Frame:
    """All that decides the config of a container."""

    image_id: str
    volumes: tuple[str, ...]  # that the image wants
    user: str
    labels: Mapping[str, str]
    job_folder: str
    told_folder: str
    scripts: str  # folder
    programs: str  # folder
    mounts: tuple[tuple[str, Mount], ...] = ()  # with the sources that were allowed
    network: Network = Network.NONE
    limits: RunLimits = RunLimits()
    files: Mapping[str, str] = field(default_factory=dict)  # read-only: target → source
    security: tuple[str, ...] = (NO_NEW_PRIVILEGES,)  # options of the engine


def config_of(frame: Frame) -> dict[str, Any]:
    """Return the config of a container that stays open: the job's processes come into it later.

    So a network can be there before them, and what they took can be read after them.
    """
    shown = {} if frame.network is Network.HOST else {"Hostname": "job"}
    return shown | {
        "Image": frame.image_id,
        "Entrypoint": [f"{PROGRAMS_AT}/hold"],
        "Cmd": [],
        "User": _holder(frame.user),
        "WorkingDir": "/",
        "Labels": dict(frame.labels),
        "StopSignal": "SIGKILL",  # what an engine sends when it ends itself: `hold` takes no TERM
        "Healthcheck": {"Test": ["NONE"]},  # the image's would run beside the job
        "HostConfig": {
            "NetworkMode": "host" if frame.network is Network.HOST else "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": list(frame.security),
            "Init": False,  # ours is the first process
            "IpcMode": "private",
            "LogConfig": {"Type": "none", "Config": {}},  # Rota keeps the output, within its limit
            "RestartPolicy": {"Name": "no"},
            "Mounts": _mounts(frame),
            "Tmpfs": _tmpfs(frame),
            **_limits(frame.limits),
        },
    }


def _mounts(frame: Frame) -> list[dict[str, Any]]:
    own = [
        bind_mount(frame.job_folder, JOB, writable=True),
        bind_mount(frame.told_folder, TOLD, writable=True),
        bind_mount(frame.scripts, SCRIPTS, writable=False),
        bind_mount(frame.programs, PROGRAMS_AT, writable=False),
    ]
    files = [bind_mount(source, target, writable=False) for target, source in frame.files.items()]
    asked = [
        bind_mount(source, each.target, writable=each.writable) for source, each in frame.mounts
    ]
    return [*own, *files, *asked]


def bind_mount(source: str, target: str, *, writable: bool) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": not writable,
        # What is mounted below it stays outside: read-only would not hold for that.
        "BindOptions": {"Propagation": "private", "NonRecursive": True},
    }


def _tmpfs(frame: Frame) -> dict[str, str]:
    options = f"rw,exec,nosuid,nodev,mode=1777,size={frame.limits.disk or _TMP_SIZE}"
    mounted = {JOB, TOLD, SCRIPTS, PROGRAMS_AT, *(each.target for _, each in frame.mounts)}
    # Volumes that the image wants would be on disk, where nothing limits them.
    volumes = (normpath(path) for path in frame.volumes if path.startswith("/"))
    wanted = (*_SCRATCH, HOME, *volumes)
    return dict.fromkeys((path for path in wanted if path not in mounted), options)


def _limits(limits: RunLimits) -> dict[str, Any]:
    found: dict[str, Any] = {"Ulimits": ulimits(limits)}
    if limits.cpu is not None:
        found["NanoCpus"] = limits.cpu * 1_000_000
    if limits.memory is not None:
        found |= {"Memory": limits.memory, "MemorySwap": limits.memory}
    if limits.processes is not None:
        found["PidsLimit"] = limits.processes + _OTHERS
    return found


def ulimits(limits: RunLimits) -> list[dict[str, Any]]:
    """Return limits of each process.

    All that Podman would otherwise set to the most there is: an engine that may not raise its own
    could not start anything.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    values = {
        "nofile": files if limits.open_files is None else limits.open_files,
        "nproc": min(processes, _MOST_PROCESSES) if processes >= 0 else _MOST_PROCESSES,
        "core": 0,
    }
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in values.items()]


def why_no_target(target: str) -> str:
    """Return why nothing may be mounted there; "": it may."""
    path = PurePosixPath(target)
    if not path.is_absolute() or path == PurePosixPath("/") or ".." in path.parts:
        return f"{target} is not a folder in the container"
    over = [each for each in _TAKEN if path in (PurePosixPath(each), *PurePosixPath(each).parents)]
    below = [each for each in _WHOLE if PurePosixPath(each) in path.parents]
    taken = [*over, *below]
    return f"{target} would hide {taken[0]}, which every container has" if taken else ""


_USUAL = ("/run/docker.sock", "/run/podman/podman.sock")
_USUAL_OF_USER = ("docker.sock", "podman/podman.sock")  # in XDG_RUNTIME_DIR


def find_socket(told: str) -> str:
    """Return the path of the engine's socket as the setting says; "": there is none.

    `auto` looks where Docker and Podman have theirs.
    """
    if told != "auto":
        return told.removeprefix("unix://")
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [*_USUAL, *(f"{own}/{name}" for name in _USUAL_OF_USER if own)]
    return next((place for place in places if Path(place).is_socket()), "")


def why_no_socket(path: str) -> str:
    """Return why a worker cannot ask the engine behind a path; "": it can."""
    if not Path(path).exists():
        return f"there is no socket at {path}: is the engine started?"
    if not Path(path).is_socket():
        return f"{path} is no socket"
    if not os.access(path, os.R_OK | os.W_OK):
        return f"the worker's user may not use {path}: add it to the group that owns the socket"
    return ""


def offers_of(
    settings: ContainerSettings,
    lacks: str,
    no_outbound: str = "",
    logins: Mapping[str, str] | None = None,
    no_disk: str = "",
) -> Iterator[Offer]:
    """Yield what a worker offers of containers; `logins` says why each of them is of no use."""
    yield Offer(OfferKind.TYPE, "container", lacks)
    yield Offer(OfferKind.WALL, "container", lacks)
    no_host = "the worker's setting container_network_host does not allow it"
    reasons = {
        Network.NONE: "",
        Network.OUTBOUND: no_outbound,
        Network.HOST: "" if settings.network_host else no_host,
    }
    for network, reason in reasons.items():
        yield Offer(OfferKind.NETWORK, f"container/{network}", lacks or reason)
    for name in LIMITS:
        reason = no_disk if name == "disk" else ""
        yield Offer(OfferKind.LIMIT, f"container/{name}", lacks or reason)
    for name, reason in (logins or {}).items():
        yield Offer(OfferKind.REGISTRY, name, lacks or reason)
    for root in settings.mounts:
        yield Offer(OfferKind.MOUNT, str(root), lacks)

"""Fields by which a job says how it is kept apart, how they go together, and how they are read.

Which wall a job has may be settled only by what stands below its file: the defaults of its project
and of the store. So what is wrong in any case is told when the file is read (`misfits`), the rest
once all is merged (`misfits(…, is_whole=True)`). A stored document that names no isolation means a
plain process for ever: what the store's default adds is written into it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rota.domain.jobfile.external import NOT_OF_EXTERNAL
from rota.domain.jobfile.http import NOT_OF_HTTP
from rota.domain.jobfile.kinds import (
    INVALID,
    Choice,
    Flag,
    Integer,
    Refused,
    Scalar,
    Schema,
    Size,
    Text,
)
from rota.domain.jobfile.sections import NAME, Field, ListOf, Section
from rota.domain.jobfile.slips import MOUNT_ADVICE, RUN_LIMITS_ADVICE
from rota.domain.jobfile.text import At
from rota.domain.quantities import parse_size
from rota.domain.resources import UNIT, format_amount, parse_amount
from rota.domain.spec import (
    Container,
    Isolation,
    JobSpec,
    JobType,
    Mount,
    Network,
    PullPolicy,
    RunLimits,
    is_plugin_type,
)
from rota.domain.walls import WallDefaults

Document = Mapping[str, Any]

MEBIBYTE = 1024 * 1024
MOST_BYTES = 1024**5
MOST_CORES = 10_000
_LEAST_CORES = 10  # thousandths: the kernel gives no less than 1 ms in 100
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(?::[0-9]{1,5})?"
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"@sha256:[0-9a-f]{64}"

IMAGE = Text(
    "an image such as registry.example.org/team/app:1.4 or app@sha256:…",
    512,
    pattern=rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?:{_TAG})?(?:{_DIGEST})?",
)
REGISTRY_HOST = Text("the host of a registry such as registry.example.org", 259, pattern=_HOST)
USER = Text(
    "the name of a user: at most 32 letters, digits, dots, dashes and underscores",
    32,
    pattern=r"[A-Za-z_][A-Za-z0-9_.-]{0,31}",
)
USER_INSIDE = Text(
    "a user of the image, by name or number, perhaps with a group: app or 1000:1000",
    65,
    pattern=f"{_WORD}(?::{_WORD})?",
    takes_numbers=True,
)


@dataclass(frozen=True, slots=True)
class NetworkChoice(Scalar):
    """Network of a run; true and false are short for the usual two."""

    words: str = "none, outbound or host"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, bool):
            return str(Network.OUTBOUND if value else Network.NONE)
        try:
            return Choice(Network).accept(value, at)
        except Refused as refused:
            raise Refused(hint=str(refused.hint)) from refused

    def schema(self) -> Schema:
        return {"enum": [*map(str, Network), True, False]}


@dataclass(frozen=True, slots=True)
class Cores(Scalar):
    words: str = "a number of cores with at most 3 decimals, such as 2 or 0.5"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused
        try:
            cores = parse_amount(value)
        except ValueError as error:
            raise Refused from error
        if not _LEAST_CORES <= cores <= MOST_CORES * UNIT:
            least = format_amount("cpu", _LEAST_CORES)
            raise Refused(f"{at.name} must be from {least} to {MOST_CORES:,} cores, not {value}")
        return value

    def schema(self) -> Schema:
        return {"type": "number", "minimum": _LEAST_CORES / UNIT, "maximum": MOST_CORES}


@dataclass(frozen=True, slots=True)
class Folder(Text):
    """Absolute path without detours."""

    words: str = "an absolute path"
    max_length: int = 4_096
    pattern: str = r"/[^\x00-\x1f]*"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, str) and value and not value.startswith("/"):
            raise Refused(hint="write it from the root" if ".." in value else f"write /{value}")
        path = str(Text.accept(self, value, at))  # super() does not work with slots
        if {".", ".."} & set(path.split("/")):
            raise Refused(f'{at.name} must not contain "." or ".."', "write where it leads")
        return path


ROOT = Folder("an absolute path, with :rw behind it if it may be written to")

RUN_LIMITS = Section(
    "run_limits",
    (
        Field("cpu", Cores(), "Cores that it may use on average.", examples=(2, 0.5)),
        Field(
            "memory",
            Size(4 * MEBIBYTE, MOST_BYTES),
            "Memory of all its processes, swap included; beyond it they are killed (`oom`).",
            examples=("512MiB",),
        ),
        Field(
            "processes",
            Integer(1, 4_194_304),
            "Processes and threads at once; starting more fails.",
            examples=(100,),
        ),
        Field(
            "open_files",
            Integer(16, 1_048_576),
            "Files that each process may have open.",
            examples=(1_024,),
        ),
        Field(
            "disk",
            Size(MEBIBYTE, MOST_BYTES),
            "Bytes in its folder and `/tmp`: measured every few seconds, so it may be more for "
            "a moment.",
            examples=("1GiB",),
        ),
    ),
    advice=RUN_LIMITS_ADVICE,
)

MOUNT = Section(
    "mount",
    (
        Field(
            "source",
            Folder(),
            "The folder of the worker's machine: one of those that its admin allows, or below it.",
            required=True,
            examples=("/srv/models",),
        ),
        Field("target", Folder(), "Where the container sees it.", required=True),
        Field("writable", Flag(), "Whether it may write there.", False),
    ),
    advice=MOUNT_ADVICE,
)

_LIMITS_OF_RUN = Field(
    "limits",
    RUN_LIMITS,
    "The most that a run may take of its machine; unless given what it books of `cpu` and "
    "`memory`, where its worker can see to that.",
    examples=({"cpu": 2, "memory": "512MiB", "processes": 100},),
)
_RUN_AS = Field(
    "run_as",
    USER,
    "The user of the worker's machine to run as, one of those that its admin allows.",
    examples=("reports",),
)

WALLS_OF_JOB = (
    Field(
        "isolation",
        Choice(Isolation),
        "The wall between a run and its worker: a plain `process`, a `sandbox` that needs no "
        "image, or a `container`; unless given that of the project, else of the installation, and "
        "functions are always processes.",
    ),
    Field(
        "network",
        NetworkChoice(),
        "The network behind a wall: `none` (or `false`), `outbound` (or `true`), which reaches "
        "public addresses only, or the worker's own (`host`), which a process always has.",
    ),
    _RUN_AS,
    _LIMITS_OF_RUN,
    Field(
        "image",
        IMAGE,
        "The image of a container.",
        examples=("registry.example.org/team/app:1.4",),
    ),
    Field("pull", Choice(PullPolicy), "When the image is fetched.", "if_missing"),
    Field(
        "registry",
        NAME,
        "The login by which the image is fetched, one of those in the worker's settings.",
    ),
    Field(
        "mounts",
        ListOf(MOUNT, most=50, instead="write [{source: /FOLDER, target: /FOLDER}]"),
        "Folders of the worker's machine that the container sees.",
        examples=([{"source": "/srv/models", "target": "/models"}],),
    ),
    Field(
        "command",
        ListOf(
            Text(max_length=128 * 1024, min_length=0, lines=True, takes_numbers=True),
            most=1_000,
            least=1,
            instead="write its words as a list: [app, --once]",
        ),
        "What the container runs instead of steps; with neither, what its image says.",
        examples=(["app", "--once"],),
        shared=False,
    ),
    Field(
        "user",
        USER_INSIDE,
        "The user inside the container; 65534, unless given.",
        examples=("app", "1000:1000"),
    ),
)

WALLS_OF_STEP = (
    Field(
        "isolation",
        Choice((str(Isolation.PROCESS), str(Isolation.SANDBOX))),
        "The wall of this step, instead of the job's; steps of a container stay in it.",
    ),
    Field("network", NetworkChoice(), "Its network, instead of the job's."),
    _RUN_AS,
    Field("limits", RUN_LIMITS, "Its limits; one that it does not give is the job's."),
)

OF_CONTAINERS = ("image", "pull", "registry", "mounts", "command", "user")
_A_STEP = "a command is a step: steps: [{run: COMMAND}]"
_OF_STEPS = ("isolation", "network", "run_as", "limits")
_NOT_OF_FUNCTIONS = (*_OF_STEPS, *OF_CONTAINERS)
_NOT_OF_CONTAINERS = ("run_as", "source")
_WITHOUT_COMMANDS: Mapping[object, str] = {  # types that no wall can stand around, and why
    JobType.PYTHON: "functions run in their worker's host",
    JobType.HTTP: "another system does the work",
    JobType.EXTERNAL: "another system does the work",
}

_FOREIGN: Mapping[object, tuple[str, ...]] = {  # what defaults do not give to such jobs
    JobType.HTTP: NOT_OF_HTTP,
    JobType.EXTERNAL: NOT_OF_EXTERNAL,
}


def _has_no_commands(kind: object) -> bool:
    return kind in _WITHOUT_COMMANDS or is_plugin_type(str(kind or ""))


def _why_without_walls(kind: object) -> str:
    return _WITHOUT_COMMANDS.get(kind, "a plug-in does the work, on behalf of its worker")


def stated_wall(document: Document) -> Isolation | None:
    """Return the wall that a document names; None: it leaves that to what is below it."""
    if document.get("type") == JobType.CONTAINER:
        return Isolation.CONTAINER
    if _has_no_commands(document.get("type")):
        return Isolation.PROCESS
    written = document.get("isolation")
    return Isolation(written) if written is not None else None


def inheritable(lower: Document, own: Document) -> dict[str, Any]:
    """Return what a document takes of the one below it: nothing that its own wall cannot have."""
    kind = own.get("type", lower.get("type"))
    if _has_no_commands(kind):
        foreign = NOT_OF_HTTP if is_plugin_type(str(kind or "")) else _FOREIGN.get(kind, ())
        return _without(lower, _NOT_OF_FUNCTIONS + foreign)
    stated = stated_wall(own)
    taken = dict(lower)
    if stated is not None:
        taken.pop("isolation", None)
        if stated is not Isolation.CONTAINER and taken.get("type") == JobType.CONTAINER:
            del taken["type"]
    match stated or stated_wall(lower):
        case Isolation.PROCESS:
            return _without(taken, ("network", *OF_CONTAINERS))
        case Isolation.SANDBOX:
            return _without(taken, OF_CONTAINERS)
        case Isolation.CONTAINER:
            return _without(taken, _NOT_OF_CONTAINERS)
        case None:
            return taken


def _without(document: Document, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def settled(document: Document, defaults: WallDefaults, emptied: Collection[str] = ()) -> Document:
    """Return a document with the walls that the store gives to jobs that ask for none.

    A plain process is not written: documents without walls stay as they were. Fields left empty
    take no default.
    """
    wall = stated_wall(document)
    added: dict[str, str] = {}
    if wall is None:
        wall = Isolation.PROCESS if "isolation" in emptied else defaults.isolation
        if wall is not Isolation.PROCESS:
            added["isolation"] = str(wall)
    is_open = "network" not in document and "network" not in emptied
    if wall is not Isolation.PROCESS and is_open and defaults.network is not Network.NONE:
        added["network"] = str(defaults.network)
    return {**document, **added} if added else document


@dataclass(frozen=True, slots=True)
class Misfit:
    """Field that does not go with the wall of its job."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""
    is_key: bool = True  # the field itself is wrong; False: its value


def misfits(document: Document, scope: str, *, is_whole: bool) -> Iterator[Misfit]:
    """Yield what does not go together. `is_whole`: nothing more comes from below."""
    if _has_no_commands(document.get("type")):
        yield from _of_function(document)
        return
    wall = stated_wall(document)
    if wall is None and is_whole:
        wall = Isolation.PROCESS
    match wall:
        case Isolation.PROCESS:
            yield from _of_process(document)
        case Isolation.CONTAINER:
            yield from _of_container(document, scope, is_whole=is_whole)
        case Isolation.SANDBOX | None:
            yield from _of_no_container(document, wall)
    yield from _of_steps(document, wall)


def _of_function(document: Document) -> Iterator[Misfit]:
    for name in _NOT_OF_FUNCTIONS:
        if name in document and document[name] != Isolation.PROCESS:
            kind = document["type"]
            message = f'"{name}" does not go with type {kind}: {_why_without_walls(kind)}'
            yield Misfit((name,), message, "leave it out, or run a command with type shell")


def _of_process(document: Document) -> Iterator[Misfit]:
    network = document.get("network", Network.HOST)
    if network != Network.HOST:
        yield _walled_network(("network",), network)
    yield from _of_no_container(document, Isolation.PROCESS)


def _walled_network(path: tuple[str | int, ...], network: str) -> Misfit:
    message = f"network {network} does not go with isolation process, which has the worker's own"
    return Misfit(path, message, "write isolation: sandbox", is_key=False)


def _of_no_container(document: Document, wall: Isolation | None) -> Iterator[Misfit]:
    instead = f", not {wall}" if wall else ""
    for name in OF_CONTAINERS:
        if name in document:
            message = f'"{name}" goes with isolation container only{instead}'
            hint = f"write isolation: container, or leave {name} out"
            yield Misfit((name,), message, _A_STEP if name == "command" else hint)


def _of_container(document: Document, scope: str, *, is_whole: bool) -> Iterator[Misfit]:
    written = document.get("isolation", Isolation.CONTAINER)
    if written != Isolation.CONTAINER:
        message = f"isolation {written} does not go with type container"
        yield Misfit(("isolation",), message, "leave it out", is_key=False)
    if is_whole and "image" not in document:
        message = f'{scope} has no "image", which isolation container needs'
        yield Misfit(("image",), message, "write image: registry.example.org/app:1.4", is_key=False)
    if "run_as" in document:
        message = '"run_as" does not go with isolation container'
        yield Misfit(("run_as",), message, "the user inside it is written user: NAME")
    if "path" in (document.get("source") or {}):
        message = '"path" does not go with isolation container, which has folders of its own'
        hint = "mount it: mounts: [{source: /FOLDER, target: /FOLDER}]"
        yield Misfit(("source", "path"), message, hint)
    if "command" in document and document.get("steps"):
        message = '"command" does not go with steps: it is what the container runs instead'
        yield Misfit(("command",), message, "leave out one of them")
    yield from _of_mounts(document)


def _of_mounts(document: Document) -> Iterator[Misfit]:
    first: dict[str, int] = {}
    for index, mount in enumerate(document.get("mounts", ())):
        if mount is INVALID or "target" not in mount:
            continue
        target = mount["target"].rstrip("/")
        if not target:
            message = "target must be a folder below the container's root"
            yield Misfit(("mounts", index, "target"), message, is_key=False)
        elif first.setdefault(target, index) != index:
            message = f"target {target} is already that of mounts[{first[target]}]"
            yield Misfit(("mounts", index, "target"), message, is_key=False)


def _of_steps(document: Document, wall: Isolation | None) -> Iterator[Misfit]:
    for index, step in enumerate(document.get("steps", ())):
        if step is INVALID:
            continue
        if wall is Isolation.CONTAINER:
            for name in _OF_STEPS:
                if name in step:
                    message = f'"{name}" of a step does not go with isolation container'
                    hint = "steps share the container: write it on the job"
                    yield Misfit(("steps", index, name), message, hint)
            continue
        own = Isolation(step["isolation"]) if "isolation" in step else wall
        network = step.get("network", Network.HOST)
        if own is Isolation.PROCESS and network != Network.HOST:
            yield _walled_network(("steps", index, "network"), network)


def check_walls(document: Document, at: At, *, is_whole: bool) -> None:
    """Report what does not go together."""
    for misfit in misfits(document, at.scope, is_whole=is_whole):
        place = at
        for part in misfit.path:
            place = place.child(part)
        (place.refuse_key if misfit.is_key else place.refuse)(misfit.message, misfit.hint)


def shown_walls(document: Document) -> dict[str, Any]:
    """Return what a stored document says of walls, for people; whatever release wrote it."""
    is_container = document.get("type") == JobType.CONTAINER
    written = document.get("isolation") or str(Isolation.PROCESS)
    wall = str(Isolation.CONTAINER) if is_container else written
    usual = Network.HOST if wall == Isolation.PROCESS else Network.NONE
    return {
        "isolation": wall,
        "network": document.get("network") or str(usual),
        "run_as": document.get("run_as") or "",
        "limits": document.get("limits") or {},
        "image": document.get("image") or "",
    }


def build_walls(document: Document) -> dict[str, Any]:
    """Return the fields of a spec that are about walls."""
    wall = stated_wall(document) or Isolation.PROCESS
    given: dict[str, Any] = {}
    if wall is not Isolation.PROCESS:
        given = {"isolation": wall, "network": Network(document.get("network", Network.NONE))}
    if wall is Isolation.CONTAINER:
        given |= {"type": JobType.CONTAINER, "container": _container(document)}
    if "run_as" in document:
        given["run_as"] = document["run_as"]
    if "limits" in document:
        given["limits"] = build_limits(document["limits"])
    return given


def build_step_walls(step: Document, job: Document) -> dict[str, Any]:
    """Return the fields of a step that are about walls, all of them; None is the job's."""
    wall = Isolation(step["isolation"]) if "isolation" in step else None
    network = Network(step["network"]) if "network" in step else None
    if network is None and wall is Isolation.PROCESS:
        network = Network.HOST
    elif network is None and wall is not None and not _is_walled(job):
        network = Network.NONE  # the job's is the worker's own
    limits = step.get("limits")
    return {
        "isolation": wall,
        "network": network,
        "run_as": step.get("run_as"),
        "limits": None if limits is None else build_limits(limits),
    }


def _is_walled(document: Document) -> bool:
    return stated_wall(document) not in (None, Isolation.PROCESS)


def with_walls(spec: JobSpec, document: Document) -> JobSpec:
    """Return a spec with the walls of its document, of which all else was read before."""
    walls = (build_step_walls(step, document) for step in document.get("steps", ()))
    steps = (replace(step, **given) for step, given in zip(spec.steps, walls, strict=True))
    return replace(spec, steps=tuple(steps), **build_walls(document))


def build_limits(document: Document) -> RunLimits:
    cpu, memory, disk = (document.get(name) for name in ("cpu", "memory", "disk"))
    return RunLimits(
        cpu=None if cpu is None else parse_amount(cpu),
        memory=None if memory is None else parse_size(memory),
        processes=document.get("processes"),
        open_files=document.get("open_files"),
        disk=None if disk is None else parse_size(disk),
    )


def _container(document: Document) -> Container:
    mounts = (
        Mount(_plain(m["source"]), _plain(m["target"]), m.get("writable", False))
        for m in document.get("mounts", ())
    )
    return Container(
        image=document.get("image", ""),  # "": it may come from below the file
        pull=PullPolicy(document.get("pull", PullPolicy.IF_MISSING)),
        registry=document.get("registry", ""),
        mounts=tuple(mounts),
        command=tuple(document.get("command", ())),
        user=document.get("user", ""),
    )


def _plain(path: str) -> str:
    """Return a path without doubled or closing slashes."""
    return "/" + "/".join(part for part in path.split("/") if part)

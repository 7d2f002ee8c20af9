"""Walls of a worker: how a step is started behind the one that its job asks for.

Nothing ever runs with less than it asks for: what this worker lacks is `WallUnavailable`, with the
reason in plain words.
"""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Protocol

from rota.domain.spec import (
    NO_LIMITS,
    Isolation,
    JobSpec,
    Network,
    RunLimits,
    Step,
    booked_limits,
    run_limits,
)
from rota.ports.executor import Confinement, Process, SignalScope, Spawner
from rota.walls import sandbox
from rota.walls.network import Outbound
from rota.walls.rooms import Room, Rooms, folder_below
from rota.walls.sandbox import Attach, Bind, Sandbox, SandboxedProcess, Script, View

# Processes of bubblewrap itself, beside those of the job.
_MONITORS = 2


@dataclass(frozen=True, slots=True)
class WallSettings:
    """Settings of a worker about its walls."""

    binds: tuple[Bind, ...] = ()
    uids: range = range(65_536, 75_536)
    networks: tuple[IPv4Network, ...] = ()  # private, and open to outbound
    network_host: bool = False
    run_as: tuple[str, ...] = ()
    disk_floor: int = 64 * 1024 * 1024  # bytes; 0: none


@dataclass(slots=True)
class Equipment:
    """Equipment of the machine for walls, as it was found by trying; each lack with its reason."""

    bwrap: str = ""  # paths of programs
    slirp: str = ""
    python: str = ""  # as sandboxes see it
    lacks: dict[str, str] = field(default_factory=dict)  # by `kind/name` of an offer


class WallUnavailable(OSError):
    """A step asks for a wall that this worker does not have."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EOPNOTSUPP, reason)


@dataclass(frozen=True, slots=True)
class Account:
    """User of this machine, as jobs see themselves."""

    user: int
    group: int
    groups: tuple[int, ...] = ()
    name: str = ""  # "": one of the sandbox's own
    home: str = "/"


@dataclass(frozen=True, slots=True)
class Output:
    """Where a process prints to, and the last line that it printed."""

    stdout: int
    stderr: int
    last_line: Callable[[], str]


class Enclosed(Protocol):
    """One step behind a wall, to be started once. Paths and variables are as the step sees them."""

    variables: Mapping[str, str]  # that it has unless its job says otherwise
    work: str  # the folder that is its own
    output: Path
    progress: Path
    hides_scripts: bool  # they are never among arguments

    def write_script(self, suffix: str, text: str) -> str:
        """Put its script where it can read it; return the path."""
        ...

    def start(self, argv: Sequence[str], env: Mapping[str, str], output: Output) -> Process:
        """Start it; its output is closed here, or by the caller if this raises `OSError`."""
        ...


class Walls:
    """Starter of steps behind walls."""

    def __init__(self, settings: WallSettings, spawner: Spawner, rooms: Rooms) -> None:
        self.settings = settings
        self.rooms = rooms
        self.equipment = Equipment()
        self._spawner = spawner

    def needs_room(self, spec: JobSpec, step: Step) -> bool:
        """Return whether a step is carried out where, or as whom, the worker's own are not."""
        return _isolation(spec, step) is Isolation.SANDBOX or bool(_run_as(spec, step))

    def limits(self, spec: JobSpec, step: Step) -> RunLimits:
        """Return the limits of a step: what it gives, else what it books and this worker can."""
        own = spec.limits if step.limits is None else run_limits(spec, step)
        if not spec.resources:
            return own
        booked, lacks = booked_limits(spec), self.equipment.lacks
        return own.over(
            RunLimits(
                cpu=None if lacks.get("limit/cpu") else booked.cpu,
                memory=None if lacks.get("limit/memory") else booked.memory,
            )
        )

    def confinement(self, spec: JobSpec, step: Step, tag: str) -> Confinement | None:
        """Return how a process of the worker's own user is limited; None: not at all.

        Raise `WallUnavailable`.
        """
        limits = self.limits(spec, step)
        if limits == NO_LIMITS:
            return None
        self._check(f"limit/{name}" for name in _names(limits))
        kept = replace(limits, disk=None)
        return None if kept == NO_LIMITS else Confinement(limits=kept, tag=tag)

    def enclose(self, spec: JobSpec, step: Step, room: Room, tag: str) -> Enclosed:
        """Return how to start a step that needs a room, or raise `WallUnavailable`."""
        isolation, limits = _isolation(spec, step), self.limits(spec, step)
        network = spec.network if step.network is None else step.network
        needs = [f"wall/{isolation}", *(f"limit/{name}" for name in _names(limits))]
        if isolation is not Isolation.PROCESS:
            needs.append(f"network/{isolation}/{network}")
        self._check(needs)
        account = self._account(_run_as(spec, step), isolation, room)
        if account is None:
            room.note_worker()
        else:
            room.give_to(account.user, account.group)
        confinement = _confined(account, replace(limits, disk=None), tag)
        if isolation is Isolation.SANDBOX:
            folder = _folder_of(spec.path or str(room.job), step, spec.path or sandbox.WORK)
            return _InSandbox(self, spec, room, network, confinement, folder)
        assert account is not None  # else it would need no room
        top = spec.path or str(room.job)
        folder = _folder_of(top, step, top)
        return _AsAnother(self._spawner, folder, room, account, confinement)

    def _check(self, needs: Iterable[str]) -> None:
        for need in needs:
            if reason := self.equipment.lacks.get(need):
                raise WallUnavailable(f"this worker has no {need}: {reason}")

    def _account(self, name: str, isolation: Isolation, room: Room) -> Account | None:
        """Return who a step is; None: whoever the worker is."""
        if name:
            if name not in self.settings.run_as:
                raise WallUnavailable(f"{name} is not among the users of its setting run_as")
            self._check([f"run_as/{name}"])
            return account_of(name)
        if isolation is Isolation.SANDBOX and os.geteuid() == 0:
            uid = self.rooms.lend_user(room)
            return Account(uid, uid)
        return None

    def prepare(self, spec: JobSpec, room: Room, tag: str) -> Confinement:
        """Return how what comes before the steps of a job is confined, in a sandbox.

        Raise `WallUnavailable`.
        """
        limits = self.limits(spec, _NO_STEP)
        if spec.isolation is Isolation.CONTAINER:  # of which the engine keeps the limits
            kept = {n for n in _names(limits) if not self.equipment.lacks.get(f"limit/{n}")}
            limits = RunLimits(**{name: getattr(limits, name) for name in kept})
        self._check([f"wall/{Isolation.SANDBOX}", *(f"limit/{name}" for name in _names(limits))])
        account = self._account("", Isolation.SANDBOX, room)
        if account is None:
            room.note_worker()
        else:
            room.give_to(account.user, account.group)
        return _confined(account, replace(limits, disk=None), tag)

    def owner(self, spec: JobSpec, room: Room) -> Account:
        """Return who the steps of a job are that say nothing else."""
        account = self._account(spec.run_as, spec.isolation, room)
        return account or Account(os.geteuid(), os.getegid())

    def sandboxed(
        self,
        view: View,
        command: Sequence[str],
        confinement: Confinement,
        output: Output,
        opened: Sequence[IPv4Network] = (),
    ) -> Process:
        """Start a command in a sandbox; `OSError` if that is not possible.

        `opened` are private networks that it may reach beside those of the settings.
        """
        if len(command) == 0:
            raise OSError(errno.EINVAL, "there is nothing to execute")
        box = Sandbox(self.equipment.bwrap, view)
        limits = confinement.limits
        if limits.processes is not None:
            limits = replace(limits, processes=limits.processes + _MONITORS)
        process = self._spawner.spawn(
            box.argv(command),
            env={"PATH": sandbox.PATH},
            cwd="/",
            stdout=output.stdout,
            stderr=output.stderr,
            confinement=replace(
                confinement,
                limits=limits,
                descriptors=box.given.hand_over(),
                signals=SignalScope.INSIDE,
            ),
        )
        attach: Attach | None = None
        if view.network is Network.OUTBOUND:
            networks = (*self.settings.networks, *opened)
            outbound = Outbound(self.equipment.slirp, self._spawner, networks)
            attach = partial(outbound.attach, user=confinement.user, group=confinement.group)
        return SandboxedProcess(box, process, attach, output.last_line)


def _folder_of(top: str, step: Step, seen: str) -> str:
    """Return the folder of a step, `seen` being `top` as the step sees it."""
    return f"{seen}/{folder_below(top, step.folder)}" if step.folder else seen


_NO_STEP = Step("", ())


def _isolation(spec: JobSpec, step: Step) -> Isolation:
    return spec.isolation if step.isolation is None else step.isolation


def _run_as(spec: JobSpec, step: Step) -> str:
    return spec.run_as if step.run_as is None else step.run_as


def _names(limits: RunLimits) -> Iterator[str]:
    return (each.name for each in fields(limits) if getattr(limits, each.name) is not None)


def account_of(name: str) -> Account:
    """Return a user of this machine; `WallUnavailable` if there is none of this name."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise WallUnavailable(f"this machine has no user {name}") from None
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return Account(entry.pw_uid, entry.pw_gid, groups, name, entry.pw_dir)


def _confined(account: Account | None, limits: RunLimits, tag: str) -> Confinement:
    if account is None:
        return Confinement(limits=limits, tag=tag)
    return Confinement(account.user, account.group, account.groups, limits, tag=tag)


class _AsAnother:
    """Step that is a process of another user."""

    hides_scripts = False

    def __init__(
        self,
        spawner: Spawner,
        folder: str,
        room: Room,
        account: Account,
        confinement: Confinement,
    ) -> None:
        self._spawner = spawner
        self._room = room
        self._account = account
        self._confinement = confinement
        self._folder = folder
        self.work = str(room.job)
        self.output, self.progress = room.told / "output", room.told / "progress"
        self.variables: Mapping[str, str] = {
            "HOME": account.home,
            "USER": account.name,
            "LOGNAME": account.name,
        }

    def write_script(self, suffix: str, text: str) -> str:
        """Write it beside the folders of the user, who can read it there but not change it."""
        path = self._room.new_path(suffix)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchown(descriptor, self._account.user, self._account.group)
        return str(path)

    def start(self, argv: Sequence[str], env: Mapping[str, str], output: Output) -> Process:
        return self._spawner.spawn(
            argv,
            env=env,
            cwd=self._folder,
            stdout=output.stdout,
            stderr=output.stderr,
            confinement=self._confinement,
        )


class _InSandbox:
    """Step in a sandbox."""

    hides_scripts = True  # arguments of bubblewrap are for everybody on the machine to read

    def __init__(
        self,
        walls: Walls,
        spec: JobSpec,
        room: Room,
        network: Network,
        confinement: Confinement,
        folder: str,
    ) -> None:
        self._walls = walls
        self._room = room
        self._network = network
        self._confinement = confinement
        self._folder = folder
        self.work = sandbox.WORK
        self._script: Script | None = None
        self.output, self.progress = Path(sandbox.TOLD, "output"), Path(sandbox.TOLD, "progress")
        self.variables: Mapping[str, str] = {
            "PATH": sandbox.PATH,
            "HOME": sandbox.HOME,
            "USER": sandbox.USER,
            "LOGNAME": sandbox.USER,
            "TMPDIR": sandbox.TMP,
        }
        path = Path(spec.path)
        if spec.path and not any(bind.shows(path) for bind in walls.settings.binds):
            raise WallUnavailable(
                f"a sandbox of this worker does not show {spec.path}: add it, or a folder above"
                " it, to the worker's setting sandbox_binds"
            )

    def write_script(self, suffix: str, text: str) -> str:
        """Keep it for the sandbox, which has it as a file of its own, in memory."""
        self._script = Script(f"{sandbox.SCRIPT}{suffix}", text)
        return self._script.path

    def start(self, argv: Sequence[str], env: Mapping[str, str], output: Output) -> Process:
        view = View(
            self._room,
            self._network,
            env,
            self._folder,
            self._script,
            binds=self._walls.settings.binds,
        )
        return self._walls.sandboxed(view, argv, self._confinement, output)

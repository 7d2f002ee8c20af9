"""Trial of the walls that a worker has: each when it starts, as a job would use it.

A worker offers only what worked. For the rest it tells why, and what to do about it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from rota.domain.git import GIT, OLDEST_GIT, WALLED_FILES, WALLED_GIT
from rota.domain.spec import Isolation, JobSpec, Network, RunLimits, Step
from rota.domain.walls import OfferKind
from rota.ports.executor import Confinement, Exit, Spawner
from rota.ports.work import Offer
from rota.walls import seccomp
from rota.walls.enclosing import Output, Walls, WallUnavailable, account_of
from rota.walls.network import Talk

_PLACES = "/usr/bin:/usr/local/bin:/bin:/usr/sbin:/sbin"  # not the PATH of whoever starts it
_OLDEST_BWRAP = (0, 8, 0)  # the first with --disable-userns
_OLDEST_SLIRP = (1, 0, 1)
_OLDEST_LIBSLIRP = (4, 6, 1)  # before it packets could make it write where it must not
_TRIAL = ["/bin/sh", "-c", "exit 0"]
_WITHIN = 20.0  # seconds
_SMALL = RunLimits(cpu=1000, memory=64 * 1024 * 1024, processes=50, open_files=256)
_BOXED_IN = (
    "the container that the worker runs in forbids it: run that with"
    " security_opt [seccomp=unconfined, apparmor=unconfined, systempaths=unconfined], or give each"
    " project workers of its own with isolation: process"
)


class Prober:
    """Tries the walls of a worker, and keeps what they lack in their equipment."""

    def __init__(self, walls: Walls, spawner: Spawner, root: Path = Path("/")) -> None:
        self._walls = walls
        self._spawner = spawner
        self._root = root  # of the kernel's files, in tests another one
        self._lacks = walls.equipment.lacks

    async def probe(self) -> tuple[Offer, ...]:
        """Try everything; return what there is, and why there is not more."""
        await asyncio.gather(
            self._try_sandbox(),
            *(self._try_limit(name) for name in ("cpu", "memory", "processes", "open_files")),
            *(self._try_user(name) for name in self._walls.settings.run_as),
        )
        await self._find_programs()
        return tuple(self._offers())

    def _offers(self) -> Iterator[Offer]:
        names = ["wall/process", "wall/sandbox"]
        names += [f"network/sandbox/{network}" for network in Network]
        names += [f"limit/{limit.name}" for limit in fields(RunLimits)]
        names += [f"run_as/{name}" for name in self._walls.settings.run_as]
        names += [f"capability/{name}" for name in (GIT, WALLED_GIT, WALLED_FILES)]
        for name in names:
            kind, _, rest = name.partition("/")
            yield Offer(OfferKind(kind), rest, self._lacks.get(name, ""))

    # --- sources

    async def _find_programs(self) -> None:
        """Find out whether sources can be fetched, and unpacked, behind a wall and without one."""
        self._walls.equipment.python = python = _find_python()
        no_sandbox = self._lacks.get("wall/sandbox", "")
        no_files = no_sandbox or ("" if python else _NO_PYTHON)
        no_git = await _git_lacks()
        no_network = self._lacks.get(f"network/sandbox/{Network.OUTBOUND}", "")
        for name, reason in (
            (GIT, no_git),
            (WALLED_GIT, no_files or no_git or no_network),
            (WALLED_FILES, no_files),
        ):
            if reason:
                self._lacks[f"capability/{name}"] = reason

    # --- sandboxes

    async def _try_sandbox(self) -> None:
        reason = await self._sandbox_lacks()
        if reason:
            for name in ("wall/sandbox", *(f"network/sandbox/{each}" for each in Network)):
                self._lacks[name] = reason
            return
        outbound, host = f"network/sandbox/{Network.OUTBOUND}", f"network/sandbox/{Network.HOST}"
        if reason := await self._outbound_lacks():
            self._lacks[outbound] = reason
        if not self._walls.settings.network_host:
            self._lacks[host] = "the worker's setting sandbox_network_host does not allow it"

    async def _sandbox_lacks(self) -> str:
        program = shutil.which("bwrap", path=_PLACES)
        if program is None:
            return "bubblewrap is not installed: apt-get install bubblewrap"
        try:
            seccomp.program()
        except KeyError as error:
            return f"there is no filter of system calls for machines of the kind {error}"
        version = await _version(program)
        if version < _OLDEST_BWRAP:
            return f"{_too_old('bubblewrap', version, _OLDEST_BWRAP)}"
        if self._walls.rooms.trouble:
            return self._walls.rooms.trouble
        self._walls.equipment.bwrap = program
        ending = await self._rehearse(Network.NONE)
        return "" if ending.status == 0 else self._why_no_sandbox(_words(ending))

    async def _outbound_lacks(self) -> str:
        program, reason = await find_slirp(self._root)
        if reason:
            return reason
        self._walls.equipment.slirp = program
        ending = await self._rehearse(Network.OUTBOUND)
        return "" if ending.status == 0 else _words(ending)

    async def _rehearse(self, network: Network) -> Exit:
        """Carry out a step that does nothing, as those of jobs are."""
        step = Step("rehearsal", tuple(_TRIAL))
        spec = JobSpec("rehearsal", isolation=Isolation.SANDBOX, network=network, steps=(step,))
        talk = Talk()
        room = None
        try:
            room = self._walls.rooms.take()
            enclosed = self._walls.enclose(spec, step, room, f"rehearsal-{network}")
            output = Output(talk.writer(), talk.writer(), talk.last_line)
            process = enclosed.start(_TRIAL, enclosed.variables, output)
            return await _end_of(process.ended, process.kill)
        except OSError as error:
            return Exit(None, None, error=error.strerror or str(error))
        finally:
            if room is not None:
                self._walls.rooms.remove(room)
            talk.close()

    def _why_no_sandbox(self, words: str) -> str:
        """Explain what bubblewrap complains of."""
        reason = words.removeprefix("the sandbox could not be built: ")
        for path, forbidding, remedy in _SWITCHES:
            if self._read(path) == forbidding:
                return f"user namespaces are forbidden on this machine: {remedy}"
        if re.search(r"mount proc|/newroot/proc", reason):
            return f"no /proc of its own can be mounted ({reason}): {_BOXED_IN}"
        if re.search(r"new namespace|uid map|user ns", reason):
            return f"user namespaces are forbidden here ({reason}): perhaps {_BOXED_IN}"
        return reason

    def _read(self, path: str) -> str:
        try:
            return (self._root / path).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    # --- limits and users

    async def _try_limit(self, name: str) -> None:
        limits = RunLimits(**{name: getattr(_SMALL, name)})
        ending = await self._run(Confinement(limits=limits, tag=f"rehearsal-{name}"))
        if ending.status != 0:
            self._lacks[f"limit/{name}"] = _words(ending)

    async def _try_user(self, name: str) -> None:
        if os.geteuid() != 0:
            self._lacks[f"run_as/{name}"] = "only a worker that is root can become another user"
            return
        if self._walls.rooms.trouble:
            self._lacks[f"run_as/{name}"] = self._walls.rooms.trouble
            return
        try:
            account = account_of(name)
        except WallUnavailable as error:
            self._lacks[f"run_as/{name}"] = str(error.strerror)
            return
        ending = await self._run(Confinement(account.user, account.group, account.groups))
        if ending.status != 0:
            self._lacks[f"run_as/{name}"] = _words(ending)

    async def _run(self, confinement: Confinement) -> Exit:
        talk = Talk()
        try:
            process = self._spawner.spawn(
                _TRIAL,
                env={"PATH": os.defpath},
                cwd="/",
                stdout=talk.writer(),
                stderr=talk.writer(),
                confinement=confinement,
            )
            return await _end_of(process.ended, process.kill)
        finally:
            talk.close()


# Where the kernel says that it makes no namespaces for users.
_SWITCHES = (
    (
        "proc/sys/user/max_user_namespaces",
        "0",
        "allow them with sysctl user.max_user_namespaces=10000",
    ),
    (
        "proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "allow them with sysctl kernel.unprivileged_userns_clone=1",
    ),
    (
        "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "install an AppArmor profile for bwrap that says userns, or allow them to all with"
        " sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


async def find_slirp(root: Path = Path("/")) -> tuple[str, str]:
    """Return the path of slirp4netns, or why it is of no use here."""
    program = shutil.which("slirp4netns", path=_PLACES)
    if program is None:
        return "", "slirp4netns is not installed: apt-get install slirp4netns"
    version, library = await _versions(program, ("version", "libslirp:"))
    if version < _OLDEST_SLIRP:
        return "", _too_old("slirp4netns", version, _OLDEST_SLIRP)
    if library < _OLDEST_LIBSLIRP:
        return "", _too_old("libslirp", library, _OLDEST_LIBSLIRP)
    tun = root / "dev/net/tun"
    if not tun.exists():
        return "", "there is no /dev/net/tun: modprobe tun, or give it to the worker's container"
    if not os.access(tun, os.R_OK | os.W_OK):
        return "", "the worker may not open /dev/net/tun: chmod 666 /dev/net/tun"
    return program, ""


async def _git_lacks() -> str:
    program = shutil.which("git", path=_PLACES)
    if program is None:
        return "git is not installed: apt-get install git"
    [version] = await _versions(program, ("git version",))
    return _too_old("git", version, OLDEST_GIT) if version < OLDEST_GIT else ""


_NO_PYTHON = (
    "no Python of 3.11 or newer is where sandboxes see it, below /usr: apt-get install python3"
)
_USR = Path("/usr")


def _find_python() -> str:
    """Return a Python that sandboxes can execute; "": there is none."""
    own = Path(sys.executable).resolve()
    # Of another folder a sandbox is shown it, which the user of one cannot enter if that is root's.
    if own.is_relative_to(_USR) or os.geteuid() != 0:
        return str(own)
    names = [f"python3.{minor}" for minor in range(20, 10, -1)]
    places = ":".join((str(_USR / "local/bin"), str(_USR / "bin")))
    return next(filter(None, (shutil.which(name, path=places) for name in names)), "")


async def _end_of(ended: asyncio.Future[Exit], kill: object) -> Exit:
    try:
        async with asyncio.timeout(_WITHIN):
            return await asyncio.shield(ended)
    except TimeoutError:
        assert callable(kill)
        kill()
        await ended
        return Exit(None, None, error=f"it took more than {_WITHIN:g} s")


def _words(ending: Exit) -> str:
    if ending.error:
        return ending.error
    if ending.signal is not None:
        return f"it was killed by signal {ending.signal}"
    return f"it ended with {ending.status}"


async def _version(program: str) -> tuple[int, ...]:
    [version] = await _versions(program, ("bubblewrap",))
    return version


async def _versions(program: str, words: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the versions that a program tells, each after a word; (): it does not."""
    process = await asyncio.create_subprocess_exec(
        program,
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    told, _ = await process.communicate()
    found = [
        re.search(rf"{word}\s+(\d+(?:\.\d+)*)", told.decode(errors="replace")) for word in words
    ]
    return [tuple(map(int, each[1].split("."))) if each else () for each in found]


def _too_old(name: str, version: tuple[int, ...], oldest: tuple[int, ...]) -> str:
    has = ".".join(map(str, version)) or "of an unknown version"
    return f"{name} {has} is too old: {'.'.join(map(str, oldest))} or newer is needed"

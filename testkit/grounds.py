"""A worker behind a wall, and evidence of what its jobs did: written by them, judged from outside.

`Ground` is a `rota up` whose jobs go behind one wall; they share a folder of the machine with the
test, in which each attempt leaves its fence again and again for as long as it lives.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rota.walls.enclosing import WallSettings
from testkit.processes import RotaUp, cmdline, processes_of
from testkit.servers.engines import BASE, Engine
from testkit.waiting import eventually

WALLS: Mapping[str, Mapping[str, Any]] = {
    "process": {"isolation": "process"},
    "sandbox": {"isolation": "sandbox", "network": "none"},
    "docker": {"isolation": "container", "network": "none", "image": BASE, "pull": "never"},
    "podman": {"isolation": "container", "network": "none", "image": BASE, "pull": "never"},
}
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = "worker"  # of the guardian itself and its worker


class Ledger:
    """What attempts at one run wrote down: a line each tenth of a second, with their fence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.go = path.with_suffix(".go")  # once it is there, they end
        path.touch()
        path.chmod(0o666)

    @property
    def script(self) -> str:
        """Return the script of an attempt that lives until it may go."""
        return (
            f"while [ ! -e {self.go} ]; do echo $ROTA_FENCE >> {self.path}; sleep 0.1; done;"
            f" echo $ROTA_FENCE end >> {self.path}"
        )

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def fences(self) -> list[int]:
        """Return the fences in the order in which they came, each as often as it came anew."""
        found: list[int] = []
        for line in self.lines():
            fence = int(line.split()[0])
            if fence not in found[-1:]:
                found.append(fence)
        return found

    def let_go(self) -> None:
        self.go.touch()

    def assert_no_overlap(self) -> None:
        """Claim that no attempt lived on once a later one had begun."""
        fences = self.fences()
        assert fences == sorted(set(fences)), f"attempts overlapped: {fences}"


class Ground:
    """`rota up` with one worker, whose jobs go behind one wall."""

    def __init__(
        self, wall: str, home: Path, shared: Path, engine: Engine | None, **settings: str
    ) -> None:
        self.wall = wall
        self.engine = engine
        self.shared = shared
        given: dict[str, Any] = {
            "lease": "3s",
            "slots": "4",
            "sandbox_binds": f"{shared}:rw",
            **settings,
        }
        if engine is not None:
            given |= {"container_engine": str(engine.socket), "container_mounts": f"{shared}:rw"}
        self.rota = RotaUp(home, **given)
        self._ledgers = 0

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a job behind this wall."""
        found = dict(WALLS[self.wall])
        if self.engine is not None:
            folder = str(self.shared)
            found["mounts"] = [{"source": folder, "target": folder, "writable": True}]
        return found

    def ledger(self) -> Ledger:
        self._ledgers += 1
        return Ledger(self.shared / f"ledger{self._ledgers}")

    def pids(self, who: str) -> list[int]:
        """Return the processes that are meant by `worker`, `inner+outer`, `keeper`."""
        return [self._pid(each) for each in who.split("+")]

    def _pid(self, who: str) -> int:
        match who:
            case "worker":
                return self.rota.worker_pid()
            case "keeper":
                return self.rota.keeper_pid()
            case "inner":
                return self.rota.guardian_pids()[1]
            case "outer":
                return self.rota.guardian_pids()[0]
            case _:
                raise LookupError(who)

    def assert_nothing_is_left(self, *, is_alone: bool = False) -> None:
        """Claim that no attempt left anything on this machine, once its worker is up again.

        `is_alone`: nobody else here has containers meanwhile.
        """
        eventually(self._is_whole, otherwise="the worker did not start again")
        left: dict[str, Sequence[object]] = {}

        def is_clean() -> bool:
            left.clear()
            left.update({what: found for what, found in self._left(is_alone) if found})
            return not left

        with suppress(AssertionError):
            eventually(is_clean)
        assert left == {}

    def _is_whole(self) -> bool:
        """Return whether the worker runs, and a server knows it."""
        try:
            self.rota.worker_pid()
        except StopIteration:
            return False
        return any(each.state == "alive" for each in self.rota.client.list_workers().items)

    def _left(self, is_alone: bool) -> Iterator[tuple[str, Sequence[object]]]:
        home = self.rota.home
        folders = ("workers/*/rooms/*", "workers/*/containers/*", "workers/*/work/*/*")
        yield "folders", [path for each in folders for path in home.glob(each)]
        yield "control groups", list(self._groups())
        within = [pid for pid in _pids() if _mounts_of(pid, home.parent.name)]
        yield "users", [pid for pid in within if _user_of(pid) in WallSettings().uids]
        yield "holders", [pid for pid in within if b"/run/rota-init" in cmdline(pid)]
        yield "networks", [pid for pid in processes_of(home) if b"slirp4netns" in cmdline(pid)]
        yield "mounts", _mounts_of("self", home.parent.name)
        if self.engine is not None:
            yield "containers", [each for each in self.engine.names() if each[:7] == "rota-r_"]
            if is_alone:
                patterns = "*/docker/*", "*/libpod_parent/libpod-*"
                yield "groups of engines", [each for one in patterns for each in _GROUPS.glob(one)]

    def _groups(self) -> Iterator[Path]:
        """Yield the control groups of this worker but those that its guardian itself is in."""
        _, inner = self.rota.guardian_pids()
        lines = Path(f"/proc/{inner}/cgroup").read_text().splitlines()
        life = "".join({part for each in lines for part in each.split("/") if part[:5] == "rota-"})
        if not life:
            return  # it may make none here
        for top, names, _ in os.walk(_GROUPS):
            for name in names:
                if name.startswith(f"{life.partition('.')[0]}.") and name != life:
                    yield Path(top, name)
                if Path(top).name == life and name != _OWN_GROUP:
                    yield Path(top, name)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _user_of(pid: int) -> int:
    with suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return -1


def _mounts_of(pid: int | str, name: str) -> list[str]:
    """Return the mounts that a process sees of a folder with this name."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
        return [line for line in lines if name in line]
    return []


@contextmanager
def ground(wall: str, engine: Engine | None = None, **settings: str) -> Iterator[Ground]:
    """Start `rota up` for jobs behind a wall, in a folder that all users may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="rota-ground-", dir="/var/tmp"))
    shared = folder / "shared"
    shared.mkdir()
    folder.chmod(0o755)
    shared.chmod(0o777)
    made = Ground(wall, folder / "home", shared, engine, **settings)
    try:
        made.rota.start()
        yield made
    finally:
        made.rota.close()
        if engine is not None:
            for name in engine.names():
                engine.remove(name)
        shutil.rmtree(folder, ignore_errors=True)


def wake(pids: Sequence[int]) -> None:
    """Let processes go on that were stopped, if they are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

"""Machines with a worker that is root, and with one that is not."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rota.sdk.answers import Run, RunDetail
from testkit.processes import processes_of
from testkit.waiting import eventually
from testkit.walled import SOMEBODY, Network, WalledRota, walled_machine
from tests.system.jobs import apply, job, log_of, settle

PROGRAMS = ("bwrap", "slirp4netns", "ip", "nsenter", "unshare", "setpriv", "perl")
USERS = {"root": 0, "somebody": SOMEBODY}


def seconds() -> str:
    """A time to sleep that nobody else on this machine sleeps: so the process is found by it."""
    return str(10**9 + secrets.randbelow(10**9))


@dataclass
class Machine:
    """A machine with walls, and what its attackers are after."""

    rota: WalledRota
    network: Network
    user: int
    bound: Path  # a folder that all sandboxes see, and may write to
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    @property
    def is_root(self) -> bool:
        return self.user == 0

    def run(self, script: str, **fields: object) -> RunDetail:
        """Execute a job behind the wall that the test is about, the sandbox by default."""
        return settle(self.rota.client, self.start(script, **fields))

    def start_with(self, given: dict[str, Any], script: str, **fields: object) -> RunDetail:
        """Execute a job with inputs behind the wall that the test is about."""
        return settle(self.rota.client, self.start(script, given=given, **fields))

    def start(self, script: str, **fields: Any) -> Run:
        given = fields.pop("given", None)
        name = f"job{next(self._numbers)}"
        walls = {"isolation": "sandbox"} | fields
        if walls["isolation"] == "sandbox":
            walls.setdefault("network", "none")
        apply(self.rota.client, job(name, script, **walls))
        return self.rota.client.trigger(name, given)

    def printed(self, run: Run) -> str:
        return log_of(self.rota.client, run.id)

    def start_and_wait(self, script: str, mark: str, **fields: object) -> Run:
        """Start a job and wait until a process of it has this mark among its arguments."""
        run = self.start(script, **fields)
        self.rota.inside(mark)
        return run

    def finish(self, run: Run) -> RunDetail:
        self.rota.client.cancel_run(run.id)
        return settle(self.rota.client, run)

    def rooms(self) -> list[str]:
        return [path.name for path in self.rota.home.glob("workers/*/rooms/*")]

    def assert_nothing_is_left(self, *marks: str) -> None:
        def is_clean() -> bool:
            assert self.rooms() == []
            assert [pid for mark in marks for pid in processes_of(mark)] == []
            return True

        eventually(is_clean)


@pytest.fixture(scope="session")
def _programs() -> None:
    missing = [each for each in PROGRAMS if shutil.which(each) is None]
    if os.geteuid() != 0:
        pytest.skip("only root can build a machine of the test's own")
    if missing and "CI" not in os.environ:
        pytest.skip(f"needs {', '.join(missing)}")


Build = Callable[..., Machine]


def builder(stack: ExitStack) -> Build:
    """Return what builds machines, which are taken down with the stack."""

    def build(user: int = 0, **settings: object) -> Machine:
        bound = Path(tempfile.mkdtemp(prefix="rota-bound-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, bound, ignore_errors=True)
        bound.chmod(0o777)
        told: dict[str, Any] = {"slots": "6", "sandbox_binds": f"{bound}:rw"} | settings
        rota, network = stack.enter_context(walled_machine(user, **told))
        return Machine(rota, network, user, bound)

    return build


@pytest.fixture
def build(_programs: None) -> Iterator[Build]:
    """Builds machines for one test; meanwhile no other one can be reached."""
    with ExitStack() as stack:
        yield builder(stack)


@pytest.fixture(scope="module", params=list(USERS))
def machine(_programs: None, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A worker that is root, and one that is not."""
    with ExitStack() as stack:
        yield builder(stack)(USERS[request.param])


@pytest.fixture(scope="module")
def liberal(_programs: None) -> Iterator[Machine]:
    """A worker that is root, and lets jobs be other users."""
    with ExitStack() as stack:
        yield builder(stack)(run_as="nobody,daemon,no-such-user")

"""Many runs in containers, while workers and engines are killed at random: nothing is left."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from testkit.processes import RotaUp, processes_of
from testkit.servers.engines import BASE, Engine, EngineRoom
from testkit.waiting import boottime, eventually
from tests.engines import engine_room
from tests.system.jobs import apply, job, runs_of

__all__ = ["engine_room"]

FEW, MANY = 12, 200
SEED = 16
PAUSES = (0.1, 2.0)  # seconds from the first end after a blow to the next one
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(params=["docker", "podman"])
def engine(engine_room: EngineRoom, request: pytest.FixtureRequest) -> Engine:
    """An engine of the test's own, which it kills."""
    make = engine_room.docker if request.param == "docker" else engine_room.podman
    return make(f"{request.param}-{'few' if 'few' in request.node.name else 'many'}")


class Blows:
    """Kills at random, one after another."""

    def __init__(self, rota: RotaUp, engine: Engine) -> None:
        self._rota = rota
        self._engine = engine
        self._random = random.Random(SEED)
        self._next_at: float | None = None  # None: not before something ends
        self._ended = 0
        self.dealt: Counter[str] = Counter()

    def deal(self, ended: int) -> None:
        """Strike if it is time to: so many runs have ended."""
        if self._next_at is None and ended > self._ended:
            self._next_at = boottime() + self._random.uniform(*PAUSES)
        if self._next_at is None or boottime() < self._next_at:
            return
        blow = self._random.choice(
            [self._worker, self._inner, self._outer, self._keeper, self._hit]
        )
        with suppress(ProcessLookupError, StopIteration, OSError):
            blow()
            self.dealt[blow.__name__.strip("_")] += 1
        self._next_at, self._ended = None, ended

    def _worker(self) -> None:
        os.kill(self._rota.worker_pid(), signal.SIGKILL)

    def _inner(self) -> None:
        os.kill(self._rota.guardian_pids()[1], signal.SIGKILL)

    def _outer(self) -> None:
        os.kill(self._rota.guardian_pids()[0], signal.SIGKILL)

    def _keeper(self) -> None:
        os.kill(self._rota.keeper_pid(), signal.SIGKILL)

    def _hit(self) -> None:
        self._engine.kill()
        self._engine.start()


def strike(home: Path, engine: Engine, count: int, within: timedelta) -> Counter[str]:
    """Execute runs under blows; return how many of each were dealt."""
    rota = RotaUp(home, container_engine=str(engine.socket), lease="3s", slots="3")
    walls = {"isolation": "container", "image": BASE, "pull": "never", "network": "outbound"}
    steps = ("touch a /tmp/b; sleep 0.5; sleep 1000 & true", "test -e a")
    retry = {"attempts": 50, "delay": "0s"}
    try:
        rota.start()
        apply(rota.client, job("struck", *steps, retry=retry, max_losses=50, **walls))
        for _ in range(count):
            rota.client.trigger("struck")
        blows = Blows(rota, engine)

        def are_over() -> bool:
            states = Counter(run.state for run in runs_of(rota.client))
            blows.deal(states["COMPLETED"])
            assert states == {"COMPLETED": count}, states
            return True

        eventually(are_over, within=within)
        assert_nothing_is_left(home, engine, is_alone=count == MANY)
    finally:
        rota.close()
    return blows.dealt


def assert_nothing_is_left(home: Path, engine: Engine, *, is_alone: bool) -> None:
    def claim(what: Callable[[], object]) -> None:
        eventually(lambda: what() in ([], set()), otherwise=f"left: {what()}")

    claim(lambda: [name for name in engine.names() if name.startswith("rota-r_")])
    claim(lambda: list(home.glob("workers/*/containers/*")))
    claim(lambda: [pid for pid in processes_of("slirp4netns") if _is_below(pid, home)])
    if not is_alone:  # other tests may have containers meanwhile
        return
    claim(lambda: processes_of("/run/rota-init/hold"))
    claim(groups)


def groups() -> set[Path]:
    patterns = "*/docker/*", "*/libpod_parent/libpod-*"
    return {each for pattern in patterns for each in GROUPS.glob(pattern) if each.is_dir()}


def _is_below(pid: int, home: Path) -> bool:
    with suppress(OSError):
        return str(home).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_few_runs_end_well_under_blows(home: Path, engine: Engine) -> None:
    dealt = strike(home, engine, FEW, within=timedelta(minutes=4))

    assert dealt.total() >= 1


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_runs_end_well_under_blows(home: Path, engine: Engine) -> None:
    dealt = strike(home, engine, MANY, within=timedelta(minutes=50))

    assert dealt.total() >= 20

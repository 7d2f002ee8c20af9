"""Many runs behind each wall, while what holds them is killed at random: nothing is left."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from testkit.grounds import WALLS, Ground, ground
from testkit.servers.engines import Engine, EngineRoom
from testkit.waiting import boottime, eventually
from tests.engines import engine_room
from tests.system.jobs import apply, job, runs_of

__all__ = ["engine_room"]

SEED = 16
PAUSES = (0.1, 2.0)  # seconds from the first end after a blow to the next one
PARTS = ("worker", "inner", "outer", "keeper")
# What dies at one instant. All of it is the published limit: the next start tidies up.
BLOWS = [*PARTS, "worker+inner", "worker+inner+outer", "worker+inner+outer+keeper"]
FEW, MANY, MANY_IN_CONTAINERS = 12, 1_000, 200


class Blows:
    """Kills at random, one after another."""

    def __init__(self, place: Ground) -> None:
        self._place = place
        self._random = random.Random(SEED)
        self._next_at: float | None = None  # None: not before something ends
        self._ended = 0
        self._choices = BLOWS if place.engine is None else [*BLOWS, "engine"]
        self.dealt: Counter[str] = Counter()

    def deal(self, ended: int) -> None:
        """Strike if it is time to: so many runs have ended."""
        if self._next_at is None and ended > self._ended:
            self._next_at = boottime() + self._random.uniform(*PAUSES)
        if self._next_at is None or boottime() < self._next_at:
            return
        who = self._random.choice(self._choices)
        with suppress(ProcessLookupError, StopIteration, OSError):
            self._strike(who)
            self.dealt[who] += 1
        self._next_at, self._ended = None, ended

    def _strike(self, who: str) -> None:
        if who == "engine":
            assert self._place.engine is not None
            self._place.engine.kill()
            self._place.engine.start()
            return
        for pid in self._place.pids(who):
            os.kill(pid, signal.SIGKILL)


def strike(
    place: Ground, jobs: Sequence[dict[str, Any]], count: int, within: timedelta
) -> Counter[str]:
    """Execute runs of these jobs under blows; return how many of each were dealt."""
    client = place.rota.client
    steps = ("touch a ${TMPDIR:-.}/b; sleep 0.3; setsid sleep 1000 & true", "test -e a")
    given = {"retry": {"attempts": 50, "delay": "0s"}, "max_losses": 50}
    documents = [job(f"struck{at}", *steps, **given, **each) for at, each in enumerate(jobs)]
    apply(client, *documents)
    for at in range(count):
        client.trigger(documents[at % len(documents)]["name"])
    blows = Blows(place)

    def are_over() -> bool:
        states = Counter(run.state for run in runs_of(client))
        blows.deal(states["COMPLETED"])
        assert states == {"COMPLETED": count}, states
        return True

    eventually(are_over, within=within)
    place.assert_nothing_is_left(is_alone=count > FEW)
    return blows.dealt


LIMITED = {"limits": {"memory": "256MiB", "processes": 50}}
PLAIN = [
    {**WALLS["process"], **LIMITED},
    {**WALLS["sandbox"], **LIMITED},
    {**WALLS["sandbox"], "network": "outbound"},
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_programs")
def test_many_processes_and_sandboxes_leave_nothing() -> None:
    with ground("sandbox") as place:
        dealt = strike(place, PLAIN, MANY, within=timedelta(minutes=50))

    assert dealt.total() >= 20


@pytest.fixture(params=["docker", "podman"])
def engine(engine_room: EngineRoom, request: pytest.FixtureRequest) -> Engine:
    """An engine of the test's own, which it kills."""
    make = engine_room.docker if request.param == "docker" else engine_room.podman
    return make(f"{request.param}-struck")


def in_containers(engine: Engine, count: int, within: timedelta) -> Counter[str]:
    with ground(engine.kind, engine) as place:
        jobs = [{**place.fields, "network": "outbound", "env": {"TMPDIR": "/tmp"}}]
        return strike(place, jobs, count, within)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_few_containers_leave_nothing(engine: Engine) -> None:
    dealt = in_containers(engine, FEW, within=timedelta(minutes=4))

    assert dealt.total() >= 1


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_containers_leave_nothing(engine: Engine) -> None:
    dealt = in_containers(engine, MANY_IN_CONTAINERS, within=timedelta(minutes=50))

    assert dealt.total() >= 20

"""Every wall, through real servers and workers: how runs live, and what becomes of them when
each part that holds them dies or hangs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rota.sdk.answers import LogWindow, Run
from testkit.grounds import Ground, Ledger, ground, wake
from testkit.servers.engines import Engine
from testkit.waiting import eventually
from tests.engines import docker, engine_room, podman
from tests.system.jobs import Document, apply, job, log_of, settle

__all__ = ["docker", "engine_room", "podman"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ALL = ("process", "sandbox", "docker", "podman")
ENGINES = ("docker", "podman")
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
TICKS = 45  # of a ledger: longer than the lease
WITHIN = timedelta(seconds=60)


@pytest.fixture(scope="module", params=ALL)
def place(_programs: None, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A worker whose jobs go behind this wall; it has outlived all that tests did to it."""
    wall: str = request.param
    engine: Engine | None = request.getfixturevalue(wall) if wall in ENGINES else None
    with ground(wall, engine) as made:
        yield made


def start(place: Ground, name: str, *steps: str | Document, **fields: object) -> Run:
    apply(place.rota.client, job(name, *steps, **{**place.fields, **fields}))
    return place.rota.client.trigger(name)


def wait_for_lines(place: Ground, run: Run, *lines: str) -> None:
    """Wait until these lines were printed, as somebody sees them who follows the run."""
    missing = set(lines)
    for window in place.rota.client.follow_log(run.id):
        assert isinstance(window, LogWindow), f"it ended before it printed {missing}"
        missing -= {line.text for line in window.lines}
        if not missing:
            return


class TestLife:
    """What a job can do, it can do behind each wall."""

    def test_output_progress_and_result(self, place: Ground) -> None:
        client, ledger = place.rota.client, place.ledger()
        told = """echo '1/4 quarter' > $ROTA_PROGRESS; echo '{"rows": 3}' > $ROTA_OUTPUT"""
        run = start(place, "told", f"echo out; echo err >&2; {told}; {ledger.script}", "echo two")

        def has_told() -> bool:
            progress = client.get_run(run.id).progress
            return progress is not None and progress.message == "quarter"

        eventually(has_told)
        wait_for_lines(place, run, "out", "err")
        ledger.let_go()
        ended = settle(client, run)

        assert (ended.state, ended.outputs) == ("COMPLETED", {"rows": 3})
        assert [step.result for step in ended.attempts[-1].steps] == ["completed", "completed"]
        assert log_of(client, run.id).endswith("two\n")

    def test_cancel_and_timeout(self, place: Ground) -> None:
        client = place.rota.client
        ledger = place.ledger()
        trap = f"trap 'echo tidy; exit 0' TERM; {ledger.script}"
        cancelled = start(place, "cancelled", trap)
        late = start(place, "late", "exec sleep 1000", timeout="2s", grace="1s")

        eventually(ledger.fences)
        client.cancel_run(cancelled.id)

        assert settle(client, cancelled).state == "CANCELLED"
        assert "tidy" in log_of(client, cancelled.id).splitlines()
        assert settle(client, late).state == "TIMED_OUT"

    def test_failure_is_tried_again(self, place: Ground) -> None:
        client = place.rota.client
        script = "echo try $ROTA_ATTEMPT; test $ROTA_ATTEMPT -eq 3 || exit 7"
        run = start(place, "again", script, retry={"attempts": 3, "delay": "0s"})

        ended = settle(client, run)

        assert (ended.state, ended.attempt) == ("COMPLETED", 3)
        assert [each.exit_code for each in ended.attempts] == [7, 7, 0]
        assert log_of(client, run.id, attempt=2) == "try 2\n"


@dataclass(frozen=True)
class Fault:
    """Something that befalls what holds a run."""

    who: str  # `worker`, `inner`, `outer`, `keeper`, `engine`; several with `+`
    signal: signal.Signals
    is_felt: bool = True  # its attempts are lost
    short: tuple[str, ...] = ()  # walls that are tried in each `make test`; all of them in the long
    walls: tuple[str, ...] = ALL

    def __str__(self) -> str:
        return f"{self.who} {self.signal.name}"


FAULTS = [
    Fault("worker", KILL, short=("process", "docker")),
    Fault("worker", STOP, short=("podman",)),
    Fault("inner", KILL, short=("sandbox",)),
    Fault("inner", STOP, short=("docker",)),
    Fault("outer", KILL, short=("process",)),
    Fault("outer", STOP, is_felt=False),
    Fault("keeper", KILL, short=("podman",)),
    Fault("keeper", STOP, is_felt=False),
    Fault("worker+inner+outer", KILL, short=("docker",)),
    Fault("worker+inner+outer", STOP, short=("sandbox",)),
    Fault("engine", KILL, walls=ENGINES),
    Fault("engine", STOP, is_felt=False, walls=ENGINES),
]
CASES = [
    pytest.param(wall, fault, id=f"{wall} {fault}", marks=() if wall in fault.short else long)
    for wall in ALL
    for fault in FAULTS
    if wall in fault.walls
    for long in [pytest.mark.long]
]


@pytest.mark.parametrize(("place", "fault"), CASES, indirect=["place"], scope="module")
def test_run_outlives_what_held_it(place: Ground, fault: Fault) -> None:
    """At least once and never twice at a time; and at most once, where that was asked for."""
    client, often, once = place.rota.client, place.ledger(), place.ledger()
    again = start(place, "often", often.script, retry={"attempts": 5, "delay": "0s"}, max_losses=5)
    never = start(place, "once", once.script, delivery="at_most_once")
    eventually(lambda: often.fences() and once.fences(), within=WITHIN)

    deal(place, fault, often)

    often.let_go()
    once.let_go()
    eventually(lambda: client.get_run(again.id).is_settled, within=WITHIN)
    eventually(lambda: client.get_run(never.id).is_settled, within=WITHIN)
    ended, asked = client.get_run(again.id), client.get_run(never.id)
    often.assert_no_overlap()
    assert ended.state == "COMPLETED"
    assert (ended.attempt > 1) is fault.is_felt
    assert often.lines()[-1] == f"{often.fences()[-1]} end"
    assert len(once.fences()) == 1
    if not fault.is_felt:
        assert asked.state == "COMPLETED"
    elif fault.who != "engine":
        assert asked.state == "UNKNOWN"
    place.assert_nothing_is_left()


def deal(place: Ground, fault: Fault, ledger: Ledger) -> None:
    """Let a fault befall a run, until that has been tried again, or has gone on for long."""
    begun = len(ledger.lines())

    def has_come_through() -> bool:
        if fault.is_felt:
            return len(ledger.fences()) > 1
        return len(ledger.lines()) >= begun + TICKS

    if fault.who == "engine":
        engine = place.engine
        assert engine is not None
        if fault.signal == KILL:
            engine.kill()
            engine.start()
        else:
            engine.freeze()
        eventually(has_come_through, within=WITHIN)
        engine.thaw()
        return
    pids = place.pids(fault.who)
    for pid in pids:
        os.kill(pid, fault.signal)
    eventually(has_come_through, within=WITHIN)
    wake(pids)

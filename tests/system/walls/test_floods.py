"""X5: a step that prints as fast as it can costs its worker no memory, and others no output."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from testkit.grounds import Ground, ground
from testkit.servers.engines import Engine
from testkit.waiting import eventually
from tests.engines import docker, engine_room, podman
from tests.system.jobs import apply, execute, job, log_of

__all__ = ["docker", "engine_room", "podman"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MEBIBYTE = 1 << 20
MOST = 64 * MEBIBYTE  # that a worker may grow by: it holds some megabytes of each attempt
WITHIN = timedelta(seconds=60)


@pytest.fixture(
    scope="module",
    params=[
        *("process", "docker"),
        *(pytest.param(wall, marks=pytest.mark.long) for wall in ("sandbox", "podman")),
    ],
)
def place(_programs: None, request: pytest.FixtureRequest) -> Iterator[Ground]:
    wall: str = request.param
    engine: Engine | None = None
    if wall in ("docker", "podman"):
        engine = request.getfixturevalue(wall)
    with ground(wall, engine) as made:
        yield made


def most_memory(pid: int) -> int:
    """Return the most bytes that a process ever had in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(
    "seconds", [pytest.param(2, id="short"), pytest.param(10, id="whole", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    ("command", "kept"),
    # More than a worker holds back goes on to its server; a line without an end is cut.
    [("yes 0123456789abcdef", 32), ("cat /dev/zero", 1)],
    ids=["lines", "line"],
)
def test_a_flood_is_held_by_its_banks(place: Ground, seconds: int, command: str, kept: int) -> None:
    client = place.rota.client
    execute(client, "echo warm", **place.fields)
    before = most_memory(place.rota.worker_pid())
    script = f"timeout {seconds} {command} || true"
    apply(client, job("flood", script, **place.fields, log_limit=f"{kept}MiB"))
    flood = client.trigger("flood")
    eventually(lambda: client.get_run(flood.id).state == "PROCESSING", within=WITHIN)

    neighbour = execute(client, "echo hello", name="neighbour", **place.fields)

    assert log_of(client, neighbour.id) == "hello\n"
    eventually(lambda: client.get_run(flood.id).is_settled, within=WITHIN)
    ended = client.get_run(flood.id)
    output = ended.attempts[-1].output
    grown = most_memory(place.rota.worker_pid()) - before
    assert (ended.state, output.truncated) == ("COMPLETED", True)
    assert len(log_of(client, flood.id)) <= kept * MEBIBYTE + 1_000
    assert grown < MOST, f"the worker grew by {grown:,} bytes"

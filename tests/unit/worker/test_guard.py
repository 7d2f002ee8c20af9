from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from rota.domain.spec import RunLimits
from rota.guardian import messages
from rota.guardian.channel import Channel, socket_pair
from rota.guardian.messages import Spawn
from rota.guardian.spawn import Confinement as GuardiansConfinement
from rota.ports.executor import Confinement, Exit, SignalScope
from rota.worker.guard import Guard, GuardedProcess

pytestmark = pytest.mark.anyio

NOT_UTF_8 = os.fsdecode(b"/srv/caf\xe9")


class Scene:
    """A worker's connection, with the test in the guardian's place."""

    def __init__(self) -> None:
        ours, theirs = socket_pair()
        self.channel = Channel(ours)
        self.guard = Guard(theirs, kill_switch=-1)
        self.ours = ours

    def spawn(self, cwd: str = "/", confinement: Confinement | None = None) -> GuardedProcess:
        stdout, stderr = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
        return self.guard.spawn(
            ("true",),
            env={"WORD": "grüße"},
            cwd=cwd,
            stdout=stdout,
            stderr=stderr,
            confinement=confinement,
        )


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    with closing(scene.ours), closing(scene.guard):
        yield scene


async def one_turn() -> None:
    """Let the event loop send what was asked for."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


@pytest.mark.parametrize("cwd", ["/srv/café", NOT_UTF_8])
async def test_guardian_understands_what_is_to_be_started_wherever_that_is(
    scene: Scene, cwd: str
) -> None:
    process = scene.spawn(cwd)
    await one_turn()

    with scene.channel.receive() as (datagram, fds):
        [request] = messages.decode(datagram, fds)
    assert isinstance(request, Spawn)
    scene.channel.send(messages.refused(request.key, "no", 1))
    scene.channel.flush()

    assert (request.command.cwd, request.command.env) == (cwd, {"WORD": "grüße"})
    assert await process.ended == Exit(None, None, error="no")


async def test_plain_process_says_nothing_of_walls(scene: Scene) -> None:
    scene.spawn()
    await one_turn()

    with scene.channel.receive() as (datagram, fds):
        [request] = json.loads(datagram)
        assert len(fds) == 2
    assert set(request) == {"do", "key", "argv", "env", "cwd", "fds"}
    assert request["fds"] == 2


async def test_guardian_understands_how_a_process_is_confined(scene: Scene) -> None:
    read, write = os.pipe()
    confinement = Confinement(
        user=65_536,
        group=65_537,
        limits=RunLimits(cpu=500, memory=1 << 30, processes=9, open_files=99, disk=7),
        descriptors={9: write},
        signals=SignalScope.INSIDE,
        tag="run-1-0",
    )
    scene.spawn(confinement=confinement)
    await one_turn()

    with scene.channel.receive() as (datagram, fds):
        [request] = messages.decode(datagram, fds)
        assert isinstance(request, Spawn)
        assert list(request.command.descriptors) == [1, 2, 9]
    assert request.command.confinement == GuardiansConfinement(
        65_536,
        65_537,
        (),
        {"cpu": 500, "memory": 1 << 30, "processes": 9, "open_files": 99},
        True,
        "run-1-0",
    )
    assert os.read(read, 1) == b""  # the other end is closed here
    os.close(read)


async def test_many_descriptors_are_sent_with_their_own_message(scene: Scene) -> None:
    many = {number: os.open(os.devnull, os.O_RDONLY) for number in range(3, 60)}
    scene.spawn(confinement=Confinement(descriptors=many))
    scene.spawn()
    await one_turn()

    for expected in (59, 2):
        with scene.channel.receive() as (datagram, fds):
            assert len(fds) == expected
            assert len(json.loads(datagram)) == 1


async def test_limit_that_a_tree_ran_into_is_told(scene: Scene) -> None:
    process = scene.spawn(confinement=Confinement())
    await one_turn()
    with scene.channel.receive() as (datagram, _):
        [request] = json.loads(datagram)

    ended = {"is": "ended", "key": request["key"], "status": None, "signal": 9, "cpu": 1.5}
    scene.channel.send({**ended, "max_rss": 7, "strays": 0, "at": 1.0, "cause": "oom"})
    scene.channel.flush()

    assert await process.ended == Exit(None, 9, 1.5, 7, cause="oom")


async def test_limits_are_asked_for_once(scene: Scene) -> None:
    asked = [asyncio.ensure_future(scene.guard.limits()) for _ in range(2)]
    await one_turn()
    with scene.channel.receive() as (datagram, _):
        assert json.loads(datagram) == [{"do": "limits"}]
    scene.channel.send(messages.limits({"memory": "no"}))
    scene.channel.flush()

    assert await asyncio.gather(*asked) == [{"open_files": "", "memory": "no"}] * 2

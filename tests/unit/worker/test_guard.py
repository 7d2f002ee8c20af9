from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from rota.guardian import messages
from rota.guardian.channel import Channel, socket_pair
from rota.guardian.messages import Spawn
from rota.ports.executor import Exit
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

    def spawn(self, cwd: str) -> GuardedProcess:
        stdout, stderr = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
        return self.guard.spawn(
            ("true",), env={"WORD": "grüße"}, cwd=cwd, stdout=stdout, stderr=stderr
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

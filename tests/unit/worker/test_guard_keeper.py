from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from rota.domain.errors import Unavailable
from rota.worker.guard import KeeperConnection

pytestmark = pytest.mark.anyio


class Scene:
    """A worker's connection, with the test in the keeper's place."""

    def __init__(self) -> None:
        self.keeper, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.keeper.settimeout(5)
        self.connection = KeeperConnection(theirs)

    def hear(self) -> dict[str, object]:
        request: dict[str, object] = json.loads(self.keeper.recv(1 << 16))
        return request

    def answer(self, request: dict[str, object], error: str = "") -> None:
        self.keeper.send(json.dumps({"id": request["id"], "error": error}).encode())


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    with closing(scene.keeper), closing(scene.connection):
        yield scene


async def begun(task: asyncio.Task[None]) -> None:
    """Let the task send what it has to."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
    assert not task.done()


async def test_container_is_kept_when_the_keeper_says_so(scene: Scene) -> None:
    task = asyncio.create_task(scene.connection.keep("/run/docker.sock", "rota-1"))
    await begun(task)

    request = scene.hear()
    scene.answer(request)
    await task

    assert request["do"] == "keep"
    assert (request["engine"], request["name"]) == ("/run/docker.sock", "rota-1")


async def test_answers_find_their_requests_in_any_order(scene: Scene) -> None:
    started = asyncio.create_task(scene.connection.started("rota-1", 77))
    await begun(started)
    released = asyncio.create_task(scene.connection.release("rota-2"))
    await begun(released)
    first, second = scene.hear(), scene.hear()

    scene.answer(second)
    await released
    assert not started.done()
    scene.answer(first, "no container is noted")

    with pytest.raises(Unavailable, match="rota-1: no container is noted") as told:
        await started
    assert told.value.code == "keeper_unavailable"
    assert (first["pid"], second["do"]) == (77, "release")


async def test_keeper_that_dies_fails_what_waits_for_it(scene: Scene) -> None:
    task = asyncio.create_task(scene.connection.keep("/e", "rota-1"))
    await begun(task)

    scene.keeper.close()

    with pytest.raises(Unavailable, match="it is gone"):
        await task


async def test_keeper_that_is_dead_is_told_at_once(scene: Scene) -> None:
    scene.keeper.close()

    with pytest.raises(Unavailable, match="Broken pipe"):
        await scene.connection.keep("/e", "rota-1")

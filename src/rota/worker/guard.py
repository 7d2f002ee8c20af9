"""Connections to the guardian, which starts and ends processes and enforces the lease, and to its
keeper, which ends containers when this worker cannot.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import mmap
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import msgspec

from rota.domain.errors import Unavailable
from rota.ports.clock import Clock
from rota.ports.executor import Confinement, Exit

_MAX_MESSAGE = 4 * 1024 * 1024
_MAX_DESCRIPTORS = 32  # 16 spawns: the guardian reports nothing before a message is done
_DESCRIPTORS_PER_SPAWN = 2
_MAX_BATCH = 100  # requests in one message


class GuardedProcess:
    """Implements `rota.ports.executor.Process`."""

    def __init__(self, guard: Guard, key: str, ended: asyncio.Future[Exit]) -> None:
        self._guard = guard
        self._key = key
        self.ended = ended

    def signal(self, number: int) -> None:
        self._guard.send({"do": "signal", "key": self._key, "signal": number})

    def kill(self) -> None:
        self._guard.send({"do": "kill", "key": self._key})


class Guard:
    """Implements `rota.ports.executor.Spawner` over the guardian's socket.

    Requests of one turn of the event loop are sent together: a message costs more than a request.
    """

    def __init__(self, connection: socket.socket, kill_switch: int) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_MESSAGE)
        self._connection = connection
        self._kill_switch = kill_switch  # a byte here makes the outer process end everything
        self._loop = asyncio.get_running_loop()
        self._keys = itertools.count(1)
        self._processes: dict[str, asyncio.Future[Exit]] = {}
        self._outgoing: list[tuple[dict[str, Any], tuple[int, ...]]] = []
        self._is_flushing = False
        self._most = _MAX_BATCH
        # Only pages that are written to are kept: nearly all messages fit into the first one.
        self._incoming = mmap.mmap(-1, _MAX_MESSAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._hello: asyncio.Future[str] = self._loop.create_future()
        self._limits: asyncio.Future[dict[str, str]] | None = None  # None: not asked for yet
        self.deadline = 0.0  # boot time of the end of the lease; 0.0: none yet
        self.gone: asyncio.Future[None] = self._loop.create_future()  # done: the guardian ended
        self._loop.add_reader(connection.fileno(), self._receive)

    async def greet(self) -> str:
        """Return how the guardian holds its processes: namespace, user-namespace or subreaper."""
        if self._hello.done():
            self._hello = self._loop.create_future()
        self.send({"do": "hello"})
        return await self._hello

    async def limits(self) -> dict[str, str]:
        """Return why each limit of a confinement cannot be had; "" for one that can."""
        if self._limits is None:
            self._limits = self._loop.create_future()
            self.send({"do": "limits"})
        return await asyncio.shield(self._limits)

    async def keep_watch(self, clock: Clock, silence: timedelta) -> None:
        """End everything if the guardian does not answer: it could not enforce a lease either."""
        while True:
            try:
                async with asyncio.timeout(silence.total_seconds()):
                    await self.greet()
            except TimeoutError:
                os.write(self._kill_switch, b"x")
                return
            await clock.sleep(silence / 2)

    def prolong(self, deadline: float) -> None:
        """Extend the lease of all processes to this boot time, in seconds."""
        self.deadline = deadline
        self.send({"do": "lease", "deadline": deadline})

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        stderr: int,
        confinement: Confinement | None = None,
    ) -> GuardedProcess:
        key = str(next(self._keys))
        ended: asyncio.Future[Exit] = self._loop.create_future()
        self._processes[key] = ended
        request: dict[str, Any] = {
            "do": "spawn",
            "key": key,
            "argv": list(argv),
            "env": dict(env),
            "cwd": cwd,
            "fds": _DESCRIPTORS_PER_SPAWN,
        }
        descriptors: tuple[int, ...] = (stdout, stderr)
        if confinement is not None:
            request["fds"] = [1, 2, *confinement.descriptors]
            request["confine"] = _confine(confinement)
            descriptors = (stdout, stderr, *confinement.descriptors.values())
        self.send(request, descriptors)
        return GuardedProcess(self, key, ended)

    def send(self, request: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Queue a request; it is sent with the others of this turn."""
        self._outgoing.append((request, descriptors))
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._loop.remove_reader(self._connection.fileno())
        self._loop.remove_writer(self._connection.fileno())
        self._connection.close()

    def _flush(self) -> None:
        while self._outgoing:
            batch = self._outgoing[: min(self._fitting(), self._most)]
            data = _encode([request for request, _ in batch])
            descriptors = [descriptor for _, own in batch for descriptor in own]
            try:
                socket.send_fds(self._connection, [data], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._connection.fileno(), self._flush)
                return
            except OSError as error:
                if error.errno == errno.EMSGSIZE and len(batch) > 1:
                    self._most = len(batch) // 2  # what the kernel takes depends on who we are
                    continue
                self._fail(batch, error)
            self._most = _MAX_BATCH
            del self._outgoing[: len(batch)]
            for descriptor in descriptors:
                os.close(descriptor)
        self._loop.remove_writer(self._connection.fileno())
        self._is_flushing = False

    def _fitting(self) -> int:
        """Return how many waiting requests fit one message, by the descriptors they carry."""
        descriptors = 0
        for count, (_, own) in enumerate(self._outgoing):
            descriptors += len(own)
            if descriptors > _MAX_DESCRIPTORS and count:
                return count
        return len(self._outgoing)

    def _fail(
        self, batch: Sequence[tuple[dict[str, Any], tuple[int, ...]]], error: OSError
    ) -> None:
        for request, _ in batch:
            if request["do"] == "spawn":
                self._end(request["key"], Exit(None, None, error=f"guardian: {error.strerror}"))

    def _receive(self) -> None:
        while True:
            try:
                size = self._connection.recv_into(self._incoming)
            except BlockingIOError:
                return
            except OSError:
                size = 0
            if not size:
                self._loop.remove_reader(self._connection.fileno())
                if not self.gone.done():
                    self.gone.set_result(None)
                return
            for message in json.loads(self._incoming[:size]):
                self._accept(message)

    def _accept(self, message: dict[str, Any]) -> None:
        match message["is"]:
            case "hello":
                if not self._hello.done():
                    self._hello.set_result(message["mode"])
            case "refused":
                self._end(message["key"], Exit(None, None, error=message["error"]))
            case "ended":
                self._end(
                    message["key"],
                    Exit(
                        message["status"],
                        message["signal"],
                        message["cpu"],
                        message["max_rss"],
                        cause=message["cause"],
                    ),
                )
            case "limits":
                if self._limits is not None and not self._limits.done():
                    self._limits.set_result(message["offers"])
            case _:
                pass  # error: nothing waits for it

    def _end(self, key: str, ending: Exit) -> None:
        future = self._processes.pop(key, None)
        if future is not None and not future.done():
            future.set_result(ending)


_LIMITS = ("cpu", "memory", "processes", "open_files")  # that the guardian enforces


def _confine(confinement: Confinement) -> dict[str, Any]:
    """Return the guardian's words for it."""
    limits = {name: getattr(confinement.limits, name) for name in _LIMITS}
    return {
        "uid": confinement.user,
        "gid": confinement.group,
        "groups": list(confinement.groups),
        "limits": {name: value for name, value in limits.items() if value is not None},
        "signals": confinement.signals.value,
        "tag": confinement.tag,
        "network": None if confinement.network is None else asdict(confinement.network),
    }


def _encode(requests: list[dict[str, Any]]) -> bytes:
    try:
        return msgspec.json.encode(requests)
    except UnicodeEncodeError:  # a path that is not UTF-8, as Python sees it
        return json.dumps(requests).encode()


# --- the keeper

_MAX_ANSWER = 1 << 16
_KEEPER_PATIENCE = timedelta(seconds=10)  # it only writes down what it is told


class KeeperConnection:
    """Implements `rota.ports.executor.Keeper`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[str, int | None]]] = {}
        self._loop.add_reader(connection.fileno(), self._receive)

    async def keep(self, engine: str, name: str) -> None:
        await self._ask({"do": "keep", "engine": engine, "name": name})

    async def started(self, name: str, pid: int) -> None:
        await self._ask({"do": "started", "name": name, "pid": pid})

    async def network(self, name: str) -> int:
        descriptor = await self._ask({"do": "network", "name": name})
        assert descriptor is not None, "the keeper answers with it, or with an error"
        return descriptor

    async def release(self, name: str) -> None:
        await self._ask({"do": "release", "name": name})

    def close(self) -> None:
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        self._fail("this worker is closing")

    async def _ask(self, request: dict[str, object]) -> int | None:
        """Return when it is done, with what descriptor came; `Unavailable` if it is not."""
        number = next(self._numbers)
        descriptor: int | None = None
        answer = self._answers[number] = self._loop.create_future()
        try:
            self._connection.send(json.dumps({"id": number, **request}).encode())
            async with asyncio.timeout(_KEEPER_PATIENCE.total_seconds()):
                error, descriptor = await answer
        except (OSError, TimeoutError) as failure:
            error = str(failure) or "it does not answer"
        finally:
            self._answers.pop(number, None)
        if error:
            raise Unavailable(
                f"the keeper of this worker cannot note the container {request['name']}: {error}",
                code="keeper_unavailable",
                hint="a worker whose keeper is dead ends, and is started again",
            )
        return descriptor

    def _receive(self) -> None:
        while True:
            try:
                answer, descriptors, _, _ = socket.recv_fds(self._connection, _MAX_ANSWER, 1)
            except BlockingIOError:
                return
            except OSError:
                answer, descriptors = b"", []
            if not answer:
                self._loop.remove_reader(self._connection.fileno())
                self._fail("it is gone")
                return
            fields = json.loads(answer)
            future = self._answers.get(fields["id"])
            if future is not None and not future.done():
                future.set_result((fields["error"], next(iter(descriptors), None)))
            else:  # whoever asked has left
                for descriptor in descriptors:
                    os.close(descriptor)

    def _fail(self, reason: str) -> None:
        for future in self._answers.values():
            if not future.done():
                future.set_result((reason, None))

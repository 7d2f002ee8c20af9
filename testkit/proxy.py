"""TCP proxy between a client and a server, through which tests break their connection."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self

from rota.clock import SystemClock

_PIECE = 64 * 1024
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Fault:
    """Effect on bytes in transit."""

    bytes_until_cut: int | None = None  # both ways together; None: any number may pass
    sent_until_cut: int | None = None  # by the client of one connection, which is cut then
    hangs: bool = False
    delay: timedelta = timedelta(0)


class Proxy:
    """Forwards everything until told otherwise. One fault at a time: the latest counts.

    It runs in a thread of its own, so it serves processes and coroutines alike. A fault is in force
    when the call returns, for open connections and for new ones.
    """

    def __init__(self, target_port: int, target_host: str = _HOST) -> None:
        self._target = (target_host, target_port)
        self._clock = SystemClock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rota-proxy")
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._fault = _Fault()
        self._passed = 0  # bytes since the latest fault began
        self._changed = asyncio.Event()
        self.cuts = 0  # of single connections
        self.disturbed = 0  # connections and pieces that came while a fault was in force
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def cut(self) -> None:
        """Reset every connection, and each new one at once."""
        self._begin(_Fault(bytes_until_cut=0))

    def cut_after(self, count: int) -> None:
        """Let so many bytes pass, then behave as cut."""
        self._begin(_Fault(bytes_until_cut=count))

    def cut_each_after(self, count: int) -> None:
        """Cut every connection once its client has sent so many bytes, as some balancers do."""
        self._begin(_Fault(sent_until_cut=count))

    def hang(self) -> None:
        """Keep connections open and let nothing pass."""
        self._begin(_Fault(hangs=True))

    def delay(self, time: timedelta) -> None:
        """Delay every piece."""
        self._begin(_Fault(delay=time))

    def heal(self) -> None:
        """Forward everything again; what hung goes on where it stopped."""
        self._begin(_Fault())

    def _begin(self, fault: _Fault) -> None:
        async def apply() -> None:
            self._fault, self._passed = fault, 0
            self._changed.set()
            self._changed = asyncio.Event()
            self._cut_if_spent()  # no connection was tried yet: this is not a disturbance

        asyncio.run_coroutine_threadsafe(apply(), self._loop).result()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, _HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        serving = list(self._connections)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = [writer]
        try:
            if self._cut_if_spent():
                self.disturbed += 1
            else:
                await self._join(task, reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # one side went away, the other one shall see it
        finally:
            _abort(self._connections.pop(task))

    async def _join(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._connections[task].append(far_writer)
        await asyncio.gather(
            self._pump(reader, far_writer, task), self._pump(far_reader, writer, None)
        )

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        sender: asyncio.Task[None] | None,
    ) -> None:
        """Forward one way; `sender` is the connection whose client sends, None the other way."""
        sent = 0
        while data := await reader.read(_PIECE):
            await self._hold_up()
            sent += len(data)
            limit = self._fault.sent_until_cut
            if sender is not None and limit is not None and sent > limit:
                self.cuts += 1
                _abort(self._connections[sender])
                return
            self._passed += len(data)
            if self._cut_if_spent():
                self.disturbed += 1
                return
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()

    async def _hold_up(self) -> None:
        if self._fault.delay:
            self.disturbed += 1
            await self._clock.sleep(self._fault.delay)
        while self._fault.hangs:
            self.disturbed += 1
            await self._changed.wait()

    def _cut_if_spent(self) -> bool:
        limit = self._fault.bytes_until_cut
        if limit is None or self._passed < limit:
            return False
        for writers in self._connections.values():
            _abort(writers)
        return True


def _abort(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()

"""Counts what a store works, in numbers that no busy machine blurs.

All of it from outside: calls by Python's profiler, SQLite by its own hooks, PostgreSQL by the
messages that pass between it and its client, and by the rows that its statistics say were read.
"""

from __future__ import annotations

import socket
import sqlite3
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import rota
from testkit.servers.postgres import PostgresServer

VM_STEPS = 10  # between two calls of SQLite's progress handler: fine enough, and not slow

_ROTA = str(Path(rota.__file__).parent)
_LIBRARY = sysconfig.get_path("stdlib")
# How often these are called depends on how threads and sockets take turns.
_BY_CHANCE = ("asyncio", "concurrent", "selectors", "socket", "threading", "weakref")
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_ROWS_READ = """
SELECT (SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables)
    + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes) AS rows
"""


@dataclass(slots=True)
class Counts:
    """Figures that are counted while `is_on`."""

    statements: int = 0
    round_trips: int = 0  # PostgreSQL only
    steps: int = 0  # SQLite only: of its virtual machine
    calls: int = 0  # of Python functions: of Rota, and of the standard library for it
    is_on: bool = False

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside of the block: this thread, and those that were begun to be watched."""
        self.is_on = True
        sys.setprofile(self.on_call)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.is_on = False

    @contextmanager
    def watched_threads(self) -> Iterator[None]:
        """Threads that are started inside of the block are watched for as long as they live."""
        threading.setprofile(self.on_call)
        try:
            yield
        finally:
            threading.setprofile(None)

    def on_call(self, frame: FrameType, event: str, _: Any) -> None:
        if self.is_on and event == "call" and _is_counted(frame.f_code):
            self.calls += 1

    def on_statement(self, _: str) -> None:
        self.statements += self.is_on

    def on_steps(self) -> int:
        self.steps += VM_STEPS * self.is_on
        return 0  # go on

    def on_message(self, kind: bytes) -> None:
        """A message of PostgreSQL: a statement has ended, or all that was sent together has."""
        if self.is_on:
            self.statements += kind in (b"C", b"s")  # to its end, or as far as rows were wanted
            self.round_trips += kind == b"Z"


@cache
def _is_counted(code: CodeType) -> bool:
    path = code.co_filename
    if path.startswith(_LIBRARY) and "site-packages" not in path:
        module = path.removeprefix(_LIBRARY).lstrip("/").partition("/")[0].removesuffix(".py")
        return module not in _BY_CHANCE
    return path.startswith((_ROTA, "<string>"))  # where dataclasses have their constructors


@contextmanager
def counted_sqlite(counts: Counts, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count what is executed on connections that are opened inside of the block."""
    connect = sqlite3.connect

    def counted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(counts.on_statement)
        connection.set_progress_handler(counts.on_steps, VM_STEPS)
        return connection

    with patch.context() as inside:
        inside.setattr(sqlite3, "connect", counted)
        yield


@contextmanager
def counted_postgres(counts: Counts, port: int) -> Iterator[int]:
    """A port by which to reach a server on another one, while its messages are counted.

    Each direction of each connection has a thread, which ends when the connection is closed.
    """
    threads: list[threading.Thread] = []

    def begin(work: Callable[..., None], *arguments: Any) -> None:
        threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        threads[-1].start()

    def accept() -> None:
        with suppress(OSError):  # nobody listens any more
            while True:
                client, _ = listening.accept()
                server = socket.create_connection(("127.0.0.1", port))
                for end in (client, server):  # small messages go at once
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                hello = client.recv(len(_SSL_REQUEST), socket.MSG_WAITALL)
                server.sendall(hello)
                if hello == _SSL_REQUEST:
                    client.sendall(server.recv(1))  # "no": not a message as all others are
                begin(_pass_on, client, server)
                begin(_count_messages, server, client, counts)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        begin(accept)
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        while data := client.recv(65_536):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def _count_messages(server: socket.socket, client: socket.socket, counts: Counts) -> None:
    """Each message has a letter and its length; it is counted before the client has it."""
    with client, server, server.makefile("rb") as messages, suppress(OSError):
        while head := messages.read(5):
            body = messages.read(struct.unpack("!xi", head)[0] - 4)
            counts.on_message(head[:1])
            client.sendall(head + body)
        client.shutdown(socket.SHUT_RDWR)  # the other thread still waits for what comes from it


async def rows_read(server: PostgresServer, database: str) -> int:
    """Rows and index entries read in a database so far, by connections that have ended."""
    connected = (
        f"SELECT FROM pg_stat_activity WHERE datname = '{database}'"
        " AND backend_type = 'client backend'"
    )
    while await server.execute(connected):
        pass
    [row] = await server.execute(_ROWS_READ, database)
    return int(row["rows"])

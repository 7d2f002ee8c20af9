"""A Redis server for the peers that need one, as durable as its documentation recommends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.contest import wait_for
from bench.machine import install
from bench.peers import environment
from testkit.servers.ports import free_ports

_START_SECONDS = 20.0


def install_redis() -> bool:
    """Whether there is one now: where it is missing, root gets it from Debian."""
    return install("redis-server")


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its address. It appends to a file that is synced every second."""
    [port] = free_ports(1)
    command = ["redis-server", f"--port {port}", "--bind 127.0.0.1", f"--dir {folder}", "--save ''"]
    command += ["--appendonly yes", "--appendfsync everysec", "--loglevel warning"]
    words = " ".join(command).split()
    with environment.background(words, {}) as process:
        wait_for(lambda: _answers(port) or process.poll() is not None, _START_SECONDS, "Redis")
        yield f"redis://127.0.0.1:{port}/0"


def _answers(port: int) -> bool:
    asked = ["redis-cli", "-h", "127.0.0.1", "-p", str(port), "ping"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0

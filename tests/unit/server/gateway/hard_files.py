"""What a child of the parsing pool may be asked to do: too long, too much, or to die."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from testkit.waiting import eventually


def name_of_process(body: bytes) -> int:
    return os.getpid()


def variables(body: bytes) -> list[str]:
    return list(os.environ)


def spin(body: bytes) -> None:
    while True:
        pass


def grab(body: bytes) -> int:
    return len(bytearray(1 << 30))


def die(body: bytes) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def babble(body: bytes) -> None:
    """Answer what is not a part of an answer."""
    os.write(1, (8).to_bytes(4, "big") + b"nonsense")
    signal.pause()


def drone(body: bytes) -> None:
    """Answer without an end."""
    part = msgspec.msgpack.encode(["_Plain", "x" * (1 << 20)])
    while True:
        os.write(1, len(part).to_bytes(4, "big"))
        sent = 0
        while sent < len(part):
            sent += os.write(1, part[sent:])


def dawdle(body: bytes, *, file: str) -> None:
    """Say that it has begun, and wait until the file is there."""
    begun(Path(file)).touch()
    eventually(Path(file).exists)


def begun(file: Path) -> Path:
    return file.with_suffix(".begun")

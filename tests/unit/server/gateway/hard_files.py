"""What a child of the parsing pool may be asked to do: too long, too much, or to die."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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


def dawdle(body: bytes, *, file: Path) -> None:
    """Say that it has begun, and wait until the file is there."""
    begun(file).touch()
    eventually(file.exists)


def begun(file: Path) -> Path:
    return file.with_suffix(".begun")

"""The words between worker and guardian: JSON arrays of objects, one array per datagram.

Worker to guardian                                     Guardian to worker
  {"do": "hello"}                                        {"is": "hello", mode, pid}
  {"do": "lease", deadline}                              {"is": "error", error}
  {"do": "spawn", key, argv, env, cwd, "fds": 2}         {"is": "refused", key, error, errno}
  {"do": "signal", key, signal}                          {"is": "ended", key, status, signal, cpu,
  {"do": "kill", key}                                     max_rss, strays, at}

`deadline` and `at` are seconds of CLOCK_BOOTTIME, `cpu` is in seconds, `max_rss` in bytes and never
below the guardian's own, which the kernel counts until the exec. The descriptors passed with a
datagram, 253 at most, are taken in order, two (stdout, stderr) by each spawn. A bad object is
answered with an error, or with a refusal where it names a key to spawn; its neighbours are obeyed.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from rota.guardian.spawn import Command
from rota.guardian.trees import Tree

MAX_KEY_LENGTH = 256
MAX_REASON_LENGTH = 1_000
FDS_PER_SPAWN = 2
LATEST_DEADLINE = 1e9  # seconds since boot, three decades: beyond it is a mistake

Message = Mapping[str, object]


class Malformed(Exception):
    """The worker said something that makes no sense."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Is anybody there? May be asked at any time."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Everything must be dead at this instant; replaces the instant given before."""

    deadline: float


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a tree; its descriptors stay the receiver's to close."""

    key: str
    command: Command


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal every process of a tree."""

    key: str
    number: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a tree until nothing is left of it."""

    key: str


@dataclass(frozen=True, slots=True)
class Bad:
    """Stands for an object that was not understood."""

    error: str
    key: str | None  # of the spawn that it was meant to be; None when there is none to refuse


Request = Hello | Lease | Spawn | Signal | Kill | Bad


def decode(datagram: bytes, fds: Iterable[int]) -> list[Request]:
    """The requests of one datagram, in order."""
    try:
        objects = json.loads(datagram)
    except (ValueError, RecursionError) as error:
        return [Bad(f"not JSON: {error}", None)]
    if not isinstance(objects, list):
        return [Bad("not an array", None)]
    remaining = iter(fds)
    return [_request(fields, remaining) for fields in objects]


def _request(fields: object, fds: Iterator[int]) -> Request:
    if not isinstance(fields, dict):
        return Bad("not an object", None)
    try:
        return _understand(fields, fds)
    except Malformed as error:
        return Bad(str(error), _key_to_refuse(fields))


def _understand(fields: Message, fds: Iterator[int]) -> Request:
    match fields.get("do"):
        case "hello":
            return Hello()
        case "lease":
            return Lease(_instant(fields.get("deadline")))
        case "spawn":
            return _spawn(fields, fds)
        case "signal":
            return Signal(_key(fields), _signal_number(fields.get("signal")))
        case "kill":
            return Kill(_key(fields))
        case _:
            raise Malformed("'do' is not one of hello, lease, spawn, signal, kill")


def _spawn(fields: Message, fds: Iterator[int]) -> Spawn:
    # Taken first: a spawn that is refused must not leave its descriptors to the next one.
    taken = tuple(islice(fds, FDS_PER_SPAWN))
    if len(taken) != FDS_PER_SPAWN or fields.get("fds") != FDS_PER_SPAWN:
        raise Malformed(f"a spawn takes {FDS_PER_SPAWN} descriptors, {len(taken)} arrived")
    argv, env, cwd = fields.get("argv"), fields.get("env"), fields.get("cwd")
    if not isinstance(argv, list) or not argv or not _is_all_text(argv):
        raise Malformed("argv is not an array of one or more strings")
    if not isinstance(env, dict) or not _is_all_text(env.values()):
        raise Malformed("env is not an object of strings")
    if not isinstance(cwd, str):
        raise Malformed("cwd is not a string")
    stdout, stderr = taken
    return Spawn(_key(fields), Command(tuple(argv), env, cwd, {1: stdout, 2: stderr}))


def _key_to_refuse(fields: Message) -> str | None:
    try:
        return _key(fields) if fields.get("do") == "spawn" else None
    except Malformed:
        return None


def _key(fields: Message) -> str:
    key = fields.get("key")
    if isinstance(key, str) and 0 < len(key) <= MAX_KEY_LENGTH:
        return key
    raise Malformed(f"key is not a string of 1 to {MAX_KEY_LENGTH} characters")


def _instant(value: object) -> float:
    # NaN and infinity, which JSON readers accept, would be deadlines that never come.
    if isinstance(value, int | float) and 0 <= value <= LATEST_DEADLINE:
        return float(value)
    raise Malformed("deadline is not a number of seconds since boot")


def _signal_number(value: object) -> int:
    if type(value) is int and value in signal.valid_signals():
        return value
    raise Malformed("signal is not the number of a signal")


def _is_all_text(values: Iterable[object]) -> bool:
    return set(map(type, values)) <= {str}


def hello(mode: str, pid: int) -> Message:
    return {"is": "hello", "mode": mode, "pid": pid}


def error(text: str) -> Message:
    return {"is": "error", "error": text}


def refused(key: str, reason: str, number: int) -> Message:
    text = reason[:MAX_REASON_LENGTH]  # it may quote what does not fit into a datagram
    return {"is": "refused", "key": key, "error": text, "errno": number}


def ended(tree: Tree) -> Message:
    """`status` is null for a main process that died by a signal, `signal` for any other."""
    assert tree.wait_status is not None
    code = os.waitstatus_to_exitcode(tree.wait_status)
    return {
        "is": "ended",
        "key": tree.key,
        "status": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "cpu": tree.cpu_seconds,
        "max_rss": tree.max_rss_bytes,
        "strays": len(tree.strays),
        "at": tree.ended_at,
    }

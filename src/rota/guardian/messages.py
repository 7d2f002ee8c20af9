"""The words between worker and guardian: JSON arrays of objects, one array per datagram.

Worker to guardian                                     Guardian to worker
  {"do": "hello"}                                        {"is": "hello", mode, pid}
  {"do": "limits"}                                       {"is": "limits", offers}
  {"do": "lease", deadline}                              {"is": "error", error}
  {"do": "spawn", key, argv, env, cwd, fds, confine?}    {"is": "refused", key, error, errno}
  {"do": "signal", key, signal}                          {"is": "ended", key, status, signal, cpu,
  {"do": "kill", key}                                     max_rss, strays, at, cause}

`deadline` and `at` are seconds of CLOCK_BOOTTIME, `cpu` is in seconds, `max_rss` in bytes and never
below the guardian's own, which the kernel counts until the exec. Descriptors passed with a
datagram, 253 at most, are taken in order by each spawn: `fds` are their numbers in the new process,
and 2 is short for [1, 2]. A bad object is answered with an error, or with a refusal where it names
a key to spawn; its neighbours are obeyed.

`confine`, all optional: {uid, gid, groups: [], limits: {cpu, memory, processes, open_files}, tag,
signals: "tree" | "inside", network}; `cpu` is in thousandths of a core. `offers` has for each limit
why it cannot be had, "" if it can. `cause` is the limit that a tree ran into: "oom", "processes" or
"". `network` is a namespace to be made ready before: {network, users, device, receivers: [],
unreachable: []}, the first two by their number among `fds`, and users null for our own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeGuard

from rota.guardian.network import Namespace
from rota.guardian.spawn import Command, Confinement
from rota.guardian.trees import Tree

MAX_KEY_LENGTH = 256
MAX_REASON_LENGTH = 1_000
MAX_TAG_LENGTH = 200
STANDARD_FDS = 2  # as `fds`: standard output and error
MAX_FD_NUMBER = 255  # in a new process
LIMITS = ("cpu", "memory", "processes", "open_files")
MAX_ID = (1 << 32) - 2  # of users and groups; the one above it stands for "none"
MAX_DEVICE_LENGTH = 15
MOST_BITS = 32  # of a network
LATEST_DEADLINE = 1e9  # seconds since boot, three decades: beyond it is a mistake

Message = Mapping[str, object]


class Malformed(Exception):
    """The worker said something that makes no sense."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Is anybody there? May be asked at any time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Which limits can be had?"""


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


Request = Hello | Limits | Lease | Spawn | Signal | Kill | Bad


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
        case "limits":
            return Limits()
        case "lease":
            return Lease(_instant(fields.get("deadline")))
        case "spawn":
            return _spawn(fields, fds)
        case "signal":
            return Signal(_key(fields), _signal_number(fields.get("signal")))
        case "kill":
            return Kill(_key(fields))
        case _:
            raise Malformed("'do' is not one of hello, limits, lease, spawn, signal, kill")


def _spawn(fields: Message, fds: Iterator[int]) -> Spawn:
    # Taken first: a spawn that is refused must not leave its descriptors to the next one.
    descriptors = _descriptors(fields.get("fds"), fds)
    argv, env, cwd = fields.get("argv"), fields.get("env"), fields.get("cwd")
    if not isinstance(argv, list) or not argv or not _is_all_text(argv):
        raise Malformed("argv is not an array of one or more strings")
    if not isinstance(env, dict) or not _is_all_text(env.values()):
        raise Malformed("env is not an object of strings")
    if not isinstance(cwd, str):
        raise Malformed("cwd is not a string")
    confinement = _confinement(fields["confine"]) if "confine" in fields else None
    return Spawn(_key(fields), Command(tuple(argv), env, cwd, descriptors, confinement))


def _descriptors(numbers: object, fds: Iterator[int]) -> dict[int, int]:
    count = len(numbers) if isinstance(numbers, list) else STANDARD_FDS
    taken = tuple(islice(fds, count))
    if len(taken) != count:
        raise Malformed(f"the spawn takes {count} descriptors, {len(taken)} arrived")
    if numbers == STANDARD_FDS:
        return {1: taken[0], 2: taken[1]}
    if not isinstance(numbers, list) or not all(_is_in(n, 0, MAX_FD_NUMBER) for n in numbers):
        raise Malformed(f"fds is neither {STANDARD_FDS} nor an array of numbers below 256")
    return dict(zip(numbers, taken, strict=True))


def _confinement(fields: object) -> Confinement:
    if not isinstance(fields, dict) or not fields.keys() <= _CONFINEMENT_FIELDS:
        raise Malformed(f"confine is not an object of {', '.join(sorted(_CONFINEMENT_FIELDS))}")
    uid, gid = _id(fields.get("uid"), "uid"), _id(fields.get("gid"), "gid")
    if uid is not None and gid is None:
        raise Malformed("confine has a uid and no gid: it would keep ours")
    groups, signals = fields.get("groups", []), fields.get("signals", "tree")
    if not isinstance(groups, list) or not all(_is_in(each, 0, MAX_ID) for each in groups):
        raise Malformed("groups is not an array of ids")
    if signals not in ("tree", "inside"):
        raise Malformed("signals is neither 'tree' nor 'inside'")
    tag = fields.get("tag", "")
    if not isinstance(tag, str) or len(tag) > MAX_TAG_LENGTH:
        raise Malformed(f"tag is not a string of at most {MAX_TAG_LENGTH} characters")
    limits = _limits(fields.get("limits", {}))
    network = _namespace(fields["network"]) if fields.get("network") is not None else None
    return Confinement(uid, gid, tuple(groups), limits, signals == "inside", tag, network)


_CONFINEMENT_FIELDS = {"uid", "gid", "groups", "limits", "signals", "tag", "network"}


def _namespace(fields: object) -> Namespace:
    if not isinstance(fields, dict) or fields.keys() != _NAMESPACE_FIELDS:
        raise Malformed(f"network is not an object of {', '.join(sorted(_NAMESPACE_FIELDS))}")
    network, users, device = (fields[name] for name in ("network", "users", "device"))
    numbers = [network] if users is None else [network, users]
    if not all(_is_in(each, 0, MAX_FD_NUMBER) for each in numbers):
        raise Malformed("a namespace is not the number of a descriptor")
    if not isinstance(device, str) or not 0 < len(device.encode()) <= MAX_DEVICE_LENGTH:
        raise Malformed(f"device is not a name of at most {MAX_DEVICE_LENGTH} bytes")
    receivers, closed = fields["receivers"], fields["unreachable"]
    if not isinstance(receivers, list) or not all(map(_is_hardware_address, receivers)):
        raise Malformed("receivers is not an array of hardware addresses")
    if not isinstance(closed, list) or not all(map(_is_network, closed)):
        raise Malformed("unreachable is not an array of networks of IPv4")
    addresses = tuple(map(bytes.fromhex, receivers))
    return Namespace(network, users, device, addresses, tuple(closed))


_NAMESPACE_FIELDS = {"network", "users", "device", "receivers", "unreachable"}


def _is_hardware_address(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{12}", value) is not None


def _is_network(value: object) -> bool:
    if not isinstance(value, str) or re.fullmatch(r"[0-9.]+/[0-9]{1,2}", value) is None:
        return False
    address, _, bits = value.partition("/")
    try:
        socket.inet_pton(socket.AF_INET, address)
    except OSError:
        return False
    return int(bits) <= MOST_BITS


def _id(value: object, name: str) -> int | None:
    if value is None or _is_in(value, 0, MAX_ID):
        return value
    raise Malformed(f"{name} is not the id of a user or group")


def _limits(fields: object) -> dict[str, int]:
    if isinstance(fields, dict) and all(
        name in LIMITS and _is_in(value, 1, sys.maxsize) for name, value in fields.items()
    ):
        return fields
    raise Malformed(f"limits is not an object of numbers above 0 for {', '.join(LIMITS)}")


def _is_in(value: object, least: int, most: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= most


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


def limits(offers: Mapping[str, str]) -> Message:
    return {"is": "limits", "offers": {"open_files": "", **offers}}


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
        "cause": tree.cause,
    }

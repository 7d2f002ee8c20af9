"""The system calls that a sandbox does not have, as a program for the kernel's filter.

Namespaces already keep a job from most things; this closes doors of the kernel that it does not
need, and those that no namespace has: vsock passes a network namespace. The program is assembled
here, so that no library has to be there at run time.

A call that is refused gets an error that programs know: EPERM; ENOSYS where the C library then
tries an older call, whose arguments the kernel lets a filter see; and an unknown address family.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

# Both by number: (x86-64, aarch64). Calls above 424 have the same one on all machines.
_REFUSED: Mapping[str, tuple[int, int]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265),
}
# The C library goes on with `clone`, and programs without io_uring.
_MISSING: Mapping[str, tuple[int, int]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_CLONE, _IOCTL, _PERSONALITY = (56, 220), (16, 29), (135, 92)
_SOCKET, _SOCKET_PAIR = (41, 198), (53, 199)
# New namespaces: mount, cgroup, uts, ipc, user, pid, net.
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x60000000
# Type into the terminal, paste into the console; change what a terminal speaks, for which modules
# of the kernel are loaded that no job needs.
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_REFUSED_REQUESTS = (_TIOCSTI, _TIOCLINUX, _TIOCSETD)
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)


@dataclass(frozen=True, slots=True)
class _Machine:
    audit: int  # what the kernel calls it
    column: int  # of the tables above


_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(0xC000003E, 0),
    "aarch64": _Machine(0xC00000B7, 1),
}
_X32 = 0x40000000  # calls of a third kind, which pass for those of x86-64


class _Code(IntEnum):
    """Instructions of the filter, of the few kinds that are needed."""

    LOAD = 0x20  # a word of what is known about the call
    IF_EQUAL = 0x15
    IF_AT_LEAST = 0x35
    IF_ANY_BIT = 0x45
    RETURN = 0x06


_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # where they are; arguments have 8 bytes
_KILL, _ALLOW, _FAIL = 0x80000000, 0x7FFF0000, 0x00050000

_Instruction = tuple[_Code, int, int, int]  # jumps, if true and if false, skip so many


@lru_cache
def program(machine: str = "") -> bytes:
    """Assemble the filter for a kind of machine, this one by default; `KeyError`: unknown."""
    kind = _MACHINES[machine or platform.machine()]
    return b"".join(struct.pack("=HBBI", *each) for each in _instructions(kind))


def _instructions(kind: _Machine) -> Iterator[_Instruction]:
    yield _Code.LOAD, 0, 0, _ARCHITECTURE
    yield from _unless(_Code.IF_EQUAL, kind.audit, _KILL)
    yield _Code.LOAD, 0, 0, _NUMBER
    if kind.column == 0:
        yield from _if(_Code.IF_AT_LEAST, _X32, _KILL)
    for calls, number in ((_REFUSED, errno.EPERM), (_MISSING, errno.ENOSYS)):
        for call in calls.values():
            yield from _if(_Code.IF_EQUAL, call[kind.column], _FAIL | number)
    for call, rule in _RULES.items():
        yield _Code.IF_EQUAL, 0, len(rule), call[kind.column]
        yield from rule
    yield _Code.RETURN, 0, 0, _ALLOW


def _if(test: _Code, value: int, answer: int) -> Iterator[_Instruction]:
    yield test, 0, 1, value
    yield _Code.RETURN, 0, 0, answer


def _unless(test: _Code, value: int, answer: int) -> Iterator[_Instruction]:
    yield test, 1, 0, value
    yield _Code.RETURN, 0, 0, answer


def _argument(position: int) -> _Instruction:
    """Load the lower half of an argument; of those that are asked for, the kernel takes no more."""
    return _Code.LOAD, 0, 0, _ARGUMENTS + 8 * position


# What depends on an argument; each ends with an answer.
_RULES: Mapping[tuple[int, int], tuple[_Instruction, ...]] = {
    _CLONE: (
        _argument(0),
        *_if(_Code.IF_ANY_BIT, _NEW_NAMESPACES, _FAIL | errno.EPERM),
        (_Code.RETURN, 0, 0, _ALLOW),
    ),
    _IOCTL: (
        _argument(1),
        *(
            step
            for request in _REFUSED_REQUESTS
            for step in _if(_Code.IF_EQUAL, request, _FAIL | errno.EPERM)
        ),
        (_Code.RETURN, 0, 0, _ALLOW),
    ),
    _PERSONALITY: (
        _argument(0),
        *_unless(_Code.IF_EQUAL, 0, _FAIL | errno.EPERM),
        (_Code.RETURN, 0, 0, _ALLOW),
    ),
    _SOCKET: (
        _argument(0),
        *(step for family in _FAMILIES for step in _if(_Code.IF_EQUAL, family, _ALLOW)),
        (_Code.RETURN, 0, 0, _FAIL | errno.EAFNOSUPPORT),
    ),
    # Of the families above only one has pairs; of the others each would be opened first.
    _SOCKET_PAIR: (
        _argument(0),
        *_unless(_Code.IF_EQUAL, socket.AF_UNIX, _FAIL | errno.EAFNOSUPPORT),
        (_Code.RETURN, 0, 0, _ALLOW),
    ),
}


def profile(machine: str = "") -> dict[str, Any]:
    """Return the same filter as engines of containers take it; `KeyError`: unknown machine."""
    kind = machine or platform.machine()
    flags = [bit for bit in (1 << n for n in range(32)) if bit & _NEW_NAMESPACES]
    least, greatest = min(_FAMILIES), max(_FAMILIES)
    families = [n for n in range(least, greatest) if n not in _FAMILIES]
    unknown = errno.EAFNOSUPPORT
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [_ARCHITECTURES[kind]],  # calls of others end their process
        "syscalls": [
            *(_rule(errno.EPERM, call) for call in _REFUSED),
            *(_rule(errno.ENOSYS, call) for call in _MISSING),
            *(_rule(errno.EPERM, "clone", _where(0, "MASKED_EQ", bit, bit)) for bit in flags),
            *(
                _rule(errno.EPERM, "ioctl", _where(1, "MASKED_EQ", _LOWER_HALF, request))
                for request in _REFUSED_REQUESTS
            ),
            _rule(errno.EPERM, "personality", _where(0, "NE", 0)),
            _rule(unknown, "socket", _where(0, "LT", least)),
            *(_rule(unknown, "socket", _where(0, "EQ", family)) for family in families),
            _rule(unknown, "socket", _where(0, "GT", greatest)),
            _rule(unknown, "socketpair", _where(0, "NE", socket.AF_UNIX)),
        ],
    }


_ARCHITECTURES: Mapping[str, str] = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_LOWER_HALF = 0xFFFFFFFF


def _rule(number: int, call: str, *arguments: Mapping[str, Any]) -> dict[str, Any]:
    answer = {"action": "SCMP_ACT_ERRNO", "errnoRet": number}
    return {"names": [call], "args": list(arguments), **answer}


def _where(position: int, test: str, value: int, value_two: int = 0) -> dict[str, Any]:
    return {"index": position, "op": f"SCMP_CMP_{test}", "value": value, "valueTwo": value_two}

"""Program that gives a network namespace a way out, and then is the process that keeps it open.

It runs by its path, isolated and without site packages, as a process of its own below the
guardian: entering a namespace needs a process with one thread. In a child it enters the namespaces
and makes the networks there unreachable that are not to be reached; then it drops its rights, and
executes what it was told to.

It is started before the process in the namespaces has executed anything.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import struct
import sys
from dataclasses import dataclass
from typing import Any

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_DIE_WITH_PARENT = 1
_TUN = "/dev/net/tun"
_TUN_NUMBER = os.makedev(10, 200)
_ALL_MAY = 0o666

_NEW_ROUTE, _ERROR = 24, 2  # messages of the kernel's routing socket
_REQUEST, _ACKNOWLEDGE, _CREATE, _REPLACE = 0x1, 0x4, 0x400, 0x100
_MAIN_TABLE, _BY_ADMINISTRATOR, _UNREACHABLE, _TO = 254, 4, 7, 1

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of this program."""

    user_namespace: int | None  # descriptor; None: that of whoever starts this
    net_namespace: int  # descriptor
    unreachable: list[str]  # networks
    user: int | None  # who the process that remains is to be; None: who it is now
    group: int | None
    argv: list[str]  # what it executes in the end

    @classmethod
    def read(cls, text: str) -> Wish:
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


def main(text: str) -> None:
    wish = Wish.read(text)
    _in_a_child(wish)
    if wish.user is not None and wish.group is not None:
        _let_all_open_tun()
        os.setgroups([])
        os.setresgid(wish.group, wish.group, wish.group)
        os.setresuid(wish.user, wish.user, wish.user)
    # After the users were changed, which clears it: whoever started this is the guardian.
    _check(_libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0), "die with the guardian")
    os.execv(wish.argv[0], wish.argv)  # noqa: S606 (that is what this program is for)


def _in_a_child(wish: Wish) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            if wish.user_namespace is not None:
                entered = _libc.setns(wish.user_namespace, _CLONE_NEWUSER)
                _check(entered, "enter the user namespace")
            _check(_libc.setns(wish.net_namespace, _CLONE_NEWNET), "enter the network namespace")
            make_unreachable(wish.unreachable)
        except OSError as error:
            print(f"cannot {error}", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit(1)


def make_unreachable(networks: list[str]) -> None:
    """Add a route for each, on which the kernel refuses to send."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, 0))
        for number, network in enumerate(networks):
            kernel.send(_route(network, number))
            _, kind, _, _, _ = struct.unpack_from("=IHHII", answer := kernel.recv(4096))
            [code] = struct.unpack_from("=i", answer, 16)
            if kind != _ERROR or code:
                raise OSError(-code, f"make {network} unreachable: {os.strerror(-code)}")


def _route(network: str, number: int) -> bytes:
    address, _, bits = network.partition("/")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    route = struct.pack(
        "=BBBBBBBBI",
        *(family, int(bits), 0, 0, _MAIN_TABLE, _BY_ADMINISTRATOR, 0, _UNREACHABLE, 0),
    )
    to = struct.pack("=HH", 4 + len(packed), _TO) + packed
    length = 16 + len(route) + len(to)
    flags = _REQUEST | _ACKNOWLEDGE | _CREATE | _REPLACE
    return struct.pack("=IHHII", length, _NEW_ROUTE, flags, number, 0) + route + to


def _let_all_open_tun() -> None:
    """See to it that the user whom we become may open the device, as on most systems all may.

    The node is made in a mount namespace of this process, which nobody else sees.
    """
    if os.stat(_TUN).st_mode & _ALL_MAY == _ALL_MAY:
        return
    _check(_libc.unshare(_CLONE_NEWNS), "leave the mount namespace")
    flags = ctypes.c_ulong(_MS_REC | _MS_SLAVE)
    _check(_libc.mount(None, b"/", None, flags, None), "keep mounts to itself")
    folder = os.fsencode(os.path.dirname(_TUN))
    none = ctypes.c_ulong(0)
    _check(_libc.mount(b"tmpfs", folder, b"tmpfs", none, b"mode=755"), f"mount {folder!r}")
    os.mknod(_TUN, stat.S_IFCHR | _ALL_MAY, _TUN_NUMBER)
    os.chmod(_TUN, _ALL_MAY)


def _check(result: int, doing: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except OSError as error:
        sys.exit(f"cannot {error.strerror or error}")

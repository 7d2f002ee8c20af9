"""Network namespaces of sandboxes and containers, before a process keeps a way out of one open.

A process of a single thread has to enter them, and cannot come back: so a child of that process
does it. Nothing of a job has been executed in the namespace yet.

Routes alone do not hold everything back. A socket that is bound to the device, or to its address,
sends to groups (multicast) whatever the routes say, and the address of the link's own broadcast is
in a table that is asked before all others. So the device takes only frames for those whom it is
told, and single addresses are made unreachable in that table, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
from dataclasses import dataclass

from rota.guardian import linux

_TUN = "/dev/net/tun"
_TUN_NUMBER = os.makedev(10, 200)
_ALL_MAY = 0o666
_SET_DEVICE, _SET_PERSISTENT, _SET_RECEIVERS = 0x400454CA, 0x400454CB, 0x400454D1
_ETHERNET, _PLAIN = 0x0002, 0x1000  # a device of frames, with nothing before each
_NAME_BYTES, _REQUEST_BYTES = 16, 40

_NEW_ROUTE, _ERROR = 24, 2  # messages of the kernel's routing socket
_REQUEST, _ACKNOWLEDGE, _CREATE, _REPLACE = 0x1, 0x4, 0x400, 0x100
_LOCAL_TABLE, _MAIN_TABLE, _BY_ADMINISTRATOR, _UNREACHABLE, _TO = 255, 254, 4, 7, 1
_SINGLE = "/32"
_GET_FLAGS, _FLAGS, _UP, _OF_LINKS = 0x8913, struct.Struct("=H"), 0x1, 0x1
_LOOPBACK_SECONDS = 5.0
_LONGEST_REPORT = 4096


@dataclass(frozen=True, slots=True)
class Namespace:
    """Network namespace that gets a device, behind which somebody will be."""

    network: int  # descriptor, by its number in the new process
    users: int | None  # of the user namespace that owns it, likewise; None: our own
    device: str
    receivers: tuple[bytes, ...]  # hardware addresses; frames to others are dropped
    unreachable: tuple[str, ...]  # networks


def furnish(namespace: Namespace, user: int | None) -> None:
    """Make the device and the routes; the caller will be this user; `OSError`: not possible."""
    if user is not None and os.geteuid() != user:
        _let_all_open_tun()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            _enter(namespace)
            _make_device(namespace)
            _make_unreachable(namespace.unreachable)
            _await_loopback()
            os._exit(0)
        except OSError as error:
            os.write(writer, f"{error.errno or errno.EIO} {error.strerror}".encode())
        finally:
            os._exit(1)
    os.close(writer)
    number, _, reason = os.read(reader, _LONGEST_REPORT).decode().partition(" ")
    os.close(reader)
    if os.waitpid(pid, 0)[1]:
        raise OSError(int(number or errno.EIO), reason or "its network was not made")


def _enter(namespace: Namespace) -> None:
    if namespace.users is not None:
        linux.set_namespace(namespace.users, linux.CLONE_NEWUSER)
    linux.set_namespace(namespace.network, linux.CLONE_NEWNET)


def _make_device(namespace: Namespace) -> None:
    """Make it so that it stays until somebody else opens it, who cannot change whom it serves."""
    tun = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        name = namespace.device.encode()
        request = struct.pack(f"={_NAME_BYTES}sH", name, _ETHERNET | _PLAIN)
        fcntl.ioctl(tun, _SET_DEVICE, request.ljust(_REQUEST_BYTES, b"\0"))
        fcntl.ioctl(tun, _SET_PERSISTENT, 1)
        count = len(namespace.receivers)
        # Writable: of other buffers the call does not return how many the kernel took.
        receivers = bytearray(struct.pack("=HH", 0, count) + b"".join(namespace.receivers))
        if fcntl.ioctl(tun, _SET_RECEIVERS, receivers) != count:
            raise OSError(errno.E2BIG, f"{namespace.device} takes no {count} receivers")
    finally:
        os.close(tun)


def _make_unreachable(networks: tuple[str, ...]) -> None:
    """Add a route for each, on which the kernel refuses to send."""
    routes = [(network, _MAIN_TABLE) for network in networks]
    routes += [(network, _LOCAL_TABLE) for network in networks if network.endswith(_SINGLE)]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, 0))
        for number, (network, table) in enumerate(routes):
            kernel.send(_route(network, table, number))
            _, kind, _, _, _ = struct.unpack_from("=IHHII", answer := kernel.recv(4096))
            [code] = struct.unpack_from("=i", answer, 16)
            if kind != _ERROR or code:
                raise OSError(-code, f"{network} cannot be closed: {os.strerror(-code)}")


def _await_loopback() -> None:
    """Wait until whoever made the namespace has brought its loopback device up.

    bubblewrap fails if somebody is faster, as slirp4netns would be, who does it as well.
    """
    with (
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as news,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel,
    ):
        news.bind((0, _OF_LINKS))
        news.settimeout(_LOOPBACK_SECONDS)
        request = b"lo".ljust(_REQUEST_BYTES, b"\0")
        while (
            not _FLAGS.unpack_from(fcntl.ioctl(kernel, _GET_FLAGS, request), _NAME_BYTES)[0] & _UP
        ):
            try:
                news.recv(4096)
            except TimeoutError:
                told = "nobody brings up its loopback device"
                raise OSError(errno.ETIMEDOUT, told) from None


def _route(network: str, table: int, number: int) -> bytes:
    address, _, bits = network.partition("/")
    packed = socket.inet_pton(socket.AF_INET, address)
    route = struct.pack(
        "=BBBBBBBBI",
        *(socket.AF_INET, int(bits), 0, 0, table, _BY_ADMINISTRATOR, 0, _UNREACHABLE, 0),
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
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount_over(os.path.dirname(_TUN), "mode=755")
    os.mknod(_TUN, stat.S_IFCHR | _ALL_MAY, _TUN_NUMBER)
    os.chmod(_TUN, _ALL_MAY)

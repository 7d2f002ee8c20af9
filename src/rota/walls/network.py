"""Networks of sandboxes and containers: a way out that does not lead to the machine's own networks.

`outbound` is a process of slirp4netns for each step, which the guardian ends with it: it takes what
the step sends to its only device, and opens connections of its own for it. From outside these look
like any other of the machine, so the step's own kernel tables must not let it send everywhere:
before the step begins, all private networks become unreachable there, and the addresses of this
machine too. A step has no right to change that.

IPv6 is not offered: there is no route for it, nor a device that would take it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses
from itertools import pairwise
from pathlib import Path

from rota.domain.addresses import PRIVATE_IPV4
from rota.ports.executor import Confinement, Exit, Namespace, Process, Spawner

NAMESERVER = IPv4Address("10.0.2.3")  # which slirp4netns passes on to the machine's own
_GATEWAYS = IPv4Network("10.0.2.2/31")  # that and the way out
_LINK = IPv4Network("10.0.2.0/24")
_GUEST = IPv4Address("10.0.2.100")  # who is behind the link, so nobody else under that address
_GET_OWNER = 0xB701  # of a namespace: the user namespace that has rights over it
_READY_WITHIN = 10.0  # seconds
_LARGEST_PACKET = 65520  # what it costs to pass one on hardly depends on its size
_KEPT = 2_000  # bytes of what it says
_READ = 4096
_DEVICE = "tap0"
# Hardware addresses of the way out and of the name server, and that of all, by which the two are
# asked for theirs: whoever sends to a group of receivers needs another one.
_RECEIVERS = ("52550a000202", "52550a000203", "ffffffffffff")


class NetworkFailed(Exception):
    """A network could not be had; the text is for people."""


def unreachable(allowed: Sequence[IPv4Network], own: Iterable[IPv4Address]) -> list[IPv4Network]:
    """Return what must not be reached: private networks but those allowed, and this machine.

    Of the link to slirp4netns only two addresses are its own; others may be those of a machine
    beside this one.
    """
    closed = [*PRIVATE_IPV4, *_LINK.address_exclude(_GATEWAYS)]
    for opened in allowed:
        closed = [rest for network in closed for rest in _without(network, opened)]
    here = [
        IPv4Network(address)
        for address in own
        if not (address.is_loopback or address in _GATEWAYS or address == _GUEST)
    ]
    # Not collapsed with one another: a route for the whole link would hide its two addresses.
    wide = collapse_addresses(network for network in closed if not network.subnet_of(_LINK))
    link = collapse_addresses(network for network in closed if network.subnet_of(_LINK))
    # By themselves: the kernel has single routes for the ends of the link, before those for parts.
    ends = map(IPv4Network, (_LINK.network_address, _LINK.broadcast_address))
    closed_ends = (end for end in ends if any(map(end.subnet_of, closed)))
    return list(dict.fromkeys([*wide, *link, *closed_ends, *here]))


def _without(network: IPv4Network, opened: IPv4Network) -> Iterator[IPv4Network]:
    if network.subnet_of(opened):
        return
    if opened.subnet_of(network):
        yield from network.address_exclude(opened)
    else:
        yield network


def own_addresses(table: str) -> set[IPv4Address]:
    """Return the machine's addresses, from the kernel's /proc/net/fib_trie."""
    found: set[IPv4Address] = set()
    lines = table.splitlines()
    for line, following in pairwise(lines):
        if following.strip().startswith("/32 host LOCAL"):
            with suppress(ValueError):
                found.add(IPv4Address(line.replace("|--", "").strip()))
    return found


class Outbound:
    """Maker of ways out, for the worker's settings."""

    def __init__(self, program: str, spawner: Spawner, allowed: Sequence[IPv4Network] = ()) -> None:
        self._program = program  # path of slirp4netns
        self._spawner = spawner
        self._allowed = allowed

    async def attach(self, pid: int, user: int | None = None, group: int | None = None) -> WayOut:
        """Open a way out of the network namespace of a process; return once it is open.

        `user` is who keeps it open: it must be the one who made that namespace, or root.
        """
        try:
            with _namespaces(pid) as (user_namespace, net_namespace):
                attached = self._start(user_namespace, net_namespace, user, group)
        except OSError as error:
            raise NetworkFailed(f"its namespaces cannot be opened: {error.strerror}") from error
        return await self._opened(attached)

    async def attach_to(self, net_namespace: int) -> WayOut:
        """Open a way out of a network namespace that an engine made; return once it is open."""
        try:
            with _owner_of(net_namespace) as owner:
                users = None if _is_our_own(owner) else owner
                attached = self._start(users, net_namespace, None, None)
        except OSError as error:
            raise NetworkFailed(f"its namespace cannot be used: {error.strerror}") from error
        return await self._opened(attached)

    async def _opened(self, attached: WayOut) -> WayOut:
        try:
            await attached.ready()
        except BaseException:
            await attached.close()
            raise
        return attached

    def _start(self, users: int | None, net: int, user: int | None, group: int | None) -> WayOut:
        namespace = Namespace(
            network=_NET,
            users=None if users is None else _USERS,
            device=_DEVICE,
            receivers=_RECEIVERS,
            unreachable=tuple(map(str, self._closed())),
        )
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        talk = Talk()
        descriptors = {_NET: os.dup(net), _READY: writer}
        if users is not None:
            descriptors[_USERS] = os.dup(users)
        try:
            process = self._spawner.spawn(
                self._command(has_users=users is not None),
                env={"PATH": os.defpath},
                cwd="/",
                stdout=talk.writer(),
                stderr=talk.writer(),
                confinement=Confinement(user, group, descriptors=descriptors, network=namespace),
            )
        except BaseException:
            os.close(reader)
            talk.close()
            raise
        return WayOut(process, reader, talk)

    def _closed(self) -> list[IPv4Network]:
        table = Path("/proc/self/net/fib_trie").read_text("ascii")
        return unreachable(self._allowed, own_addresses(table))

    def _command(self, *, has_users: bool) -> list[str]:
        # Not by a pid: bwrap's first process is already in a namespace below the one that owns the
        # network, and has no rights over it. Without one of its own it locks itself in instead.
        users = f"--userns-path=/proc/self/fd/{_USERS}" if has_users else "--enable-sandbox"
        return [
            self._program,
            "--configure",
            "--disable-host-loopback",
            "--enable-seccomp",
            f"--mtu={_LARGEST_PACKET}",
            f"--ready-fd={_READY}",
            "--netns-type=path",
            users,
            f"/proc/self/fd/{_NET}",
            _DEVICE,
        ]


_USERS, _NET, _READY = 3, 4, 5  # descriptors of the program


@contextmanager
def _namespaces(pid: int) -> Iterator[tuple[int, int]]:
    """Open the network namespace of a process, and the user namespace that owns it."""
    net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _owner_of(net) as users:
            yield users, net
    finally:
        os.close(net)


@contextmanager
def _owner_of(net: int) -> Iterator[int]:
    """Open the user namespace that owns a network namespace."""
    users: int = fcntl.ioctl(net, _GET_OWNER)
    try:
        yield users
    finally:
        os.close(users)


def _is_our_own(users: int) -> bool:
    """Return whether it is the user namespace that we are in, and need not be entered."""
    return os.path.samestat(os.fstat(users), Path("/proc/self/ns/user").stat())


@dataclass(slots=True, eq=False)
class WayOut:
    """A network that a process keeps open."""

    process: Process
    _ready: int  # reads a byte once it is open
    _talk: Talk

    @property
    def ended(self) -> asyncio.Future[Exit]:
        return self.process.ended

    async def ready(self) -> None:
        """Wait until it is open, or raise `NetworkFailed`."""
        loop = asyncio.get_running_loop()
        byte: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            loop.remove_reader(self._ready)
            if not byte.done():
                byte.set_result(os.read(self._ready, 1))

        loop.add_reader(self._ready, read)
        try:
            async with asyncio.timeout(_READY_WITHIN):
                is_open = await byte == b"1"
                if not is_open:
                    await self.ended
        except TimeoutError:
            raise NetworkFailed(f"slirp4netns was not ready within {_READY_WITHIN:g} s") from None
        finally:
            loop.remove_reader(self._ready)
            os.close(self._ready)
            self._ready = -1
        if not is_open:
            raise NetworkFailed(self.obituary())

    def obituary(self) -> str:
        """Say why it ended, or what it said last."""
        ending = self.ended.result() if self.ended.done() else None
        if ending is not None and ending.error:
            return f"slirp4netns: {ending.error}"
        if ending is not None and ending.signal is not None:
            return f"slirp4netns was killed by signal {ending.signal}"
        return f"slirp4netns: {self._talk.last_line() or 'it ended'}"

    async def close(self) -> None:
        """End it; return when nothing of it is left."""
        if self._ready >= 0:
            os.close(self._ready)
            self._ready = -1
        if not self.ended.done():
            self.process.kill()
        await self.ended
        self._talk.close()


class Talk:
    """Standard error of a helper process: its end is kept, all else is thrown away."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._end = b""
        self._loop.add_reader(self._reader, self._read)

    def writer(self) -> int:
        """Return another descriptor to write to, which its receiver closes."""
        return os.dup(self._writer)

    def _read(self) -> bool:
        """Read what is there; return whether there was something."""
        try:
            data = os.read(self._reader, _READ)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            data = b""
        self._end = (self._end + data)[-_KEPT:]
        return bool(data)

    def text(self) -> str:
        """Return the end of all that was said so far."""
        while self._read():
            pass
        return self._end.decode(errors="replace")

    def last_line(self) -> str:
        lines = [line.strip() for line in self.text().splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def close(self) -> None:
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        os.close(self._writer)

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from rota.ports.executor import Confinement, Exit
from rota.walls import network
from rota.walls.network import NetworkFailed, Outbound, Talk, own_addresses, unreachable

pytestmark = pytest.mark.anyio


def is_closed(address: str, closed: Sequence[IPv4Network]) -> bool:
    """Whether the kernel would not send there: the longest prefix decides; the link's has 24."""
    found = [each for each in closed if IPv4Address(address) in each]
    on_link = IPv4Address(address) in IPv4Network("10.0.2.0/24")
    return any(each.prefixlen > 24 for each in found) if on_link else bool(found)


class TestUnreachable:
    @pytest.mark.parametrize(
        "address",
        [
            "0.0.0.1",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "127.0.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.251",
            "240.0.0.1",
            "255.255.255.255",
            "10.0.2.0",
            "10.0.2.1",
            "10.0.2.4",
            "10.0.2.15",
            "10.0.2.255",
        ],
    )
    def test_private_addresses_are_closed(self, address: str) -> None:
        assert is_closed(address, unreachable((), ()))

    @pytest.mark.parametrize(
        "address", ["1.1.1.1", "9.255.255.255", "172.32.0.1", "192.0.2.1", "203.0.113.7"]
    )
    def test_public_addresses_are_open(self, address: str) -> None:
        assert not is_closed(address, unreachable((), ()))

    @pytest.mark.parametrize("address", ["10.0.2.2", "10.0.2.3"])
    def test_so_are_the_way_out_and_the_nameserver(self, address: str) -> None:
        assert not is_closed(address, unreachable((), ()))

    def test_addresses_of_this_machine_are_closed_however_public(self) -> None:
        closed = unreachable((), [IPv4Address("203.0.113.7"), IPv4Address("127.0.0.1")])

        assert is_closed("203.0.113.7", closed)
        assert not is_closed("203.0.113.8", closed)

    def test_ends_of_the_link_are_closed_by_themselves(self) -> None:
        """The kernel has a route for each, which comes before one for a part of the link."""
        ends = {IPv4Network("10.0.2.0"), IPv4Network("10.0.2.255")}

        assert ends <= set(unreachable((), ()))
        assert ends.isdisjoint(unreachable([IPv4Network("10.0.2.0/24")], ()))

    @pytest.mark.parametrize("address", ["10.0.2.2", "10.0.2.3", "10.0.2.100"])
    def test_addresses_that_are_others_behind_the_link_stay_open(self, address: str) -> None:
        assert IPv4Network(address) not in unreachable((), [IPv4Address(address)])

    def test_what_the_worker_allows_is_open_and_its_neighbours_are_not(self) -> None:
        closed = unreachable([IPv4Network("10.1.0.0/16"), IPv4Network("192.168.0.0/15")], ())

        assert not is_closed("10.1.2.3", closed)
        assert not is_closed("192.168.9.9", closed)
        assert is_closed("10.2.0.1", closed)
        assert is_closed("10.0.255.255", closed)
        assert is_closed("169.254.169.254", closed)

    def test_an_allowed_network_does_not_open_this_machine(self) -> None:
        closed = unreachable([IPv4Network("10.1.0.0/16")], [IPv4Address("10.1.0.7")])

        assert is_closed("10.1.0.7", closed)


TABLE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
     |-- 192.0.2.2
        /32 host LOCAL
     |-- 192.0.2.255
        /32 link BROADCAST
"""


def test_own_addresses_are_read_from_the_kernels_table() -> None:
    assert own_addresses(TABLE) == {IPv4Address("127.0.0.1"), IPv4Address("192.0.2.2")}


def test_table_of_this_machine_has_loopback() -> None:
    assert IPv4Address("127.0.0.1") in own_addresses(Path("/proc/net/fib_trie").read_text())


class Process:
    """Implements `rota.ports.executor.Process`."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def signal(self, number: int) -> None: ...

    def kill(self) -> None:
        self.ended.set_result(Exit(None, 9))


class Spawner:
    """Implements `rota.ports.executor.Spawner`, with one process that does what a test says."""

    def __init__(self, says: str = "", ready: bytes = b"", *, is_silent: bool = False) -> None:
        self.process = Process()
        self._says, self._ready, self._is_silent = says, ready, is_silent
        self._kept: list[int] = []
        self.argv: Sequence[str] = ()
        self.confinement = Confinement()

    def close(self) -> None:
        for descriptor in self._kept:
            os.close(descriptor)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        stderr: int,
        confinement: Confinement | None = None,
    ) -> Process:
        assert confinement is not None
        self.argv, self.confinement = argv, confinement
        os.write(stderr, self._says.encode())
        os.write(confinement.descriptors[5], self._ready)
        self._kept += [os.dup(confinement.descriptors[5])] if self._is_silent else []
        for descriptor in (stdout, stderr, *confinement.descriptors.values()):
            os.close(descriptor)
        if not self._ready and not self._is_silent:
            self.process.ended.set_result(Exit(1, None))
        return self.process


class TestOutbound:
    async def test_it_is_open_once_the_process_says_so(self) -> None:
        spawner = Spawner(ready=b"1")

        way_out = await Outbound("/bin/slirp", spawner).attach(os.getpid(), 70_000, 70_000)

        assert not way_out.ended.done()
        await way_out.close()
        assert way_out.ended.done()

    async def test_what_the_process_said_last_is_why_there_is_none(self) -> None:
        spawner = Spawner(says="sent it\ncannot open the tap\n\n")

        with pytest.raises(NetworkFailed, match="cannot open the tap"):
            await Outbound("/bin/slirp", spawner).attach(os.getpid())

    async def test_a_process_that_never_gets_ready_is_ended(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(network, "_READY_WITHIN", 0.02)
        spawner = Spawner(is_silent=True)

        with pytest.raises(NetworkFailed, match="not ready within"):
            await Outbound("/bin/slirp", spawner).attach(os.getpid())

        assert spawner.process.ended.result() == Exit(None, 9)
        spawner.close()

    async def test_a_process_that_is_gone_has_no_network_to_open(self) -> None:
        with pytest.raises(NetworkFailed, match="cannot be opened"):
            await Outbound("/bin/slirp", Spawner()).attach(2**22 + 1)

    async def test_end_of_an_open_network_tells_how(self) -> None:
        spawner = Spawner(ready=b"1")
        way_out = await Outbound("/bin/slirp", spawner).attach(os.getpid())

        spawner.process.ended.set_result(Exit(None, 11))

        assert way_out.obituary() == "slirp4netns was killed by signal 11"
        await way_out.close()

    async def test_loopback_of_the_machine_is_never_passed_on(self) -> None:
        spawner = Spawner(ready=b"1")
        way_out = await Outbound("/bin/slirp", spawner).attach(os.getpid())
        await way_out.close()

        assert "--disable-host-loopback" in spawner.argv
        assert "--enable-ipv6" not in spawner.argv
        made = spawner.confinement.network
        assert made is not None
        assert "169.254.0.0/16" in made.unreachable
        assert spawner.argv[-1] == made.device
        assert not any(int(each[:2], 16) & 1 for each in made.receivers if each != "f" * 12)


class TestTalk:
    async def test_much_talk_neither_blocks_the_talker_nor_is_kept(self) -> None:
        talk = Talk()
        writer = talk.writer()
        os.set_blocking(writer, False)
        for _ in range(100):
            os.write(writer, b"x" * 4095 + b"\n")
            while talk._read():
                pass
        os.write(writer, b"the end\n")
        os.close(writer)

        assert talk.last_line() == "the end"
        assert len(talk.text()) <= 2_000
        talk.close()

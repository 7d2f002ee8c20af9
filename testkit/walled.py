"""A machine for attacks on walls: a worker whose network is the test's own.

    world ── 10.77.0.1 ═══ 10.77.0.2 ── machine: server, worker, jobs

Both are network namespaces that exist only as long as the test. What a job breaks through reaches
the world, where each address has a listener that notes who came; one address of a public range
stands for the internet. Root is needed for that; the worker may be another user nevertheless.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from testkit.processes import RotaUp, cmdline, processes_of
from testkit.waiting import eventually

INTERNET = "203.0.113.80"  # of a range for documentation: public, and nobody's
METADATA = "169.254.169.254"
GROUPS = ("224.0.0.251", "239.255.255.250", "10.0.2.255")  # and the end of a private link
PRIVATE = ("10.77.0.1", "10.0.2.50", "100.64.0.9", "172.16.9.9", "192.168.9.9", METADATA)
OWN = "10.77.0.2"  # of the machine itself
OWN_PUBLIC = "203.0.113.5"  # the same, as a machine in the internet has one
SOMEBODY = 12_345
_CLONE_NEWNET = 0x40000000
_PORT = 7999
_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """The two namespaces, and who listens in them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.came: set[str] = set()  # addresses that somebody connected to
        self.port = _PORT

    def __enter__(self) -> Network:
        self._here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._stack.callback(os.close, self._here)
        self.machine, machine = self._namespace()
        self.world, world = self._namespace()
        # From inside: in our own namespace, a second test may use the same name.
        peer = ("peer", "name", "rota-w", "netns", world)
        self._in(machine, "link", "add", "rota-m", "type", "veth", *peer)
        self._in(machine, "link", "set", "lo", "up")
        self._in(machine, "addr", "add", f"{OWN}/24", "dev", "rota-m")
        self._in(machine, "addr", "add", f"{OWN_PUBLIC}/32", "dev", "lo")
        self._in(machine, "link", "set", "rota-m", "up")
        self._in(world, "link", "set", "lo", "up")
        for address in (*PRIVATE, INTERNET):
            self._in(world, "addr", "add", f"{address}/32", "dev", "lo")
        self._in(world, "addr", "replace", f"{PRIVATE[0]}/24", "dev", "rota-w")
        self._in(world, "link", "set", "rota-w", "up")
        self._in(machine, "route", "add", "default", "via", PRIVATE[0])
        for address in (*PRIVATE, INTERNET):
            self._listen(self.world, address)
        for address in (OWN, OWN_PUBLIC, "127.0.0.1"):
            self._listen(self.machine, address)
        self._listen(self.machine, "\0rota-abstract")
        self._in(world, "addr", "add", f"{GROUPS[-1]}/32", "dev", "lo")
        for address in (*PRIVATE, INTERNET, *GROUPS):
            self._receive(self.world, address)
        for address in (OWN, OWN_PUBLIC, "127.0.0.1"):
            self._receive(self.machine, address)
        return self

    @property
    def inode(self) -> int:
        """Return what tells processes of the machine from all others."""
        return os.fstat(self.machine).st_ino

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _namespace(self) -> tuple[int, str]:
        holder = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
        self._stack.callback(_end, holder)
        path = f"/proc/{holder.pid}/ns/net"
        own = os.fstat(self._here).st_ino

        def is_apart() -> bool:
            # The program, too: until it is executed, what is held may still be our own.
            return Path(path).stat().st_ino != own and cmdline(holder.pid).startswith(b"sleep")

        eventually(is_apart)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._stack.callback(os.close, descriptor)
        return descriptor, str(holder.pid)

    def _in(self, pid: str, *words: str) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *words], check=True)

    def _listen(self, namespace: int, address: str) -> None:
        is_path = address.startswith("\0")
        with self.entered(namespace):
            listener = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address if is_path else (address, _PORT))
        listener.listen()
        self._stack.callback(listener.close)
        self._stack.callback(listener.shutdown, socket.SHUT_RDWR)
        thread = threading.Thread(target=self._note, args=(listener, address), daemon=True)
        thread.start()

    def _receive(self, namespace: int, address: str) -> None:
        """Note datagrams to an address, or to a group of receivers."""
        is_group = address in GROUPS and address != GROUPS[-1]
        with self.entered(namespace):
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            receiver.bind((address, _PORT))
            if is_group:
                joined = socket.inet_aton(address) + socket.inet_aton(PRIVATE[0])
                receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        self._stack.callback(receiver.close)
        self._stack.callback(self._wake, namespace, address)
        threading.Thread(target=self._note_datagrams, args=(receiver, address), daemon=True).start()

    def _wake(self, namespace: int, address: str) -> None:
        """Let a receiver see that it is over: no shutdown does so where nobody is connected."""
        with self.entered(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            if namespace == self.world:
                by = socket.inet_aton(PRIVATE[0])
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, by)
            sender.sendto(b"", (address, _PORT))

    def _note_datagrams(self, receiver: socket.socket, address: str) -> None:
        while receiver.recv(100):
            self.came.add(address)

    def _note(self, listener: socket.socket, address: str) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.came.add(address.strip("\0"))
            with suppress(OSError):
                connection.sendall(b"welcome\n")
            connection.close()

    @contextmanager
    def entered(self, namespace: int | None = None) -> Iterator[None]:
        """Be in a namespace, the machine's by default; processes that are started are there too."""
        _enter(self.machine if namespace is None else namespace)
        try:
            yield
        finally:
            _enter(self._here)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


# A mount namespace of its own: a device for tunnels that all may open, as on most systems; and the
# interpreter of this checkout, which may lie in a folder of root's, for users who are not root.
_PREPARE = """
set -e
if [ ! -w /dev/net/tun ] || [ "$(stat -c %a /dev/net/tun)" != 666 ]; then
  mount -t tmpfs -o mode=755 tmpfs /dev/net
  mknod -m 666 /dev/net/tun c 10 200
fi
if [ "$ROTA_TEST_USER" != 0 ] && [ -n "$ROTA_TEST_SHOWN" ]; then
  mkdir -p /run/rota-shown
  mount --bind "$ROTA_TEST_SHOWN" /run/rota-shown
  mount -t tmpfs -o mode=755 tmpfs "/$(echo "$ROTA_TEST_SHOWN" | cut -d/ -f2)"
  mkdir -p "$ROTA_TEST_SHOWN"
  mount --move /run/rota-shown "$ROTA_TEST_SHOWN"
fi
for hidden in $ROTA_TEST_HIDDEN; do mount --bind /dev/null "$hidden"; done
user=$ROTA_TEST_USER
unset ROTA_TEST_USER ROTA_TEST_SHOWN ROTA_TEST_HIDDEN
exec setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"
"""


class WalledRota(RotaUp):
    """`rota up` on the machine, as a user, perhaps without some of its programs."""

    def __init__(
        self, folder: Path, network: Network, user: int, hidden: Sequence[str] = (), **settings: str
    ) -> None:
        environ = {
            "ROTA_TEST_USER": str(user),
            "ROTA_TEST_SHOWN": _hidden_interpreter(),
            "ROTA_TEST_HIDDEN": " ".join(hidden),
            "CANARY": "the-worker's-own-variable",
        }
        super().__init__(folder / "home", (), environ, **settings)
        self.network = network

    def _open(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        wrapped = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", _PREPARE, "sh"]
        return super()._open([*wrapped, *command])

    def inside(self, mark: str) -> int:
        """Return the pid of the one process with this mark that is no monitor of the sandbox."""

        def find() -> int:
            pids = [pid for pid in processes_of(mark) if b"bwrap" not in cmdline(pid)]
            assert pids, f"no process has {mark}"
            return pids[-1]

        return eventually(find)


def _hidden_interpreter() -> str:
    """Return the folder of this interpreter if only root can pass to it, else ""."""
    program = Path(sys.executable).resolve()
    for folder in program.parents:
        if not folder.stat().st_mode & 1 and folder != Path("/"):
            return str(Path(*program.parts[: len(folder.parts) + 1]))
    return ""


@contextmanager
def walled_machine(
    user: int, hidden: Sequence[str] = (), **settings: str
) -> Iterator[tuple[WalledRota, Network]]:
    """Start `rota up` as a user on a machine of its own."""
    folder = Path(tempfile.mkdtemp(prefix="rota-walls-", dir="/var/tmp"))  # all may pass to it
    try:
        folder.chmod(0o755)
        os.chown(folder, user, user)
        with Network() as network, network.entered():
            rota = WalledRota(folder, network, user, hidden, **settings)
            try:
                rota.start()
                yield rota, network
            finally:
                rota.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""Real container engines, Docker and Podman, and a registry that asks for a password.

All of one `EngineRoom` are in a network namespace of their own: nothing of theirs reaches the
machine's network, and nobody else their registry. Their mounts are in a mount namespace that ends
with the room.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from testkit.servers.ports import free_ports
from testkit.waiting import eventually

PLACES = f"{os.environ['PATH']}:/usr/sbin:/sbin"  # daemons are where users may not look
PROGRAMS = ("dockerd", "podman", "docker-registry", "htpasswd", "busybox")
BASE = "rota-base:1"  # an image that every engine here has
USER, PASSWORD = "robot", "correct horse"
# A containerd of the system's, which dockerd would take, is not to be seen.
_HOLDING = (
    "ip link set lo up && mkdir -p /run/containerd && mount -t tmpfs none /run/containerd"
    " && echo up && exec sleep infinity"
)
_READY_WITHIN = timedelta(seconds=60)
_API_SECONDS = 60.0


def missing_programs() -> list[str]:
    """List what is not installed; empty: engines can be started, by root."""
    return [name for name in PROGRAMS if _find(name) is None]


class EngineRoom:
    """Namespaces of engines and their registry, and the folder of all they keep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._holder: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._holder = subprocess.Popen(
            [*("unshare", "--net", "--mount", "--propagation=slave", "sh", "-c", _HOLDING)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n", "no namespaces"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        assert self._holder is not None
        self._holder.kill()
        self._holder.communicate()

    def docker(self, name: str = "docker") -> Engine:
        return self._stack.enter_context(Docker(self, self.folder / name))

    def podman(self, name: str = "podman") -> Engine:
        return self._stack.enter_context(Podman(self, self.folder / name))

    def registry(self) -> Registry:
        return self._stack.enter_context(Registry(self, self.folder / "registry"))

    def start(
        self, command: Iterable[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in the namespaces."""
        assert self._holder is not None
        inside = ["nsenter", f"--target={self._holder.pid}", "--net", "--mount", "--"]
        with log.open("ab") as file:
            return subprocess.Popen(
                [*inside, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PATH": PLACES, **(environment or {})},
                start_new_session=True,
            )


class Engine(ABC):
    """Container engine that keeps its socket when it is killed and started again."""

    kind: str

    def __init__(self, room: EngineRoom, folder: Path) -> None:
        self._room = room
        self._folder = folder
        self.socket = folder / "engine.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        self._prepare()
        self.start()
        try:
            self.import_image(base_archive(), BASE)
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clean()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.socket.unlink(missing_ok=True)
        self._process = self._room.start(self._command(), self._folder / "log", self._environment())
        try:
            eventually(self._answers, within=_READY_WITHIN)
        except BaseException as error:
            self._end(signal.SIGKILL)
            raise AssertionError(f"{self.kind} did not get ready: {error}\n{self.log}") from error

    def stop(self) -> None:
        """Terminate it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it; what it started goes on."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it as if it hung."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @abstractmethod
    def trust(self, host: str) -> None:
        """Let it use a registry without TLS."""

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def answers_within(self, seconds: float) -> bool:
        with self._client() as client:
            try:
                return client.get("/_ping", timeout=seconds).is_success
            except httpx.TransportError:
                return False

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-4_000:]

    # --- its API, as tests use it

    def names(self, **labels: str) -> list[str]:
        """List its containers that have these labels, running or not."""
        wanted = json.dumps({"label": [f"{key}={value}" for key, value in labels.items()]})
        found = self._ask("GET", "containers/json", all="true", filters=wanted).json()
        return sorted(each["Names"][0].lstrip("/") for each in found)

    def show(self, name: str) -> dict[str, Any]:
        """Return all that it says about a container."""
        shown: dict[str, Any] = self._ask("GET", f"containers/{name}/json").json()
        return shown

    def remove(self, name: str) -> None:
        self._ask("DELETE", f"containers/{name}", force="true", v="true")

    def import_image(self, archive: bytes, name: str, changes: Sequence[str] = ()) -> None:
        """Make an image of a tar archive of its root folder; changes are lines of a Dockerfile."""
        headers = {"Content-Type": "application/x-tar"}
        with self._client() as client:
            path = "/images/create"
            query = {"fromSrc": "-", "repo": name, "changes": list(changes)}
            answer = client.post(path, params=query, content=archive, headers=headers)
            assert answer.is_success, answer.text

    def remove_image(self, name: str) -> None:
        with self._client() as client:
            client.delete(f"/images/{name}", params={"force": "true"})

    def push(self, registry: Registry, name: str, source: str = BASE) -> str:
        """Put an image into a registry; return its digest there."""
        full = f"{registry.host}/{name}"
        repository, _, tag = full.rpartition(":")
        self._ask("POST", f"images/{source}/tag", repo=repository, tag=tag)
        login = {"username": USER, "password": PASSWORD, "serveraddress": registry.host}
        header = urlsafe_b64encode(json.dumps(login).encode()).decode()
        path = f"/images/{repository}/push"
        with self._client() as client:
            answer = client.post(path, params={"tag": tag}, headers={"X-Registry-Auth": header})
        assert answer.is_success, answer.text
        assert '"error"' not in answer.text, answer.text
        digest = registry.digest(name)
        self.remove_image(full)
        return digest

    def _client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.socket))
        return httpx.Client(transport=transport, base_url="http://engine", timeout=_API_SECONDS)

    def _ask(self, method: str, path: str, **query: str) -> httpx.Response:
        with self._client() as client:
            answer = client.request(method, f"/{path}", params=query)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def _answers(self) -> bool:
        assert self.is_up, f"it ended: {self.log}"
        with socket.socket(socket.AF_UNIX) as attempt:  # httpx leaves one open that is refused
            if attempt.connect_ex(str(self.socket)):
                return False
        return self._ask("GET", "_ping").is_success

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait()

    def _clean(self) -> None:
        """Leave nothing: containers first, whose engine may have to be started for that."""
        with suppress(AssertionError, httpx.HTTPError):
            if not self.is_up:
                self.start()
            self.thaw()
            for name in self.names():
                self.remove(name)
        self.stop()
        kill_marked(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _environment(self) -> dict[str, str]:
        return {}


class Docker(Engine):
    kind = "docker"

    def _prepare(self) -> None: ...

    def start(self) -> None:
        self._forget_dead_containerd()
        super().start()

    def _forget_dead_containerd(self) -> None:
        """Remove the note of a containerd that died with its dockerd.

        Where nobody buries orphans, dockerd would take what is left of it for alive.
        """
        note = self._folder / "exec" / "containerd" / "containerd.pid"
        with suppress(OSError):
            status = Path(f"/proc/{note.read_text().strip()}/status").read_text()
            if "State:\tZ" in status:
                note.unlink()

    def _command(self) -> list[str]:
        folder = self._folder
        flags = {
            "data-root": folder / "data",
            "exec-root": folder / "exec",
            "pidfile": folder / "pid",
            "host": f"unix://{self.socket}",
            "config-file": self._configuration(),
            "log-level": "warn",
        }
        told = [f"--{name}={value}" for name, value in flags.items()]
        off = ["bridge=none", "iptables=false", "ip6tables=false", "ip-forward=false"]
        return [_program("dockerd"), *told, *(f"--{each}" for each in off), "--ip-masq=false"]

    def trust(self, host: str) -> None:
        """Do nothing: it trusts those on loopback."""

    def _configuration(self) -> Path:
        """Make a file of settings, so that those of the system's Docker do not count."""
        path = self._folder / "daemon.json"
        path.write_text("{}")
        return path


class Podman(Engine):
    kind = "podman"

    def __init__(self, room: EngineRoom, folder: Path) -> None:
        super().__init__(room, folder)
        self._trusted: set[str] = set()

    def _prepare(self) -> None:
        """Tell it of registries without TLS, and of limits that it may not raise."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        (self._folder / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = ["nofile={most}:{most}"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
            "exit_command_delay = 2\n"
        )
        (self._folder / "registries.conf").write_text(
            'unqualified-search-registries = ["docker.io"]\n'
        )
        (self._folder / "policy.json").write_text(
            '{"default": [{"type": "insecureAcceptAnything"}]}'
        )

    def trust(self, host: str) -> None:
        if host not in self._trusted:
            self._trusted.add(host)
            with (self._folder / "registries.conf").open("a") as file:
                place = f'prefix = "{host}"\nlocation = "{host}"\ninsecure = true\n'
                file.write(f"[[registry]]\n{place}")
            self.stop()
            self.start()

    def _command(self) -> list[str]:
        folder = self._folder
        places = {"root": "graph", "runroot": "run", "tmpdir": "tmp"}
        told = [f"--{flag}={folder / name}" for flag, name in places.items()]
        more = ["--runtime=runc", "--cgroup-manager=cgroupfs"]
        service = ["system", "service", "--time=0", f"unix://{self.socket}"]
        return [_program("podman"), *told, *more, *service]

    def _environment(self) -> dict[str, str]:
        return {
            "CONTAINERS_CONF": str(self._folder / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self._folder / "registries.conf"),
            "REGISTRY_AUTH_FILE": str(self._folder / "none.json"),
        }


class Registry:
    """Docker's registry, on loopback of the room, for one user."""

    def __init__(self, room: EngineRoom, folder: Path) -> None:
        self._room = room
        self._folder = folder
        [self._port] = free_ports(1)
        self.host = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        command = [_program("htpasswd"), "-Bbn", USER, PASSWORD]
        entry = subprocess.run(command, check=True, capture_output=True).stdout
        (self._folder / "htpasswd").write_bytes(entry)
        settings = {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(self._folder / "data")}},
            "http": {"addr": self.host},
            "auth": {"htpasswd": {"realm": "rota", "path": str(self._folder / "htpasswd")}},
        }
        (self._folder / "config.yml").write_text(json.dumps(settings))
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        command = [_program("docker-registry"), "serve", str(self._folder / "config.yml")]
        self._process = self._room.start(command, self._folder / "log")
        eventually(lambda: self._ask("/v2/") != "", within=_READY_WITHIN)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def digest(self, name: str) -> str:
        """Return the digest of an image that is there."""
        repository, _, tag = name.rpartition(":")
        headers = self._ask(f"/v2/{repository}/manifests/{tag}")
        [digest] = [
            line.partition(":")[2].strip()
            for line in headers.splitlines()
            if line.lower().startswith("docker-content-digest:")
        ]
        return digest

    def _ask(self, path: str) -> str:
        """Return the headers of an answer; "": there is none. Only programs in the room can ask."""
        answer = self._folder / "answer"
        answer.unlink(missing_ok=True)
        url = f"http://{self.host}{path}"
        self._room.start([sys.executable, "-c", _ASKING, url, USER, PASSWORD], answer).wait()
        return answer.read_text()


_ASKING = """
import sys, httpx
_, url, user, password = sys.argv
kinds = "application/vnd.docker.distribution.manifest.v2+json"
kinds += ", application/vnd.oci.image.manifest.v1+json"
try:
    answer = httpx.head(url, auth=(user, password), headers={"Accept": kinds}, trust_env=False)
except httpx.TransportError:
    sys.exit()
for name, value in answer.headers.items():
    print(f"{name}: {value}")
"""


def base_archive(*, files: Mapping[str, bytes] | None = None) -> bytes:
    """Return an image's root folder: busybox by all its names, and these files."""
    busybox = Path(_program("busybox"))
    names = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout
    content = {
        "etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
        **(files or {}),
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "dev", "proc", "sys", "usr", "var", "var/tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder.endswith("tmp") else 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for name in names.split():
            if name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        for name, data in content.items():
            _add(tar, name, data, 0o644)
    return archive.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def kill_marked(folder: Path) -> None:
    """Kill the processes that have the path of a folder among their arguments."""
    mark = os.fsencode(f"{folder}/")
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if mark in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)


def _find(name: str) -> str | None:
    return shutil.which(name, path=PLACES)


def _program(name: str) -> str:
    found = _find(name)
    assert found, f"no {name}: run tools/system_packages.py {name}"
    return found

"""Git repositories for one test, and real servers of them: `git http-backend` and sshd."""

from __future__ import annotations

import base64
import os
import pwd
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

from testkit.certificates import Certificate
from testkit.servers.ports import free_ports
from testkit.waiting import eventually

_WHO = {"GIT_AUTHOR_NAME": "somebody", "GIT_AUTHOR_EMAIL": "somebody@example.org"}
_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    **_WHO,
    **{name.replace("AUTHOR", "COMMITTER"): value for name, value in _WHO.items()},
}


@dataclass(frozen=True, slots=True)
class Repository:
    """Bare repository, and a work tree to make commits in."""

    bare: Path
    tree: Path

    @classmethod
    def make(cls, folder: Path, name: str) -> Repository:
        made = cls(folder / f"{name}.git", folder / f"{name}.tree")
        subprocess.run(
            ["git", "init", "-q", "--bare", "-b", "main", str(made.bare)],
            env=_ENVIRONMENT,
            check=True,
        )
        made._git("init", "-q", "-b", "main", ".")
        made._git("remote", "add", "origin", str(made.bare))
        return made

    def _git(self, *arguments: str) -> str:
        self.tree.mkdir(exist_ok=True)
        command = ["git", "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(
            command, cwd=self.tree, env=_ENVIRONMENT, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str | bytes], message: str = "change") -> str:
        """Commit files, and push; return the commit."""
        for name, text in files.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode() if isinstance(text, str) else text)
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
        self._git("add", "-A")
        return self.commit_index(message)

    def commit_index(self, message: str = "change") -> str:
        """Commit what was added, and push it."""
        self._git("commit", "-q", "--allow-empty", "-m", message)
        self._git("push", "-q", "--force", "--all", "origin")
        self._git("push", "-q", "--force", "--tags", "origin")
        return self._git("rev-parse", "HEAD")

    def run(self, *arguments: str) -> str:
        """Run any command of git in the work tree."""
        return self._git(*arguments)

    def make_tree(self, lines: str) -> str:
        """Make a folder of what `git ls-tree` would show of it; return its name."""
        done = subprocess.run(
            ["git", "mktree"],
            cwd=self.tree,
            env=_ENVIRONMENT,
            input=lines.encode(),
            capture_output=True,
            check=True,
        )
        return done.stdout.decode().strip()

    def write_tree(self, *entries: tuple[str, bytes, str]) -> str:
        """Write a folder with entries of any name: mode, name, object; return its name."""
        written = [b"%s %s\0%s" % (m.encode(), n, bytes.fromhex(o)) for m, n, o in entries]
        done = subprocess.run(
            ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"],
            cwd=self.tree,
            env=_ENVIRONMENT,
            input=b"".join(written),
            capture_output=True,
            check=True,
        )
        return done.stdout.decode().strip()

    def push_tree(self, tree: str, branch: str = "main") -> str:
        """Let a branch be one commit of a folder; return the commit."""
        commit = self._git("commit-tree", "-m", "x", tree)
        self._git("push", "-q", "--force", "origin", f"{commit}:refs/heads/{branch}")
        return commit

    def add_submodule(self, path: str, url: str, commit: str, name: str = "") -> None:
        """Add a submodule without asking anybody whether it is one."""
        text = f'[submodule "{name or path}"]\n\tpath = {path}\n\turl = {url}\n'
        with (self.tree / ".gitmodules").open("a") as file:
            file.write(text)
        self._git("add", ".gitmodules")
        self._git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")


@dataclass(slots=True)
class GitServer:
    """`git http-backend` behind a small HTTP server."""

    folder: Path
    address: str
    port: int
    scheme: str = "http"
    passwords: dict[str, str] = field(default_factory=dict)  # `user:password` by first folder
    redirects: dict[str, str] = field(default_factory=dict)  # target by first folder
    hangs: set[str] = field(default_factory=set)  # first folders that never answer
    echoes: set[str] = field(default_factory=set)  # first folders that repeat what they are shown
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, credentials that were shown
    _closed: threading.Event = field(default_factory=threading.Event)

    @property
    def site(self) -> str:
        return f"{self.scheme}://{self.address}:{self.port}"

    def url(self, repository: Repository) -> str:
        return f"{self.site}/{repository.bare.relative_to(self.folder)}"

    def wait(self) -> None:
        """Wait until the server is closed."""
        self._closed.wait()

    def close(self) -> None:
        self._closed.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: GitServer

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        first = path.split("/")[1]
        shown = self._shown()
        self.of.asked.append((path, shown))
        if first in self.of.hangs:
            self.of.wait()
        elif first in self.of.redirects:
            target = f"{self.of.redirects[first]}{path}?{query}"
            self._send(302, {"Location": target})
        elif first in self.of.echoes and shown:
            header = self.headers["Authorization"]
            body = f"{shown} may not enter\n{header}\n".encode()
            self._send(403, {"Content-Type": "text/plain"}, body)
        elif self.of.passwords.get(first, shown) != shown:
            self._send(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self._cgi(path, query, body)

    def _shown(self) -> str:
        kind, _, text = self.headers.get("Authorization", "").partition(" ")
        return base64.b64decode(text).decode() if kind == "Basic" else ""

    def _send(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _cgi(self, path: str, query: str, body: bytes) -> None:
        environ = {
            **_ENVIRONMENT,
            "GIT_PROJECT_ROOT": str(self.of.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], env=environ, input=body, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        headers = {name: value for name, value in lines if name != "Status"}
        status = next((int(value.split()[0]) for name, value in lines if name == "Status"), 200)
        self._send(status, headers, content)


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def server_bind(self) -> None:
        """Bind without asking resolvers what this machine is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


@contextmanager
def git_server(
    folder: Path, certificate: Certificate | None = None, address: str = "127.0.0.1"
) -> Iterator[GitServer]:
    """Serve the repositories of a folder on a port of loopback, or of another address."""

    class Handler(_Handler):
        pass

    server = _Server((address, 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    git = GitServer(folder, address, server.server_address[1], scheme)
    Handler.of = git
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield git
    finally:
        git.close()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True, slots=True)
class SshServer:
    """A real sshd on a port of loopback, for the user of the test."""

    port: int
    user: str
    key: Path  # that it lets in
    other_key: Path  # that it does not
    known_hosts: Path

    def url(self, repository: Repository) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}{repository.bare}"


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Start an sshd of Debian with a key of its own; its folder must be closed to others."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    folder.mkdir(mode=0o700)
    for name in ("host", "client", "stranger"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    shutil.copy(folder / "client.pub", folder / "authorized")
    [port] = free_ports(1)
    config = folder / "config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\n"
        f"AuthorizedKeysFile {folder / 'authorized'}\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPidFile none\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    host = (folder / "host.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host)}\n")
    process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE)

    def listens() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        done = subprocess.run(
            ["ssh-keyscan", "-p", str(port), "127.0.0.1"], capture_output=True, check=False
        )
        return b"ssh-ed25519" in done.stdout

    try:
        eventually(listens)
        user = pwd.getpwuid(os.geteuid()).pw_name
        keys = folder / "client", folder / "stranger"
        yield SshServer(port, user, *keys, folder / "known_hosts")
    finally:
        process.terminate()
        process.wait()
        with suppress(AttributeError):
            process.stderr.close()  # type: ignore[union-attr]

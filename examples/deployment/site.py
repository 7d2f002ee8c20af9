"""The shop of the tutorial "Code deployment": a git server, five machines, and Rota.

Everything is on this machine and ends with this program. A machine is a folder and a worker whose
home that is; what it serves is the release to which its link `current` leads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

HERE = Path(__file__).parent
ROTA = Path(sys.executable).with_name("rota")
CITIES = {"web-1": "Oslo", "web-2": "Bergen", "web-3": "Bodø", "web-4": "Tromsø", "web-5": "Narvik"}
OPTIONS = ["--pool", "web", "--label", "site=fra"]  # of each machine's worker


def make_repository(folder: Path) -> None:
    """Make the repository of the shop, unless it is there."""
    if (folder / ".git").exists():
        return
    shutil.copytree(HERE / "shop", folder)
    for words in (
        "init -q -b main",
        "config user.name you",
        "config user.email you@example.org",
        "add -A",
        "commit -q -m first",
    ):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)


def make_machine(folder: Path, url: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "url").write_text(f"{url}\n")


def page_of(machine: Path) -> str:
    """Return what a machine serves; a KeyError names what its page asks for and nobody knows."""
    release = machine / "current"
    facts = {"name": machine.name, "city": CITIES[machine.name]}
    version = (release / "VERSION").read_text().strip()
    return (release / "page.html").read_text().format(version=version, **facts)


def health_of(machine: Path) -> tuple[int, str]:
    try:
        page_of(machine)
    except KeyError as error:
        return 500, f"the page asks for {error}, which {machine.name} does not know"
    except FileNotFoundError:
        return 500, f"{machine.name} has no release"
    return 200, f"{machine.name} serves the shop"


class Site(BaseHTTPRequestHandler):
    """`/git/…` is the repository, `/web-1/` a machine, `/health` all machines with a release."""

    folder: Path

    def do_GET(self) -> None:
        first, _, rest = self.path.partition("?")[0].lstrip("/").partition("/")
        if first == "git":
            self._git(b"")
        elif first == "health":
            found = [health_of(each) for each in self._machines() if (each / "current").exists()]
            bad = [text for status, text in found if status != 200]
            self._text(500 if bad else 200, "; ".join(bad) or f"{len(found)} machines are well")
        elif first in CITIES:
            machine = self.folder / first
            status, text = health_of(machine)
            is_page = status == 200 and rest != "health"
            self._text(status, page_of(machine).rstrip() if is_page else text)
        else:
            self._text(404, "there is nothing here")

    def do_POST(self) -> None:
        self._git(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_: object) -> None: ...

    def _machines(self) -> list[Path]:
        return [self.folder / name for name in CITIES]

    def _text(self, status: int, text: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _git(self, body: bytes) -> None:
        """Answer as `git http-backend` does."""
        path, _, query = self.path.partition("?")
        environ = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path.removeprefix("/git"),
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
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(headers.get("Status", "200").split()[0])
        self._send(status, headers.get("Content-Type", "text/plain"), content)


def start(home: Path, *words: str, folder: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a command of Rota; what workers print goes to a file in their folder."""
    environ = {
        **os.environ,
        "ROTA_HOME": str(home),
        "ROTA_OUTGOING_NETWORKS": "127.0.0.0/8",  # the repository and the machines are here
        "ROTA_GIT_HTTP": "true",
    }
    if folder is None:
        return subprocess.Popen([str(ROTA), *words], env=environ)
    environ["HOME"] = str(folder)
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen([str(ROTA), *words], env=environ, stdout=log, stderr=log)


def is_ready(home: Path, server: subprocess.Popen[bytes]) -> bool:
    try:
        note = json.loads((home / "client.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(note["pid"] == server.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=7790)
    parser.add_argument("--folder", type=Path, default=Path(".deployment"))
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("ROTA_HOME", ".rota")))
    options = parser.parse_args()
    folder, home = options.folder.resolve(), options.home
    url = f"http://127.0.0.1:{options.port}"
    make_repository(folder / "shop")
    for name in CITIES:
        make_machine(folder / name, f"{url}/{name}")
    Site.folder = folder
    site = ThreadingHTTPServer(("127.0.0.1", options.port), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    is_over = threading.Event()

    def end(*_: int | FrameType | None) -> None:
        is_over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    server = start(home, "up")
    while not is_ready(home, server) and not is_over.wait(0.1):
        if server.poll() is not None:
            sys.exit(server.returncode)
    workers = [
        start(home, "worker", "--name", name, *OPTIONS, folder=folder / name) for name in CITIES
    ]
    sys.stdout.write(f"the shop has {len(CITIES)} machines: {url}/web-1/ to /web-5/\n")
    sys.stdout.flush()
    is_over.wait()
    for process in (*workers, server):
        if process.poll() is None:
            process.terminate()
        process.wait()


if __name__ == "__main__":
    main()

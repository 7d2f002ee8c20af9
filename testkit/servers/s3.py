"""A real S3 server: SeaweedFS in one process, on loopback, in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from testkit.servers.ports import free_ports
from testkit.waiting import eventually

BUCKET = "rota-tests"
_ADMIN = ("admin", "admin-secret")
_USER = ("rota", "rota-secret")  # reads and writes, but makes no buckets
_STARTING = timedelta(seconds=60)
_PORTS = ("master", "volume", "filer", "s3")


class S3Server:
    """Server that keeps its port and data when it is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        numbers = free_ports(2 * len(_PORTS))
        self._ports = dict(zip(_PORTS, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "identities.json").write_text(json.dumps(_identities()))
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def port(self) -> int:
        return self._ports["s3"][0]

    @property
    def address(self) -> str:
        """Return the address for ROTA_BLOBS; a prefix may be appended."""
        return f"s3://{BUCKET}"

    def environ(self, port: int | None = None) -> Mapping[str, str]:
        """Return the environment variables for it, with another port if one is given."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": _USER[0],
            "AWS_SECRET_ACCESS_KEY": _USER[1],
        }

    def start(self) -> None:
        """Start it and wait until it takes objects."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            eventually(self._is_ready, _STARTING, otherwise="the S3 server did not get ready")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it: it does not end when asked to."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _command(self) -> list[str]:
        options: dict[str, Any] = {
            "dir": self._folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "filer.localSocket": self._folder / "filer.sock",
            "s3.localSocket": self._folder / "s3.sock",
            "s3.config": self._folder / "identities.json",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 100,
        }
        for part, (http, grpc) in self._ports.items():
            options |= {f"{part}.port": http, f"{part}.port.grpc": grpc}
        weed = Path(sys.executable).with_name("weed")
        given = [f"-{name}={value}" for name, value in options.items()]
        return [str(weed), "-logtostderr=true", "server", "-s3", *given]

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ChildProcessError(f"weed ended:\n{(self._folder / 'log').read_text()}")
        try:
            obstore.put(self._as_admin(), "ready", b"")  # makes the bucket, too
        except (BaseError, FileNotFoundError):  # the latter while its routes are not set up yet
            return False
        return True

    def _as_admin(self) -> S3Store:
        return S3Store(
            BUCKET,
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id=_ADMIN[0],
            secret_access_key=_ADMIN[1],
            client_options={"allow_http": True, "timeout": timedelta(seconds=2)},
            retry_config={"max_retries": 0},
        )


def _identities() -> dict[str, Any]:
    def identity(keys: tuple[str, str], actions: list[str]) -> dict[str, Any]:
        credentials = [{"accessKey": keys[0], "secretKey": keys[1]}]
        return {"name": keys[0], "credentials": credentials, "actions": actions}

    return {"identities": [identity(_ADMIN, ["Admin"]), identity(_USER, ["Read", "Write", "List"])]}

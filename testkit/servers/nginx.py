"""A real nginx: before a gRPC port, with its defaults, or with what a page says for REST."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from testkit.certificates import Certificate
from testkit.servers.ports import free_ports
from testkit.waiting import eventually

DOCUMENTED = "127.0.0.1:7700"  # where pages say that Rota listens
_CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ }}
http {{
    access_log {folder}/access;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        {server}
    }}
}}
"""
_GRPC = """
        listen 127.0.0.1:{port} http2;
        location / {{
            grpc_pass grpc://{target};
            grpc_read_timeout 1h;
            grpc_send_timeout 1h;
        }}
"""
_HTTPS = """
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
"""


class Nginx:
    """Balancer before one gRPC server. It cuts a stream that has sent a megabyte in all."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder = folder
        self._target = target
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def _server(self) -> str:
        """Return what stands in the configuration of the server."""
        return _GRPC.format(port=self.port, target=self._target)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        file = self._folder / "nginx.conf"
        file.write_text(_CONFIGURATION.format(folder=self._folder, server=self._server()))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program(), "-e", str(self._folder / "errors"), "-c", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._is_ready, otherwise="nginx did not get ready")
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill()

    @property
    def cuts(self) -> int:
        """Return how many streams had sent too much."""
        return (self._folder / "errors").read_text().count("client intended to send too large")

    def _kill(self) -> None:
        if self._process is not None:
            self._process.terminate()  # its workers end with it, which they would not by KILL
            self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


class HttpsNginx(Nginx):
    """Proxy before a REST server that ends TLS; `locations` are those of a page, for any port."""

    def __init__(self, folder: Path, target: str, locations: str, certificate: Certificate) -> None:
        super().__init__(folder, target)
        self._locations = locations
        self._certificate = certificate

    def _server(self) -> str:
        listen = _HTTPS.format(
            port=self.port,
            certificate=self._certificate.certificate,
            key=self._certificate.key,
        )
        return listen + self._locations.replace(DOCUMENTED, self._target)


def find_nginx() -> str | None:
    """Find nginx; Debian has it in a folder that users may not have in their path."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def _program() -> str:
    found = find_nginx()
    assert found, "no nginx: install the Debian package nginx"
    return found

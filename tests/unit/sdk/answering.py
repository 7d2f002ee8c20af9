"""A server that gives the answers a test has laid out for it, over a real socket."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

API = "/api/v1"

Ask = Callable[..., Any]  # a client's method by name, in either of its two forms


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """Of a body that has a JSON document in each."""
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass(frozen=True)
class Given:
    """An answer to give; the connection breaks after `body` if that is shorter than `length`."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    length: int | None = None  # None: that of the body


def document(value: object, status: int = 200) -> Given:
    return Given(json.dumps(value).encode(), status)


def problem(status: int, **fields: object) -> Given:
    report = {"type": "urn:rota:problem:some", "status": status, **fields}
    return Given(json.dumps(report).encode(), status, "application/problem+json")


def events(*named: tuple[str, object], broken: bool = False) -> Given:
    """An event stream that ends after these, or breaks off."""
    text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in named)
    length = len(text) + 100 if broken else None
    return Given(text.encode(), 200, "text/event-stream", length)


@dataclass
class Answering:
    """Answers wait per method and path; the last one of each is given again and again."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    _answers: dict[str, list[Given]] = field(default_factory=lambda: defaultdict(list))

    def on(self, request: str, *answers: Given, prefix: str = API) -> None:
        """`request` is a method and a path below the API's prefix: "GET /jobs"."""
        method, _, path = request.partition(" ")
        self._answers[f"{method} {prefix}{path}"] += answers

    def take(self, asked: Asked) -> Given:
        self.asked.append(asked)
        answers = self._answers[f"{asked.method} {asked.path}"]
        if not answers:
            return problem(404, code="not_found", detail=f"no answer for {asked.path}")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do(self) -> None:
        parts = urlsplit(self.path)
        body = b"".join(self._pieces())
        asked = Asked(self.command, parts.path, parse_qs(parts.query), dict(self.headers), body)
        given = self.server.answering.take(asked)
        self.send_response(given.status)
        self.send_header("Content-Type", given.content_type)
        self.send_header("Content-Length", str(given.length or len(given.body)))
        self.end_headers()
        self.wfile.write(given.body)
        self.close_connection = given.length is not None

    def _pieces(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_GET = do_POST = do_PATCH = do_DELETE = do  # noqa: N815 (the library's names)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answering: Answering


class AnsweringServer:
    """The server while it is up."""

    def __enter__(self) -> Answering:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.answering = Answering(f"http://127.0.0.1:{self._server.server_port}")
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self._server.answering

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

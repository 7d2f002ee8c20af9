"""One caller with huge files costs others neither their time nor the server its memory."""

from __future__ import annotations

import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from rota.sdk.client import Client
from testkit.processes import RotaUp, children_of, cmdline
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job

pytestmark = pytest.mark.timeout(120)

FILES = 40
SIZE, JOBS = 3_800_000, 9_000
MEGABYTE = 1024 * 1024
LONGEST_APPLY = 10.0  # seconds: it may have to wait for one file of another caller
MOST_MORE_MEMORY = 100 * MEGABYTE  # of the server, while it holds bodies of a few of them
YAML = {"Content-Type": "application/yaml"}


def huge_file() -> bytes:
    one = "  - name: job-{:06}\n    steps:\n      - run: echo " + "x" * (SIZE // JOBS - 50) + "\n"
    return ("jobs:\n" + "".join(map(one.format, range(JOBS)))).encode()


def memory(pid: int, what: str) -> int:
    found = re.search(
        rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
    )
    assert found
    return int(found[1]) * 1024


def parsers(rota: RotaUp) -> list[int]:
    return [pid for pid in children_of(rota.process.pid) if b"gateway.parsing_wire" in cmdline(pid)]


def test_a_viewer_that_floods_with_huge_files_stops_nobodys_apply(up: Up) -> None:
    rota = up()
    url = rota.client.server.url
    secret = rota.client.create_token("flood", "viewer").secret
    headers = {"Authorization": f"Bearer {secret}", **YAML}
    body = huge_file()
    before = memory(rota.process.pid, "VmRSS")
    over = threading.Event()

    def post(_: int) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=60) as client:
            return client.post(f"{url}/api/v1/jobs:validate", content=body, headers=headers)

    def apply_again_and_again() -> list[float]:
        lengths = []
        with Client(url, rota.client.server.token) as client:
            number = 0
            while not over.is_set() or number < 3:
                number += 1
                padding = "x" * 20_000 if number % 2 else "x"  # by a child, and in place
                began = time.monotonic()
                apply(client, job(f"tidy-{number}", f"true # {padding}"))
                lengths.append(time.monotonic() - began)
        return lengths

    with ThreadPoolExecutor(FILES + 1) as threads:
        applying = threads.submit(apply_again_and_again)
        answers = list(threads.map(post, range(FILES)))
        over.set()
        lengths = applying.result()

    refused = [answer for answer in answers if answer.status_code == 429]
    peak = memory(rota.process.pid, "VmHWM")
    assert max(lengths) < LONGEST_APPLY, lengths
    assert len(refused) > FILES / 2
    assert {answer.status_code for answer in answers} == {200, 429}
    assert {answer.json()["code"] for answer in refused} == {"too_many_files"}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
    assert peak - before < MOST_MORE_MEMORY, (peak, before)
    assert 1 <= len(parsers(rota)) <= 2


def test_nothing_is_parsed_for_clients_that_left(up: Up) -> None:
    rota = up()
    url = rota.client.server.url
    secret = rota.client.create_token("flood", "viewer").secret
    headers = {"Authorization": f"Bearer {secret}", **YAML}
    body = huge_file()

    def validate(content: bytes) -> int:
        with httpx.Client(trust_env=False, timeout=60, headers=headers) as client:
            return client.post(f"{url}/api/v1/jobs:validate", content=content).status_code

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(validate, body)
        eventually(lambda: parsers(rota))
        for _ in range(3):
            _send_and_leave(url, headers, body)
        assert first.result() == 200
    [parser] = parsers(rota)
    spent = _cpu_seconds(parser)

    assert eventually(lambda: validate(b"jobs: []" + b" " * 20_000)) == 200
    assert parsers(rota) == [parser]
    assert _cpu_seconds(parser) < spent * 1.5


def _send_and_leave(url: str, headers: dict[str, str], body: bytes) -> None:
    address = httpx.URL(url)
    lines = [
        "POST /api/v1/jobs:validate HTTP/1.1",
        f"Host: {address.host}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    with socket.create_connection((address.host, address.port or 80)) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body[:50_000])


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_an_idle_server_has_no_parser(up: Up) -> None:
    rota = up()

    apply(rota.client, job("tidy", "true"))

    assert parsers(rota) == []


def test_parsers_end_with_a_server_that_is_killed(up: Up) -> None:
    rota = up()
    apply(rota.client, job("tidy", "true # " + "x" * 20_000))
    [parser] = parsers(rota)

    rota.kill()

    eventually(lambda: not Path(f"/proc/{parser}").exists())

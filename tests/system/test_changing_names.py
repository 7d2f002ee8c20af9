"""A resolver whose answers change between two look-ups, in a network that the test has made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PUBLIC, PRIVATE = "93.184.215.14", "10.66.0.1"  # both are addresses of the test's own loopback

SCRIPT = f"""
import asyncio, json, socket, struct, sys, threading
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from rota.domain.addresses import parse_target
from rota.domain.errors import RotaError
from rota.outgoing import Outgoing, Request
from testkit.http_service import HttpService, Reply

ANSWERS = {{  # by name, one look-up after another; the last is repeated
    "fixed.test": [["{PUBLIC}"]],
    "changes.test": [["{PUBLIC}"], ["{PRIVATE}"]],
    "private.test": [["{PRIVATE}"]],
    "both.test": [["{PUBLIC}", "{PRIVATE}"]],
    "mapped.test": [["{PRIVATE}"]],
}}
lookups = []

def resolver():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.53", 53))
    ready.set()
    while True:
        query, client = server.recvfrom(512)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        name, kind = ".".join(labels), struct.unpack(">H", query[at + 1 : at + 3])[0]
        found = []
        if kind == 1 and name in ANSWERS:  # A
            lookups.append(name)
            found = ANSWERS[name].pop(0) if len(ANSWERS[name]) > 1 else ANSWERS[name][0]
        records = b"".join(
            b"\\xc0\\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(each)
            for each in found
        )
        flags = 0x8180 if name in ANSWERS else 0x8183
        head = query[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0)
        server.sendto(head + query[12 : at + 5] + records, client)

async def ask(outgoing, url):
    try:
        request = Request("GET", parse_target(url))
        return (await outgoing.send(request, 10, 100)).body.decode()
    except RotaError as error:
        return error.code + ": " + error.message

async def main():
    outside, inside = HttpService(), HttpService()
    outside.port = inside.port = 8080
    await outside.open("{PUBLIC}")
    await inside.open("{PRIVATE}")
    inside.on("GET", "/", Reply(body=b"secret"))
    outside.on("GET", "/", Reply(body=b"public"))
    outside.on("GET", "/moved", Reply(302, headers={{"Location": "http://changes.test:8080/"}}))
    outgoing = Outgoing()
    told = {{
        "fixed": await ask(outgoing, "http://fixed.test:8080/"),
        "first": await ask(outgoing, "http://changes.test:8080/"),
        "then": await ask(outgoing, "http://changes.test:8080/"),
        "private": await ask(outgoing, "http://private.test:8080/"),
        "both": await ask(outgoing, "http://both.test:8080/"),
        "moved": await ask(outgoing, "http://fixed.test:8080/moved"),
        "nowhere": await ask(outgoing, "http://nowhere.test:8080/"),
        "inside": len(inside.asked),
        "hosts": [asked.headers["host"] for asked in outside.asked],
        "lookups": lookups,
    }}
    await outgoing.close()
    await outside.close()
    await inside.close()
    print(json.dumps(told))

ready = threading.Event()
threading.Thread(target=resolver, daemon=True).start()
ready.wait(10)
asyncio.run(main())
"""


@pytest.fixture
def told(tmp_path: Path) -> dict[str, object]:
    script, resolver = tmp_path / "script.py", tmp_path / "resolv.conf"
    script.write_text(SCRIPT)
    resolver.write_text("nameserver 127.0.0.53\noptions timeout:2 attempts:1\n")
    commands = (
        "ip link set lo up",
        f"ip addr add {PUBLIC}/32 dev lo",
        f"ip addr add {PRIVATE}/32 dev lo",
        f"mount --bind {resolver} /etc/resolv.conf",
        f"exec {sys.executable} {script}",
    )
    ran = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "sh",
            "-ec",
            "\n".join(commands),
        ],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, object] = json.loads(ran.stdout)
    return answer


def test_no_answer_of_a_resolver_leads_to_a_private_address(told: dict[str, object]) -> None:
    refused = f"address_refused: {{}} ({PRIVATE}) must not be reached: it is a private network"

    assert (told["fixed"], told["first"]) == ("public", "public")
    assert told["then"] == refused.format("changes.test")
    assert told["private"] == refused.format("private.test")
    assert told["both"] == refused.format("both.test")  # one such address spoils them all
    assert told["moved"] == refused.format("changes.test")
    assert str(told["nowhere"]).startswith("not_sent: nowhere.test has no address")
    assert told["inside"] == 0
    # Each connection is one look-up, and the server is asked by the name that was written.
    assert told["lookups"] == [
        *("fixed.test", "changes.test", "changes.test", "private.test", "both.test"),
        *("fixed.test", "changes.test"),
    ]
    assert told["hosts"] == ["fixed.test:8080", "changes.test:8080", "fixed.test:8080"]

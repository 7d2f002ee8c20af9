"""A tiny ledger: books each payment once, whoever asks how often.

    python3 ledger.py --port 8790 --file ledger.db

POST /payments                {"key", "fence", "to", "cents"}: book it. 201: booked now; 200: it was
                              booked before, this is that booking; 409: booked before as something
                              else; 410: an attempt of this fence was called off.
POST /payments/KEY/settle     {"fence"}: say whether it was paid, and refuse from now on what comes
                              with this fence or a lower one. So the answer stays true: what is
                              still on its way cannot be booked behind it.
GET  /payments                all bookings, and their sum.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS payment (
    key TEXT PRIMARY KEY, fence INTEGER NOT NULL, payee TEXT NOT NULL, cents INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS called_off (key TEXT PRIMARY KEY, fence INTEGER NOT NULL);
"""


class Ledger:
    """Bookings in a file; one thread at a time."""

    def __init__(self, file: str, takes: float) -> None:
        self._turn = threading.Lock()
        self._takes = takes
        self._store = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._store.executescript(SCHEMA)

    def pay(self, key: str, fence: int, payee: str, cents: int) -> tuple[HTTPStatus, Any]:
        print(f"{cents / 100:.2f} to {payee}: asked for by attempt {fence}", flush=True)
        time.sleep(self._takes)  # what another bank needs; the caller may die meanwhile
        with self._turn:
            known = self._booked(key)
            if known is not None:
                is_same = known["to"] == payee and known["cents"] == cents
                return (HTTPStatus.OK if is_same else HTTPStatus.CONFLICT), known
            if fence <= self._called_off(key):
                return HTTPStatus.GONE, {"error": f"attempt {fence} was called off"}
            values = (key, fence, payee, cents)
            self._store.execute("INSERT INTO payment VALUES (?, ?, ?, ?)", values)
            return HTTPStatus.CREATED, self._booked(key)

    def settle(self, key: str, fence: int) -> tuple[HTTPStatus, Any]:
        with self._turn:
            known = self._booked(key)
            if known is None:
                self._store.execute(
                    "INSERT INTO called_off VALUES (?, ?) ON CONFLICT (key) "
                    "DO UPDATE SET fence = max(fence, excluded.fence)",
                    (key, fence),
                )
            return HTTPStatus.OK, {"is_paid": known is not None}

    def all(self) -> tuple[HTTPStatus, Any]:
        with self._turn:
            rows = self._store.execute("SELECT key, payee, cents FROM payment ORDER BY payee")
            found = [{"key": key, "to": payee, "cents": cents} for key, payee, cents in rows]
        total = sum(each["cents"] for each in found)
        return HTTPStatus.OK, {"payments": found, "cents": total}

    def _booked(self, key: str) -> dict[str, Any] | None:
        row = self._store.execute("SELECT payee, cents FROM payment WHERE key = ?", (key,))
        found = row.fetchone()
        return None if found is None else {"key": key, "to": found[0], "cents": found[1]}

    def _called_off(self, key: str) -> int:
        row = self._store.execute("SELECT fence FROM called_off WHERE key = ?", (key,))
        found = row.fetchone()
        return -1 if found is None else int(found[0])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger: Ledger

    def do_GET(self) -> None:
        if self.path == "/payments":
            self._answer(*self.ledger.all())
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is only /payments"})

    def do_POST(self) -> None:
        try:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            match self.path.strip("/").split("/"):
                case ["payments"]:
                    given = told["key"], int(told["fence"]), told["to"], int(told["cents"])
                    self._answer(*self.ledger.pay(*given))
                case ["payments", key, "settle"]:
                    self._answer(*self.ledger.settle(key, int(told["fence"])))
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, {"error": self.path})
        except (ValueError, KeyError, TypeError) as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": repr(error)})

    def _answer(self, status: HTTPStatus, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass  # payments are told, requests are not


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Whoever asked may be gone: it is booked all the same.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    parser = argparse.ArgumentParser(description="A tiny ledger.")
    parser.add_argument("--port", type=int, default=8790, help="0: any that is free")
    parser.add_argument("--file", default="ledger.db")
    parser.add_argument("--takes", type=float, default=0.0, help="seconds for each payment")
    options = parser.parse_args()
    Handler.ledger = Ledger(options.file, options.takes)
    server = Server(("127.0.0.1", options.port), Handler)
    print(f"ledger at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

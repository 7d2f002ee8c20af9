"""Carts of job files, submitted over the command line and played to some point."""

from __future__ import annotations

from pathlib import Path

from rota.domain.ids import CartId
from tests.unit.cli.console import Console, Ended
from tests.unit.cli.server import Server

JOBS = """
jobs:
  - name: upgrade
    inputs: {host: {type: string, default: none}, version: {type: integer, default: 16}}
    steps: [{run: "true"}]
  - {name: smoke, steps: [{run: "true"}]}
"""
SERIAL = "order: serial"
ALL_AT_ONCE = "order: parallel"


def cart_file(rules: str = SERIAL, items: str = "", *, count: int = 3, jobs: str = JOBS) -> str:
    """A file with one cart; its items are `db-0`, `db-1`, … unless they are given."""
    listed = ", ".join(f"{{key: db-{number}}}" for number in range(count))
    source = items or f"items: [{listed}]"
    cart = ["name: fleet", "job: upgrade", *rules.split("; "), source]
    return jobs + "carts:\n  - " + "\n    ".join(cart) + "\n"


def submit(rota: Console, server: Server, rules: str = SERIAL, *, count: int = 3) -> str:
    """The id of a cart that has begun."""
    server.define(JOBS)
    Path("fleet.yaml").write_text(cart_file(rules, count=count))
    cart = rota("cart", "submit", "fleet.yaml", "--yes", "-o", "name").out.strip()
    advance(server, cart)
    return cart


def advance(server: Server, cart: str) -> None:
    while server.do(server.engine.store.advance_cart(CartId(cart), None)).has_more:
        pass


def work(server: Server, cart: str, *results: str) -> None:
    """Let items end, one after another."""
    for result in results:
        server.finish(server.claim(), result)
        advance(server, cart)


def states(rota: Console, cart: str) -> list[str]:
    return [item["state"] for item in rota("cart", "items", cart, "--json").json["items"]]


def refused(ended: Ended, code: int, *words: str) -> bool:
    return ended.code == code and all(word in ended.err for word in words)

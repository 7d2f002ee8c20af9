"""Builders for the carts of system tests, and what must be true of one whatever happened to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.api.carts import CartDetail, CartItem
from rota.sdk.answers import Event, Run
from rota.sdk.client import Client
from testkit.cart_checker import ItemRun, check_cart
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.waiting import eventually
from tests.system.jobs import Document, job

A_MINUTE = timedelta(minutes=1)  # for a thousand items on a busy machine
RAMP = [1, 5, 20, "10%"]
TWICE = {"attempts": 2, "delay": "0s"}


def upgrade(evidence: Evidence, mended: Path, *work: str, **fields: Any) -> Document:
    """A job that fails on demand.

    At its first attempt if `flaky`, the first time that its item is tried if `once`, until the
    file is there if `broken`.
    """
    tried = f'"{mended}-$ROTA_ITEM"'
    fails = [
        'fail() { note beat; echo "no space left" >&2; exit 1; }',
        '[ "$INPUT_FAULT" != flaky ] || [ "$ROTA_ATTEMPT" -gt 1 ] || fail',
        f'[ "$INPUT_FAULT" != once ] || [ -e {tried} ] || {{ : >{tried}; fail; }}',
        f'[ "$INPUT_FAULT" != broken ] || [ -e "{mended}" ] || fail',
    ]
    return job(
        "upgrade",
        evidence.script(*fails, *work),
        inputs={"fault": {"type": "string", "default": "none"}},
        **fields,
    )


def databases(count: int, **each: int) -> list[Document]:
    """Items db-0001, db-0002, …; `flaky=7`: every 7th has that fault. The first named wins."""
    faults = (_fault(number, each) for number in range(1, count + 1))
    return [
        {"key": f"db-{number:04}", "with": {"fault": fault}}
        for number, fault in enumerate(faults, 1)
    ]


def _fault(number: int, each: Mapping[str, int]) -> str:
    return next((fault for fault, every in each.items() if number % every == 0), "none")


def submit(client: Client, items: Sequence[Document], **fields: Any) -> str:
    """The id of the new cart."""
    return client.submit_cart({"name": "upgrade", "job": "upgrade", **fields}, items).id


def settle(client: Client, cart: str, within: timedelta = A_MINUTE) -> CartDetail:
    """The cart once it is paused or over, and no worker holds anything of it."""
    client.wait_for_cart(cart, within.total_seconds())
    eventually(lambda: not held(client, cart), within, otherwise="workers still hold runs")
    return client.get_cart(cart)


def held(client: Client, cart: str) -> list[Run]:
    """Runs of the cart that a worker has."""
    return [run for run in runs_of(client, cart) if run.state in {"CLAIMED", "PROCESSING"}]


def items_of(client: Client, cart: str) -> list[CartItem]:
    return list(client.each(Client.list_cart_items(cart, limit=1000)))


def runs_of(client: Client, cart: str) -> list[Run]:
    return list(client.each(Client.list_runs(cart=cart, limit=1000)))


def cart_events(client: Client, cart: str) -> list[Event]:
    """What happened to it, in order."""
    return list(client.each(Client.get_cart_events(cart, limit=1000)))


def chains(client: Client, cart: str) -> Mapping[str, Sequence[Run]]:
    """The runs of each item, each a retry of the one before it."""
    following: defaultdict[str, dict[str | None, Run]] = defaultdict(dict)
    runs = runs_of(client, cart)
    for run in runs:
        assert run.item is not None
        assert run.retry_of not in following[run.item], "two runs are retries of the same one"
        following[run.item][run.retry_of] = run
    chained = {item: _chain(own) for item, own in following.items()}
    assert sum(map(len, chained.values())) == len(runs), "a run is the retry of another item's"
    return chained


def _chain(following: Mapping[str | None, Run]) -> list[Run]:
    chain: list[Run] = []
    while run := following.get(chain[-1].id if chain else None):
        chain.append(run)
    return chain


def check_evidence(
    client: Client, cart: str, evidence: Evidence, max_parallel: int | None = None
) -> None:
    """Fail unless what jobs wrote and what Rota says of them fit together, and order was kept."""
    items = {item.key: item for item in items_of(client, cart)}
    chained = chains(client, cart)
    for key, item in items.items():
        own = chained.get(key, [])
        assert (item.runs, item.run) == (len(own), own[-1].id if own else None)
        assert [run.state for run in own].count("COMPLETED") == (item.state == "COMPLETED")
    runs = [run for own in chained.values() for run in own]
    done = [run.id for run in runs if run.state == "COMPLETED"]
    lost = [run.id for run in runs if run.losses]
    marks = evidence.marks()
    assert check(marks, done, optional=[run.id for run in runs], lost=lost) == []
    placed = {
        run.id: ItemRun(key, items[key].wave, number)
        for key, own in chained.items()
        for number, run in enumerate(own, 1)
    }
    assert check_cart(marks, placed, max_parallel) == []

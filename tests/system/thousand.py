"""A thousand items of which every 16th is broken: more than may fail, until somebody mends them.

What must be true at each stage, on one machine and on a cluster, whoever died before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from rota.sdk.answers import Event
from rota.sdk.client import Client
from testkit.evidence import Evidence
from testkit.waiting import eventually
from tests.system.carts import (
    RAMP,
    cart_events,
    chains,
    check_evidence,
    databases,
    items_of,
    runs_of,
    settle,
    submit,
)

ITEMS = databases(1000, broken=16, flaky=7)
BROKEN = [item["key"] for item in ITEMS[15::16]]
LEFT_OUT = [item["key"] for item in ITEMS[-3:]]
LIMIT = 20  # 2 % of them
PATIENT = timedelta(minutes=2)  # a lease of the dead has to pass, on a busy machine


def submit_thousand(client: Client) -> str:
    return submit(client, ITEMS, order="groups", group_size=RAMP, failures={"allow": "2%"})


def wait_for_starts(evidence: Evidence, count: int) -> None:
    """So many of all: before the breach there are over 300, and over 1,000 before the retry."""
    eventually(lambda: len(evidence.started()) >= count, PATIENT)


def go_on_after_breach(client: Client, cart: str, slots: int) -> None:
    """Check that it is paused, leave out some items, and let enough of the others fail."""
    check_paused_for_failures(client, cart, slots)
    client.edit_cart(cart, items=[{"key": key, "skip": True} for key in LEFT_OUT])
    client.resume_cart(cart, allow="10%")


def mend_and_retry(client: Client, cart: str, evidence: Evidence, mended: Path) -> None:
    """Check that it has ended with all that was bound to fail, and begin to run that again."""
    partial = settle(client, cart, PATIENT)
    assert (partial.state, partial.failed) == ("PARTIAL", len(BROKEN))
    assert partial.skipped == len(LEFT_OUT)
    before = len(evidence.started())
    mended.touch()
    again = client.retry_cart(cart, "failed+skipped")
    assert again.affected == len(BROKEN) + len(LEFT_OUT)
    wait_for_starts(evidence, before + 10)


def check_completed(client: Client, cart: str, evidence: Evidence) -> None:
    """All of it has run, in order and never twice at once; what failed has a second run."""
    ended = settle(client, cart, PATIENT)
    assert (ended.state, ended.completed) == ("COMPLETED", len(ITEMS))
    check_evidence(client, cart, evidence)
    again = {key: own for key, own in chains(client, cart).items() if len(own) > 1}
    assert {run.state for own in again.values() for run in own[:-1]} == {"FAILED"}
    assert sorted(again) == BROKEN


def check_paused_for_failures(client: Client, cart: str, slots: int) -> None:
    """Just after the one failure too many; only what workers held by then may have failed too."""
    client.wait_for_cart(cart, PATIENT.total_seconds())
    begun = attempts_of(client, cart)
    paused = settle(client, cart, PATIENT)
    assert (paused.state, paused.reason, paused.limit) == ("PAUSED", "failures", LIMIT)
    assert LIMIT + 1 <= paused.failed <= LIMIT + slots
    [breach] = [event for event in cart_events(client, cart) if is_breach(event)]
    assert LIMIT + 1 <= breach.data["failed"] <= paused.failed
    assert attempts_of(client, cart) == begun
    untouched = [item for item in items_of(client, cart) if item.state == "PENDING"]
    assert len(untouched) == paused.pending
    assert all(item.run is None for item in untouched)


def attempts_of(client: Client, cart: str) -> Mapping[str, int]:
    """How often each run of the cart was given to a worker."""
    return {run.id: run.attempt for run in runs_of(client, cart)}


def is_breach(event: Event) -> bool:
    return event.type == "rota.cart.threshold"

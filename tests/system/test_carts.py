"""Carts on one machine: order, budget, retries; and kill -9 of all of it along the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.system.carts import (
    A_MINUTE,
    RAMP,
    TWICE,
    cart_events,
    chains,
    check_evidence,
    databases,
    items_of,
    runs_of,
    settle,
    submit,
    upgrade,
)
from tests.system.conftest import Up
from tests.system.jobs import apply

from rota.sdk import calls
from rota.sdk.answers import Event, Run
from rota.sdk.client import Client
from rota.testing.evidence import Evidence
from rota.testing.processes import RotaUp
from rota.testing.waiting import eventually

SLOTS = 8
BUDGET = {"allow": "2%", "then": "pause"}


def wait_for_starts(evidence: Evidence, count: int) -> None:
    eventually(lambda: len(evidence.started()) >= count, A_MINUTE)


class TestOrder:
    @pytest.mark.parametrize(
        ("order", "waves"),
        [
            ({"order": "serial"}, 50),
            ({"order": "parallel", "max_parallel": 6}, 1),
            ({"order": "groups", "group_size": 5, "max_parallel": 3}, 10),
        ],
        ids=["serial", "parallel", "groups"],
    )
    def test_higher_orders_wait_and_no_more_than_may_go_at_once(
        self, up: Up, evidence: Evidence, mended: Path, order: dict[str, Any], waves: int
    ) -> None:
        rota = up(slots=str(SLOTS))
        apply(rota.client, upgrade(evidence, mended, "sleep 0.02", retry=TWICE))
        cart = submit(rota.client, databases(50, flaky=7), **order)

        ended = settle(rota.client, cart)

        assert (ended.state, ended.completed, ended.wave) == ("COMPLETED", 50, waves)
        assert {run for run, _ in evidence.ended()} == {
            run.id for run in runs_of(rota.client, cart)
        }
        check_evidence(rota.client, cart, evidence, order.get("max_parallel"))

    def test_items_of_a_wave_go_in_their_order_where_not_all_can_at_once(
        self, up: Up, evidence: Evidence, mended: Path
    ) -> None:
        client = up(slots="1").client
        apply(client, upgrade(evidence, mended))
        cart = submit(client, databases(30), order="parallel")

        settle(client, cart)

        keys = {run.id: run.item for run in runs_of(client, cart)}
        started = [keys[run] for run, _ in evidence.started()]
        assert started == sorted(keys.values(), key=str)

    def test_own_numbers_with_gaps_are_kept(self, up: Up, evidence: Evidence, mended: Path) -> None:
        rota = up(slots=str(SLOTS))
        apply(rota.client, upgrade(evidence, mended, retry=TWICE))
        numbered = [
            item | {"order": 10 * (3 - place % 3)} for place, item in enumerate(databases(30))
        ]
        cart = submit(rota.client, numbered)

        ended = settle(rota.client, cart)

        assert (ended.state, ended.wave) == ("COMPLETED", 30)
        check_evidence(rota.client, cart, evidence)


@pytest.mark.slow
@pytest.mark.timeout(180)
class TestThousand:
    def test_budget_pauses_retry_completes_and_kills_cost_nothing(
        self, up: Up, evidence: Evidence, mended: Path
    ) -> None:
        rota = up(lease="3s", slots=str(SLOTS))
        apply(rota.client, upgrade(evidence, mended, retry=TWICE))
        items = databases(1000, broken=16, flaky=7)
        cart = submit(rota.client, items, order="groups", group_size=RAMP, failures=BUDGET)
        wait_for_starts(evidence, 60)
        kill_all(rota)
        wait_for_starts(evidence, 200)
        kill_worker(rota)

        check_paused_for_failures(rota, cart)
        last = [item["key"] for item in items[-3:]]
        rota.client.edit_cart(cart, items=[{"key": key, "skip": True} for key in last])
        rota.client.resume_cart(cart, allow="10%")
        wait_for_starts(evidence, 600)
        kill_all(rota)
        partial = settle(rota.client, cart)
        assert (partial.state, partial.failed, partial.skipped) == ("PARTIAL", 62, 3)

        mended.touch()
        started = len(evidence.started())
        assert rota.client.retry_cart(cart, "failed+skipped").affected == 65
        wait_for_starts(evidence, started + 10)
        kill_worker(rota)

        ended = settle(rota.client, cart)
        assert (ended.state, ended.completed) == ("COMPLETED", 1000)
        check_evidence(rota.client, cart, evidence)
        again = {key: own for key, own in chains(rota.client, cart).items() if len(own) > 1}
        assert {run.state for own in again.values() for run in own[:-1]} == {"FAILED"}
        assert again.keys() == {item["key"] for item in items[15::16]}

    def test_strict_budget_is_exceeded_by_exactly_one(
        self, up: Up, evidence: Evidence, mended: Path
    ) -> None:
        rota = up(lease="3s", slots=str(SLOTS))
        apply(rota.client, upgrade(evidence, mended, retry=TWICE))
        items = databases(1000, broken=4, flaky=7)
        strict = BUDGET | {"strict": True}
        cart = submit(rota.client, items, order="groups", group_size=RAMP, failures=strict)
        wait_for_starts(evidence, 40)
        kill_all(rota)

        paused = settle(rota.client, cart)

        assert (paused.state, paused.reason) == ("PAUSED", "failures")
        assert (paused.limit, paused.failed, paused.open) == (20, 21, 0)
        check_evidence(rota.client, cart, evidence)


def kill_all(rota: RotaUp) -> None:
    """The server and all that it started; it comes back."""
    rota.kill()
    rota.start()


def kill_worker(rota: RotaUp) -> None:
    """Only the worker; its guardian and the server replace it."""
    os.kill(rota.worker_pid(), signal.SIGKILL)


def check_paused_for_failures(rota: RotaUp, cart: str) -> None:
    """Just after the one failure too many; only what workers held by then may have failed too."""
    paused = settle(rota.client, cart)
    assert (paused.state, paused.reason, paused.limit) == ("PAUSED", "failures", 20)
    assert 21 <= paused.failed <= 21 + SLOTS - 1
    [breach] = [event for event in cart_events(rota.client, cart) if is_breach(event)]
    assert 21 <= breach.data["failed"] <= paused.failed
    assert not claimed_after(rota.client, breach, runs_of(rota.client, cart))
    untouched = [item for item in items_of(rota.client, cart) if item.state == "PENDING"]
    assert len(untouched) == paused.pending
    assert all(item.run is None for item in untouched)


def is_breach(event: Event) -> bool:
    return event.type == "rota.cart.threshold"


def claimed_after(client: Client, event: Event, runs: Iterable[Run]) -> set[str]:
    """Which of these runs a worker was given after the event."""
    later = client.each(calls.list_events(after=event.id, limit=1000))
    claims = (event for event in later if event.type == "rota.run.claimed")
    claimed = {run for event in claims for run in event.data["ids"]}
    return claimed & {run.id for run in runs}

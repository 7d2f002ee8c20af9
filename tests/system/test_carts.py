"""Carts on one machine: order, budget, retries; and kill -9 of all of it along the way."""

from __future__ import annotations

import os
import signal
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from rota.sdk.client import Client
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from tests.system.carts import (
    RAMP,
    TWICE,
    cart_events,
    check_evidence,
    databases,
    runs_of,
    settle,
    submit,
    upgrade,
)
from tests.system.conftest import Up
from tests.system.jobs import apply
from tests.system.thousand import (
    check_completed,
    go_on_after_breach,
    mend_and_retry,
    submit_thousand,
    wait_for_starts,
)

SLOTS = 8
BUDGET = {"allow": "2%", "then": "pause"}


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
        cart = submit_thousand(rota.client)
        wait_for_starts(evidence, 60)
        kill_all(rota)
        wait_for_starts(evidence, 200)
        kill_worker(rota)

        go_on_after_breach(rota.client, cart, SLOTS)
        wait_for_starts(evidence, 600)
        kill_all(rota)

        mend_and_retry(rota.client, cart, evidence, mended)
        kill_worker(rota)

        check_completed(rota.client, cart, evidence)
        assert claimed_while_paused(rota.client, cart) == set()

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


def claimed_while_paused(client: Client, cart: str) -> set[str]:
    """Runs that a worker was given after the breach, by the order in which SQLite keeps events."""
    told = {event.type: event.id for event in cart_events(client, cart)}
    later = client.each(Client.list_events(after=told["rota.cart.threshold"], limit=1000))
    paused = takewhile(lambda event: event.id != told["rota.cart.resumed"], later)
    claims = [event for event in paused if event.type == "rota.run.claimed"]
    return {run for claim in claims for run in claim.data["ids"]}

"""Carts that start by themselves: at their times, outside of their blackouts, one at a time."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from rota.api.carts import Cart
from rota.sdk.client import Client
from testkit.checker import check, most_at_once
from testkit.evidence import Evidence
from testkit.waiting import eventually
from tests.system.carts import items_of, runs_of, settle
from tests.system.conftest import Up
from tests.system.jobs import job

SECOND = timedelta(seconds=1)


def nightly(evidence: Evidence, closed_until: datetime) -> str:
    """A file whose cart is due each second, and whose waves stay closed for a while."""
    window = f"{closed_until - timedelta(hours=1):%FT%T}/{closed_until:%FT%T}"
    cart = {
        "name": "nightly",
        "job": "tidy",
        "schedule": "* * * * * *",
        "calendars": ["freeze"],
        "items": [{"key": "db-1"}, {"key": "db-2"}],
    }
    calendar = {"name": "freeze", "windows": [window]}
    tidy = job("tidy", evidence.script("sleep 0.05"))
    return json.dumps({"jobs": [tidy], "calendars": [calendar], "carts": [cart]})


def carts_of(client: Client, state: str | None = None) -> list[Cart]:
    """The newest first."""
    return list(client.each(Client.list_carts(state=state, limit=1000)))


def test_cart_by_cron_waits_for_its_window_and_goes_on_though_the_server_dies(
    up: Up, evidence: Evidence
) -> None:
    rota = up(lease="3s")
    opens = (rota.client.now() + 5 * SECOND).replace(microsecond=0)
    rota.client.apply(nightly(evidence, opens))

    [waiting] = eventually(lambda: carts_of(rota.client, "WAITING"))
    assert (waiting.reason, waiting.created_by) == ("window", "scheduler")
    eventually(lambda: len(carts_of(rota.client, "COMPLETED")) >= 2)
    rota.kill()
    rota.start()
    before = len(carts_of(rota.client))
    eventually(lambda: len(carts_of(rota.client)) >= before + 2)
    rota.client.delete_cart_template("nightly")

    carts = [settle(rota.client, cart.id) for cart in carts_of(rota.client)]
    assert {cart.state for cart in carts} == {"COMPLETED"}
    assert carts[-1].id == waiting.id
    assert {item.runs for cart in carts for item in items_of(rota.client, cart.id)} == {1}
    runs = [run for cart in carts for run in runs_of(rota.client, cart.id)]
    assert min(run.started_at for run in runs if run.started_at) >= opens
    lost = [run.id for run in runs if run.losses]
    assert check(evidence.marks(), [run.id for run in runs], lost=lost) == []
    assert most_at_once(evidence.marks()) == 1

"""A stopped cart is undone on request: just what was started of it, the last wave first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.sdk.client import Client
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.carts import (
    check_evidence,
    databases,
    items_of,
    runs_of,
    settle,
    submit,
    upgrade,
)
from tests.system.jobs import Document, apply, job

CONFLICT = 5
TWO = [{"key": "db-1"}, {"key": "db-2"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RotaUp]:
    """With less room than the wave of a cart needs."""
    rota = RotaUp(tmp_path_factory.mktemp("rollback") / "home", lease="3s", slots="4")
    try:
        yield rota.start()
    finally:
        rota.close()


@pytest.fixture
def undone(tmp_path: Path) -> Evidence:
    """What the rollback job leaves."""
    return Evidence(tmp_path / "undone")


def restore(undone: Evidence) -> Document:
    return job("restore", undone.script())


def started_keys(client: Client, cart: str, evidence: Evidence) -> set[str]:
    """The items of which a job says that it began."""
    begun = {run for run, _ in evidence.started()}
    return {str(run.item) for run in runs_of(client, cart) if run.id in begun}


class TestBreachedCart:
    def test_what_was_started_is_undone_once_though_the_server_dies(
        self, server: RotaUp, evidence: Evidence, undone: Evidence, mended: Path
    ) -> None:
        apply(server.client, upgrade(evidence, mended), restore(undone))
        rules = {"order": "groups", "group_size": 10, "failures": {"allow": 1}}
        cart = submit(server.client, databases(40, broken=6), rollback="restore", **rules)
        paused = settle(server.client, cart)
        assert (paused.state, paused.reason) == ("PAUSED", "failures")
        touched = started_keys(server.client, cart, evidence)

        asked = server.command("cart", "rollback", cart, "--yes", "-o", "name")
        assert asked.returncode == 0, asked.stderr
        assert f"{cart} is paused; this cancels it" in asked.stderr
        undoing = asked.stdout.strip()
        eventually(undone.started)
        server.kill()
        server.start()

        ended = settle(server.client, undoing)
        assert (ended.state, ended.completed) == ("COMPLETED", len(touched))
        assert {item.key for item in items_of(server.client, undoing)} == touched
        assert started_keys(server.client, undoing, undone) == touched
        assert 10 < len(touched) < 40
        check_evidence(server.client, undoing, undone)
        assert server.client.get_cart(cart).state == "CANCELLED"
        check_refused(server, cart, f"rota cart retry {undoing} --from-wave 1")


class TestOtherCarts:
    def test_what_goes_on_or_ended_well_is_not_undone(
        self, server: RotaUp, tmp_path: Path, undone: Evidence
    ) -> None:
        client, gate = server.client, tmp_path / "gate"
        waits = f"until [ -e {gate} ]; do sleep 0.02; done"
        apply(client, job("upgrade", waits), restore(undone))
        cart = submit(client, TWO, rollback="restore")
        eventually(lambda: client.list_runs(cart=cart, state="PROCESSING").items)

        check_refused(server, cart, f"rota cart cancel {cart}")
        client.cancel_cart(cart, running="finish")
        check_refused(server, cart, "wait for that")
        gate.touch()
        settle(client, cart)
        fine = submit(client, TWO, rollback="restore")
        assert settle(client, fine).state == "COMPLETED"
        check_refused(server, fine, "submit a cart of the job restore")

        assert undone.started() == []
        undoing = client.rollback_cart(cart).id
        settle(client, undoing)
        assert started_keys(client, undoing, undone) == {"db-1"}


def check_refused(server: RotaUp, cart: str, hint: str) -> None:
    answered = server.command("cart", "rollback", cart, "--yes")
    assert (answered.returncode, hint in answered.stderr) == (CONFLICT, True), answered

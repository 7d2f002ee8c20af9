"""Carts from the command line and the SDK to their last item, over a real server and worker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota import App, AsyncClient, CartPaused
from rota.api.carts import CartItem
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from tests.system.jobs import apply, job

ITEMS = 50
FAILING = ("host-7", "host-8", "host-31")
HOST = {"host": {"type": "string"}}
TROUBLE = 'case "$INPUT_HOST" in host-7|host-8|host-31) test -e {mended} || exit 3;; esac'


def rollout(folder: Path, name: str, **rules: object) -> Path:
    """A file with a cart of all hosts, which stand in a table beside it."""
    table = "".join(f"host-{number},host-{number}\n" for number in range(ITEMS))
    (folder / "hosts.csv").write_text(f"key,host\n{table}")
    cart = {"name": name, "job": name, "items_from": "hosts.csv", **rules}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"jobs": [], "carts": [cart]}))
    return path


def items_of(client: Client, cart: str) -> list[CartItem]:
    return list(client.each(Client.list_cart_items(cart)))


def test_fifty_items_run_once_each_and_in_their_groups(
    shared: RotaUp, evidence: Evidence, tmp_path: Path
) -> None:
    client = shared.client
    apply(client, job("roll", evidence.script(), inputs=HOST))
    file = rollout(tmp_path, "roll", order="groups", group_size=[1, 5, 20])

    ended = shared.command("cart", "submit", str(file), "--yes", "--watch")

    assert ended.returncode == 0, ended.stderr
    assert "50/50  ✔ 50  ✖ 0" in ended.stdout
    items = items_of(client, "roll")
    waves = {item.run: item.wave for item in items}
    assert {item.state for item in items} == {"COMPLETED"}
    assert check(evidence.marks(), [str(item.run) for item in items]) == []
    started = [waves[run] for run, _ in evidence.started()]
    assert started == sorted(started)
    assert [started.count(wave) for wave in (1, 2, 3, 4, 5)] == [1, 5, 20, 20, 4]


def test_breach_pauses_and_what_failed_is_run_again(
    shared: RotaUp, evidence: Evidence, tmp_path: Path
) -> None:
    client, mended = shared.client, tmp_path / "mended"
    apply(client, job("frail", TROUBLE.format(mended=mended), evidence.script(), inputs=HOST))
    rules = {"order": "parallel", "max_parallel": 10, "failures": {"allow": "4%"}}
    file = rollout(tmp_path, "frail", **rules)

    paused = shared.command("cart", "submit", str(file), "--yes", "--watch")
    shown = shared.command("cart", "show", "frail", "--failed")
    refused = shared.command("cart", "resume", "frail")
    mended.touch()
    retried = shared.command("cart", "retry", "frail", "--failed", "--cause", "exit")
    shared.command("cart", "resume", "frail")
    ended = shared.command("cart", "watch", "frail")

    assert paused.returncode == 13, paused.stderr
    assert [key in shown.stdout for key in FAILING] == [True] * 3
    assert refused.returncode == 5
    assert "3 items queued" in retried.stderr
    assert ended.returncode == 0, ended.stderr
    items = items_of(client, "frail")
    assert {item.state for item in items} == {"COMPLETED"}
    assert {item.key for item in items if item.runs == 2} == set(FAILING)
    assert check(evidence.marks(), [str(item.run) for item in items]) == []


def test_program_fills_a_cart_and_is_told_that_it_paused(client: Client) -> None:
    apply(client, job("picky", 'test "$INPUT_HOST" != host-1', inputs=HOST))
    app = App("fleet")

    with app.submitting_to(client, AsyncClient(client.server.url)):
        cart = app.cart("picky")
        for number in range(3):
            cart.add("picky", key=f"host-{number}", host=f"host-{number}")
        planned = cart.plan()
        handle = cart.submit()

    assert (planned.items, planned.wave_count, planned.unrunnable) == (3, 3, ())
    with pytest.raises(CartPaused) as paused:
        handle.watch(timeout=20)
    assert paused.value.cart.reason == "failures"
    assert handle.retry(cause=paused.value.cart.failure_groups[0].cause) == 1
    handle.cancel()
    assert items_of(client, handle.id)[0].state == "COMPLETED"

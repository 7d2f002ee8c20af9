"""A change of a fleet: each item runs on its own worker, and waits for one that is gone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.api.carts import CartDetail
from rota.sdk.client import Client
from testkit.fleet import Fleet
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.carts import items_of, runs_of

pytestmark = pytest.mark.timeout(120)

NAMES = [f"web-{number:02}" for number in range(50)]
LATE = "web-23"
FILE = """
defaults: {{pool: web}}
jobs:
  - name: configure
    inputs: {{config: {{type: file}}, worker: {{}}}}
    steps:
      - run: |
          if [ "$INPUT_WORKER" = {late} ] && [ ! -e {folder}/go ]; then
            echo "$ROTA_RUN_ID" > {folder}/held
            sleep 60
          fi
          digest=$(sha256sum < "$INPUT_CONFIG" | cut -d " " -f 1)
          echo "$MACHINE $ROTA_ITEM $digest" >> {folder}/evidence
  - name: undo
    inputs: {{worker: {{}}}}
    steps: [{{run: 'echo "$MACHINE undone" >> {folder}/evidence'}}]
carts:
  - name: roll-out
    job: configure
    items_from: {{workers: {{site: fra}}}}
    order: groups
    group_size: 5
    rollback: undo
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RotaUp]:
    rota = RotaUp(tmp_path / "home", lease="3s")
    try:
        yield rota.start()
    finally:
        rota.close()


@pytest.fixture
def fleet(site: RotaUp, tmp_path: Path) -> Iterator[Fleet]:
    """Fifty workers."""
    with Fleet(site.home, tmp_path / "fleet", "web", site="fra") as fleet:
        fleet.start(*NAMES)
        eventually(lambda: len(workers_of(site.client)) == len(NAMES))
        yield fleet


def workers_of(client: Client) -> set[str]:
    return {each.worker for each in client.list_workers() if each.pool == "web"}


def stranded(client: Client, cart: str) -> list[str]:
    return [item.message for item in client.get_cart(cart).stranded]


def finished(client: Client, cart: str) -> CartDetail:
    return client.wait_for_cart(cart, 60)


def test_a_file_reaches_each_of_fifty_workers_once_in_groups_of_five(
    site: RotaUp, fleet: Fleet, tmp_path: Path
) -> None:
    client = site.client
    config = tmp_path / "site.conf"
    config.write_text("listen 8080;\n" * 1_000)
    (tmp_path / "fleet.yaml").write_text(FILE.format(folder=tmp_path, late=LATE))
    client.apply_file(tmp_path / "fleet.yaml")
    sent = client.upload(config)
    value = {"file": sent["file"], "digest": sent["digest"]}

    cart = client.submit_template("roll-out", {"config": value}).id
    eventually(lambda: (tmp_path / "held").exists())
    fleet.kill(LATE)
    eventually(lambda: stranded(client, cart))
    waiting, shown = stranded(client, cart), site.command("cart", "show", cart).stdout
    why = site.command("why", (tmp_path / "held").read_text().strip()).stdout
    done_before = client.get_cart(cart).completed
    (tmp_path / "go").touch()
    fleet.start(LATE)
    ended = finished(client, cart)

    digest = hashlib.sha256(config.read_bytes()).hexdigest()
    evidence = (tmp_path / "evidence").read_text().splitlines()
    assert sorted(evidence) == [f"{name} {name} {digest}" for name in NAMES]
    waves = [NAMES.index(line.split()[0]) // 5 for line in evidence]
    assert waves == sorted(waves)  # no group begins before the one before has ended
    assert (ended.state, ended.completed) == ("COMPLETED", 50)
    # The group of the lost one waited for it, and those after it too.
    assert done_before == 24
    [message] = waiting
    assert message.startswith(f"waits for worker {LATE}, which is gone since 20")
    assert f"{LATE} {message}" in shown
    assert message in why
    assert {item.needs["worker"] for item in items_of(client, cart)} == {*NAMES}
    assert len(runs_of(client, cart)) == 50


def test_a_member_that_stays_away_fails_and_is_rolled_back_on_its_own_worker_only(
    site: RotaUp, tmp_path: Path
) -> None:
    client = site.client
    text = FILE.format(folder=tmp_path, late="nobody").replace("group_size: 5", "group_size: 2")
    (tmp_path / "fleet.yaml").write_text(text.replace("rollback", "within: 1s\n    rollback"))
    client.apply_file(tmp_path / "fleet.yaml")
    (tmp_path / "site.conf").write_text("listen 8080;\n")
    sent = client.upload(tmp_path / "site.conf")
    value = {"file": sent["file"], "digest": sent["digest"]}
    with Fleet(site.home, tmp_path / "fleet", "web", site="fra") as fleet:
        fleet.start("web-00", "web-01", "web-02")
        eventually(lambda: len(workers_of(client)) == 3)
        plan = client.plan_template("roll-out", {"config": value})
        fleet.kill("web-01")
        eventually(lambda: "web-01" not in workers_of(client))
        header = {"name": "roll-out", "job": "configure", "within": "1s", "rollback": "undo"}
        items = [
            {"key": name, "with": {"config": value, "worker": name}, "needs": {"worker": name}}
            for name in ("web-00", "web-01", "web-02")
        ]
        dry = client.plan_cart(header, items)

        cart = client.submit_cart(header, items).id
        paused = client.wait_for_cart(cart, 60)
        undoing = finished(client, client.rollback_cart(cart).id)

    assert plan.unrunnable == ()
    assert [line.split(":")[0] for line in dry.unrunnable] == ["web-01"]
    assert (paused.state, paused.reason, paused.failed) == ("PAUSED", "failures", 1)
    assert [group.cause for group in paused.failure_groups] == ["no worker in time"]
    assert undoing.state == "COMPLETED"
    evidence = [line.split()[:2] for line in (tmp_path / "evidence").read_text().splitlines()]
    assert evidence == [["web-00", "web-00"], ["web-00", "undone"]]

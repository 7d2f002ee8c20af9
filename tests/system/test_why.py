"""A run that waits says why, from its first gate to its worker."""

from __future__ import annotations

import json
from pathlib import Path

from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import job, settle


def until(file: Path) -> str:
    """A step that goes on until a file is there."""
    return f"until [ -e {file} ]; do sleep 0.05; done"


def told(rota: RotaUp, run: str) -> list[str]:
    return rota.command("why", run).stdout.splitlines()


def test_a_run_tells_what_holds_it_at_every_step_of_its_way(up: Up, tmp_path: Path) -> None:
    rota = up(slots="2")
    licence_free, slot_free = tmp_path / "licence", tmp_path / "slot"
    licence = {"resources": {"licence": 1}}
    jobs = [
        job("holder", until(licence_free), **licence),
        job("waiter", "true", **licence),
        job("filler", until(slot_free)),
    ]
    resources = [{"name": "licence", "total": 1}]
    rota.client.apply(json.dumps({"jobs": jobs, "resources": resources}))
    holder = rota.client.trigger("holder").id
    eventually(lambda: rota.client.get_run(holder).state == "PROCESSING")
    fillers = rota.client.trigger_many("filler", [{}, {}]).runs
    waiter = rota.client.trigger("waiter")

    blocked = told(rota, waiter.id)
    listed = rota.command("run", "list", "--job", "waiter").stdout
    licence_free.touch()
    eventually(lambda: rota.client.get_run(fillers[1]).state == "PROCESSING")
    eventually(lambda: rota.client.get_run(waiter.id).state == "QUEUED")
    queued = told(rota, waiter.id)
    slot_free.touch()
    settle(rota.client, waiter)
    ended = told(rota, waiter.id)

    assert blocked[0].startswith(f"{waiter.id} waiter · blocked for ")
    assert f"  1 resource licence  1 of 1 in use, held by {holder}" in blocked
    assert "resource licence: 1 of 1 in use" in listed
    assert queued[0].startswith(f"{waiter.id} waiter · queued for ")
    assert "  1 worker  2 of 2 slots are taken" in queued
    assert "  passed: time, pause, hold, max_concurrency, resource" in queued
    assert ended == [f"{waiter.id} waiter · it has ended: completed"]

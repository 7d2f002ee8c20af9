from __future__ import annotations

from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

TIDY = "jobs: [{name: tidy, max_concurrency: 9, steps: [{run: make tidy}]}]"


def triggered(rota: Console, server: Server) -> str:
    server.define(TIDY)
    return rota("trigger", "tidy", "-o", "name").out.strip()


def test_run_is_held_and_released(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    looked = rota("run", "hold", run, "--dry-run")
    held = rota("run", "hold", run)
    again = rota("run", "release", "tidy")
    free = rota("run", "release", run)

    assert looked.err == f"would hold {run}; it is blocked now\n"
    assert held.err.startswith(f"{run} is blocked now, priority 5: ")
    assert again.code == 0
    assert free.code == 5


def test_what_would_not_happen_is_told_as_that(rota: Console, server: Server) -> None:
    run = triggered(rota, server)
    early = rota("run", "retry", run, "--dry-run")
    server.finish(server.claim())

    held = rota("run", "hold", run, "--dry-run")
    resolved = rota("run", "resolve", run, "--as", "failed", "--dry-run")

    assert early.err == f"would not retry {run}: it is blocked and has not ended\n"
    assert held.err == f"would not hold {run}: it is completed and does not wait\n"
    assert resolved.err == f"would not resolve {run}: it is completed, not unknown\n"


def test_run_gets_another_priority(rota: Console, server: Server) -> None:
    run = triggered(rota, server)

    moved = rota("run", "reprioritise", run, "9")
    too_high = rota("run", "reprioritise", run, "10")

    assert moved.err == f"{run} is blocked now, priority 9: no worker serves pool default\n"
    assert rota("run", "show", run, "--json").json["priority"] == 9
    assert too_high.code == 2

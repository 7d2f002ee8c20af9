"""Walls: what a step costs behind each, beside the same step as a plain process."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.contest import Contestant, Figures, Plan, take_turns
from bench.figures import Comparison, Goal, at_most
from bench.machine import install
from bench.rota_up import rota_up, temporary_home, wait_until_done
from rota.sdk.client import Client

_SECONDS = 300.0
_UNIT = "ms"
_PLAIN = "plain process"
_LIMITS = {"memory": "256MiB", "processes": 100, "cpu": 1}


@dataclass(frozen=True, slots=True)
class _Wall:
    """A wall as a job asks for it, and how much longer a step may take behind it."""

    fields: Mapping[str, Any]
    goal: Goal | None = None


_WALLS: Mapping[str, _Wall] = {
    _PLAIN: _Wall({"isolation": "process"}),
    "process with limits": _Wall({"isolation": "process", "limits": _LIMITS}),
    "sandbox with limits": _Wall(
        {"isolation": "sandbox", "network": "none", "limits": _LIMITS}, at_most(12.0)
    ),
    "sandbox with limits and network": _Wall(
        {"isolation": "sandbox", "network": "outbound", "limits": _LIMITS}
    ),
}


def run(plan: Plan) -> list[Comparison]:
    if not install("bwrap", "slirp4netns"):
        raise RuntimeError("no bubblewrap or no slirp4netns: the jobs would wait for ever")
    total = plan.pick(full=200, quick=10)
    contestants = [
        Contestant(name, partial(_measure, total, wall.fields)) for name, wall in _WALLS.items()
    ]
    results = take_turns(contestants, plan)
    plain = results[_PLAIN]
    return [
        Comparison(
            "walls",
            f"one {name}, more than a plain one",
            results[name].sample("median", _UNIT).less(plain.sample("median", _UNIT)),
            goal=wall.goal,
            foreign_cores=max(results[name].foreign_cores, plain.foreign_cores),
        )
        for name, wall in _WALLS.items()
        if name != _PLAIN
    ]


def _measure(total: int, fields: Mapping[str, Any]) -> Figures:
    """Run `/bin/true` one at a time: how long an attempt takes on its worker."""
    job = {"name": "true", "steps": [{"run": ["/bin/true"]}], **fields}
    with temporary_home() as home, rota_up(home, slots=1) as server:
        server.client.apply(json.dumps({"jobs": [job]}))
        server.client.trigger_many("true", [{}] * total)
        wait_until_done(server.client, _SECONDS)
        runs = list(server.client.each(Client.get_history("true", limit=1_000)))
    took = [
        (run.ended_at - run.started_at).total_seconds() * 1e3
        for run in runs
        if run.started_at and run.ended_at and run.exit_code == 0
    ]
    if len(took) != total:
        raise RuntimeError(f"{len(took)} runs ended with exit code 0, not {total}")
    return {"median": statistics.median(took)}

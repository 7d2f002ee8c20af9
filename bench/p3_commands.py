"""P3: `/bin/true` many times, with exit code, history and output."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial

from bench.contest import Contestant, Figures, Plan, Result, take_turns
from bench.figures import Comparison, Goal, at_least_times, drain_rate
from bench.peers import environment
from bench.rota_up import rota_up, temporary_home, wait_until_done
from rota.sdk.answers import Run
from rota.sdk.client import Client

_SLOTS = 64  # far more than cores: what ends meanwhile is reported together
_JOB = "true"
_DRAIN_SECONDS = 300.0
_UNIT = "runs/s"
_SPELLINGS: Mapping[str, str | list[str]] = {
    "run: [/bin/true]": ["/bin/true"],
    "run: /bin/true": "/bin/true",
}
_WIDTHS = (2, 8)


def run(plan: Plan) -> list[Comparison]:
    total = plan.pick(full=5_000, quick=500)
    contestants = [
        Contestant(spelling, partial(_run_rota, total, command))
        for spelling, command in _SPELLINGS.items()
    ]
    contestants.append(Contestant("xargs -P2", partial(_run_xargs, total)))
    contestants += [
        Contestant(f"asyncio, {width} at once", partial(_run_asyncio, total, width))
        for width in _WIDTHS
    ]
    results = take_turns(contestants, plan)
    return [line for spelling in _SPELLINGS for line in _lines(spelling, results, total)]


def _lines(spelling: str, results: dict[str, Result], total: int) -> list[Comparison]:
    """Rota beside xargs, where the target is, and beside the bare loops."""
    rota = results[spelling]
    goal = at_least_times(0.8)
    asked: list[tuple[str, str, Goal | None]] = [
        ("whole", "xargs -P2", goal),
        ("drain", "xargs -P2", goal),
        *(("drain", f"asyncio, {width} at once", None) for width in _WIDTHS),
    ]
    titles = {"whole": f"submit and run {total:,} × {spelling}", "drain": f"run {spelling}"}
    return [
        Comparison(
            "P3",
            titles[figure],
            rota.sample(figure, _UNIT),
            peer,
            results[peer].sample("whole", _UNIT),
            goal,
            max(rota.foreign_cores, results[peer].foreign_cores),
        )
        for figure, peer, goal in asked
    ]


def _run_rota(total: int, command: str | list[str]) -> Figures:
    job = {"name": _JOB, "steps": [{"run": command}]}
    with temporary_home() as home, rota_up(home, slots=_SLOTS) as server:
        server.client.apply(json.dumps({"jobs": [job]}))
        began = time.time()
        server.client.trigger_many(_JOB, [{}] * total)
        wait_until_done(server.client, _DRAIN_SECONDS)
        runs = list(server.client.each(Client.get_history(_JOB, limit=1_000)))
    ends = _ends(runs, total)
    return {"whole": total / (max(ends) - began), "drain": drain_rate(ends)}


def _ends(runs: Sequence[Run], total: int) -> list[float]:
    """When the runs ended, all of them well."""
    ended = [run.ended_at.timestamp() for run in runs if run.ended_at and run.exit_code == 0]
    if len(ended) != total:
        raise RuntimeError(f"{len(ended)} runs ended with exit code 0, not {total}")
    return ended


def _run_xargs(total: int) -> Figures:
    numbers = "\n".join(map(str, range(total)))
    began = time.perf_counter()
    subprocess.run(["xargs", "-P2", "-n1", "/bin/true"], input=numbers, text=True, check=True)
    return {"whole": total / (time.perf_counter() - began)}


def _run_asyncio(total: int, width: int) -> Figures:
    return {"whole": float(environment.run("asyncio_spawns", total, width))}

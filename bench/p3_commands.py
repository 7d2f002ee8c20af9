"""P3: `/bin/true` many times, with exit code, history and output; also through the shell."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
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
_WIDTHS = (2, 8)


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The same work as a job says it, and as xargs is told."""

    command: str | list[str]
    xargs: tuple[str, ...]
    goal: Goal

    @property
    def title(self) -> str:
        is_list = isinstance(self.command, list)
        return f"run: [{', '.join(self.command)}]" if is_list else f"run: {self.command}"

    @property
    def peer(self) -> str:
        return f"xargs -P2 {' '.join(self.xargs)}"


_SPELLINGS = (
    _Spelling(["/bin/true"], ("/bin/true",), at_least_times(1.0)),
    _Spelling("/bin/true", ("sh", "-c", "/bin/true"), at_least_times(0.8)),
)


def run(plan: Plan) -> list[Comparison]:
    total = plan.pick(full=5_000, quick=500)
    contestants = [
        contestant
        for spelling in _SPELLINGS
        for contestant in (
            Contestant(spelling.title, partial(_run_rota, total, spelling.command)),
            Contestant(spelling.peer, partial(_run_xargs, total, spelling.xargs)),
        )
    ]
    contestants += [
        Contestant(f"asyncio, {width} at once", partial(_run_asyncio, total, width))
        for width in _WIDTHS
    ]
    results = take_turns(contestants, plan)
    return [line for spelling in _SPELLINGS for line in _lines(spelling, results, total)]


def _lines(spelling: _Spelling, results: dict[str, Result], total: int) -> list[Comparison]:
    """Rota beside xargs, where the target is, and beside the bare loops, which use no shell."""
    rota = results[spelling.title]
    asked: list[tuple[str, str, Goal | None]] = [
        ("whole", spelling.peer, spelling.goal),
        ("drain", spelling.peer, spelling.goal),
        *(("drain", f"asyncio, {width} at once", None) for width in _WIDTHS),
    ]
    titles = {
        "whole": f"submit and run {total:,} × {spelling.title}",
        "drain": spelling.title,
    }
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


def _run_xargs(total: int, command: tuple[str, ...]) -> Figures:
    numbers = "\n".join(map(str, range(total)))
    began = time.perf_counter()
    subprocess.run(["xargs", "-P2", "-n1", *command], input=numbers, text=True, check=True)
    return {"whole": total / (time.perf_counter() - began)}


def _run_asyncio(total: int, width: int) -> Figures:
    return {"whole": float(environment.run("asyncio_spawns", total, width))}

"""What runs cost this checkout and another one, in processor time: `python -m bench compare`.

Wall time says little on a busy machine; processor time says enough to compare two checkouts, if
they take turns. Each turn is a process of `bench.costs` in one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.figures import Sample
from bench.machine import facts
from bench.table import aligned, number_text, sample_document, sample_text

WORKLOADS = ("P1", "P2", "P3", "P4", "P5", "P6")

_ROOT = Path(__file__).resolve().parent.parent
_COSTS = Path(__file__).with_name("costs.py")
_HEADINGS = ("", "processor time of a run", "before", "after", "ratio")
_UNIT = "µs"
_QUICK = 0.1  # of the usual number of runs


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the table: what a run costs the other checkout, and this one."""

    workload: str
    what: str
    before: Sample
    after: Sample

    @property
    def ratio(self) -> float:
        return self.after.median / self.before.median


class TurnFailed(Exception):
    """A checkout could not do the work; what it printed is above."""


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    before, after = options.other.resolve(), _ROOT
    started = datetime.now(UTC)
    costs: list[Cost] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        for workload in options.workloads or WORKLOADS:
            print(f"\n{workload} …", flush=True)
            try:
                turns = [
                    [
                        _take_turn(root, workload, options.part, Path(folder))
                        for root in (before, after)
                    ]
                    for _ in range(options.turns)
                ]
            except TurnFailed as error:
                print(error)
                failed.append(workload)
                continue
            costs += costs_of(workload, turns)
    if costs:
        print(f"\n{render(costs)}")
        print(f"\nWritten to {_write(costs, started, before)}")
    if failed:
        print(f"Not measured, see above: {', '.join(failed)}")
    return 1 if failed else 0


def costs_of(workload: str, turns: Sequence[Sequence[Mapping[str, float]]]) -> list[Cost]:
    """One line for each thing that was measured, of turns that hold (before, after)."""
    befores, afters = zip(*turns, strict=True)
    return [
        Cost(workload, what, _sample(befores, what), _sample(afters, what)) for what in befores[0]
    ]


def render(costs: Sequence[Cost]) -> str:
    lines = aligned([_HEADINGS, *map(_cells, costs)])
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join(lines)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench compare",
        description="Compare what runs cost another checkout (before) and this one (after).",
    )
    parser.add_argument(
        "other", type=Path, metavar="OTHER_CHECKOUT", help="with a .venv of its own"
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}"
    )
    parser.add_argument(
        "--turns", type=int, default=5, help="of each checkout, one after the other"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs: does it work?")
    options = parser.parse_args(arguments)
    options.part = _QUICK if options.quick else 1.0
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    if options.turns < 1:
        parser.error("--turns must be 1 or more")
    if not _python(options.other).exists():
        parser.error(f"{options.other} has no .venv: run `make dev` there first")
    return options


def _take_turn(root: Path, workload: str, part: float, folder: Path) -> Mapping[str, float]:
    """Measure one workload with the code and the Python of a checkout."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    # -P: the folder of the program, which is that of this checkout's bench, is not on the path.
    command = [str(_python(root)), "-P", str(_COSTS), workload, str(part), str(answer)]
    cache = folder / ("after" if root == _ROOT else "before")  # nothing is written to a checkout
    environ = {**os.environ, "PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": str(cache)}
    code = _run(command, root, environ)
    if code:
        raise TurnFailed(f"{workload} failed in {root} (exit code {code})")
    costs: dict[str, float] = json.loads(answer.read_text(encoding="utf-8"))
    shown = ", ".join(f"{what} {number_text(value)} {_UNIT}" for what, value in costs.items())
    print(f"   {root}: {shown}", flush=True)
    return costs


def _run(command: list[str], root: Path, environ: Mapping[str, str]) -> int:
    """Run a turn to its end. Cut off, it ends the servers it has started before it ends itself."""
    process = subprocess.Popen(command, cwd=root, env=environ)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def _python(root: Path) -> Path:
    return root / ".venv" / "bin" / "python"


def _sample(turns: Sequence[Mapping[str, float]], what: str) -> Sample:
    return Sample(tuple(turn[what] for turn in turns), _UNIT)


def _cells(cost: Cost) -> tuple[str, ...]:
    before, after = sample_text(cost.before), sample_text(cost.after)
    return cost.workload, cost.what, before, after, f"{number_text(cost.ratio)} ×"


def _write(costs: Sequence[Cost], started: datetime, before: Path) -> Path:
    document: dict[str, Any] = {
        "started_at": started.isoformat(timespec="seconds"),
        "machine": facts(),
        "commits": {"before": _commit(before), "after": _commit(_ROOT)},
        "costs": [
            {
                "workload": cost.workload,
                "what": cost.what,
                "before": sample_document(cost.before),
                "after": sample_document(cost.after),
                "ratio": cost.ratio,
            }
            for cost in costs
        ],
    }
    path = _ROOT / "bench" / "results" / f"{started:%Y-%m-%dT%H%M%SZ}-compare.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _commit(root: Path) -> str:
    """The commit that is checked out; with a plus if files differ from it."""
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return str(done.stdout).strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

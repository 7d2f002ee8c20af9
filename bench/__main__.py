"""Runs the workloads, prints the table, writes the JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import (
    compare,
    held_transaction,
    p1_backlog,
    p2_functions,
    p3_commands,
    p4_lateness,
    p5_growth,
    p6_submit,
    p7_memory,
    p8_recovery,
    p9_forecast,
    p9_simulation,
    walls,
)
from bench.contest import Plan
from bench.figures import Comparison
from bench.machine import facts
from bench.table import as_document, render

_RESULTS = Path(__file__).with_name("results")
_WORKLOADS: Mapping[str, Callable[[Plan], list[Comparison]]] = {
    "P1": p1_backlog.run,
    "P2": p2_functions.run,
    "P3": p3_commands.run,
    "P4": p4_lateness.run,
    "P5": p5_growth.run,
    "P6": p6_submit.run,
    "P7": p7_memory.run,
    "P8": p8_recovery.run,
    "P9": p9_forecast.run,
    "P9_simulation": p9_simulation.run,
    "held_transaction": held_transaction.run,
    "walls": walls.run,
}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what was started, as Ctrl-C does
    if sys.argv[1:2] == ["compare"]:
        return compare.main(sys.argv[2:])
    options = _parse()
    plan = Plan(options.repeat, options.quick, options.full)
    machine = facts()
    print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    started = datetime.now(UTC)
    comparisons: list[Comparison] = []
    failed: list[str] = []
    for name in options.workloads or _WORKLOADS:
        print(f"\n{name} …", flush=True)
        try:
            comparisons += _WORKLOADS[name](plan)
        except Exception:  # noqa: BLE001 (one workload must not cost the figures of the others)
            traceback.print_exc()
            failed.append(name)
    if comparisons:
        print(f"\n{render(comparisons)}")
    document = {
        "started_at": started.isoformat(timespec="seconds"),
        "machine": machine,
        "plan": {"repeats": plan.repeats, "quick": plan.is_quick, "full": plan.is_full},
        "comparisons": [as_document(each) for each in comparisons],
        "failed": failed,
    }
    print(f"\nWritten to {_write(document, started)}")
    if failed:
        print(f"Not measured, see above: {', '.join(failed)}")
    return 1 if failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Measure Rota beside its peers.",
        epilog="`bench compare OTHER_CHECKOUT` compares what runs cost two checkouts.",
    )
    names = list(_WORKLOADS)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(names)}")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--quick", action="store_true", help="small numbers: does the bench work?")
    parser.add_argument("--full", action="store_true", help="also 10,000,000 schedules")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(names):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    return options


def _write(document: Mapping[str, Any], started: datetime) -> Path:
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / f"{started:%Y-%m-%dT%H%M%SZ}.json"
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())

"""A cluster under fire: `python tools/chaos.py [--minutes 10] [--seed N]`.

Prints each fault as it ends, then what was injected and what came of it. Exits with 1 if a promise
was broken, or if a fault had no effect. `--keep` leaves logs and evidence.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from testkit.chaos.campaign import Plan, run_campaign
from testkit.chaos.report import report


def main() -> int:
    """Run one campaign; the exit code says whether all promises were kept."""
    wanted = parse()
    folder = Path(tempfile.mkdtemp(prefix="rota-chaos-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    print(f"seed {wanted.seed}, in {folder}", flush=True)
    try:
        plan = Plan(timedelta(minutes=wanted.minutes), wanted.seed)
        verdict = run_campaign(plan, folder, lambda line: print(line, flush=True))
    finally:
        if not wanted.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(report(verdict))
    return 1 if verdict.violations else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--keep", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

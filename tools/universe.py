"""A universe once more: `python tools/universe.py SEED [--count N]`.

Prints what happened in it; of several, how often. Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import logging
import sys

import structlog

from testkit.universes import Violation, explore, visit


def main() -> int:
    """Let universes pass; the exit code says whether all promises were kept."""
    wanted = parse()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        if wanted.count == 1:
            witness = visit(wanted.seed)
            print(*witness.told(len(witness.story)), sep="\n")
        else:
            seeds = range(wanted.seed, wanted.seed + wanted.count)
            for what, times in sorted(explore(seeds).items()):
                print(f"{times:9}  {what}")
    except Violation as violation:
        print(violation, *violation.__notes__, sep="\n")
        return 1
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="so many seeds from this one on")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

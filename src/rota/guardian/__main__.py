"""`python -m rota.guardian [options] -- WORKER_COMMAND…`"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NoReturn, get_args

from rota.guardian import NamespaceWish, inner, linux, loop, namespace, outer, processes, signals
from rota.guardian.exits import Over

_STANDARD_ERROR = 2


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    namespace: NamespaceWish
    parent_fd: int | None  # read end of the launcher's pipe; None: live without a launcher
    stop_grace: timedelta  # from a request to stop until everything is killed
    worker_argv: tuple[str, ...]


def main() -> int:
    options = _parse(sys.argv[1:])
    _tidy_descriptors()
    signals.hold({*outer.SIGNALS, *loop.SIGNALS})
    try:
        _guard(options)
    except Over as over:
        return over.explain()


def _guard(options: Options) -> NoReturn:
    mode = namespace.choose(options.namespace)
    namespace.prepare(mode)
    run = partial(inner.run, options.worker_argv, options.stop_grace, mode)
    pid, kill_switch = outer.fork_inner(run)
    try:
        if options.parent_fd is not None:
            linux.die_with_parent()
        outer.Watch(pid, kill_switch, options.parent_fd).run()
    finally:
        processes.kill_all()


def _parse(argv: list[str]) -> Options:
    usage = "%(prog)s [options] -- WORKER_COMMAND…"
    parser = argparse.ArgumentParser(prog="rota.guardian", usage=usage)
    parser.add_argument("--namespace", choices=get_args(NamespaceWish), default="auto")
    parser.add_argument("--parent-fd", type=int, metavar="N")
    parser.add_argument("--stop-grace", type=float, metavar="SECONDS", default=10.0)
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:end])
    if not argv[end + 1 :]:
        parser.error("the worker's command is missing after --")
    grace = timedelta(seconds=options.stop_grace)
    return Options(options.namespace, options.parent_fd, grace, tuple(argv[end + 1 :]))


def _tidy_descriptors() -> None:
    """Makes sure that the standard descriptors exist, and that no other is ever inherited."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(fd, True)
    os.close(fd)
    for other in map(int, os.listdir("/proc/self/fd")):
        if other > _STANDARD_ERROR:
            with contextlib.suppress(OSError):  # the one that listed them is closed by now
                os.set_inheritable(other, False)


if __name__ == "__main__":
    sys.exit(main())

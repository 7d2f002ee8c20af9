"""The command line of the guardian."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import get_args

from rota.guardian import NamespaceWish


@dataclass(frozen=True, slots=True)
class Options:
    """What the launcher wants."""

    namespace: NamespaceWish
    parent_fd: int | None  # read end of the launcher's pipe; None: live without a launcher
    stop_grace: timedelta  # from a request to stop until everything is killed
    worker_argv: tuple[str, ...]


def parse(argv: list[str]) -> Options:
    """Exits with a message when the command line is wrong."""
    usage = "%(prog)s [options] -- WORKER_COMMAND…"
    parser = argparse.ArgumentParser(prog="rota.guardian", usage=usage)
    parser.add_argument("--namespace", choices=get_args(NamespaceWish), default="auto")
    parser.add_argument("--parent-fd", type=_open_descriptor, metavar="N")
    parser.add_argument("--stop-grace", type=float, metavar="SECONDS", default=10.0)
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:end])
    if not argv[end + 1 :]:
        parser.error("the worker's command is missing after --")
    grace = timedelta(seconds=options.stop_grace)
    return Options(options.namespace, options.parent_fd, grace, tuple(argv[end + 1 :]))


def _open_descriptor(text: str) -> int:
    try:
        os.fstat(int(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} is not open: {error.strerror}") from error
    return int(text)

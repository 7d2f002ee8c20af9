"""The command line of the guardian, and its exit codes."""

from __future__ import annotations

import argparse
import contextlib
import os
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import get_args

from rota.guardian import NamespaceWish


@dataclass(frozen=True, slots=True)
class Options:
    """Wishes of the launcher."""

    namespace: NamespaceWish
    parent_fd: int | None  # read end of the launcher's pipe; None: live without a launcher
    name: str  # of the worker on this machine: what its earlier guardians left is swept; "" = none
    stop_grace: timedelta  # from a request to stop until everything is killed
    worker_argv: tuple[str, ...]


def parse(argv: list[str]) -> Options:
    """Exits with a message when the command line is wrong."""
    usage = "%(prog)s [options] -- WORKER_COMMAND…"
    parser = argparse.ArgumentParser(prog="rota.guardian", usage=usage)
    parser.add_argument("--namespace", choices=get_args(NamespaceWish), default="auto")
    parser.add_argument("--parent-fd", type=_open_descriptor, metavar="N")
    parser.add_argument("--name", default="")
    parser.add_argument("--stop-grace", type=float, metavar="SECONDS", default=10.0)
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:end])
    if not argv[end + 1 :]:
        parser.error("the worker's command is missing after --")
    grace = timedelta(seconds=options.stop_grace)
    worker_argv = tuple(argv[end + 1 :])
    return Options(options.namespace, options.parent_fd, options.name, grace, worker_argv)


def _open_descriptor(text: str) -> int:
    try:
        os.fstat(int(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} is not open: {error.strerror}") from error
    return int(text)


class ExitCode(IntEnum):
    """Exit status of the guardian, as a launcher reads it; 2 is a usage error."""

    CLEAN = 0  # the worker ended with 0, or all was stopped on request
    WORKER_DIED = 1  # the worker ended by a signal or with another status, unasked
    CANNOT_START = 69  # the required namespace or the worker's program cannot be had
    GUARDIAN_DIED = (
        70  # the inner process failed, or the keeper, was killed; or the worker asked for that
    )
    LEASE_ENDED = 75  # the deadline passed without a renewal
    LAUNCHER_GONE = 76  # the other end of --parent-fd was closed
    WORKER_REFUSED = 77  # the worker ended with this very status: it would be refused again


class Over(Exception):
    """Raised where it is decided that the guardian ends, after which nothing may live on."""

    def __init__(self, code: ExitCode, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason  # for people; "" when there is nothing to explain

    def explain(self) -> ExitCode:
        """Tells people the reason; the code is for the launcher."""
        if self.reason:
            with contextlib.suppress(OSError):  # who would have read it may be gone as well
                os.write(2, f"rota guardian: {self.reason}\n".encode())
        return self.code

"""The guardian: parent of the worker and of every job process, enforcer of the lease.

It starts processes, reports how they end, and kills all of them when the lease is not renewed or
somebody it depends on dies. It is small, runs apart and uses only the standard library: it knows
nothing of jobs, runs, stores or servers, and must never wait for any of them.

    launcher ─▶ outer (watch) ─┬▶ keeper
                               └▶ inner (loop) ─┬▶ worker
                                                └▶ processes of attempts
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

__all__ = ["NamespaceWish", "guardian_command"]

NamespaceWish = Literal["auto", "require", "off"]


def guardian_command(
    worker_argv: Sequence[str],
    *,
    namespace: NamespaceWish = "auto",
    parent_fd: int | None = None,
    name: str = "",
    stop_grace: timedelta = timedelta(seconds=10),
) -> list[str]:
    """The command line that runs a guardian with this worker.

    `parent_fd` is the inherited read end of a pipe whose write end only the launcher holds: it
    ties the guardian's life to the launcher's. Start it from a thread that lives as long as the
    launcher, since the kernel counts the end of that thread as the end of the parent.

    `name` must be of one worker on this machine only: what an earlier guardian of the same name
    left behind is killed before the worker starts.
    """
    # -P: a file named like a standard module in the current directory must not be imported.
    command = [sys.executable, "-P", "-m", "rota.guardian", "--namespace", namespace]
    if parent_fd is not None:
        command += ["--parent-fd", str(parent_fd)]
    if name:
        command.append(f"--name={name}")
    return [*command, "--stop-grace", str(stop_grace.total_seconds()), "--", *worker_argv]

"""The inner process: starts the worker, then guards it and all its attempts."""

from __future__ import annotations

import fcntl
import os
import sys

from rota.guardian import namespace, processes
from rota.guardian.channel import Channel, socket_pair
from rota.guardian.loop import Guardian
from rota.guardian.namespace import Mode
from rota.guardian.options import ExitCode, Options, Over
from rota.guardian.spawn import Command, Refused, Spawner
from rota.guardian.trees import Tree

_CHANNEL_FD, _KILL_FD = 3, 4  # as the worker sees them
_OUT_OF_THE_WAY = 10


def run(options: Options, mode: Mode, lifeline: int, kill_switch: int) -> ExitCode:
    """Never raises: the process ends with what this returns."""
    try:
        namespace.enter(mode)
        spawner = Spawner()
        worker, channel = _start_worker(spawner, options.worker_argv, kill_switch)
        Guardian(worker, channel, spawner, mode).run(lifeline, options.stop_grace)
    except Over as over:
        if mode is Mode.SUBREAPER:  # in a namespace the kernel does it better when this one ends
            processes.kill_all()
        return over.explain()
    except Exception:  # noqa: BLE001 – the edge of the process, which must end with a known code
        sys.excepthook(*sys.exc_info())
    return ExitCode.GUARDIAN_DIED


def _start_worker(
    spawner: Spawner, argv: tuple[str, ...], kill_switch: int
) -> tuple[Tree, Channel]:
    ours, theirs = socket_pair()
    descriptors = {_CHANNEL_FD: _moved(theirs.detach()), _KILL_FD: _moved(kill_switch)}
    env = {
        **os.environ,
        "ROTA_GUARDIAN_FD": str(_CHANNEL_FD),
        "ROTA_GUARDIAN_KILL_FD": str(_KILL_FD),
    }
    try:
        worker = spawner.spawn("worker", Command(argv, env, os.getcwd(), descriptors))
    except Refused as refusal:
        raise Over(ExitCode.CANNOT_START, f"no worker: {refusal.reason}") from refusal
    for fd in descriptors.values():
        os.close(fd)
    return worker, Channel(ours)


def _moved(fd: int) -> int:
    """The same file under a number that no descriptor of the worker can overwrite."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    os.close(fd)
    return moved

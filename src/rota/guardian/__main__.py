"""`python -m rota.guardian [options] -- WORKER_COMMAND…`"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from typing import NoReturn

from rota.guardian import linux, loop, namespace, processes
from rota.guardian.cgroups import Cgroups, sweep
from rota.guardian.keeper import KeeperProcess
from rota.guardian.linux import hold
from rota.guardian.namespace import Mode
from rota.guardian.options import Options, Over, parse

_STANDARD_ERROR = 2


def main() -> int:
    options = parse(sys.argv[1:])
    _tidy_descriptors()
    hold({*namespace.SIGNALS, *loop.SIGNALS})
    try:
        _guard(options)
    except Over as over:
        return over.explain()


def _guard(options: Options) -> NoReturn:
    mode = namespace.choose(options.namespace)
    linux.set_name("rota-outer")
    if options.name:
        sweep(options.name)
    cgroups = Cgroups(options.name)
    keeper = KeeperProcess(cgroups, is_namespace=mode is not Mode.SUBREAPER)
    try:
        namespace.prepare(mode)
        run = partial(loop.run, options, mode, cgroups, keeper.line)
        pid, kill_switch = namespace.fork_inner(run)
        keeper.watch(pid)
        if options.parent_fd is not None:
            # A launcher that died before this call is not noticed by it, but by its pipe.
            linux.die_with_parent()
        namespace.Watch(pid, kill_switch, options.parent_fd, keeper).run()
    finally:
        keeper.dismiss()
        processes.kill_all(spared=keeper.pid)
        keeper.leave()
        cgroups.remove()


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

"""Long texts on a terminal, a screen at a time."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rota.cli.terminal import Terminal

_QUIT_IF_ONE_SCREEN = "FRX"


@contextmanager
def paged(terminal: Terminal) -> Iterator[IO[str]]:
    """Where to write a long text: PAGER or less on a terminal, else standard output itself."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    if terminal.width is None or not command or shutil.which(command[0]) is None:
        yield terminal.out
        return
    terminal.out.flush()
    environment = {"LESS": _QUIT_IF_ONE_SCREEN, **os.environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        assert pager.stdin is not None
        with suppress(BrokenPipeError), pager.stdin:  # whoever has read enough may leave
            yield pager.stdin

"""The entry point: answers at once what needs no parser, and hands on all else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import copy_context

from rota import __version__
from rota.cli.commands import overview

_OVERVIEW: tuple[list[str], ...] = ([], ["--help"], ["-h"], ["help"], ["help", "--help"])
_VERSION = (["version"], ["--version"], ["-V"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in _OVERVIEW:
        sys.stdout.write(overview(__version__))
        return 0
    if words in _VERSION:
        sys.stdout.write(f"rota {__version__}\n")
        return 0
    if words[0] == "help":
        words = [*words[1:], "--help"]
    from rota.cli.program import run  # the parser takes longer to import than all of the above

    # In a context of its own: what options say about printing ends with the command.
    return copy_context().run(run, words)

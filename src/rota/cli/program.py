"""The command line as a whole: parsing, and how every kind of failure ends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import App, CycloptsError, Parameter

from rota import __version__
from rota.cli.commands import COMMANDS
from rota.cli.exits import CommandFailed, Exit
from rota.cli.failures import exit_of, explain_failure
from rota.cli.help_pages import HelpPage
from rota.cli.inert import inert
from rota.sdk.errors import RotaApiError

_COMPLETE = "__complete"  # what completion scripts call
_BARE = {
    ("worker", "start"): "rota worker",
    ("server", "start"): "rota server",
}  # verbs that go without saying
_NAMES = frozenset(command.name for command in COMMANDS) | {_COMPLETE}


def build() -> App:
    """All commands; the module of each is imported when it is called."""
    app = App(
        name="rota",
        version=__version__,
        help_flags=["--help", "-h"],
        help_format="plaintext",
        help_formatter=HelpPage(),
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
    )
    for command in COMMANDS:
        app.command(command.target, name=command.name)
    return app


def run(words: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    _survive_any_text()
    try:
        code = _obey(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_quietly()
        return Exit.BROKEN_PIPE
    return code


def _obey(words: Sequence[str]) -> int:
    if words[0] not in _NAMES and not words[0].startswith("-"):
        return _refuse_command(words[0])
    if tuple(words[:2]) in _BARE:
        sys.stderr.write(f"rota: did you mean: {_BARE[words[0], words[1]]}\n")
        return Exit.USAGE
    try:
        result = build()(
            words, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        return _refuse_usage(error)
    except (CommandFailed, RotaApiError) as error:
        sys.stdout.flush()
        sys.stderr.write(explain_failure(error))
        return exit_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return int(result or Exit.DONE)


def _refuse_command(name: str) -> int:
    """What cyclopts would do too, but only after importing every command there is."""
    near = get_close_matches(name, _NAMES, n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    sys.stderr.write(f'rota: there is no command "{inert(name)}".{hint}\nSee: rota --help\n')
    return Exit.USAGE


def _refuse_usage(error: CycloptsError) -> int:
    error.verbose = False
    command = " ".join(["rota", *(error.command_chain or ())])
    sys.stderr.write(f"rota: {inert(str(error).strip())}\nSee: {inert(command)} --help\n")
    return Exit.USAGE


def _survive_any_text() -> None:
    """A terminal that cannot show a character gets a question mark, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _close_quietly() -> None:
    """Python flushes standard output once more at exit: let that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

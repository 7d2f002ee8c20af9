"""Parsing of the command line, and the exit of every kind of failure."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cyclopts import (
    App,
    Argument,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    RepeatArgumentError,
    Token,
    UnusedCliTokensError,
    ValidationError,
)

from rota import __version__
from rota.cli.failures import exit_of, explain_failure
from rota.cli.main import COMMANDS
from rota.cli.terminal import CommandFailed, Exit, Rehearsed, inert
from rota.cli.texts import STANDARD_INPUT
from rota.sdk.errors import RotaApiError

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

_INDENT = "  "
_WIDEST_LABEL = 26
_WIDEST_PAGE = 100
_TITLES = {"Parameters": "Options"}
_PLACEHOLDERS = {"STR": "TEXT", "INT": "N"}  # names of Python's types say little to others
_NO_DEFAULTS = {None, "", "False", "()", "None"}


class HelpPage:
    """Implements cyclopts' `HelpFormatter`."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        if not panel.entries:
            return
        labels = [_label(entry) for entry in panel.entries]
        width = min(max(map(len, labels)), _WIDEST_LABEL)
        title = str(panel.title)
        lines = [f"{_TITLES.get(title, title)}:"]
        for label, entry in zip(labels, panel.entries, strict=True):
            lines += _entry_lines(label, _text(entry), width)
        _print(console, "\n".join([*lines, ""]))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        if usage:
            # Arguments that repeat have their ellipsis in the name, and cyclopts adds its own.
            _print(console, f"Usage: {str(usage).strip().replace('…...', '…')}\n")

    def render_description(
        self, console: Console, options: ConsoleOptions, description: object
    ) -> None:
        with console.capture() as capture:
            console.print(description, soft_wrap=True)
        if text := capture.get().strip():
            _print(console, f"{text}\n")


def _label(entry: HelpEntry) -> str:
    names = ", ".join(entry.display_labels)
    if entry.positional_label or not entry.metavar:
        return names
    return f"{names} {_PLACEHOLDERS.get(entry.metavar, entry.metavar)}"


def _text(entry: HelpEntry) -> str:
    description = entry.description
    text = str(getattr(description, "primary_renderable", description) or "").strip()
    parts = [text]
    if entry.choices:
        parts.append(f"One of: {', '.join(entry.choices)}.")
    if entry.default not in _NO_DEFAULTS:
        parts.append(f"[default: {entry.default}]")
    return " ".join(part for part in parts if part)


def _entry_lines(label: str, text: str, width: int) -> list[str]:
    hanging = _INDENT * 2 + " " * width
    first = f"{_INDENT}{label.ljust(width)}{_INDENT}"
    if len(label) > width:
        head, first = [f"{_INDENT}{label}"], hanging
    else:
        head = []
    page = min(shutil.get_terminal_size((_WIDEST_PAGE, 24)).columns, _WIDEST_PAGE)
    lines = textwrap.wrap(text, page, initial_indent=first, subsequent_indent=hanging)
    return [*head, *(lines or [first.rstrip()])]


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


_COMPLETE = "__complete"  # what completion scripts call
_END_OF_OPTIONS = "--"
_BARE = {
    ("worker", "start"): "rota worker",
    ("server", "start"): "rota server",
}  # verbs that go without saying
_NUMBERS: Mapping[object, str] = {int: "a whole number", float: "a number"}
_CHOICES = ". Choose from: "  # the parser's words before what may be chosen
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_BEFORE_COMMANDS = frozenset({"--help", "-h", "--version", "-V"})
# Options that nearly all commands take (`options.Remote`), and whether a value follows.
SHARED_OPTIONS: Mapping[str, bool] = {
    "--output": True,
    "-o": True,
    "--json": False,
    "--no-color": False,
    "--plain": False,
    "--url": True,
    "--project": True,
    "--tz": True,
}
_NEGATIVE = re.compile(r"-[0-9]", re.ASCII)
_LONG_OPTION = re.compile(r"--[a-z][a-z-]*", re.ASCII)
_NAMES = frozenset(command.name for command in COMMANDS) | {_COMPLETE}


def build() -> App:
    """Build the app of all commands; the module of each is imported when it is called."""
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
    """Run one command line; return its exit code."""
    _replace_unprintable()
    try:
        code = _obey(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_quietly()
        return Exit.BROKEN_PIPE
    return code


def _obey(words: Sequence[str]) -> int:
    words = _with_options_behind(words)
    if words[0].startswith("-") and words[0] not in _BEFORE_COMMANDS:
        return _refuse_leading_option(words[0])
    if words[0] not in _NAMES | _BEFORE_COMMANDS:
        return _refuse_command(words[0])
    if tuple(words[:2]) in _BARE:
        sys.stderr.write(f"rota: did you mean: {_BARE[words[0], words[1]]}\n")
        return Exit.USAGE
    try:
        result = build()(
            _with_standard_input(_with_negative_lengths(words)),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        return _refuse_usage(error)
    except Rehearsed as ended:
        return ended.code
    except (CommandFailed, RotaApiError) as error:
        sys.stdout.flush()
        sys.stderr.write(explain_failure(error))
        return exit_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return int(result or Exit.DONE)


def _with_options_behind(words: Sequence[str]) -> list[str]:
    """Move shared options that come before the command behind it, where the parser expects them."""
    count = 0
    while count < len(words) and (name := words[count].partition("=")[0]) in SHARED_OPTIONS:
        has_value_next = SHARED_OPTIONS[name] and "=" not in words[count]
        count += 2 if has_value_next else 1
    options, rest = words[:count], words[count:]
    if not rest:
        return list(words)
    end = rest.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in rest else len(rest)
    return [*rest[:end], *options, *rest[end:]]


def _with_negative_lengths(words: Sequence[str]) -> list[str]:
    """Join `--since -5m` to `--since=-5m`: alone the parser reads the value as an option."""
    joined: list[str] = []
    if words[0] == _COMPLETE:
        return list(words)
    for word in words:
        if joined and _NEGATIVE.match(word) and _LONG_OPTION.fullmatch(joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _with_standard_input(words: Sequence[str]) -> list[str]:
    """Move each lone `-` behind `--`: anywhere else the parser reads it as an option.

    It is read after the files that are named. What completion scripts send is left as it was typed.
    """
    if words[0] == _COMPLETE:
        return list(words)
    end = words.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in words else len(words)
    options = [word for word in words[:end] if word != STANDARD_INPUT]
    moved = [STANDARD_INPUT] * (end - len(options))
    return [*options, _END_OF_OPTIONS, *moved, *words[end + 1 :]] if moved else list(words)


def _refuse_command(name: str) -> int:
    """Refuse an unknown command without importing all commands, as cyclopts would."""
    near = get_close_matches(name, _NAMES, n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    sys.stderr.write(f'rota: there is no command "{inert(name)}".{hint}\nSee: rota --help\n')
    return Exit.USAGE


def _refuse_leading_option(option: str) -> int:
    name = inert(option.partition("=")[0])
    sys.stderr.write(
        f"rota: {name} goes behind the command: rota COMMAND {name}\nSee: rota --help\n"
    )
    return Exit.USAGE


def _refuse_usage(error: CycloptsError) -> int:
    error.verbose = False
    command = " ".join(["rota", *(error.command_chain or ())])
    sys.stderr.write(f"rota: {inert(_usage_words(error))}\nSee: {inert(command)} --help\n")
    return Exit.USAGE


def _usage_words(error: CycloptsError) -> str:
    """Return what is wrong with the command line; the parser's words where a user knows them."""
    match error:
        case UnusedCliTokensError():
            words = ", ".join(f'"{word}"' for word in error.unused_tokens or ())
            return f"unexpected argument: {words}."
        case MissingArgumentError(argument=Argument() as argument):
            is_given = error.keyword is not None
            return f"{error.keyword} needs a value." if is_given else f"{argument.name} is missing."
        case RepeatArgumentError():
            return f"{error.token.keyword} is given more than once."
        case CoercionError(token=Token() as token):
            return _value_words(error, token)
        case ValidationError(argument=Argument(tokens=[token, *_])):
            return f'{_name(error, token)} {_bound(error)}, not "{token.value}".'
        case _:
            return str(error).strip()


def _value_words(error: CoercionError, token: Token) -> str:
    """Return why a value does not fit its option, or its place."""
    name = _name(error, token)
    if error.msg is not None:
        return f"{name}: {error.msg}"
    if error.target_type is bool:
        return f'{name} is a flag and takes no value, not "{token.value}".'
    if number := _NUMBERS.get(error.target_type):
        return f'{name} must be {number}, not "{token.value}".'
    _, _, choices = str(error).rpartition(_CHOICES)
    return f'{name} cannot be "{token.value}"; choose from: {choices}'


def _name(error: CycloptsError, token: Token) -> str:
    return token.keyword or (error.argument.name if error.argument else "")


def _bound(error: ValidationError) -> str:
    """Return `must be at least 1` for the parser's `Must be >= 1.`"""
    words = error.exception_message.rstrip(".").split(" ")
    return " ".join([words[0].lower(), *(_BOUNDS.get(word, word) for word in words[1:])])


def _replace_unprintable() -> None:
    """Print a question mark for characters that the terminal cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _close_quietly() -> None:
    """Redirect standard output to nowhere: Python flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

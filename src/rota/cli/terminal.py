"""Output streams of commands, and their exit codes.

Data goes to standard output, messages to standard error. Texts of others are escaped: job names,
messages and output never steer the terminal.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Protocol, TextIO


class Exit(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    CONFLICT = 5
    INVALID_FILE = 6
    UNREACHABLE = 7
    RUN_FAILED = 10
    RUN_STOPPED = 11  # cancelled, timed out, or never started
    STILL_GOING = 12  # `--timeout` was reached first
    CART_PAUSED = 13
    RUN_UNKNOWN = 14
    CHANGES = 20
    INTERRUPTED = 130
    BROKEN_PIPE = 141


OF_FINAL_STATE: Mapping[str, Exit] = {
    "COMPLETED": Exit.DONE,
    "FAILED": Exit.RUN_FAILED,
    "TIMED_OUT": Exit.RUN_STOPPED,
    "CANCELLED": Exit.RUN_STOPPED,
    "SKIPPED": Exit.RUN_STOPPED,
    "MISSED": Exit.RUN_STOPPED,
    "UNKNOWN": Exit.RUN_UNKNOWN,
}


class Problem(Protocol):
    """Problem of an input, found by the server or by this machine."""

    @property
    def message(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def line(self) -> int | None: ...
    @property
    def column(self) -> int | None: ...
    @property
    def hint(self) -> str | None: ...
    @property
    def warning(self) -> bool: ...


class Rehearsed(Exception):
    """Ends a command that was only to say what it would do (`--dry-run`)."""

    def __init__(self, *, changes: bool) -> None:
        super().__init__("nothing was changed")
        self.code = Exit.CHANGES if changes else Exit.DONE


class CommandFailed(Exception):
    """Ends the command: what happened, what to type next, and the exit code."""

    def __init__(
        self, message: str, *, code: Exit, hint: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.problems = problems


MANY = 100  # things that are changed at once; for more, consent is asked

TO_LINE_START, CLEAR_REST, CLEAR_BELOW = "\r", "\x1b[K", "\x1b[J"

_BAR = 20  # cells
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}
_STATE_COLOURS = {
    "completed": "green",
    "failed": "red",
    "timed_out": "red",
    "unknown": "red",
    "missed": "yellow",
    "blocked": "yellow",
    "processing": "cyan",
    "claimed": "cyan",
    "running": "cyan",
    "partial": "yellow",
    "paused": "yellow",
    "waiting": "yellow",
}
_PLAIN_MARKS = {
    "✔": "ok",
    "✖": "!!",
    "▶": ">",
    "→": "->",
    "·": "|",
    "×": "x",
    "–": "-",
    "…": "...",
    "█": "#",
    "░": ".",
}


@dataclass(frozen=True, slots=True)
class Terminal:
    """Standard output and error, and what may be written to them."""

    out: TextIO
    err: TextIO
    has_colour: bool
    is_plain: bool  # no marks but those of ASCII
    width: int | None  # cells of a line; None: no limit, standard output is no terminal

    @classmethod
    def standard(cls, *, no_colour: bool = False, plain: bool = False) -> Terminal:
        is_terminal = sys.stdout.isatty()
        is_dumb = plain or no_colour or bool(os.environ.get("NO_COLOR"))
        return cls(
            out=sys.stdout,
            err=sys.stderr,
            has_colour=is_terminal and not is_dumb and os.environ.get("TERM") != "dumb",
            is_plain=plain,
            width=shutil.get_terminal_size().columns if is_terminal else None,
        )

    def write(self, line: str = "") -> None:
        """Print a line of data."""
        self.out.write(self.plain(line) + "\n")

    def tell(self, line: str = "") -> None:
        """Print a message."""
        self.out.flush()
        self.err.write(self.plain(line) + "\n")

    def show(self, line: str) -> None:
        """Print a line of data at once, because somebody waits for it."""
        self.write(line)
        self.out.flush()

    def colour(self, text: str, name: str) -> str:
        if not self.has_colour or name not in _COLOURS:
            return text
        return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"

    def state(self, state: str) -> str:
        """Format a state for people: lower case, coloured where that is wanted."""
        word = state.lower()
        return self.colour(word, _STATE_COLOURS.get(word, ""))

    def plain(self, text: str) -> str:
        """Return the text, its symbols in ASCII where that was asked for."""
        if self.is_plain:
            for mark, ascii_mark in _PLAIN_MARKS.items():
                text = text.replace(mark, ascii_mark)
        return text

    @property
    def has_person(self) -> bool:
        """Return whether there is somebody to ask."""
        return sys.stdin.isatty() and self.err.isatty()

    def confirm(self, question: str, *, yes: bool, otherwise: str) -> None:
        """Continue only with a person's consent; `otherwise` says how a script gives it."""
        if yes:
            return
        if not self.has_person:
            raise CommandFailed(
                f"{question} There is nobody to ask", code=Exit.USAGE, hint=otherwise
            )
        self.err.write(f"{question} [y/N] ")
        self.err.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise CommandFailed("nothing was changed", code=Exit.USAGE)


@contextmanager
def drawn_progress(terminal: Terminal, what: str) -> Iterator[Callable[[float], None]]:
    """Draw progress on standard error, from 0 to 1, and erase it at the end.

    Nothing is drawn where that is no terminal.
    """
    if not can_be_drawn_over(terminal.err):
        yield lambda _: None
        return

    def draw(share: float) -> None:
        line = f"{what}  {bar(share)}  {share:4.0%}"
        terminal.err.write(TO_LINE_START + terminal.plain(line) + CLEAR_REST)
        terminal.err.flush()

    draw(0)
    try:
        yield draw
    finally:
        terminal.err.write(TO_LINE_START + CLEAR_REST)
        terminal.err.flush()


class Screen:
    """Lines that stay, and below them some that are drawn anew where the stream is a terminal."""

    def __init__(self, terminal: Terminal, stream: TextIO) -> None:
        self.is_live = can_be_drawn_over(stream)
        self._terminal = terminal
        self._stream = stream
        self._drawn: list[str] = []

    @property
    def width(self) -> int | None:
        """Return how many cells a line may have; None: no limit."""
        return shutil.get_terminal_size().columns if self.is_live else None

    def write(self, line: str) -> None:
        """Write a line that stays, above those that are drawn."""
        drawn = self._drawn
        text = self._erased() + self._terminal.plain(line) + "\n"
        self._stream.write(text + self._drawing(drawn))
        self._stream.flush()

    def write_part(self, text: str) -> None:
        """Write a part of a line; nothing is drawn below."""
        self._stream.write(self._erased() + self._terminal.plain(text))
        self._stream.flush()

    def draw(self, lines: Sequence[str]) -> None:
        """Draw lines in place of those that were drawn, cut to the width; nothing elsewhere."""
        if not self.is_live:
            return
        width = self._terminal.width or self.width or 80
        fitting = [cut(self._terminal.plain(line), width - 1) for line in lines]
        if fitting != self._drawn:
            self._stream.write(self._erased() + self._drawing(fitting))
            self._stream.flush()

    def clear(self) -> None:
        """Erase what is drawn."""
        self._stream.write(self._erased())
        self._stream.flush()

    def keep(self) -> None:
        """Leave what is drawn as it is, and go on below."""
        if self._drawn:
            self._drawn = []
            self._stream.write("\n")
            self._stream.flush()

    def _erased(self) -> str:
        if not self._drawn:
            return ""
        up = len(self._drawn) - 1
        self._drawn = []
        return (f"\x1b[{up}A" if up else "") + TO_LINE_START + CLEAR_BELOW

    def _drawing(self, lines: Sequence[str]) -> str:
        self._drawn = list(lines)
        return "\n".join(lines)


def can_be_drawn_over(stream: TextIO) -> bool:
    """Return whether a line of the stream can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def bar(share: float) -> str:
    """Draw a share as a row of blocks."""
    filled = int(share * _BAR)
    return "█" * filled + "░" * (_BAR - filled)


_ESCAPE = "\x1b"
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]"  # the short ones
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Each carriage return is looked at once, however many are in a row.
_RETURNS_BEFORE_LINE_END = re.compile(r"(?<!\r)\r++(?=\n|\Z)")
_JOINERS = "\u200c\u200d"  # scripts need them; they are not seen
_WITHOUT_JOINERS = dict.fromkeys(map(ord, _JOINERS))
_DRAWN_OVER = re.compile(r"^.*\r", re.MULTILINE)


def inert(text: str) -> str:
    """Return one line in which every control character is escaped."""
    if text.isprintable():
        return text
    is_joined = not text.isascii() and text.translate(_WITHOUT_JOINERS).isprintable()
    return text if is_joined else "".join(map(_visible, text))


def inert_output(text: str) -> str:
    """Clean lines that a job printed: colours and cursor movements dropped, tabs kept.

    Many lines are cleaned together: the cost is that of their characters, not of each line.
    """
    if _ESCAPE not in text and _is_inert(text):
        return text
    has_returns = "\r" in text
    if has_returns:
        text = _RETURNS_BEFORE_LINE_END.sub("", text)
    latest = _without_escape_sequences(text)
    if has_returns:
        latest = _DRAWN_OVER.sub("", latest)  # a progress bar draws over itself
    return latest if _is_inert(latest) else "\n".join(map(_inert_line, latest.split("\n")))


def _without_escape_sequences(text: str) -> str:
    # Most output has colours only, which are found twice as fast as all that may follow an escape.
    plain = _COLOUR.sub("", text)
    has_others = _ESCAPE in plain or "\x9b" in plain
    return _ESCAPE_SEQUENCE.sub("", text) if has_others else plain


def _is_inert(text: str) -> bool:
    return text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()


def _inert_line(line: str) -> str:
    return line if line.isprintable() else "\t".join(map(inert, line.split("\t")))


def inert_json(text: str) -> str:
    """Escape control characters in the strings of a JSON text; its meaning is unchanged."""
    if _is_inert(text):
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1]
        for letter in text
    )


def width_of(text: str) -> int:
    """Return how many cells of a terminal an inert text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def cut(text: str, width: int) -> str:
    """Return an inert text that takes no more cells than that, with a mark where it was cut."""
    if width_of(text) <= width:
        return text
    text = text[: max(width, 0)]  # a cell at least for each: the loop has little to do
    while text and width_of(text) >= width:
        text = text[:-1]
    return text + "…"


def _visible(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _cells(letter: str) -> int:
    if unicodedata.combining(letter) or letter in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


_QUIT_IF_ONE_SCREEN = "FRX"


@contextmanager
def paged(terminal: Terminal) -> Iterator[IO[str]]:
    """Open the pager for a long text: PAGER or less on a terminal, else standard output itself."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    if terminal.width is None or not command or shutil.which(command[0]) is None:
        yield terminal.out
        return
    terminal.out.flush()
    environment = {"LESS": _QUIT_IF_ONE_SCREEN, **os.environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        assert pager.stdin is not None
        with suppress(BrokenPipeError), pager.stdin:  # the reader may quit the pager early
            yield pager.stdin

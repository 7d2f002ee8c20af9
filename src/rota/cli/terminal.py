"""Where commands write to: data on standard output, talk on standard error."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TextIO

from rota.cli.exits import CommandFailed, Exit

MANY = 100  # things that are changed at once; for more, consent is asked

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
    """The two streams, and what may be written to them."""

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
        """A line of data."""
        self.out.write(self.plain(line) + "\n")

    def tell(self, line: str = "") -> None:
        """A line of talk."""
        self.out.flush()
        self.err.write(self.plain(line) + "\n")

    def show(self, line: str) -> None:
        """A line of data that somebody waits for."""
        self.write(line)
        self.out.flush()

    def colour(self, text: str, name: str) -> str:
        if not self.has_colour or name not in _COLOURS:
            return text
        return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"

    def state(self, state: str) -> str:
        """A state as people read it: lower case, coloured where that is wanted."""
        word = state.lower()
        return self.colour(word, _STATE_COLOURS.get(word, ""))

    def plain(self, text: str) -> str:
        """The text, its marks in ASCII where that was asked for."""
        if self.is_plain:
            for mark, ascii_mark in _PLAIN_MARKS.items():
                text = text.replace(mark, ascii_mark)
        return text

    @property
    def has_person(self) -> bool:
        """Whether there is somebody to ask."""
        return sys.stdin.isatty() and self.err.isatty()

    def confirm(self, question: str, *, yes: bool, otherwise: str) -> None:
        """Go on only with a person's consent; `otherwise` says how a script gives it."""
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

"""The lines of a crontab, sorted into settings, comments and entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.domain.errors import Problem
from rota.domain.jobfile.fields import MAX_JOBS

_ASSIGNMENT = re.compile(r"""(["']?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=\s*(.*)""", re.ASCII)
_ENTRY = re.compile(r"(@\S+|\S+(?:\s+\S+){4})\s+(\S.*)")
_COLUMN_HEADING = re.compile(r"m(in(ute)?)?\s+h(our)?\s+d(om|ay)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the crontab that runs something, under the settings above it."""

    line: int
    when: str
    user: str  # "" in a user's own crontab
    command: str
    comments: tuple[str, ...]  # directly above it
    settings: Mapping[str, str]


@dataclass(slots=True)
class Reader:
    """Sorts lines into settings, comments and entries."""

    system: bool
    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)

    def take(self, number: int, line: str) -> None:
        """Read the next line, given without blanks around it."""
        if line.startswith("#"):
            self._comment(line.lstrip("#").strip())
            return
        if setting := _ASSIGNMENT.fullmatch(line):
            self._assign(number, setting[2], _unquoted(setting[3]))
        elif line:
            self._entry(number, line)
        self.comments.clear()

    def _comment(self, text: str) -> None:
        if _COLUMN_HEADING.match(text):  # the end of the usual explanation at the top
            self.comments.clear()
        elif text:
            self.comments.append(text)

    def _assign(self, number: int, name: str, value: str) -> None:
        # A new mapping each time: entries above keep the one they saw.
        self.settings = self.settings | {name: value}
        if name == "MAILTO" and value:
            self._warn(
                number,
                "MAILTO: notifications are not available in this version of Rota; "
                "the address is kept as a comment",
            )
        if name == "TZ":
            self._warn(
                number,
                "TZ is a variable of the commands; schedules stay in the host's zone, as in cron",
                "for the schedules, write CRON_TZ",
            )

    def _entry(self, number: int, line: str) -> None:
        match = _ENTRY.fullmatch(line)
        if not match:
            self._refuse(number, "not a crontab line: five fields of time, then a command")
            return
        when, command = " ".join(match[1].split()), match[2]
        user = ""
        if self.system:
            user, _, command = " ".join(command.split(None, 1)).partition(" ")
        if self._may_add(number, when, command):
            comments = tuple(self.comments)
            self.entries.append(Entry(number, when, user, command, comments, self.settings))

    def _may_add(self, number: int, when: str, command: str) -> bool:
        if when.lower() == "@reboot":
            hint = "start it with the machine, by a systemd unit for example"
            self._refuse(
                number, "@reboot is not a time, and Rota's schedules follow the clock", hint
            )
        elif not command:
            self._refuse(number, "there is no command after the user")
        elif len(self.entries) >= MAX_JOBS:
            self._refuse(number, f"only the first {MAX_JOBS:,} entries are imported")
        else:
            return True
        return False

    def _warn(self, number: int, message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, line=number, hint=hint, warning=True))

    def _refuse(self, number: int, message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, line=number, hint=hint))


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] in "\"'" and value[-1] == value[0]:
        return value[1:-1]
    return value

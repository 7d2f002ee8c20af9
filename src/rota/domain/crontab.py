"""Import of crontabs: a crontab in, a job file out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rota.domain.errors import Invalid, Problem, quoted
from rota.domain.jobfile import read_job, to_block
from rota.domain.jobfile.fields import MAX_JOBS
from rota.domain.jobfile.text import MAX_BYTES
from rota.domain.spec import RESERVED_ENV, without_reserved

_ASSIGNMENT = re.compile(r"""(["']?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=\s*(.*)""", re.ASCII)
_ENTRY = re.compile(r"(@every\s+[0-9]\S*|@\S+|\S+(?:\s+\S+){4})\s+(\S.*)")
# Users wherever a crontab comes from, and never programs.
_SYSTEM_USERS = frozenset({"root", "nobody", "www-data"})
_COLUMN_HEADING = re.compile(r"m(in(ute)?)?\s+h(our)?\s+d(om|ay)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Entry:
    """Line of the crontab that runs something, under the settings above it."""

    line: int
    when: str
    user: str  # "" in a user's own crontab
    command: str
    comments: tuple[str, ...]  # directly above it
    settings: Mapping[str, str]


@dataclass(slots=True)
class Reader:
    """Parser of lines into settings, comments and entries."""

    system: bool | None  # lines have a user column; None: none was noticed
    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    is_unclear: bool = False  # whether lines begin with a user or with a command

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
        elif self.system is None and command.split()[0] in _SYSTEM_USERS:
            self.is_unclear = True
            message = f"{command.split()[0]} is a user, not a command: nothing is imported"
            self._refuse(
                number, message, "add --system if every line names its user, or --no-system"
            )
        elif len(self.entries) >= MAX_JOBS:
            self._refuse(number, f"only the first {MAX_JOBS:,} entries are imported")
        else:
            return True
        return False

    def _warn(self, number: int, message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, line=number, hint=hint, warning=True))

    def _refuse(self, number: int, message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, line=number, hint=hint))


def user_column(text: str, users: Container[str]) -> int | None:
    """Return the line where a user column begins; None: not all entries have one.

    `users` are names that stand for a user rather than for a program.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    entries = [
        (number, match[2])
        for number, line in lines
        if not line.startswith("#")
        and not _ASSIGNMENT.fullmatch(line)
        and (match := _ENTRY.fullmatch(line))
    ]
    has_column = all(_names_a_user(command, users) for _, command in entries)
    return entries[0][0] if entries and has_column else None


def _names_a_user(command: str, users: Container[str]) -> bool:
    user, _, rest = " ".join(command.split(None, 1)).partition(" ")
    is_user = user in _SYSTEM_USERS or user in users
    return is_user and rest != "" and not rest.startswith("-")


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] in "\"'" and value[-1] == value[0]:
        return value[1:-1]
    return value


_LONGEST = 60
_SIMPLE_COMMANDS = re.compile(r"&&|\|\||[;|&(){}<>%]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_EXTENSION = re.compile(r"(?<=.)\.(?:sh|bash|py|pl|rb|php|js)$")
_OUTSIDE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_PREPARATIONS = frozenset(
    {"cd", "test", "[", "[[", "sleep", "export", "set", ".", "source", "umask"}
)
_WRAPPERS = frozenset(
    {"bash", "env", "exec", "ionice", "nice", "node", "nohup", "perl", "php", "python", "python3"}
    | {"ruby", "sh", "sudo", "time", "timeout"}
)


class NameGiver:
    """Generator of unique job names, the same in every import of the same crontab."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def give(self, command: str, when: str) -> str:
        name = wanted = _program(command)
        if name in self._given:
            digest = hashlib.sha256(f"{when} {command}".encode(errors="replace")).hexdigest()
            name = wanted = f"{wanted}-{digest[:6]}"
        number = 2
        while name in self._given:
            name, number = f"{wanted}-{number}", number + 1
        self._given.add(name)
        return name


def _program(command: str) -> str:
    """Return the program a command is about: `backup` for `cd /srv && nice ./backup.sh --all`."""
    for part in _SIMPLE_COMMANDS.split(command):
        words = [word for word in part.split() if not _VARIABLE.fullmatch(word)]
        if not words or words[0] in _PREPARATIONS:
            continue
        if name := _first_name(words):
            return name
    return "job"


def _first_name(words: list[str]) -> str:
    arguments = (word for word in words if not word.startswith("-") and not word.isdigit())
    names = [name for word in arguments if (name := _as_name(word))]
    return next((name for name in names if name not in _WRAPPERS), names[0] if names else "")


def _as_name(word: str) -> str:
    base = word.strip("\"'").rstrip("/").rpartition("/")[2]
    return _OUTSIDE_NAME.sub("-", _EXTENSION.sub("", base)).strip("-._")[:_LONGEST]


_UNESCAPED_PERCENT = re.compile(r"(?<!\\)%")
_SYSTEM_SHELL = re.compile(r"(?:/usr)?/bin/(sh|bash|dash|ksh|zsh)")
_NOT_ENV = frozenset({"SHELL", "MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY"})
_END_OF_INPUT = "END_OF_INPUT"


@dataclass(frozen=True, slots=True)
class CrontabImport:
    """Result of the import of a crontab."""

    text: str  # a valid job file with every entry that could be taken over
    problems: tuple[Problem, ...]  # errors: entries left out; warnings: what differs from cron
    jobs: int = 0  # entries that were taken over


@dataclass(frozen=True, slots=True)
class _Imported:
    entry: Entry
    document: dict[str, Any]


def import_crontab(
    text: str,
    *,
    timezone: str,
    system: bool | None = None,
    home: str = "",
    users: Container[str] = (),
) -> CrontabImport:
    """Import a crontab of a host in `timezone`.

    `system` says whether lines have a user column, as in /etc/crontab; None: look whether all
    begin with one of `users`. `home` is the folder cron ran a user's commands in; "" when it is
    not known.
    """
    if len(text) > MAX_BYTES:
        return CrontabImport(_file([], {}), (Problem("the crontab is larger than 4 MiB"),))
    reader = Reader(system)
    if system is None and (first := user_column(text, users)):
        reader.system = True
        reader.problems.append(_user_column_problem(first))
    for number, line in enumerate(text.split("\n"), 1):
        reader.take(number, line.strip())
    in_home = {"source": {"path": home}} if home and not reader.system else {}
    defaults = {"timezone": timezone} | in_home
    assembled = _assemble(reader, defaults)
    if reader.is_unclear:  # whether the first words of the other lines are users, or commands
        errors = tuple(problem for problem in assembled.problems if not problem.warning)
        return CrontabImport(_file([], {}), errors)
    return assembled


def _user_column_problem(line: int) -> Problem:
    message = "every line names a user before its command: read as a system crontab"
    hint = "--system says so too; if these are commands: --no-system"
    return Problem(message, line=line, hint=hint, warning=True)


def _assemble(reader: Reader, defaults: dict[str, Any]) -> CrontabImport:
    problems = list(reader.problems)
    names = NameGiver()
    imported = []
    for entry in reader.entries:
        document = _document(entry, names)
        try:
            read_job(defaults | document)
        except Invalid as error:
            problems += (replace(it, line=entry.line, path="") for it in error.problems)
            continue
        problems += _differences(entry)
        imported.append(_Imported(entry, document))
    problems.sort(key=lambda it: it.line or 0)
    return CrontabImport(_file(imported, defaults), tuple(problems), len(imported))


def _document(entry: Entry, names: NameGiver) -> dict[str, Any]:
    settings = entry.settings
    document: dict[str, Any] = {"name": names.give(entry.command, entry.when)}
    if entry.comments:
        document["description"] = "\n".join(entry.comments)
    document["schedule"] = entry.when.removeprefix("-")  # the dash only silences cron's own log
    if zone := settings.get("CRON_TZ"):
        document["timezone"] = zone
    if minutes := settings.get("RANDOM_DELAY"):
        document["jitter"] = f"{minutes}m"
    if home := settings.get("HOME"):
        document["source"] = {"path": home}
    document["steps"] = [_step(entry)]
    own = without_reserved(settings)
    if env := {name: own[name] for name in own if name not in _NOT_ENV}:
        document["env"] = env
    return document


def _step(entry: Entry) -> dict[str, Any]:
    step: dict[str, Any] = {"run": _script(entry.command)}
    shell = entry.settings.get("SHELL", "/bin/sh")
    if known := _SYSTEM_SHELL.fullmatch(shell):
        return step if known[1] == "sh" else step | {"shell": known[1]}
    return step | {"interpreter": [shell]}


def _script(command: str) -> str:
    """Return the command as cron ran it: after the first % its input, other % newlines."""
    script, *lines = (part.replace("\\%", "%") for part in _UNESCAPED_PERCENT.split(command))
    if not lines:
        return script
    end = _END_OF_INPUT
    while end in lines:
        end += "_"
    return "\n".join([f"exec <<'{end}'", *lines, end, script.rstrip(), ""])


def _differences(entry: Entry) -> Iterator[Problem]:
    if entry.user:
        message = f"{quoted(entry.user)}: run_as is not available in this version of Rota"
        hint = "the job runs as the worker's user"
        yield Problem(message, line=entry.line, hint=hint, warning=True)
    if reserved := sorted(entry.settings.keys() - without_reserved(entry.settings)):
        message = f"{', '.join(reserved)} left out: only Rota sets {RESERVED_ENV}*"
        yield Problem(message, line=entry.line, hint="give it another name", warning=True)
    shell = entry.settings.get("SHELL", "/bin/sh")
    if _UNESCAPED_PERCENT.search(entry.command) and not _SYSTEM_SHELL.fullmatch(shell):
        message = f"input after % is imported for sh; check that {quoted(shell)} understands it"
        yield Problem(message, line=entry.line, warning=True)


def _file(imported: list[_Imported], defaults: dict[str, Any]) -> str:
    if not imported:
        return to_block({"jobs": []})
    env = _common_env(it.document for it in imported)
    head = to_block({"defaults": defaults | ({"env": env} if env else {})})
    return "".join(["# Imported from a crontab.\n", head, "\njobs:\n", _jobs(imported, env)])


def _common_env(documents: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    first, *others = (document.get("env", {}) for document in documents)
    items = first.items()
    return {name: value for name, value in items if all(it.get(name) == value for it in others)}


def _jobs(imported: Iterable[_Imported], common_env: Mapping[str, str]) -> str:
    return "\n".join(_job(it, common_env) for it in imported)


def _job(imported: _Imported, common_env: Mapping[str, str]) -> str:
    entry = imported.entry
    document = dict(imported.document)
    env = {name: value for name, value in document.pop("env", {}).items() if name not in common_env}
    if env:
        document["env"] = env
    note = f"line {entry.line}"
    note += f", run by {entry.user}" if entry.user else ""
    if address := entry.settings.get("MAILTO"):
        note += f", output was mailed to {address}"
    inert = "".join(letter for letter in note if letter.isprintable())
    return f"  # {inert}\n" + to_block({"jobs": [document]}).removeprefix("jobs:\n")

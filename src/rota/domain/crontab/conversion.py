"""Entries of a crontab turned into jobs, and those into a job file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rota.domain.crontab.entries import Entry, Reader
from rota.domain.crontab.names import NameGiver
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import read_job, to_block
from rota.domain.jobfile.text import MAX_BYTES
from rota.domain.schedule.quoting import quoted

_UNESCAPED_PERCENT = re.compile(r"(?<!\\)%")
_SYSTEM_SHELL = re.compile(r"(?:/usr)?/bin/(sh|bash|dash|ksh|zsh)")
_NOT_ENV = frozenset({"SHELL", "MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY"})
_END_OF_INPUT = "END_OF_INPUT"


@dataclass(frozen=True, slots=True)
class CrontabImport:
    """What became of a crontab."""

    text: str  # a valid job file with every entry that could be taken over
    problems: tuple[Problem, ...]  # errors: entries left out; warnings: what differs from cron


@dataclass(frozen=True, slots=True)
class _Imported:
    entry: Entry
    document: dict[str, Any]


def import_crontab(
    text: str, *, timezone: str, system: bool = False, home: str = ""
) -> CrontabImport:
    """Import a crontab of a host in `timezone`.

    `system` says that lines have a user column, as in /etc/crontab. `home` is the folder cron
    ran the commands in; "" when it is not known.
    """
    if len(text) > MAX_BYTES:
        return CrontabImport(_file([], {}), (Problem("the crontab is larger than 4 MiB"),))
    reader = Reader(system)
    for number, line in enumerate(text.split("\n"), 1):
        reader.take(number, line.strip())
    defaults = {"timezone": timezone} | ({"source": {"path": home}} if home else {})
    return _assemble(reader, defaults)


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
    return CrontabImport(_file(imported, defaults), tuple(problems))


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
    if env := {name: settings[name] for name in settings if name not in _NOT_ENV}:
        document["env"] = env
    return document


def _step(entry: Entry) -> dict[str, Any]:
    step: dict[str, Any] = {"run": _script(entry.command)}
    shell = entry.settings.get("SHELL", "/bin/sh")
    if known := _SYSTEM_SHELL.fullmatch(shell):
        return step if known[1] == "sh" else step | {"shell": known[1]}
    return step | {"interpreter": [shell]}


def _script(command: str) -> str:
    """The command as cron ran it: what follows the first % was its input, other % line ends."""
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

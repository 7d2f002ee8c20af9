"""Job names for commands that never had one."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 60
_SIMPLE_COMMANDS = re.compile(r"&&|\|\||[;|&(){}<>%]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
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
    """Gives each command a name of its own, the same in every import of the same crontab."""

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
    """What the command is really about: `backup` for `cd /srv && nice ./backup.sh --all`."""
    for part in _SIMPLE_COMMANDS.split(command):
        words = [word for word in part.split() if not _ASSIGNMENT.fullmatch(word)]
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

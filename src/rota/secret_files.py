"""Files of a worker's settings with secrets: `http_secrets`, `git_credentials`, and
`container_registries`.

Each is TOML with a table for each secret, by name, which says whose jobs may use it. What else is
in a table is for its reader. A secret is in the table itself, and then only the file's owner may
read it; or in a file that the table names, which is read at each use.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

_ANY_PROJECT = "*"
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def tables_in(
    path: Path, known: Collection[str], example: str
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield each table with its name, and how messages call it; it has known fields only.

    Raise `ValueError` with what is wrong in the file; `example` is a field as it may be written.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    for name, fields in content.items():
        where = f"{path}: [{name}]"
        if not isinstance(fields, Mapping):
            raise ValueError(f"{path}: {name} is no table: write [{name}] and below it {example}")
        if unknown := sorted(set(fields) - set(known)):
            raise ValueError(f"{where} has an unknown {unknown[0]}: it knows {', '.join(known)}")
        yield name, where, fields


def refuse_open(path: Path, what: str) -> None:
    """Raise `ValueError` if others than its owner may read a file that has such secrets in it."""
    if path.stat().st_mode & _OPEN_TO_OTHERS:
        raise ValueError(f"{path} has {what}, and others may read it: chmod 600 {path}")


def projects_in(where: str, fields: Mapping[str, Any], least: int = 0) -> tuple[str, ...]:
    """Return the projects whose jobs may use it; raise `ValueError` unless they are listed."""
    projects = texts_in(fields, "projects")
    if projects is None or len(projects) < least:
        raise ValueError(f'{where} needs projects = ["NAME"], whose jobs may use it; "*" is all')
    return projects


def texts_in(fields: Mapping[str, Any], field: str) -> tuple[str, ...] | None:
    """Return the texts of a list; None: the field is something else, or not there."""
    values = fields.get(field)
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        return None
    return tuple(values)


def is_for(project: str, projects: Collection[str]) -> bool:
    """Return whether jobs of a project may use what these projects may."""
    return _ANY_PROJECT in projects or project in projects


def path_in(fields: Mapping[str, Any], field: str) -> Path | None:
    """Return the path that a field names; None: it is not there."""
    text = fields.get(field)
    return None if text is None else Path(str(text)).expanduser()


def read_secret(path: Path) -> str:
    """Return what is in a file now; raise `ValueError` with the path and the reason."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: it is not UTF-8") from error

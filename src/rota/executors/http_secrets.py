"""Values that requests of jobs may name, from a file of the worker's settings.

Each is bound to projects and to origins: a job of another project cannot use it, and no job can
have it sent elsewhere, nor to another port or over http unless that is written.

    [PAY_TOKEN]
    value_file = "/etc/rota/pay-token"
    hosts = ["pay.example.org"]  # https://pay.example.org
    projects = ["payments"]
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.domain.addresses import Target, parse_origin
from rota.domain.errors import Invalid, listed

_ANY = "*"
_FIELDS = ("value", "value_file", "hosts", "projects")
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class WorkerSecret:
    """Value of the worker's settings, and where it may go."""

    name: str
    value: str = field(default="", repr=False)
    file: Path | None = None
    origins: tuple[str, ...] = ()  # scheme, host and port of each place where it may go
    projects: tuple[str, ...] = ()

    def trouble(self) -> str:
        """Return why it is of no use at present; "": nothing is known against it."""
        try:
            self.read()
        except Invalid as error:
            return error.message
        return ""

    def read(self) -> str:
        """Return the value; one in a file is read at each use."""
        if self.file is None:
            return self.value
        try:
            return self.file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            message = f"the secret {self.name} cannot be read: {self.file}: {reason}"
            raise Invalid(message) from error


class WorkerSecrets:
    """The values of one worker, by name."""

    def __init__(self, secrets: Mapping[str, WorkerSecret]) -> None:
        self._secrets = secrets

    def values(self, names: Iterable[str], project: str, target: Target) -> dict[str, str]:
        """Return values for a request of this project to that place; `Invalid` if one is not."""
        return {name: self._value(name, project, target) for name in names}

    def _value(self, name: str, project: str, target: Target) -> str:
        secret = self._secrets.get(name)
        if secret is None:
            raise Invalid(f"the worker has no secret {name}: see http_secrets")
        if not {_ANY, project} & set(secret.projects):
            raise Invalid(f"the secret {name} is not for the project {project}")
        if target.origin not in secret.origins:
            raise Invalid(
                f"the secret {name} is not for {target.origin}: its hosts are"
                f" {listed(secret.origins)}"
            )
        return secret.read()


def read_secrets(path: Path) -> dict[str, WorkerSecret]:
    """Read the file; raise `ValueError` with what is wrong in it.

    One with a value in it must be readable by its owner only.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    secrets = {name: _secret(path, name, fields) for name, fields in content.items()}
    has_values = any(secret.file is None for secret in secrets.values())
    if has_values and path.stat().st_mode & _OPEN_TO_OTHERS:
        raise ValueError(f"{path} has secrets, and others may read it: chmod 600 {path}")
    return secrets


def _secret(path: Path, name: str, fields: Any) -> WorkerSecret:
    where = f"{path}: [{name}]"
    if not isinstance(fields, Mapping):
        raise ValueError(f'{path}: {name} is no table: write [{name}] and below it value = "…"')
    unknown = sorted(set(fields) - set(_FIELDS))
    if unknown:
        raise ValueError(f"{where} has an unknown {unknown[0]}: it knows {', '.join(_FIELDS)}")
    if ("value" in fields) == ("value_file" in fields):
        raise ValueError(f"{where} needs value or value_file, one of them")
    file, value = fields.get("value_file"), fields.get("value", "")
    if not isinstance(value, str) or not isinstance(file, str | None):
        raise ValueError(f"{where}: value and value_file are text")
    hosts = _texts(fields.get("hosts"))
    if not hosts:
        raise ValueError(
            f'{where} needs hosts = ["HOST"], where it may be sent: by https, unless it says'
            " http://HOST:PORT"
        )
    projects = _texts(fields.get("projects"))
    if not projects:
        raise ValueError(f'{where} needs projects = ["NAME"], whose jobs may use it; "*" is all')
    try:
        origins = tuple(dict.fromkeys(map(parse_origin, hosts)))
    except Invalid as error:
        raise ValueError(f"{where}: {error.message}") from error
    return WorkerSecret(name, value, Path(file).expanduser() if file else None, origins, projects)


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        return ()
    return tuple(values)

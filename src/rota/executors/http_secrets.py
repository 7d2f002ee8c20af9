"""Values that requests of jobs may name, from a file of the worker's settings.

Each is bound to projects and to origins: a job of another project cannot use it, and no job can
have it sent elsewhere, nor to another port or over http unless that is written.

    [PAY_TOKEN]
    value_file = "/etc/rota/pay-token"
    hosts = ["pay.example.org"]  # https://pay.example.org
    projects = ["payments"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.domain.addresses import Target, parse_origin
from rota.domain.errors import Invalid, listed
from rota.secret_files import (
    is_for,
    path_in,
    projects_in,
    read_secret,
    refuse_open,
    tables_in,
    texts_in,
)

_FIELDS = ("value", "value_file", "hosts", "projects")


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
            return read_secret(self.file).rstrip("\r\n")
        except ValueError as error:
            raise Invalid(f"the secret {self.name} cannot be read: {error}") from error


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
            raise Invalid(f"no secret {name} is in the file that http_secrets names")
        if not is_for(project, secret.projects):
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
    tables = tables_in(path, _FIELDS, 'value = "…"')
    secrets = {name: _secret(where, name, fields) for name, where, fields in tables}
    if any(secret.file is None for secret in secrets.values()):
        refuse_open(path, "secrets")
    return secrets


def _secret(where: str, name: str, fields: Mapping[str, Any]) -> WorkerSecret:
    if ("value" in fields) == ("value_file" in fields):
        raise ValueError(f"{where} needs value or value_file, one of them")
    file, value = fields.get("value_file"), fields.get("value", "")
    if not isinstance(value, str) or not isinstance(file, str | None):
        raise ValueError(f"{where}: value and value_file are text")
    if not (hosts := texts_in(fields, "hosts")):
        raise ValueError(
            f'{where} needs hosts = ["HOST"], where it may be sent: by https, unless it says'
            " http://HOST:PORT"
        )
    projects = projects_in(where, fields, least=1)
    try:
        origins = tuple(dict.fromkeys(map(parse_origin, hosts)))
    except Invalid as error:
        raise ValueError(f"{where}: {error.message}") from error
    return WorkerSecret(name, value, path_in(fields, "value_file"), origins, projects)

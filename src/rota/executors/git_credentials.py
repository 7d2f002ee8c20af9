"""Credentials for git, of the worker's settings: who is shown what, and for whose jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.domain.addresses import WEB, Target, parse_origin
from rota.domain.errors import Invalid
from rota.domain.git import SCHEMES
from rota.secret_files import is_for, path_in, projects_in, read_secret, refuse_open, tables_in
from rota.sources.wish import GitLogin, SourceRefused

_FIELDS = ("host", "user", "password", "password_file", "key_file", "projects")
_SECRETS = ("password", "password_file", "key_file")


@dataclass(frozen=True, slots=True)
class Credential:
    """Way into the repositories of one host."""

    name: str
    origin: str  # scheme, host and port
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: Path | None = None
    key_file: Path | None = None
    projects: tuple[str, ...] = ()  # whose jobs may use it

    def login(self) -> GitLogin:
        """Return what the host is shown; files are read at each use."""
        key = _read(self.key_file, self.name)
        password = self.password or _read(self.password_file, self.name).rstrip("\r\n")
        return GitLogin(self.user, password, key, self.origin, self.name)


def _read(path: Path | None, name: str) -> str:
    if path is None:
        return ""
    try:
        return read_secret(path)
    except ValueError as error:
        message = f"what the credential {name} shows cannot be read: {error}"
        raise SourceRefused(message) from error


def find_credential(path: Path | None, name: str, project: str, target: Target) -> GitLogin | None:
    """Return what a job may show; `SourceRefused` if it names what is not for it. "": nothing."""
    if not name:
        return None
    try:
        known = {} if path is None else read_credentials(path)
    except ValueError as error:
        raise SourceRefused(f"the worker's setting git_credentials: {error}") from error
    credential = known.get(name)
    # Whether a name is known that is another project's own is nobody's business.
    if credential is None or not is_for(project, credential.projects):
        raise SourceRefused(
            f"this worker has no credential {name} for the project {project}: an admin adds it"
            " to the file of its setting git_credentials"
        )
    if credential.origin != target.origin:
        raise SourceRefused(
            f"the credential {name} is for {credential.origin}, and the repository is at"
            f" {target.origin}"
        )
    return credential.login()


def read_credentials(path: Path) -> dict[str, Credential]:
    """Read the file of credentials; raise `ValueError` with what is wrong in it.

    One with a password in it must be readable by its owner only.
    """
    tables = tables_in(path, _FIELDS, 'host = "…"')
    found = {name: _credential(where, name, fields) for name, where, fields in tables}
    if any(each.password for each in found.values()):
        refuse_open(path, "passwords")
    return found


def _credential(where: str, name: str, fields: Mapping[str, Any]) -> Credential:
    texts = [key for key in _FIELDS[:-1] if key in fields]
    if bad := [key for key in texts if not isinstance(fields[key], str) or not fields[key]]:
        raise ValueError(f"{where}: {bad[0]} is no text")
    shown = [key for key in _SECRETS if key in fields]
    if len(shown) != 1:
        raise ValueError(f"{where} needs password, password_file or key_file, one of them")
    for key in ("host", *([] if shown == ["key_file"] else ["user"])):
        if key not in fields:
            raise ValueError(f"{where} needs {key}")
    projects = projects_in(where, fields)
    is_key = shown == ["key_file"]
    try:
        origin = parse_origin(fields["host"], ("ssh", *WEB) if is_key else SCHEMES)
    except Invalid as error:
        raise ValueError(f"{where}: {error}") from error
    if origin.startswith("ssh:") != is_key:
        raise ValueError(f"{where}: ssh takes key_file, and only ssh does")
    return Credential(
        name,
        origin,
        fields.get("user", ""),
        fields.get("password", ""),
        path_in(fields, "password_file"),
        path_in(fields, "key_file"),
        projects,
    )

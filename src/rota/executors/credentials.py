"""Credentials for git, of the worker's settings: who is shown what, and for whose jobs."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.domain.addresses import WEB, Target, parse_origin
from rota.domain.errors import Invalid
from rota.domain.git import SCHEMES
from rota.sources.wish import Login, SourceRefused

_ANY_PROJECT = "*"
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
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

    def login(self) -> Login:
        """Return what the host is shown; files are read at each use."""
        key = _read(self.key_file, self.name)
        password = self.password or _read(self.password_file, self.name).rstrip("\r\n")
        return Login(self.user, password, key, self.origin, self.name)


def _read(path: Path | None, name: str) -> str:
    if path is None:
        return ""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SourceRefused(
            f"what the credential {name} shows cannot be read: {path}: {reason}"
        ) from error


def find_credential(path: Path | None, name: str, project: str, target: Target) -> Login | None:
    """Return what a job may show; `SourceRefused` if it names what is not for it. "": nothing."""
    if not name:
        return None
    try:
        known = {} if path is None else read_credentials(path)
    except ValueError as error:
        raise SourceRefused(f"the worker's setting git_credentials: {error}") from error
    credential = known.get(name)
    # Whether a name is known that is another project's own is nobody's business.
    if credential is None or not {_ANY_PROJECT, project} & set(credential.projects):
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
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        is_open = bool(path.stat().st_mode & _OPEN_TO_OTHERS)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    found = {name: _credential(path, name, fields) for name, fields in content.items()}
    if any(each.password for each in found.values()) and is_open:
        raise ValueError(f"{path} has passwords, and others may read it: chmod 600 {path}")
    return found


def _credential(path: Path, name: str, fields: Any) -> Credential:
    where = f"{path}: [{name}]"
    if not isinstance(fields, Mapping):
        raise ValueError(f'{path}: {name} is no table: write [{name}] and below it host = "…"')
    if unknown := sorted(set(fields) - set(_FIELDS)):
        raise ValueError(f"{where} has an unknown {unknown[0]}: it knows {', '.join(_FIELDS)}")
    texts = [key for key in _FIELDS[:-1] if key in fields]
    if bad := [key for key in texts if not isinstance(fields[key], str) or not fields[key]]:
        raise ValueError(f"{where}: {bad[0]} is no text")
    shown = [key for key in _SECRETS if key in fields]
    if len(shown) != 1:
        raise ValueError(f"{where} needs password, password_file or key_file, one of them")
    for key in ("host", *([] if shown == ["key_file"] else ["user"])):
        if key not in fields:
            raise ValueError(f"{where} needs {key}")
    projects = fields.get("projects")
    if not isinstance(projects, list) or not all(isinstance(each, str) for each in projects):
        raise ValueError(f'{where} needs projects = ["NAME"], whose jobs may use it; "*" is all')
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
        _path(fields.get("password_file")),
        _path(fields.get("key_file")),
        tuple(projects),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()

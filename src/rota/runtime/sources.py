"""Settings about sources: how they are read, and how they get from the launcher to its worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from rota.runtime.walls import WallFields
from rota.sources.wish import SourceSettings

_DEFAULT = SourceSettings()


@dataclass(frozen=True, slots=True)
class SourceFields(WallFields):
    """Settings about the sources of a worker's jobs."""

    git_credentials: Path | None = _DEFAULT.credentials
    git_known_hosts: Path | None = _DEFAULT.known_hosts
    git_authorities: Path | None = _DEFAULT.authorities
    git_http: bool = _DEFAULT.allows_http
    git_mirrors: int = _DEFAULT.mirrors  # bytes
    source_limit: int = _DEFAULT.limit  # bytes
    source_files: int = _DEFAULT.files
    source_timeout: timedelta = _DEFAULT.timeout

    @property
    def sources(self) -> SourceSettings:
        """Return what the worker's sources may be."""
        return SourceSettings(
            self.git_credentials,
            self.git_known_hosts,
            self.git_authorities,
            self.outgoing_networks,
            self.git_http,
            self.source_limit,
            self.source_files,
            self.source_timeout,
            self.git_mirrors,
        )


MEANINGS: Mapping[str, str] = {
    "git_credentials": "file with what git may show to whom, one table each: [NAME] and below it"
    " host, user and password or password_file, or for ssh key_file; and projects",
    "git_known_hosts": "file with the keys of hosts that git reaches by ssh, as ssh-keyscan prints"
    " them (default: no ssh)",
    "git_authorities": "authorities that git trusts, a PEM file (default: the system's)",
    "git_http": "whether git may use http://, where everybody on the way can read and change what"
    " comes: true or false",
    "git_mirrors": "disk for mirrors of repositories; the least recently used go first",
    "source_limit": "most bytes that the source of a job may have, unpacked, with its submodules",
    "source_files": "most files and folders that the source of a job may have, with its submodules",
    "source_timeout": "how long a source may take to come",
}


def as_option(settings: SourceSettings) -> str:
    """Write settings for the worker's command line."""
    fields = asdict(settings) | {
        "timeout": settings.timeout.total_seconds(),
        "networks": list(map(str, settings.networks)),
    }
    paths = ("credentials", "known_hosts", "authorities")
    given = {name: getattr(settings, name) for name in paths}
    absolute = {name: str(path.absolute()) if path else None for name, path in given.items()}
    return json.dumps(fields | absolute)


def from_option(text: str) -> SourceSettings:
    """Read what `as_option` wrote."""
    fields: dict[str, Any] = json.loads(text)
    for name in ("credentials", "known_hosts", "authorities"):
        fields[name] = None if fields[name] is None else Path(fields[name])
    fields["timeout"] = timedelta(seconds=fields["timeout"])
    fields["networks"] = tuple(map(ip_network, fields["networks"]))
    return SourceSettings(**fields)

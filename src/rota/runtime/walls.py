"""Settings about walls: how they are read, and how they get from the launcher to its worker."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from pathlib import Path, PurePosixPath
from typing import Any

from rota.domain.addresses import Network
from rota.domain.quantities import format_size, parse_size
from rota.walls.container import ContainerSettings, MountRoot, parse_roots
from rota.walls.enclosing import WallSettings
from rota.walls.sandbox import HOME, TMP, TOLD, WORK, Bind

# Of the machine: each as a whole would show what a sandbox is there to hide.
_NEVER = frozenset(
    map(
        PurePosixPath,
        ("/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/var"),  # noqa: S108
    )
)
_TAKEN = tuple(map(PurePosixPath, (WORK, TMP, HOME, TOLD, "/dev", "/proc", "/sys", "/usr")))
_MODES = {"ro": False, "rw": True}
_LEAST_UID, _GREATEST_UID = 1_000, 2**32 - 2
_MOST_UIDS = 100_000
_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})", re.ASCII)
DEFAULT = WallSettings()
DEFAULT_HTTP_SLOTS = 100


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Settings of jobs of type `http`, and the addresses that anything sent from here may reach."""

    slots: int = DEFAULT_HTTP_SLOTS
    networks: tuple[Network, ...] = ()  # private, and open to what projects name
    secrets: Path | None = None


@dataclass(frozen=True, slots=True)
class WallFields:
    """Settings about the walls of a worker."""

    sandbox_binds: tuple[Bind, ...] = DEFAULT.binds
    sandbox_uids: range = DEFAULT.uids
    sandbox_networks: tuple[IPv4Network, ...] = DEFAULT.networks
    sandbox_network_host: bool = DEFAULT.network_host
    run_as: tuple[str, ...] = DEFAULT.run_as
    disk_floor: int = DEFAULT.disk_floor  # bytes
    container_engine: str = ""
    container_mounts: tuple[MountRoot, ...] = ()
    container_registries: Path | None = None
    container_network_host: bool = False
    http_slots: int = DEFAULT_HTTP_SLOTS
    http_secrets: Path | None = None
    outgoing_networks: tuple[Network, ...] = ()

    @property
    def http(self) -> HttpSettings:
        """Return what the worker has for jobs that other systems do."""
        return HttpSettings(self.http_slots, self.outgoing_networks, self.http_secrets)

    @property
    def containers(self) -> ContainerSettings:
        """Return what the worker's containers are to be like."""
        return ContainerSettings(
            self.container_engine,
            self.container_mounts,
            self.container_registries,
            self.container_network_host,
        )

    @property
    def walls(self) -> WallSettings:
        """Return what the worker's walls are to be like."""
        return WallSettings(
            self.sandbox_binds,
            self.sandbox_uids,
            self.sandbox_networks,
            self.sandbox_network_host,
            self.run_as,
            self.disk_floor,
        )


MEANINGS: Mapping[str, str] = {
    "sandbox_binds": "paths that sandboxes see beside the system's programs, separated by commas;"
    " read-only unless :rw follows, as /data,/srv/cache:rw",
    "sandbox_uids": "users that a worker that is root gives its sandboxes, one to each",
    "sandbox_networks": "private networks that sandboxes with network outbound may reach, as"
    " 10.1.0.0/16 (default: none)",
    "sandbox_network_host": "whether sandboxes may use the worker's own network: true or false",
    "run_as": "users of this machine that jobs may run as, separated by commas; the worker must be"
    " root",
    "disk_floor": "free space below which a worker takes nothing new; up to 64 MiB at most a"
    " twentieth of the disk; 0B: it always does",
    "container_engine": "socket of Docker or Podman for jobs in containers, as /run/docker.sock;"
    " auto: where one of the two usually is (default: none)",
    "container_mounts": "folders that containers may have, separated by commas; read-only unless"
    " :rw follows, as /data,/srv/cache:rw; what may be written is mounted whole or not at all",
    "container_registries": "file with logins of image registries, one table each: [NAME] and below"
    " it host, user, password or password_file, projects",
    "container_network_host": "whether containers may use the machine's own network: true or false",
    "http_slots": "attempts at jobs of type http that a worker looks after at once, besides its"
    " slots; 0: none",
    "http_secrets": "file with secrets that requests of jobs may name, one table each: [NAME] and"
    " below it value or value_file, hosts (by https; else http://HOST:PORT), projects",
    "outgoing_networks": "private networks that git and requests of jobs may reach, as 10.1.0.0/16,"
    "::1/128 (default: none)",
}


def engine(raw: Any) -> str:
    """Read the socket of an engine."""
    text = str(raw).strip()
    path = text.removeprefix("unix://")
    if text in ("", "auto"):
        return text
    if not path.startswith("/"):
        raise ValueError(f'"{text}" is not the path of a socket, such as /run/docker.sock, or auto')
    return path


def containers_as_option(settings: ContainerSettings) -> str:
    """Write settings of containers for the worker's command line."""
    file = settings.registries
    return json.dumps(
        {
            "engine": settings.engine,
            "mounts": list(map(str, settings.mounts)),
            "registries": None if file is None else str(file.absolute()),
            "network_host": settings.network_host,
        }
    )


def containers_from_option(text: str) -> ContainerSettings:
    """Read what `containers_as_option` wrote."""
    fields: dict[str, Any] = json.loads(text)
    file = fields["registries"]
    return ContainerSettings(
        engine=fields["engine"],
        mounts=parse_roots(fields["mounts"]),
        registries=None if file is None else Path(file),
        network_host=fields["network_host"],
    )


def http_as_option(settings: HttpSettings) -> str:
    """Write settings of requests for the worker's command line."""
    file = settings.secrets
    return json.dumps(
        {
            "slots": settings.slots,
            "networks": list(map(str, settings.networks)),
            "secrets": None if file is None else str(file.absolute()),
        }
    )


def http_from_option(text: str) -> HttpSettings:
    """Read what `http_as_option` wrote."""
    fields: dict[str, Any] = json.loads(text)
    file = fields["secrets"]
    networks = tuple(map(ip_network, fields["networks"]))
    return HttpSettings(fields["slots"], networks, None if file is None else Path(file))


def outgoing_networks(parts: list[str]) -> tuple[Network, ...]:
    """Read private networks that requests of jobs may reach: `10.1.0.0/16,::1/128`."""
    return tuple(_any_network(part) for part in parts)


def _any_network(text: str) -> Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f'"{text}" is not a network such as 10.1.0.0/16: {error}') from error
    if network.prefixlen == 0:
        raise ValueError(f'"{text}" would open everything: name single networks')
    return network


def binds(parts: list[str]) -> tuple[Bind, ...]:
    """Read paths that sandboxes see: `/data,/srv/cache:rw`."""
    return tuple(_bind(part) for part in parts)


def _bind(text: str) -> Bind:
    path, colon, mode = text.rpartition(":")
    if not colon or mode not in _MODES:
        path, mode = text, "ro"
    pure = PurePosixPath(path)
    if not pure.is_absolute() or ".." in pure.parts:
        raise ValueError(f'"{text}" is not an absolute path, perhaps with :rw, such as /data:rw')
    if pure in _NEVER:
        raise ValueError(f"{pure} as a whole would show what sandboxes hide: name what they need")
    for taken in _TAKEN:
        if taken == pure or taken in pure.parents:
            raise ValueError(f"{pure} is below {taken}, which sandboxes have already")
    return Bind(Path(pure), _MODES[mode])


def uids(raw: Any) -> range:
    """Read numbers of users, first and last: `65536-75535`."""
    text = str(raw).strip()
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is not a range of users such as 65536-75535')
    first, last = int(match[1]), int(match[2])
    if not _LEAST_UID <= first <= last <= _GREATEST_UID or last - first >= _MOST_UIDS:
        raise ValueError(
            f'"{text}" is not a range of users: at most {_MOST_UIDS:,}, none below {_LEAST_UID:,}'
        )
    return range(first, last + 1)


def networks(parts: list[str]) -> tuple[IPv4Network, ...]:
    """Read private networks that sandboxes may reach: `10.1.0.0/16`."""
    return tuple(_network(part) for part in parts)


def _network(text: str) -> IPv4Network:
    try:
        network: Network = ip_network(text)
    except ValueError as error:
        raise ValueError(f'"{text}" is not a network such as 10.1.0.0/16: {error}') from error
    if not isinstance(network, IPv4Network):
        raise ValueError(f'"{text}" is of IPv6, which the network outbound does not have')
    if network.is_loopback or network.prefixlen == 0:
        raise ValueError(f'"{text}" would open the machine itself: name single networks')
    return network


def as_option(settings: WallSettings) -> str:
    """Write settings for the worker's command line."""
    return json.dumps(
        {
            "binds": [[str(bind.path), bind.writable] for bind in settings.binds],
            "uids": [settings.uids.start, settings.uids.stop],
            "networks": list(map(str, settings.networks)),
            "network_host": settings.network_host,
            "run_as": list(settings.run_as),
            "disk_floor": settings.disk_floor,
        }
    )


def from_option(text: str) -> WallSettings:
    """Read what `as_option` wrote."""
    fields: dict[str, Any] = json.loads(text)
    return WallSettings(
        binds=tuple(Bind(Path(path), writable) for path, writable in fields["binds"]),
        uids=range(*fields["uids"]),
        networks=tuple(map(IPv4Network, fields["networks"])),
        network_host=fields["network_host"],
        run_as=tuple(fields["run_as"]),
        disk_floor=fields["disk_floor"],
    )


def switch(raw: Any) -> bool:
    answers = {"true": True, "false": False}
    text = str(raw).strip().lower()
    if text not in answers:
        raise ValueError(f'"{raw}" is neither true nor false')
    return answers[text]


def size(raw: Any) -> int:
    try:
        return parse_size(str(raw))
    except ValueError as error:
        raise ValueError(f'"{raw}" is {error}') from error


def shown(value: object) -> str:
    """Format a value as its setting is written."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return format_size(value)
        case range():
            return f"{value.start}-{value.stop - 1}"
        case tuple():
            return ",".join(map(shown, value))
        case Bind():
            return f"{value.path}:rw" if value.writable else str(value.path)
        case _:
            return str(value)

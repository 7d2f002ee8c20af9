"""Every setting of this machine's Rota: what it means, how its text is read and shown."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import entry_points
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.domain.addresses import Network
from rota.domain.errors import Invalid
from rota.domain.identity import AT_JWT, JWT, is_near
from rota.domain.key_ring import parse_keys
from rota.domain.lease import DEFAULT_LEASE, LONE_SERVER_LEASE, SERVER_LEASE
from rota.domain.quantities import format_duration, parse_duration
from rota.domain.resources import format_amount, parse_named_amount
from rota.domain.shape import WORKER
from rota.guardian import NamespaceWish
from rota.ports.work import MAX_LABELS, MAX_NAME
from rota.runtime import sources, walls
from rota.runtime.sources import SourceFields
from rota.walls.container import parse_roots

SQLITE = "sqlite:///"
FILES = "file://"
DEFAULT_GRPC_LISTEN = "127.0.0.1:7701"
GRPC_PORT = 7701
HTTPS = "https://"


class ServerRole(StrEnum):
    """Duty of a server; each can be switched off."""

    GATEWAY = "gateway"  # REST and gRPC for people and programs
    SCHEDULER = "scheduler"  # fires what is due
    DISPATCHER = "dispatcher"  # workers connect to it


@dataclass(frozen=True, slots=True)
class Settings(SourceFields):
    """Every setting of this machine's Rota."""

    home: Path = Path(".rota")
    listen: str = "127.0.0.1:7700"
    grpc_listen: str = ""
    public_url: str = ""
    trusted_proxies: tuple[Network, ...] = ()
    max_streams: int = 2_000
    max_streams_per_caller: int = 100
    store: str = field(default="", repr=False)
    store_pool: int = 6
    default_isolation: str = ""
    blobs: str = field(default="", repr=False)
    queue: str = field(default="", repr=False)
    roles: tuple[ServerRole, ...] = tuple(ServerRole)
    pool_max: Mapping[str, int] | None = None  # thousandths by pool/name
    server_name: str = ""
    zone: str = ""
    server_lease: timedelta | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    secrets_key: str = field(default="", repr=False)
    secrets_key_command: str = ""
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = field(default="", repr=False)
    oidc_scopes: tuple[str, ...] = ("openid", "profile", "email")
    oidc_groups_claim: str = ""
    oidc_admin_groups: tuple[str, ...] = ()
    oidc_audience: str = ""
    oidc_access_token_typ: str = AT_JWT
    oidc_client_ids: tuple[str, ...] = ()
    session_lifetime: timedelta = timedelta(hours=12)
    session_idle: timedelta = timedelta(hours=2)
    lease: timedelta = DEFAULT_LEASE
    server: tuple[str, ...] = ()
    worker_token: str = field(default="", repr=False)
    join_token: str = field(default="", repr=False)
    worker_name: str = ""
    slots: int = 4
    pool: str = "default"
    labels: Mapping[str, str] | None = None
    resources: Mapping[str, int] | None = None  # thousandths by name
    app: str = ""
    executors: tuple[str, ...] = ()
    namespace: NamespaceWish = "auto"
    stop_grace: timedelta = timedelta(seconds=10)
    log_level: str = "info"
    url: str = ""
    token: str = field(default="", repr=False)

    @property
    def is_alone(self) -> bool:
        """Return whether no other server can be on the store."""
        return not self.store or self.store.startswith(SQLITE)

    @property
    def store_path(self) -> Path:
        """Return the path of the SQLite file."""
        address = self.store or f"{SQLITE}{self.home.absolute()}/rota.db"
        return Path(address.removeprefix(SQLITE))

    @property
    def blobs_path(self) -> Path:
        """Return the folder of blobs that are files."""
        address = self.blobs or f"{FILES}{self.home.absolute()}/blobs"
        return Path(address.removeprefix(FILES))

    @property
    def needs_home(self) -> bool:
        """Return whether a server keeps its store or its blobs in the data folder."""
        return not self.store or not self.blobs

    @property
    def renewed_within(self) -> timedelta:
        """Return the lease of this server: how long its shards wait once it is gone."""
        if self.server_lease is not None:
            return self.server_lease
        return LONE_SERVER_LEASE if self.is_alone else SERVER_LEASE

    @property
    def largest(self) -> dict[str, dict[str, int]]:
        """Return the most that one run may ask for, by pool and name."""
        by_pool: dict[str, dict[str, int]] = {}
        for where, amount in (self.pool_max or {}).items():
            pool, _, name = where.partition("/")
            by_pool.setdefault(pool, {})[name] = amount
        return by_pool

    @property
    def is_secure(self) -> bool:
        """Return whether this server has a certificate."""
        return self.tls_cert is not None

    @property
    def is_behind_tls(self) -> bool:
        """Return whether a proxy that ends TLS is said to be before this server."""
        return bool(self.trusted_proxies) and self.public_url.startswith(HTTPS)

    @property
    def name(self) -> str:
        """Return the worker's name."""
        if self.worker_name:
            return self.worker_name
        return socket.gethostname() if self.server else f"{socket.gethostname()}-local"


# What each setting means: shown by `rota config show` and in the reference.
MEANINGS: Mapping[str, str] = {
    "home": "folder for all data",
    "listen": "host:port of the API; beyond loopback only with tls_cert and tls_key, or behind"
    " trusted_proxies and an https public_url",
    "grpc_listen": "host:port of gRPC for workers and clients; empty: off in rota up,"
    f" {DEFAULT_GRPC_LISTEN} in rota server",
    "public_url": "where people and programs reach Rota through a proxy, as https://rota.example.org"
    " or https://example.org/rota; in links, redirects and events (default: listen)",
    "trusted_proxies": "networks of the proxies before this server, as 10.0.0.0/8,::1, whose"
    " forwarded headers tell the address of the client (default: none are believed)",
    "max_streams": "streams that one server keeps open at once, of REST and gRPC: events, watched"
    " runs and carts, output that is followed; further ones are refused for a while",
    "max_streams_per_caller": "the same of one user or program",
    "store": "the durable truth: sqlite:///PATH (default: in home) or postgresql://…",
    "store_pool": "PostgreSQL connections for the API; leases and firing have others",
    "default_isolation": "isolation of jobs that name none, written into a store when it is made:"
    " sandbox, with outbound network, or process (default: sandbox, in rota up process); later"
    " rota server defaults changes it",
    "blobs": "output and files: file://PATH (default: in home), s3://, gs:// or az://BUCKET/PREFIX",
    "queue": "wake-ups between servers: nats://HOST[,HOST…] or postgresql://…, without a pooler;"
    " empty: the store itself",
    "roles": "what a server does: gateway, scheduler, dispatcher, separated by commas",
    "pool_max": "most that one run may ask of its worker, as linux/cpu=16,linux/memory=64GiB;"
    " a job that asks for more is refused (default: no such limit). It is going out of use:"
    " rota pool set NAME --max keeps it with the pool, for all servers",
    "server_name": "name of the server (default: host name)",
    "zone": "where the server or worker stands; a worker has it as label zone",
    "server_lease": "how long the schedules of a dead server wait for it (default: 5s on a shared"
    " store, 30s alone)",
    "tls_cert": "certificate chain that the server shows, a PEM file",
    "tls_key": "private key of tls_cert, a PEM file",
    "tls_ca": "authorities that workers, CLI and SDK trust, a PEM file (default: the system's)",
    "secrets_key": "key ring that seals what is secret in the store: its lines rk1:ID:BASE64, or a"
    " path that begins with / ~ or . (default: in home, where no other server can be on the store)",
    "secrets_key_command": "command that prints the key ring, instead of secrets_key",
    "oidc_issuer": "identity provider that people log in with, as https://login.example.org/: its"
    " `issuer`, exactly as it writes it (default: none, people log in with a link or a token)",
    "oidc_client_id": "what the provider calls this installation",
    "oidc_client_secret": "secret of oidc_client_id; empty: it is a public client",
    "oidc_scopes": "what is asked of the provider, separated by commas; offline_access lets Rota"
    " look every 15 minutes whether a person is still welcome there",
    "oidc_groups_claim": "JSON pointer to the groups in tokens: /groups, /realm_access/roles,"
    " /https:~1~1example.org~1roles; empty: hd:DOMAIN and email:ADDRESS are a person's groups",
    "oidc_admin_groups": "groups whose members are admins of the installation, separated by commas;"
    " all other roles are given with rota role grant",
    "oidc_audience": "audience of the provider's access tokens for REST and gRPC; empty: none",
    "oidc_access_token_typ": f"type of these access tokens: {AT_JWT}, or jwt, which Auth0 and"
    " Keycloak write and which needs oidc_client_ids",
    "oidc_client_ids": "clients whose access tokens are taken, separated by commas; empty: all, if"
    f" they are of type {AT_JWT}",
    "session_lifetime": "how long a person stays logged in at most",
    "session_idle": "how long a person stays logged in without doing anything",
    "lease": "how long a silent worker keeps its runs",
    "server": "host:port of the server a worker serves, several separated by commas; without a port"
    f" {GRPC_PORT} (default: the one of home)",
    "worker_token": "token of the worker, from rota worker token create",
    "join_token": "what a worker joins with at its first start, from rota worker join-token create;"
    " it keeps what it gets for it in home",
    "worker_name": "name of the worker (default: host name, with -local for the server of home)",
    "slots": "attempts a worker runs at once",
    "pool": "pool the worker serves",
    "labels": "labels of the worker, key=value separated by commas",
    "resources": "what the worker offers, as cpu=4,memory=8GiB,licence=2 (default: the cores"
    " and the memory that it may use)",
    "app": "MODULE:app whose Python functions the worker serves",
    "executors": "plug-ins that the worker loads, by the names of their types, separated by commas;"
    " no other is loaded, whatever is installed (default: none)",
    "namespace": "process namespace of the guardian: auto, require or off",
    "stop_grace": "how long attempts may finish after a stop",
    **walls.MEANINGS,
    **sources.MEANINGS,
    "log_level": "debug, info, warning or error",
    "url": "server that the CLI and SDK talk to (default: the one of home)",
    "token": "token of the CLI and SDK (default: the one of home)",
}


QUEUE_ENTRY_POINTS = "rota.queues"
POSTGRES_SCHEMES = ("postgresql", "postgres")
MEMORY = "memory"
_OWN_QUEUES = ("nats", *POSTGRES_SCHEMES)
_HIDDEN = "***"
_SECRETS = frozenset({"token", "worker_token", "join_token", "secrets_key", "oidc_client_secret"})
_MANY_TENANTS = ("/common/", "/organizations/", "/consumers/")  # of Entra: anybody's accounts
_PATH_BEGINS = ("/", "~", ".")  # of a key ring: whatever begins otherwise may be a key
_CREDENTIALS = re.compile(r"(?P<scheme>\w+)://(?P<user>[^:@/]*)(?P<rest>.*)@")
_PUBLIC_URL = re.compile(r"[!-~]+?://[^/?#\s\\]+(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*")
_SECRET_PARAMETERS = re.compile(r"([?&]\w*(?:password|token|secret)=)[^&]*", re.IGNORECASE)


def _text(raw: Any) -> str:
    return str(raw)


def _path(raw: Any) -> Path:
    return Path(str(raw)).expanduser()


def _file(raw: Any) -> Path | None:
    return _path(raw) if raw else None


def _listen(raw: Any) -> str:
    host, colon, port = str(raw).rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'"{raw}" is not host:port')
    return f"{host or '127.0.0.1'}:{port}"


def _listen_or_off(raw: Any) -> str:
    return _listen(raw) if raw else ""


def _public_url(raw: Any) -> str:
    text = str(raw).strip().rstrip("/")
    if not text:
        return ""
    if not _is_site(text):
        raise ValueError(
            f'"{without_secrets(text)}" is not the address of a site: write it as'
            " https://rota.example.org or https://example.org/rota"
        )
    return text


def _is_site(text: str) -> bool:
    try:
        url = urlsplit(text)
        is_whole = bool(url.hostname) and url.scheme in ("http", "https") and url.port != 0
    except ValueError:
        return False
    return is_whole and "@" not in url.netloc and _PUBLIC_URL.fullmatch(text) is not None


def _networks(raw: Any) -> tuple[Network, ...]:
    return tuple(_network(text) for text in _listed(raw))


def _network(text: str) -> Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f'"{text}" is not a network such as 10.0.0.0/8 or ::1: {error}') from error
    if network.prefixlen == 0:
        raise ValueError(f'"{text}" is every address: whoever sends a header would be believed')
    return network


def _issuer(raw: Any) -> str:
    """Check the address of a provider; a slash at its end is left as it is: it counts."""
    text = str(raw).strip()
    if not text:
        return ""
    url = urlsplit(text)
    is_safe = url.scheme == "https" or (url.scheme == "http" and is_near(text))
    if not is_safe or not url.hostname or url.query or url.fragment or "@" in url.netloc:
        raise ValueError(
            f'"{without_secrets(text)}" is not the address of a provider: write it as'
            " https://login.example.org/; http:// is for this very machine only"
        )
    if any(tenants in f"{url.path}/" for tenants in _MANY_TENANTS):
        raise ValueError(
            f'"{text}" is the issuer of everybody\'s accounts: write the id of your tenant'
        )
    return text


def _pointer(raw: Any) -> str:
    text = str(raw).strip()
    if text and not text.startswith("/"):
        step = text.replace("~", "~0").replace("/", "~1")
        raise ValueError(f'"{text}" is not a JSON pointer: did you mean "/{step}"?')
    return text


def _scopes(raw: Any) -> tuple[str, ...]:
    scopes = _names(raw if isinstance(raw, list | tuple) else str(raw).replace(" ", ","))
    if "openid" not in scopes:
        raise ValueError("openid is not among them: without it the provider tells nobody's name")
    return scopes


def _names(raw: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_listed(raw)))


def _key_ring(raw: Any) -> str:
    """Check that it is a path, or lines of keys; no part of these is in the error."""
    text = str(raw).strip()
    if not text or text.startswith(_PATH_BEGINS):
        return text
    try:
        parse_keys(text)
    except Invalid as error:
        problems = "; ".join(f"line {it.line or 1}: {it.message}" for it in error.problems)
        raise ValueError(f"it is no key ring: {problems}") from error
    return text


def _command(raw: Any) -> str:
    text = str(raw)
    try:
        shlex.split(text)
    except ValueError as error:
        raise ValueError(f"it is not a command line: {error}") from error
    return text


def _servers(raw: Any) -> tuple[str, ...]:
    return tuple(_server(text) for text in _listed(raw))


def _server(text: str) -> str:
    if "://" in text:
        address = text.partition("://")[2].rstrip("/")
        raise ValueError(f'"{text}" is not host:port: write it without the scheme, as {address}')
    has_port = ":" in text.rpartition("]")[2]
    return _listen(text if has_port else f"{text}:{GRPC_PORT}")


def _listed(raw: Any) -> list[str]:
    parts = raw if isinstance(raw, list | tuple) else str(raw).split(",")
    return [str(part).strip() for part in parts if str(part).strip()]


def _roles(raw: Any) -> tuple[ServerRole, ...]:
    names = _listed(raw)
    unknown = sorted(set(names) - set(ServerRole))
    if unknown or not names:
        shown = ", ".join(unknown) or "nothing"
        raise ValueError(f"{shown} is not among the roles {', '.join(ServerRole)}")
    return tuple(role for role in ServerRole if role in names)


def _duration(raw: Any) -> timedelta:
    return parse_duration(str(raw))


def _number(what: str, least: int, most: int) -> Callable[[Any], int]:
    def read(raw: Any) -> int:
        text = str(raw)
        number = int(text) if text.isdecimal() else least - 1
        if not least <= number <= most:
            raise ValueError(f'"{raw}" is not a number of {what} ({least}–{most})')
        return number

    return read


def _labels(raw: Any) -> Mapping[str, str]:
    labels = _pairs(raw)
    texts = [text for pair in labels.items() for text in pair]
    if len(labels) > MAX_LABELS or max(map(len, texts), default=0) > MAX_NAME:
        raise ValueError(f"at most {MAX_LABELS} labels of {MAX_NAME} characters are allowed")
    if WORKER in labels:
        raise ValueError(f'"{WORKER}" is a label that each worker has already: its name')
    return labels


def _resources(raw: Any) -> Mapping[str, int]:
    """Parse amounts by name, in thousandths."""
    resources = {name: parse_named_amount(name, text) for name, text in _pairs(raw).items()}
    if len(resources) > MAX_LABELS or max(map(len, resources), default=0) > MAX_NAME:
        raise ValueError(f"at most {MAX_LABELS} resources of {MAX_NAME} characters are allowed")
    return resources


def _pool_max(raw: Any) -> Mapping[str, int]:
    """Parse amounts by pool/name, in thousandths."""
    pairs = _pairs(raw)
    for where in pairs:
        pool, slash, name = where.partition("/")
        if not (pool and slash and name):
            raise ValueError(f"{where} is not POOL/NAME, such as linux/cpu=16")
    return {
        where: parse_named_amount(where.partition("/")[2], text) for where, text in pairs.items()
    }


def _pairs(raw: Any) -> Mapping[str, str]:
    if isinstance(raw, Mapping):
        return {str(key): str(value) for key, value in raw.items()}
    pairs = [part.partition("=") for part in str(raw).split(",") if part.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise ValueError(f'"{raw}" is not key=value,key=value')
    return {key.strip(): value.strip() for key, _, value in pairs}


def _choice(*allowed: str) -> Callable[[Any], str]:
    def read(raw: Any) -> str:
        if raw not in allowed:
            raise ValueError(f'"{raw}" is not one of {", ".join(allowed)}')
        return str(raw)

    return read


def _address(what: str, *schemes: str) -> Callable[[Any], str]:
    def read(raw: Any) -> str:
        text = str(raw)
        if text and not text.startswith(schemes):
            shown = without_secrets(text)
            raise ValueError(f'"{shown}" is no address of {what}: use {", ".join(schemes)}')
        return text

    return read


def _queue(raw: Any) -> str:
    text = "" if raw == "store" else str(raw)
    scheme, separator, _ = text.partition("://")
    if not text or scheme in _OWN_QUEUES:
        return text
    if not separator or scheme not in other_queues():
        shown = without_secrets(text)
        raise ValueError(
            f'"{shown}" is no address of a queue: use nats:// or postgresql://, leave it empty for'
            f" the store itself, or install a package with the entry point {QUEUE_ENTRY_POINTS}"
        )
    return text


def other_queues() -> frozenset[str]:
    """Return the schemes of queues that installed packages bring."""
    return frozenset(entry_points(group=QUEUE_ENTRY_POINTS).names)


READERS: Mapping[str, Callable[[Any], Any]] = {
    "home": _path,
    "listen": _listen,
    "grpc_listen": _listen_or_off,
    "public_url": _public_url,
    "trusted_proxies": _networks,
    "max_streams": _number("streams", 1, 1_000_000),
    "max_streams_per_caller": _number("streams", 1, 1_000_000),
    "store": _address("a store", SQLITE, *(f"{scheme}://" for scheme in POSTGRES_SCHEMES)),
    "store_pool": _number("connections", 1, 1_000),
    "default_isolation": _choice("", "process", "sandbox"),
    "blobs": _address("a blob store", FILES, "s3://", "gs://", "az://"),
    "queue": _queue,
    "roles": _roles,
    "pool_max": _pool_max,
    "server_name": _text,
    "zone": _text,
    "server_lease": _duration,
    "tls_cert": _file,
    "tls_key": _file,
    "tls_ca": _file,
    "secrets_key": _key_ring,
    "secrets_key_command": _command,
    "oidc_issuer": _issuer,
    "oidc_client_id": _text,
    "oidc_client_secret": _text,
    "oidc_scopes": _scopes,
    "oidc_groups_claim": _pointer,
    "oidc_admin_groups": _names,
    "oidc_audience": _text,
    "oidc_access_token_typ": _choice(AT_JWT, JWT),
    "oidc_client_ids": _names,
    "session_lifetime": _duration,
    "session_idle": _duration,
    "lease": _duration,
    "server": _servers,
    "worker_token": _text,
    "join_token": _text,
    "worker_name": _text,
    "slots": _number("slots", 1, 10_000),
    "pool": _text,
    "labels": _labels,
    "resources": _resources,
    "app": _text,
    "executors": _names,
    "namespace": _choice("auto", "require", "off"),
    "stop_grace": _duration,
    "sandbox_binds": lambda raw: walls.binds(_listed(raw)),
    "sandbox_uids": walls.uids,
    "sandbox_networks": lambda raw: walls.networks(_listed(raw)),
    "sandbox_network_host": walls.switch,
    "run_as": _names,
    "disk_floor": walls.size,
    "container_engine": walls.engine,
    "container_mounts": lambda raw: parse_roots(_listed(raw)),
    "container_registries": _file,
    "container_network_host": walls.switch,
    "http_slots": _number("http slots", 0, 10_000),
    "http_secrets": _file,
    "git_credentials": _file,
    "git_known_hosts": _file,
    "git_authorities": _file,
    "git_http": walls.switch,
    "git_mirrors": walls.size,
    "source_limit": walls.size,
    "source_files": _number("files", 1, 10_000_000),
    "source_timeout": _duration,
    "outgoing_networks": lambda raw: walls.outgoing_networks(_listed(raw)),
    "log_level": _choice("debug", "info", "warning", "error"),
    "url": _text,
    "token": _text,
}


def shown(name: str, value: Any) -> str:
    """Format a value as `rota config show` prints it, without secrets."""
    if name in _SECRETS:
        return "(set)" if value else ""
    match value:
        case None:
            return ""
        case timedelta():
            return format_duration(value)
        case _ if name == "http_slots":
            return str(value)
        case _ if name in walls.MEANINGS or name in ("git_http", "git_mirrors", "source_limit"):
            return walls.shown(value)
        case tuple():
            return ",".join(map(str, value))
        case Mapping() if name in ("resources", "pool_max"):
            amounts = [(key, format_amount(key.rpartition("/")[2], value[key])) for key in value]
            return ",".join(f"{key}={amount}" for key, amount in amounts)
        case Mapping():
            return ",".join(f"{key}={item}" for key, item in value.items())
        case _:
            return without_secrets(str(value))


def without_secrets(address: str) -> str:
    """Hide passwords and tokens of an address; rather too much than too little."""

    def hide(found: re.Match[str]) -> str:
        is_user = found["rest"].startswith(":") or (not found["rest"] and found["scheme"] != "nats")
        user = found["user"] if is_user else _HIDDEN
        password = f":{_HIDDEN}" if is_user and found["rest"] else ""
        return f"{found['scheme']}://{user}{password}@"

    return _SECRET_PARAMETERS.sub(rf"\1{_HIDDEN}", _CREDENTIALS.sub(hide, address))

"""Every setting of this machine's Rota: what it means, how its text is read and shown."""

from __future__ import annotations

import os
import pwd
import re
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rota.domain.errors import Denied, Unavailable
from rota.domain.lease import DEFAULT_LEASE, LONE_SERVER_LEASE, SERVER_LEASE
from rota.domain.quantities import format_duration, parse_duration
from rota.domain.resources import SLOTS, format_amount, parse_amount
from rota.guardian import NamespaceWish
from rota.ports.work import MAX_LABELS, MAX_NAME

SQLITE = "sqlite:///"
FILES = "file://"
DEFAULT_GRPC_LISTEN = "127.0.0.1:7701"
GRPC_PORT = 7701


class ServerRole(StrEnum):
    """Duty of a server; each can be switched off."""

    GATEWAY = "gateway"  # REST and gRPC for people and programs
    SCHEDULER = "scheduler"  # fires what is due
    DISPATCHER = "dispatcher"  # workers connect to it


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of this machine's Rota."""

    home: Path = Path(".rota")
    listen: str = "127.0.0.1:7700"
    grpc_listen: str = ""
    store: str = field(default="", repr=False)
    store_pool: int = 6
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
    lease: timedelta = DEFAULT_LEASE
    server: tuple[str, ...] = ()
    worker_token: str = field(default="", repr=False)
    worker_name: str = ""
    slots: int = 4
    pool: str = "default"
    labels: Mapping[str, str] | None = None
    resources: Mapping[str, int] | None = None  # thousandths by name
    app: str = ""
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
    def name(self) -> str:
        """Return the worker's name."""
        if self.worker_name:
            return self.worker_name
        return socket.gethostname() if self.server else f"{socket.gethostname()}-local"


# What each setting means: shown by `rota config show` and in the reference.
MEANINGS: Mapping[str, str] = {
    "home": "folder for all data",
    "listen": "host:port of the API; beyond loopback only with tls_cert and tls_key",
    "grpc_listen": "host:port of gRPC for workers and clients; empty: off in rota up,"
    f" {DEFAULT_GRPC_LISTEN} in rota server",
    "store": "the durable truth: sqlite:///PATH (default: in home) or postgresql://…",
    "store_pool": "PostgreSQL connections for the API; leases and firing have others",
    "blobs": "output and files: file://PATH (default: in home), s3://, gs:// or az://BUCKET/PREFIX",
    "queue": "wake-ups between servers: nats://HOST[,HOST…] or postgresql://…, without a pooler;"
    " empty: the store itself",
    "roles": "what a server does: gateway, scheduler, dispatcher, separated by commas",
    "pool_max": "most that one run may ask of its worker, as linux/cpu=16,linux/memory=64GiB;"
    " a job that asks for more is refused (default: no such limit)",
    "server_name": "name of the server (default: host name)",
    "zone": "where the server or worker stands; a worker has it as label zone",
    "server_lease": "how long the schedules of a dead server wait for it (default: 5s on a shared"
    " store, 30s alone)",
    "tls_cert": "certificate chain that the server shows, a PEM file",
    "tls_key": "private key of tls_cert, a PEM file",
    "tls_ca": "authorities that workers, CLI and SDK trust, a PEM file (default: the system's)",
    "lease": "how long a silent worker keeps its runs",
    "server": "host:port of the server a worker serves, several separated by commas; without a port"
    f" {GRPC_PORT} (default: the one of home)",
    "worker_token": "token of the worker, from rota worker token create",
    "worker_name": "name of the worker (default: host name, with -local for the server of home)",
    "slots": "attempts a worker runs at once",
    "pool": "pool the worker serves",
    "labels": "labels of the worker, key=value separated by commas",
    "resources": "what the worker offers, as cpu=4,memory=8GiB,licence=2 (default: the cores"
    " and the memory that it may use)",
    "app": "MODULE:app whose Python functions the worker serves",
    "namespace": "process namespace of the guardian: auto, require or off",
    "stop_grace": "how long attempts may finish after a stop",
    "log_level": "debug, info, warning or error",
    "url": "server that the CLI and SDK talk to (default: the one of home)",
    "token": "token of the CLI and SDK (default: the one of home)",
}


# What Rota itself keeps directly in the data folder. Other files there may be anybody's business:
# in a container it is also the home folder of the jobs' user.
_KEPT = (
    *("rota.db", "rota.db-wal", "rota.db-shm", "rota.db-journal", "rota.lock"),
    *("client.json", "local.token", "run", "workers", "blobs"),
)
_CHANGEABLE_BY_OTHERS = 0o022
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600


def worker_socket(home: Path) -> Path:
    """Return the socket where workers of this machine reach the server of this data folder."""
    return home.absolute() / "run" / "worker.sock"


def client_file(home: Path) -> Path:
    """Return the file with address and token for the CLI and SDK of the same user."""
    return home / "client.json"


def token_file(home: Path) -> Path:
    """Return the file with the client file's token, kept from one start to the next."""
    return home / "local.token"


def worker_folder(home: Path, worker: str) -> Path:
    """Return the folder that a worker of this machine keeps between starts."""
    return home / "workers" / worker


def secure_home(home: Path) -> None:
    """Create the data folder, or check an existing one.

    Raise `Denied` if another user owns or may change it or what Rota keeps in it; `Unavailable` if
    it cannot be created.
    """
    _make_private(home)
    _mend_modes(home, *(home / name for name in _KEPT))
    check_home(home)


def secure_worker_folder(home: Path, worker: str) -> Path:
    """Create or check the folder of a worker, with the errors of `secure_home`."""
    folder = worker_folder(home, worker)
    secure_home(home)
    _make_private(folder.parent)
    _make_private(folder)
    _mend_modes(home, folder)
    _refuse_foreign(folder)
    return folder


def check_home(home: Path) -> None:
    """Check a data folder that need not exist, with the errors of `secure_home`; change nothing."""
    for path in (home, *(home / name for name in _KEPT)):
        if os.path.lexists(path):
            _refuse_foreign(path)


def exchangeable_at(home: Path) -> str:
    """Return a parent folder that lets another user replace this data folder; "": none.

    That is no reason to refuse: root in a container often works in a folder of somebody outside.
    """
    for folder in home.absolute().parents:
        status = folder.stat() if folder.exists() else None
        if status and status.st_uid not in (os.geteuid(), 0):
            return f"{folder} belongs to {_user(status.st_uid)}"
        if status and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"{folder} may be changed by everybody"
    return ""


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically by one that only its owner can read."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)  # of a server that was killed; a link itself, not its target
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def read_private(path: Path) -> str:
    """Read a file that `write_private` wrote; raise `OSError` also if it is a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        return file.read().strip()


def _mend_modes(home: Path, *paths: Path) -> None:
    """Take from others the right to change what is ours, in a folder that they cannot enter.

    Earlier versions made some of it with whatever mode the umask allowed.
    """
    around = home.lstat()
    if around.st_uid != os.geteuid() or around.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return
    for path in paths:
        found = path.lstat() if os.path.lexists(path) else None
        if found and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
            path.chmod(stat.S_IMODE(found.st_mode) & ~_CHANGEABLE_BY_OTHERS)


def _make_private(folder: Path) -> None:
    # Each folder by itself: `parents` makes those above with the modes that the umask allows.
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"the data folder {folder} cannot be used: {error.strerror}",
            hint="make it writable, free some space, or set ROTA_HOME to another folder",
        ) from error


def _refuse_foreign(path: Path) -> None:
    for status in _stats(path):
        if status.st_uid not in (os.geteuid(), 0):
            raise Denied(
                f"{path} is not used: it belongs to {_user(status.st_uid)}, {_mode(status)}, and"
                f" this is {_user(os.geteuid())}",
                code="unsafe_home",
                hint="set ROTA_HOME to a folder of your own, or remove this one if nobody needs it",
            )
        if _is_changeable_by_others(status):
            raise Denied(
                f"{path} is not used: others than its owner {_user(status.st_uid)} may change it,"
                f" {_mode(status)}",
                code="unsafe_home",
                hint=f"if you trust what is in it: chmod go-w {path}",
            )


def _stats(path: Path) -> Iterator[os.stat_result]:
    """Yield the stat of the path itself, and of its target if it is a link."""
    status = path.lstat()
    yield status
    if stat.S_ISLNK(status.st_mode) and path.exists():
        yield path.stat()


def _is_changeable_by_others(status: os.stat_result) -> bool:
    # The mode of a link means nothing, and who may replace it is told by its folder.
    return not stat.S_ISLNK(status.st_mode) and bool(status.st_mode & _CHANGEABLE_BY_OTHERS)


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}"


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


QUEUE_ENTRY_POINTS = "rota.queues"
POSTGRES_SCHEMES = ("postgresql", "postgres")
MEMORY = "memory"
_OWN_QUEUES = ("nats", *POSTGRES_SCHEMES)
_HIDDEN = "***"
_SECRETS = frozenset({"token", "worker_token"})
_CREDENTIALS = re.compile(r"(?P<scheme>\w+)://(?P<user>[^:@/]*)(?P<rest>.*)@")
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
    return labels


def _resources(raw: Any) -> Mapping[str, int]:
    """Parse amounts by name, in thousandths."""
    resources = {name: _amount(name, text) for name, text in _pairs(raw).items()}
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
    return {where: _amount(where.partition("/")[2], text) for where, text in pairs.items()}


def _amount(name: str, text: str) -> int:
    if name == SLOTS:
        raise ValueError("slots are not among the resources: the setting slots says how many")
    if name == MEMORY and text.isdecimal():
        raise ValueError(f"{name}={text} has no unit: write a size such as {text}GiB")
    try:
        return parse_amount(text)
    except ValueError as error:
        raise ValueError(f"{name}={text} is {error}") from error


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
    "store": _address("a store", SQLITE, *(f"{scheme}://" for scheme in POSTGRES_SCHEMES)),
    "store_pool": _number("connections", 1, 1_000),
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
    "lease": _duration,
    "server": _servers,
    "worker_token": _text,
    "worker_name": _text,
    "slots": _number("slots", 1, 10_000),
    "pool": _text,
    "labels": _labels,
    "resources": _resources,
    "app": _text,
    "namespace": _choice("auto", "require", "off"),
    "stop_grace": _duration,
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
        case tuple():
            return ",".join(value)
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

"""Settings, read in one place: flags, then environment, then files, then defaults."""

from __future__ import annotations

import difflib
import os
import socket
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from rota.domain.durations import format_duration, parse_duration
from rota.domain.errors import Invalid, Problem
from rota.domain.lease import MAX_LEASE, MIN_LEASE
from rota.guardian import NamespaceWish

_FILES = (Path("rota.toml"), Path("~/.config/rota/rota.toml"), Path("/etc/rota/rota.toml"))
_PREFIX = "ROTA_"
_FROM_FILE = "_FILE"  # ROTA_TOKEN_FILE: read the value from that file
# Not settings, but what Rota tells jobs and its own processes: `rota` may well be called by a job.
_TOLD_BY_ROTA = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        *("RUN_ID", "JOB", "PROJECT", "DUE_AT", "ATTEMPT", "FENCE", "CART", "ITEM"),
        *("OUTPUT", "PROGRESS", "GUARD_KEY", "GUARDIAN_FD", "GUARDIAN_KILL_FD"),
    )
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of this machine's Rota."""

    home: Path = Path(".rota")
    listen: str = "127.0.0.1:7700"
    store: str = ""
    blobs: str = ""
    queue: str = ""
    lease: timedelta = timedelta(seconds=30)
    worker_name: str = ""
    slots: int = 4
    pool: str = "default"
    labels: Mapping[str, str] | None = None
    app: str = ""
    namespace: NamespaceWish = "auto"
    stop_grace: timedelta = timedelta(seconds=10)
    log_level: str = "info"
    url: str = ""
    token: str = ""

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def store_path(self) -> Path:
        """The SQLite file."""
        address = self.store or f"sqlite:///{self.home.absolute()}/rota.db"
        return Path(address.removeprefix("sqlite:///"))

    @property
    def blobs_path(self) -> Path:
        address = self.blobs or f"file://{self.home.absolute()}/blobs"
        return Path(address.removeprefix("file://"))

    @property
    def name(self) -> str:
        return self.worker_name or f"{socket.gethostname()}-local"


# What each setting means: shown by `rota config show` and in the reference.
MEANINGS: Mapping[str, str] = {
    "home": "folder for all data",
    "listen": "host:port of the API; loopback only until TLS and login are configured",
    "store": "the durable truth: sqlite:///PATH (default: in home)",
    "blobs": "output and files: file://PATH (default: in home)",
    "queue": "wake-ups between servers; empty: the store itself",
    "lease": "how long a silent worker keeps its runs",
    "worker_name": "name of the worker (default: host name with -local)",
    "slots": "attempts a worker runs at once",
    "pool": "pool the worker serves",
    "labels": "labels of the worker, key=value separated by commas",
    "app": "MODULE:app whose Python functions the worker serves",
    "namespace": "process namespace of the guardian: auto, require or off",
    "stop_grace": "how long attempts may finish after a stop",
    "log_level": "debug, info, warning or error",
    "url": "server that the CLI and SDK talk to (default: the one of home)",
    "token": "token of the CLI and SDK (default: the one of home)",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting's value and where it came from."""

    name: str
    value: str
    origin: str  # flag, environment variable, file, default


def load(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """The settings in force. `Invalid` has every problem found."""
    return load_with_origins(flags, environ)[0]


def load_with_origins(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Settings, list[Origin]]:
    """The settings in force and where each came from."""
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    found: dict[str, tuple[Any, str]] = {}
    for layer in (_file_layer(problems), _environment_layer(environ, problems), _flag_layer(flags)):
        found.update(layer)
    values = {}
    for name, (raw, origin) in found.items():
        try:
            values[name] = _READERS[name](raw)
        except ValueError as error:
            problems.append(Problem(f"{error}", path=f"{name} ({origin})"))
    settings = replace(Settings(), **values)
    problems += _relations(settings)
    if problems:
        raise Invalid("the settings are not usable", problems, code="bad_settings")
    origins = {name: origin for name, (_, origin) in found.items()}
    return settings, [
        Origin(f.name, _shown(f.name, getattr(settings, f.name)), origins.get(f.name, "default"))
        for f in fields(Settings)
    ]


def _flag_layer(flags: Mapping[str, Any] | None) -> dict[str, tuple[Any, str]]:
    return {name: (value, "flag") for name, value in (flags or {}).items() if value is not None}


def _environment_layer(
    environ: Mapping[str, str], problems: list[Problem]
) -> dict[str, tuple[Any, str]]:
    layer: dict[str, tuple[Any, str]] = {}
    problems += _unknown_variables(environ)
    for name in MEANINGS:
        variable = _variable(name)
        if variable in environ:
            layer[name] = environ[variable], variable
        elif (path := environ.get(variable + _FROM_FILE)) is not None:
            try:
                layer[name] = Path(path).read_text("utf-8").strip(), variable + _FROM_FILE
            except OSError as error:
                problems.append(Problem(f"{path}: {error.strerror}", path=variable + _FROM_FILE))
    return layer


def _unknown_variables(environ: Mapping[str, str]) -> list[Problem]:
    settings = [_variable(name) for name in MEANINGS]
    known = {*settings, *(variable + _FROM_FILE for variable in settings), *_TOLD_BY_ROTA}
    return [
        Problem("unknown setting", path=variable, hint=_nearest(variable, known))
        for variable in sorted(environ)
        if variable.startswith(_PREFIX) and variable not in known
    ]


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f'did you mean "{near[0]}"?' if near else "rota config show lists the settings"


def _file_layer(problems: list[Problem]) -> dict[str, tuple[Any, str]]:
    layer: dict[str, tuple[Any, str]] = {}
    for path in reversed(_FILES):
        path = path.expanduser()
        if not path.is_file():
            continue
        try:
            content = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            problems.append(Problem(f"cannot be read: {error}", path=str(path)))
            continue
        for name, value in content.items():
            if name in MEANINGS:
                layer[name] = value, str(path)
            else:
                hint = _nearest(name, MEANINGS)
                problems.append(Problem(f'unknown setting "{name}"', path=str(path), hint=hint))
    return layer


def config_files() -> list[Path]:
    """Where settings files are looked for, the strongest first."""
    return [path.expanduser().absolute() for path in _FILES]


def _text(raw: Any) -> str:
    return str(raw)


def _listen(raw: Any) -> str:
    host, colon, port = str(raw).rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'"{raw}" is not host:port')
    return f"{host or '127.0.0.1'}:{port}"


def _duration(raw: Any) -> timedelta:
    return parse_duration(str(raw))


def _slots(raw: Any) -> int:
    try:
        number = int(str(raw))
    except ValueError:
        number = 0
    if not 1 <= number <= 10_000:
        raise ValueError(f'"{raw}" is not a number of slots (1–10000)')
    return number


def _labels(raw: Any) -> Mapping[str, str]:
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


def _address(kind: str, *schemes: str) -> Callable[[Any], str]:
    def read(raw: Any) -> str:
        text = str(raw)
        if text and not text.startswith(schemes):
            raise ValueError(
                f'{kind} "{text}" is not available in this version: {" or ".join(schemes)}PATH'
            )
        return text

    return read


def _queue(raw: Any) -> str:
    if raw not in ("", "store"):
        raise ValueError(f'queue "{raw}" is not available in this version: leave it empty')
    return ""


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "home": lambda raw: Path(str(raw)).expanduser(),
    "listen": _listen,
    "store": _address("store", "sqlite:///"),
    "blobs": _address("blobs", "file://"),
    "queue": _queue,
    "lease": _duration,
    "worker_name": _text,
    "slots": _slots,
    "pool": _text,
    "labels": _labels,
    "app": _text,
    "namespace": _choice("auto", "require", "off"),
    "stop_grace": _duration,
    "log_level": _choice("debug", "info", "warning", "error"),
    "url": _text,
    "token": _text,
}


def _relations(settings: Settings) -> list[Problem]:
    problems = []
    if not MIN_LEASE <= settings.lease <= MAX_LEASE:
        shown = format_duration(settings.lease)
        problems.append(Problem(f"lease {shown} must be between 1s and 24h", path="lease"))
    if not is_loopback(settings.host):
        problems.append(
            Problem(
                f"listening on {settings.host} would expose Rota without TLS",
                path="listen",
                hint="use 127.0.0.1, and a reverse proxy or an SSH tunnel from elsewhere",
            )
        )
    return problems


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(name: str, value: Any) -> str:
    if name == "token":
        return "(set)" if value else ""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return "" if value is None else str(value)

"""How the text of a setting is read, and how its value is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rota.domain.quantities import format_duration, parse_duration
from rota.domain.resources import SLOTS, format_amount, parse_amount
from rota.ports.work import MAX_LABELS, MAX_NAME
from rota.runtime.settings import FILES, GRPC_PORT, SQLITE, ServerRole

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
    """Thousandths by name."""
    resources = {name: _amount(name, text) for name, text in _pairs(raw).items()}
    if len(resources) > MAX_LABELS or max(map(len, resources), default=0) > MAX_NAME:
        raise ValueError(f"at most {MAX_LABELS} resources of {MAX_NAME} characters are allowed")
    return resources


def _pool_max(raw: Any) -> Mapping[str, int]:
    """Thousandths by pool/name."""
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
    """Schemes of queues that installed packages bring."""
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
    """A value as `rota config show` prints it: secrets are not in it."""
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
    """An address with passwords and tokens hidden; rather too much than too little."""

    def hide(found: re.Match[str]) -> str:
        is_user = found["rest"].startswith(":") or (not found["rest"] and found["scheme"] != "nats")
        user = found["user"] if is_user else _HIDDEN
        password = f":{_HIDDEN}" if is_user and found["rest"] else ""
        return f"{found['scheme']}://{user}{password}@"

    return _SECRET_PARAMETERS.sub(rf"\1{_HIDDEN}", _CREDENTIALS.sub(hide, address))

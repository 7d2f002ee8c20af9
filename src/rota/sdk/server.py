"""Which server a client speaks to, and with which token."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from rota.sdk.errors import Invalid, Unreachable

CONNECTION_FILE = "client.json"
_DEFAULT_HOME = ".rota"
_WHAT_TO_DO = "start one with `rota up`, or set ROTA_URL and ROTA_TOKEN"


@dataclass(frozen=True, slots=True)
class Server:
    url: str  # scheme, host and port, perhaps a prefix; no slash at the end
    token: str | None = field(default=None, repr=False)
    authorities: str | None = None  # PEM file of those who may vouch for it; None: the usual ones


def find_server(
    url: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Server:
    """The server meant by the arguments, else by the environment, else the one on this machine.

    The token that `rota up` left on this machine is only ever sent to that server.
    """
    environ = os.environ if environ is None else environ
    found = _found(url, token, environ)
    return replace(found, authorities=environ.get("ROTA_TLS_CA") or None)


def _found(url: str | None, token: str | None, environ: Mapping[str, str]) -> Server:
    url = url or environ.get("ROTA_URL")
    token = token or environ.get("ROTA_TOKEN") or None
    if url and token:
        return Server(_checked(url), token)
    local = _local_server(Path(environ.get("ROTA_HOME") or _DEFAULT_HOME))
    if url:
        wanted = _checked(url)
        return local if local and local.url == wanted else Server(wanted)
    if local is None:
        raise Unreachable("no Rota server is known here", code="no_server", hint=_WHAT_TO_DO)
    return Server(local.url, token or local.token)


def _local_server(home: Path) -> Server | None:
    """The server that `rota up` noted in its data folder; None if there is no such note."""
    path = home / CONNECTION_FILE
    try:
        note = json.loads(path.read_text())
        return Server(_checked(str(note["url"])), str(note["token"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise Unreachable(
            f"{path} may not be read", hint="it belongs to whoever runs `rota up`"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, Invalid) as error:
        raise Unreachable(f"{path} is not readable as a server's note", hint=_WHAT_TO_DO) from error


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise Invalid(f'"{url}" is not the address of a server', hint="http://127.0.0.1:7700")
    return url.rstrip("/")

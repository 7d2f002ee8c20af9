"""Sessions that `rota login` opened, kept by the address of their server and for no other."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rota.sdk.errors import Denied, Invalid

CREDENTIALS_FILE = Path("~/.config/rota/credentials.json")
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
_OPEN_TO_OTHERS = 0o077


def credentials_path() -> Path:
    return CREDENTIALS_FILE.expanduser()


def read_credentials() -> dict[str, str]:
    """Return tokens by the address of their server; empty if nobody has logged in.

    Raise `Denied` if others own the file or may look at it, `Invalid` if it cannot be read.
    """
    path = credentials_path()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    with os.fdopen(descriptor, encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & _OPEN_TO_OTHERS:
            raise Denied(
                f"{path} is not used: it is not yours alone",
                code="unsafe_credentials",
                hint=f"chmod 600 {path}, or remove it and log in again",
            )
        return _tokens_in(path, file.read())


def _tokens_in(path: Path, text: str) -> dict[str, str]:
    try:
        servers = json.loads(text)["servers"]
        return {str(url): str(kept["token"]) for url, kept in servers.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, "it is not what rota login writes") from error


def save_credential(url: str, token: str) -> None:
    """Keep the token of a server, in a file that only its owner can read."""
    _write({**read_credentials(), url: token})


def drop_credential(url: str) -> None:
    """Forget the token of a server, if there is one."""
    kept = read_credentials()
    if kept.pop(url, None) is not None:
        _write(kept)


def _write(tokens: Mapping[str, str]) -> None:
    path = credentials_path()
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    document = {"servers": {url: {"token": token} for url, token in sorted(tokens.items())}}
    with os.fdopen(os.open(temporary, flags, _PRIVATE_FILE), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
    temporary.replace(path)


def _unreadable(path: Path, why: str) -> Invalid:
    return Invalid(
        f"{path} cannot be read: {why}",
        code="bad_credentials_file",
        hint="remove it and log in again with `rota login`",
    )

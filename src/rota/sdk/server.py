"""Choice of the server that a client connects to, and of the token it sends.

Each of the settings `url`, `token` and `tls_ca` comes from the strongest place that has it: an
argument, the environment, a settings file, else what `rota up` noted in its data folder. Strong is
not trusted: a settings file in the current folder wins over the user's own, but may be anybody's.
So a token goes only to an address that is at least as trusted as the token itself.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.sdk.credentials import CREDENTIALS_FILE, read_credentials
from rota.sdk.errors import Denied, Invalid, Unreachable

CONNECTION_FILE = "client.json"
PREFIX = "ROTA_"
FROM_FILE = "_FILE"  # ROTA_TOKEN_FILE: read the value from that file
_DEFAULT_HOME = ".rota"
_CHANGEABLE_BY_OTHERS = 0o022
_WHAT_TO_DO = (
    "start one with `rota up`, or go to the folder where one runs (ROTA_HOME names its .rota);"
    " elsewhere log in with `rota login --url`, or set ROTA_URL and ROTA_TOKEN"
)
NO_SESSIONS: Mapping[str, str] = {}


class Source(IntEnum):
    """Origin of a value; the higher, the more trusted."""

    CURRENT_FOLDER = 1  # whoever can write there: ./rota.toml, and ./.rota that nobody named
    SYSTEM_FILE = 2  # root: /etc/rota/rota.toml
    USER_FILE = 3  # the user: ~/.config/rota/rota.toml
    DATA_FOLDER = 4  # the user's `rota up`: client.json of a data folder that is named
    ENVIRONMENT = 5  # whoever started this process
    ARGUMENT = 6  # who calls this very function or command


# The strongest first.
SETTINGS_FILES: Mapping[Source, Path] = {
    Source.CURRENT_FOLDER: Path("rota.toml"),
    Source.USER_FILE: Path("~/.config/rota/rota.toml"),
    Source.SYSTEM_FILE: Path("/etc/rota/rota.toml"),
}


@dataclass(frozen=True, slots=True)
class Value:
    """Text of a setting and where it comes from."""

    text: str = field(repr=False)
    source: Source
    origin: str  # a variable, a file, an argument: for people


@dataclass(frozen=True, slots=True)
class Note:
    """Client file of `rota up` in its data folder. Its token is for its server only."""

    url: Value
    token: Value


@dataclass(frozen=True, slots=True)
class Connection:
    """Values in force."""

    url: Value | None = None  # None: no server is known
    token: Value | None = None  # None: no token is known
    authorities: Value | None = None  # None: the usual ones
    is_withheld: bool = False  # the token must not go to that address
    ignored: Value | None = None  # authorities that may not vouch for that address


@dataclass(frozen=True, slots=True)
class Server:
    url: str  # scheme, host and port, perhaps a prefix; no slash at the end
    token: str | None = field(default=None, repr=False)
    authorities: str | None = None  # PEM file of those who may vouch for it; None: the usual ones


def may_send(token: Source, url: Source) -> bool:
    """Return whether a token may go to an address: one of the same or a more trusted source.

    Otherwise anybody who can write ./rota.toml or ./.rota would get the tokens of all who work
    there.
    """
    return url >= token


def may_vouch(authorities: Source, url: Source) -> bool:
    """Return whether authorities verify the certificate of an address.

    Those of the current folder do so only for an address of the same folder: they could pass off
    anybody as any other server.
    """
    return authorities > Source.CURRENT_FOLDER or url == Source.CURRENT_FOLDER


def decide(
    urls: Iterable[Value],
    tokens: Iterable[Value],
    authorities: Iterable[Value],
    note: Note | None,
    sessions: Mapping[str, str] = NO_SESSIONS,
) -> Connection:
    """Decide which values are in force; the strongest come first, and empty means unset.

    `sessions` has the tokens that people got by `rota login`, by the address of their server.
    """
    url = _strongest(urls) or (note.url if note else None) or _only_server(sessions)
    if url is None:
        return Connection(token=_strongest(tokens))
    offered = tuple(authorities)
    allowed = _strongest(it for it in offered if may_vouch(it.source, url.source))
    is_noted = note is not None and note.url.text == url.text
    token = (
        _strongest(tokens)
        or _session(sessions, url, allowed)
        or (note.token if note and is_noted else None)
    )
    ignored = next((it for it in offered if not may_vouch(it.source, url.source)), None)
    is_withheld = token is not None and not may_send(token.source, url.source)
    return Connection(url, token, allowed, is_withheld, ignored)


def _only_server(sessions: Mapping[str, str]) -> Value | None:
    """Return the server that somebody is logged in to, if it is one and no other is named."""
    if len(sessions) != 1:
        return None
    return Value(next(iter(sessions)), Source.USER_FILE, str(CREDENTIALS_FILE))


def _session(sessions: Mapping[str, str], url: Value, vouching: Value | None) -> Value | None:
    """Return the token of the session with this very server, whoever names it.

    Unless authorities of the current folder vouch for it: they could pass off anybody as it.
    """
    if url.text not in sessions or (vouching and vouching.source is Source.CURRENT_FOLDER):
        return None
    return Value(sessions[url.text], url.source, str(CREDENTIALS_FILE))


def find_server(
    url: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Server:
    """Find the server of the arguments, else of the settings, else the one on this machine.

    Raise `Unreachable` if none is known, `Denied` if the token may not be sent to it.
    """
    found = resolve(url, token, environ)
    if found.url is None:
        raise Unreachable("no Rota server is known here", code="no_server", hint=_WHAT_TO_DO)
    refuse_withheld(found)
    return Server(
        found.url.text,
        found.token.text if found.token else None,
        found.authorities.text if found.authorities else None,
    )


def refuse_withheld(found: Connection) -> None:
    """Raise `Denied` if there is a token that must not go to the address."""
    token, url = found.token, found.url
    if not (found.is_withheld and token and url):
        return
    is_argument = token.source is Source.ARGUMENT
    where = "pass the address as an argument too" if is_argument else f"set ROTA_URL={url.text}"
    raise Denied(
        f"the token of {token.origin} is not sent to {url.text}, an address that comes from"
        f" {url.origin}",
        code="token_withheld",
        hint="a token goes only to an address from the same or a more trusted place: if it is for"
        f" that server, {where}; else name the server that it is for",
    )


def resolve(
    url: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Connection:
    """Read all sources, and decide; raise `Invalid` if one of them cannot be read."""
    environ = os.environ if environ is None else environ
    files = list(_settings_files())
    # Only the strongest is checked: what it hides may be wrong without harm.
    urls = [_checked_value(it) for it in islice(_values("url", url, environ, files), 1)]
    tokens = list(_values("token", token, environ, files))
    authorities = [_as_path(it) for it in _values("tls_ca", None, environ, files)]
    note, sessions = None, NO_SESSIONS
    if not (_strongest(urls) and _strongest(tokens)):
        home = next(_values("home", None, environ, files), None)
        note = _read_note(home, is_needed=_strongest(urls) is None)
        sessions = read_credentials()
    return decide(urls, tokens, authorities, note, sessions)


def from_environment(name: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return a setting's text and the variable that has it, or that names its file.

    Raise `OSError` or `ValueError` if that file cannot be read.
    """
    variable = PREFIX + name.upper()
    if variable in environ:
        return environ[variable], variable
    if (path := environ.get(variable + FROM_FILE)) is not None:
        return Path(path).read_text("utf-8").strip(), variable + FROM_FILE
    return None


def read_settings_file(path: Path) -> dict[str, Any]:
    """Read a settings file; empty if missing. Raise `OSError` or `ValueError` if unreadable."""
    if not path.is_file():
        return {}
    import tomllib  # few have such a file, and a command line cannot wait

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        _, _, place = str(error).rpartition(" (at ")
        raise ValueError(
            f'not valid TOML at {place.rstrip(")")}: write NAME = "text", NAME = 3 or NAME = true'
        ) from error


_File = tuple[Source, str, Mapping[str, Any]]  # its name and what it says


def _settings_files() -> Iterator[_File]:
    for source, path in SETTINGS_FILES.items():
        path = path.expanduser()
        try:
            yield source, str(path), read_settings_file(path)
        except (OSError, ValueError) as error:
            raise Invalid(
                f"the settings in {path.absolute()} cannot be read: {error}",
                code="bad_settings",
                hint="mend or remove the file",
            ) from error


def _values(
    name: str, argument: str | None, environ: Mapping[str, str], files: Iterable[_File]
) -> Iterator[Value]:
    """Yield a setting from wherever it is set, the strongest first."""
    if argument:
        yield Value(argument, Source.ARGUMENT, f"the argument {name}")
    try:
        told = from_environment(name, environ)
    except (OSError, ValueError) as error:
        variable = PREFIX + name.upper() + FROM_FILE
        raise Invalid(
            f"{environ[variable]} cannot be read: {error}",
            code="bad_settings",
            hint=f"{variable} names it",
        ) from error
    if told is not None:
        yield Value(told[0], Source.ENVIRONMENT, told[1])
    for source, file, content in files:
        if name in content:
            yield Value(str(content[name]), source, file)


def _strongest(values: Iterable[Value]) -> Value | None:
    found = next(iter(values), None)
    return found if found and found.text else None


def _read_note(home: Value | None, *, is_needed: bool) -> Note | None:
    """Read the client file of `rota up` in the data folder; None if there is none.

    Raise `Denied` if it is another user's, unless it is not needed to know the address.
    """
    folder = Path(home.text if home and home.text else _DEFAULT_HOME).expanduser()
    path = folder / CONNECTION_FILE
    source = _source_of_note(home, folder)
    try:
        _refuse_foreign(folder, path)
        note = json.loads(path.read_text("utf-8"))
        return Note(
            Value(_checked(str(note["url"])), source, str(path)),
            Value(str(note["token"]), source, str(path)),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Denied:
        if is_needed:
            raise
        return None
    except PermissionError as error:
        raise Unreachable(
            f"{path} may not be read", hint="it belongs to whoever runs `rota up`"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, Invalid) as error:
        raise Unreachable(f"{path} is not readable as a server's note", hint=_WHAT_TO_DO) from error


def _source_of_note(home: Value | None, folder: Path) -> Source:
    """Return how trusted the note is: as its folder's name, which may be relative to anywhere."""
    if home is None or not folder.is_absolute():
        return Source.CURRENT_FOLDER
    return min(home.source, Source.DATA_FOLDER)


def _refuse_foreign(*paths: Path) -> None:
    """Raise `Denied` if others own a path, or may change what it leads to."""
    for path in paths:
        found = path.stat()
        owners = {path.lstat().st_uid, found.st_uid}  # of a link, and of what it leads to
        if owners - {os.geteuid(), 0} or found.st_mode & _CHANGEABLE_BY_OTHERS:
            raise Denied(
                f"{path} is not used: it belongs to uid {max(owners)}, mode"
                f" {stat.S_IMODE(found.st_mode):04o}, and this is uid {os.geteuid()}",
                code="unsafe_home",
                hint="set ROTA_URL and ROTA_TOKEN, or ROTA_HOME to a folder of your own",
            )


def _as_path(value: Value) -> Value:
    return replace(value, text=str(Path(value.text).expanduser())) if value.text else value


def _checked_value(value: Value) -> Value:
    return replace(value, text=_checked(value.text)) if value.text else value


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise Invalid(f'"{url}" is not the address of a server', hint="http://127.0.0.1:7700")
    return url.rstrip("/")

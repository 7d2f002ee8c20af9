"""Settings, read in one place: flags, then environment, then files, then defaults."""

from __future__ import annotations

import difflib
import operator
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from rota.domain.errors import Invalid, Problem
from rota.domain.identity import JWT
from rota.domain.lease import MAX_LEASE, MIN_LEASE
from rota.domain.quantities import format_duration
from rota.runtime.home import credential_file, worker_folder
from rota.runtime.settings import HTTPS, MEANINGS, READERS, Settings, shown
from rota.sdk.errors import RotaApiError
from rota.sdk.server import (
    FROM_FILE,
    PREFIX,
    SETTINGS_FILES,
    Connection,
    Source,
    from_environment,
    may_send,
    may_vouch,
    read_settings_file,
    resolve,
)

_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")
_MIN_SESSION, _MAX_SESSION = timedelta(minutes=1), timedelta(days=30)
_OF_PROVIDER = (
    *("oidc_client_id", "oidc_client_secret", "oidc_groups_claim", "oidc_admin_groups"),
    *("oidc_audience", "oidc_client_ids"),
)
_MAX_SERVER_LEASE = timedelta(minutes=5)  # schedules of a dead server wait this long
# Not settings, but what Rota tells jobs and its own processes: `rota` may well be called by a job.
_TOLD_BY_ROTA = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("RUN_ID", "JOB", "PROJECT", "DUE_AT", "ATTEMPT", "FENCE", "CART", "ITEM"),
        *("OUTPUT", "PROGRESS", "GUARD_KEY", "GUARDIAN_FD", "GUARDIAN_KILL_FD"),
    )
)
_OF_COMMANDS = frozenset({f"{PREFIX}TZ"})  # how commands print: nothing that runs depends on it


@dataclass(frozen=True, slots=True)
class Origin:
    """Value of a setting and where it came from."""

    name: str
    value: str
    origin: str  # flag, environment variable, file, default


def load(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Load the settings in force; raise `Invalid` with every problem found."""
    return load_with_origins(flags, environ)[0]


def load_with_origins(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Settings, list[Origin]]:
    """Load the settings in force, and return where each came from."""
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    found: dict[str, tuple[Any, str]] = {}
    for layer in (_file_layer(problems), _environment_layer(environ, problems), _flag_layer(flags)):
        found.update(layer)
    values = {}
    for name, (raw, origin) in found.items():
        try:
            values[name] = READERS[name](raw)
        except ValueError as error:
            problems.append(Problem(f"{error}", path=f"{name} ({origin})"))
    settings = replace(Settings(), **values)
    origins = {name: origin for name, (_, origin) in found.items()}
    problems += [*_relations(settings), *_withheld(settings, origins)]
    if "oidc_issuer" not in found.keys() - values.keys():  # else one complaint is enough
        problems += _logins(settings)
    if problems:
        raise Invalid("the settings are not usable", problems, code="bad_settings")
    if not may_vouch(_source(origins.get("tls_ca")), _source(origins.get("server"))):
        settings = replace(settings, tls_ca=None)
    return settings, [
        Origin(f.name, shown(f.name, getattr(settings, f.name)), origins.get(f.name, "default"))
        for f in fields(Settings)
    ]


def is_set(name: str) -> bool:
    """Return whether a file or the environment says what this setting is."""
    return any(each.name == name and each.origin != "default" for each in load_with_origins()[1])


def _withheld(settings: Settings, origins: Mapping[str, str]) -> Iterator[Problem]:
    """Tell what its place is not trusted with.

    A token of workers goes only to servers that as trusted a place names, as all tokens do. A
    command of the current folder would run with `rota doctor` in whatever one has downloaded.
    """
    yield from _withheld_tokens(settings, origins)
    command = origins.get("secrets_key_command")
    if command and _is_of_folder(command):
        yield Problem(
            "the secrets_key_command of the current folder is not run: whoever wrote the file may"
            " be anybody",
            path=command,
            hint="set ROTA_SECRETS_KEY_COMMAND, or write it to ~/.config/rota/rota.toml",
        )


def _withheld_tokens(settings: Settings, origins: Mapping[str, str]) -> Iterator[Problem]:
    server = origins.get("server")
    if not server:
        return
    for name in ("worker_token", "join_token"):
        token = origins.get(name)
        if token and not may_send(_source(token), _source(server)):
            yield _not_sent(f"the {name} of {token}", server)
    # What a worker got when it joined is in its data folder: one that is elsewhere, and named by
    # somebody else than the current folder, is not for servers that only this one names.
    credential = credential_file(worker_folder(settings.home, settings.name))
    is_elsewhere = settings.home.is_absolute() and not _is_of_folder(origins.get("home"))
    if is_elsewhere and _is_of_folder(server) and os.path.lexists(credential):
        yield _not_sent(f"the credential in {credential}", server)


def _is_of_folder(origin: str | None) -> bool:
    return _source(origin) is Source.CURRENT_FOLDER


def _not_sent(what: str, server: str) -> Problem:
    return Problem(
        f"{what} is not sent to the server that {server} names",
        path=server,
        hint="name the server with --server or ROTA_SERVER",
    )


def _source(origin: str | None) -> Source:
    """How trusted a place is; what nobody says is nobody's to change."""
    if origin is None or origin == "flag":
        return Source.ARGUMENT
    for source, path in SETTINGS_FILES.items():
        if origin == str(path.expanduser()):
            return source
    return Source.ENVIRONMENT


def shown_with_origins(environ: Mapping[str, str] | None = None) -> list[Origin]:
    """List the settings for people; server and token are those that the CLI and SDK would use."""
    _, settings = load_with_origins(environ=environ)
    try:
        found = resolve(environ=environ)
    except RotaApiError:  # a note of `rota up` that cannot be used: `rota doctor` tells about it
        return settings
    used = _connection(found)
    return [used.get(setting.name, setting) for setting in settings]


def _connection(found: Connection) -> dict[str, Origin]:
    shown_as: dict[str, Origin] = {}
    if found.url is not None:
        shown_as["url"] = Origin("url", shown("url", found.url.text), found.url.origin)
    if found.token is not None:
        is_sent = "(set, but not sent to this url)" if found.is_withheld else "(set)"
        shown_as["token"] = Origin("token", is_sent, found.token.origin)
    if found.ignored is not None and found.url is not None:
        origin = f"{found.ignored.origin}, not for the url of {found.url.origin}"
        shown_as["tls_ca"] = Origin("tls_ca", found.ignored.text, origin)
    return shown_as


def _flag_layer(flags: Mapping[str, Any] | None) -> dict[str, tuple[Any, str]]:
    return {name: (value, "flag") for name, value in (flags or {}).items() if value is not None}


def _environment_layer(
    environ: Mapping[str, str], problems: list[Problem]
) -> dict[str, tuple[Any, str]]:
    layer: dict[str, tuple[Any, str]] = {}
    problems += _unknown_variables(environ)
    for name in MEANINGS:
        try:
            told = from_environment(name, environ)
        except (OSError, ValueError) as error:
            variable = _variable(name) + FROM_FILE
            problems.append(Problem(f"{environ[variable]}: {_reason(error)}", path=variable))
        else:
            if told is not None:
                layer[name] = told
    return layer


def _unknown_variables(environ: Mapping[str, str]) -> list[Problem]:
    settings = [_variable(name) for name in MEANINGS]
    known = {*settings, *(variable + FROM_FILE for variable in settings)}
    known |= _TOLD_BY_ROTA | _OF_COMMANDS
    names = {variable.removeprefix(PREFIX) for variable in known}
    return [
        Problem(
            "unknown setting",
            path=variable,
            hint=_nearest(variable.removeprefix(PREFIX), names, prefix=PREFIX),
        )
        for variable in sorted(environ)
        if variable.startswith(PREFIX) and variable not in known
    ]


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f'did you mean "{prefix}{near[0]}"?' if near else "rota config show lists the settings"


def _file_layer(problems: list[Problem]) -> dict[str, tuple[Any, str]]:
    layer: dict[str, tuple[Any, str]] = {}
    for path in reversed(_files()):
        try:
            content = read_settings_file(path)
        except (OSError, ValueError) as error:
            problems.append(Problem(f"cannot be read: {error}", path=str(path)))
            continue
        if content and (owner := _foreign_owner(path)) is not None:
            hint = "work in a folder of your own, or remove the file"
            problem = f"is not used: uid {owner} owns it or may change it, and this is another user"
            problems.append(Problem(problem, path=str(path.absolute()), hint=hint))
            continue
        for name, value in content.items():
            if name in MEANINGS:
                layer[name] = value, str(path)
            else:
                hint = _nearest(name, MEANINGS)
                problems.append(Problem(f'unknown setting "{name}"', path=str(path), hint=hint))
    return layer


def _foreign_owner(path: Path) -> int | None:
    """Which other user could have written a file of settings; None: nobody but us and root.

    It names the store, and code that is imported: whoever writes it acts as who runs Rota.
    """
    for each in (path.absolute().parent, path):
        found = each.stat()
        if found.st_uid not in (os.geteuid(), 0):
            return found.st_uid
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return found.st_uid
    return None


def config_files() -> list[Path]:
    """List the paths of settings files, the strongest first."""
    return [path.absolute() for path in _files()]


def _files() -> list[Path]:
    return [path.expanduser() for path in SETTINGS_FILES.values()]


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def cloud_credentials(environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the variables by which object stores are usually configured."""
    environ = os.environ if environ is None else environ
    return {name: value for name, value in environ.items() if name.startswith(_CLOUDS)}


def _relations(settings: Settings) -> list[Problem]:
    problems = [
        *_lease_bounds("lease", settings.lease, MAX_LEASE),
        *_lease_bounds("worker_lease", settings.worker_lease or settings.lease, MAX_LEASE),
        *_lease_bounds("server_lease", settings.renewed_within, _MAX_SERVER_LEASE),
        *_certificate(settings),
        *_swapped_mounts(settings),
    ]
    if not settings.is_secure and not settings.is_behind_tls:
        problems += _exposed("listen", settings.listen, settings)
        problems += _exposed("grpc_listen", settings.grpc_listen, settings)
    if settings.secrets_key and settings.secrets_key_command:
        problem = "secrets_key and secrets_key_command exclude one another"
        problems.append(Problem(problem, path="secrets_key_command"))
    return problems


def _lease_bounds(name: str, lease: timedelta, most: timedelta) -> Iterator[Problem]:
    if not MIN_LEASE <= lease <= most:
        bounds = f"between {format_duration(MIN_LEASE)} and {format_duration(most)}"
        yield Problem(f"lease {format_duration(lease)} must be {bounds}", path=name)


def _swapped_mounts(settings: Settings) -> Iterator[Problem]:
    """Refuse mounts of containers in whose place jobs in sandboxes could put a link."""
    for bind in filter(operator.attrgetter("writable"), settings.sandbox_binds):
        for root in settings.container_mounts:
            is_inside = bind.path in root.path.parents
            is_open = bind.path == root.path or root.path in bind.path.parents
            if is_inside or (is_open and not root.writable):
                problem = f"sandboxes may write to {bind.path}, and put links there"
                hint = "let them read it only, or mount another folder"
                yield Problem(f"{root}: {problem}", path="container_mounts", hint=hint)


def _certificate(settings: Settings) -> Iterator[Problem]:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        missing = "tls_key" if settings.tls_key is None else "tls_cert"
        yield Problem("tls_cert and tls_key go together", path=missing)


def _logins(settings: Settings) -> Iterator[Problem]:
    """Tell what keeps people from logging in, or strangers from being kept out."""
    if not settings.oidc_issuer:
        named = [name for name in _OF_PROVIDER if getattr(settings, name)]
        yield from (Problem("it needs oidc_issuer", path=name) for name in named)
        return
    if not settings.oidc_client_id:
        yield Problem("oidc_issuer needs it", path="oidc_client_id")
    yield from _admin_groups(settings)
    if settings.oidc_audience and settings.oidc_access_token_typ == JWT:
        yield from _plain_access_tokens(settings)
    if settings.session_idle > settings.session_lifetime:
        yield Problem("it is longer than session_lifetime", path="session_idle")
    for name in ("session_idle", "session_lifetime"):
        if not _MIN_SESSION <= getattr(settings, name) <= _MAX_SESSION:
            bounds = f"{format_duration(_MIN_SESSION)} and {format_duration(_MAX_SESSION)}"
            yield Problem(f"it must be between {bounds}", path=name)


def _admin_groups(settings: Settings) -> Iterator[Problem]:
    """Refuse groups that no token can name."""
    told = [it for it in settings.oidc_admin_groups if not it.startswith(("hd:", "email:"))]
    if told and not settings.oidc_groups_claim:
        hint = "set oidc_groups_claim, or name hd:DOMAIN or email:ADDRESS"
        yield Problem(f"no token tells who is in {told[0]}", "oidc_admin_groups", hint=hint)


def _plain_access_tokens(settings: Settings) -> Iterator[Problem]:
    """Tell what is needed to know access tokens from ID tokens, where both are called JWT."""
    if settings.oidc_audience == settings.oidc_client_id:
        problem = "with oidc_access_token_typ jwt it must not be oidc_client_id"
        yield Problem(f"{problem}: ID tokens have that audience", path="oidc_audience")
    if not settings.oidc_client_ids:
        yield Problem("oidc_access_token_typ jwt needs it", path="oidc_client_ids")


def _exposed(name: str, listen: str, settings: Settings) -> Iterator[Problem]:
    host = host_of(listen)
    if listen and not is_loopback(host):
        yield Problem(
            f"listening on {host} would expose Rota without TLS",
            path=name,
            hint=f"set tls_cert and tls_key, or use 127.0.0.1; if a proxy before it ends TLS, set"
            f" {_missing_for_proxies(settings)}",
        )


def _missing_for_proxies(settings: Settings) -> str:
    """Name what else a server behind a proxy on another machine needs."""
    https = "public_url to where people reach it (https://…)"
    if settings.public_url.startswith(HTTPS):
        return "trusted_proxies to its networks"
    if settings.trusted_proxies:
        return https
    return f"trusted_proxies to its networks and {https}"


def host_of(address: str) -> str:
    """Return the host of host:port, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

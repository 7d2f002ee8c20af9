"""`rota doctor`: checks everything Rota depends on and says what to mend."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rota.api.answers import Health
from rota.clock import SystemClock
from rota.domain.errors import Denied as UntrustedHome
from rota.domain.errors import Invalid as BadSettings
from rota.domain.errors import NotFound, RotaError
from rota.domain.ids import instant
from rota.domain.quantities import format_duration
from rota.guardian import guardian_command
from rota.runtime.backends import needing_extra, open_blobs, probe_blobs
from rota.runtime.config import host_of, port_of
from rota.runtime.home import check_home, client_file, exchangeable_at, worker_socket
from rota.runtime.key_ring import load_key_ring
from rota.runtime.settings import FILES, POSTGRES_SCHEMES, Settings, without_secrets
from rota.sdk.errors import Denied, Invalid, NotRota, RotaApiError, Unreachable
from rota.sdk.exchange import Call, Request, read, request_for
from rota.sdk.principals import list_advice
from rota.sdk.server import Server, find_server, refuse_withheld, resolve
from rota.sdk.tokens import whoami
from rota.sdk.transport import Transport
from rota.store.script import StoreInspection
from rota.store.sqlite.driver import OLDEST_SQLITE


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    subject: str
    verdict: Verdict
    message: str
    advice: str = ""


_ANSWER_SECONDS = 3.0
_HEALTH = Call(Health, "GET", "/readyz")
_READY = Request("GET", "/readyz", {}, None, is_repeatable=True)


def look_at_api(environ: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Check that the server of the settings is ready, and as whom it knows us."""
    try:
        server = find_server(environ=environ)
        with closing(Transport(server, _ANSWER_SECONDS)) as transport:
            yield _readiness(server, transport)
            yield _caller(server, transport)
            yield from _advice(server, transport)
    except (Invalid, NotRota, Unreachable) as error:
        yield Finding("server", Verdict.PROBLEM, error.message, error.hint)
    except Denied as error:
        yield Finding("token", Verdict.PROBLEM, error.message, error.hint)


def look_at_token(environ: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Check whether a token is withheld from the server of the data folder; nothing is sent."""
    try:
        refuse_withheld(resolve(environ=environ))
    except Denied as error:
        yield Finding("token", Verdict.PROBLEM, error.message, error.hint)
    except (Invalid, Unreachable):  # reported by the check of the data folder
        return


def _readiness(server: Server, transport: Transport) -> Finding:
    reply = transport.exchange(_READY)
    status = reply.status
    if status == 200:
        read(_HEALTH, reply)
        return Finding("server", Verdict.OK, f"{server.url} is ready")
    message = f"{server.url} is not ready (status {status})"
    return Finding("server", Verdict.WARNING, message, "look at its log; is it a server of Rota?")


def _caller(server: Server, transport: Transport) -> Finding:
    call = whoami()
    try:
        caller = read(call, transport.exchange(request_for(call, server, None)))
    except (NotRota, Unreachable):
        raise
    except RotaApiError as error:
        return Finding("token", Verdict.PROBLEM, error.message, error.hint)
    return Finding("token", Verdict.OK, f"{caller.name}, {caller.role or 'without a role'}")


def look_at_advice(environ: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Tell what the server of the data folder advises."""
    try:
        server = find_server(environ=environ)
        with closing(Transport(server, _ANSWER_SECONDS)) as transport:
            yield from _advice(server, transport)
    except RotaApiError:  # reported by the other checks
        return


def _advice(server: Server, transport: Transport) -> Iterator[Finding]:
    """Tell what to tighten, to whom the server tells it: admins of the installation."""
    call = list_advice()
    try:
        found = read(call, transport.exchange(request_for(call, server, None)))
    except RotaApiError:
        return
    for each in found.items:
        verdict = Verdict.OK if each.is_note else Verdict.WARNING
        yield Finding(each.subject, verdict, each.message, each.action)


_CLOCK_TOLERANCE = timedelta(seconds=2)


def look_at_store(settings: Settings) -> Iterator[Finding]:
    """Check that the store can be reached and is intact, and how far off its clock is."""
    try:
        found = _inspection(settings)
    except NotFound:
        yield Finding("store", Verdict.OK, "not created yet (rota up creates it)")
    except RotaError as error:
        advice = error.hint or ("restore it from a backup" if settings.is_alone else "")
        yield Finding("store", Verdict.PROBLEM, _shown(settings, str(error)), advice)
    else:
        yield _soundness(found)
        if found.now is not None:
            yield _clock(settings, found.now)


def _inspection(settings: Settings) -> StoreInspection:
    if settings.is_alone:
        from rota.store.sqlite.opening import inspect_sqlite

        return inspect_sqlite(settings.store_path)
    return _look_at_postgres(settings.store)


def _look_at_postgres(address: str) -> StoreInspection:
    with needing_extra():
        from rota.store.postgres.opening import inspect_postgres
    return asyncio.run(inspect_postgres(address))


def _shown(settings: Settings, message: str) -> str:
    place = str(settings.store_path) if settings.is_alone else without_secrets(settings.store)
    return message if place in message else f"{place}: {message}"


def _soundness(found: StoreInspection) -> Finding:
    if found.damage:
        message = f"{found.place} is damaged: {found.damage}"
        return Finding("store", Verdict.PROBLEM, message, "restore a backup")
    schema = f"schema {found.schema}" if found.schema else "empty; the first server fills it"
    return Finding("store", Verdict.OK, f"{found.place}, {schema}")


def _clock(settings: Settings, store_now: int) -> Finding:
    ahead = instant(store_now) - SystemClock().now()
    if ahead > _CLOCK_TOLERANCE:
        return Finding(
            "clock",
            Verdict.WARNING,
            f"the store's clock is {format_duration(ahead)} ahead of this machine's",
            "check the time service; Rota never goes back and waits until the clock caught up",
        )
    if not settings.is_alone and -ahead > _CLOCK_TOLERANCE:  # a file only notes the latest time
        message = f"this machine's clock is {format_duration(-ahead)} ahead of the store's"
        return Finding("clock", Verdict.WARNING, message, "check the time service of both")
    return Finding("clock", Verdict.OK, "this machine's clock is not behind the store's")


def look_at_queue(settings: Settings) -> Iterator[Finding]:
    """Check that a server of the queue answers; without it Rota works, a little later."""
    if not settings.queue:
        message = "none is set: servers wake one another through the store"
        yield Finding("queue", Verdict.OK, message)
        return
    try:
        yield _queue(settings.queue)
    except RotaError as error:
        message = f"{without_secrets(settings.queue)}: {error}"
        yield Finding("queue", Verdict.WARNING, message, error.hint or "runs start later without")


def _queue(address: str) -> Finding:
    scheme = address.partition("://")[0]
    if scheme == "nats":
        with needing_extra():
            from rota.queue.nats_connection import inspect_nats
        return Finding("queue", Verdict.OK, asyncio.run(inspect_nats(address)))
    if scheme not in POSTGRES_SCHEMES:
        return Finding("queue", Verdict.OK, f"{without_secrets(address)}, not asked")
    found = _look_at_postgres(address)
    if found.is_pooled:
        advice = "set ROTA_QUEUE to the address of PostgreSQL itself: LISTEN needs it"
        return Finding("queue", Verdict.WARNING, found.place, advice)
    return Finding("queue", Verdict.OK, found.place)


def look_at_blobs(settings: Settings) -> Iterator[Finding]:
    """Check that a bucket answers; a folder was checked with the data folder."""
    if not settings.blobs or settings.blobs.startswith(FILES):
        if settings.is_alone:
            yield Finding("blobs", Verdict.OK, f"files in {settings.blobs_path}")
        else:
            message = f"files in {settings.blobs_path}, which other servers may not see"
            yield Finding("blobs", Verdict.WARNING, message, "set ROTA_BLOBS to an object store")
        return
    try:
        asyncio.run(_ask_bucket(settings))
    except RotaError as error:
        message = f"{settings.blobs}: {error}"
        yield Finding("blobs", Verdict.PROBLEM, message, error.hint)
    else:
        yield Finding("blobs", Verdict.OK, f"{settings.blobs} answers")


async def _ask_bucket(settings: Settings) -> None:
    blobs = await open_blobs(settings)
    try:
        await probe_blobs(blobs)
    finally:
        await blobs.close()


def look_at_rpc(settings: Settings) -> Iterator[Finding]:
    """Check that the servers that this machine's worker connects to can be reached."""
    yield from _missing_driver(settings)
    for address in settings.server:
        try:
            with socket.create_connection((host_of(address), port_of(address)), _ANSWER_SECONDS):
                yield Finding("gRPC", Verdict.OK, f"{address} answers")
        except OSError as error:
            message = f"{address} does not answer: {error}"
            yield Finding("gRPC", Verdict.WARNING, message, "check ROTA_SERVER and the network")


def _missing_driver(settings: Settings) -> Iterator[Finding]:
    try:
        with needing_extra():
            if settings.server or settings.grpc_listen:
                import grpc  # noqa: F401 (only whether it is there)
    except RotaError as error:
        yield Finding("gRPC", Verdict.PROBLEM, error.message, error.hint)


def look_at_key_ring(settings: Settings) -> Iterator[Finding]:
    """Check that the key ring can be loaded, and which key seals."""
    try:
        ring = asyncio.run(load_key_ring(settings))
    except BadSettings as error:
        message = "; ".join([error.message, *map(str, error.problems)])
        yield Finding("key ring", Verdict.PROBLEM, message, error.hint)
        return
    if ring is not None:
        others = f", {len(ring.ids) - 1} more open what is older" if len(ring.ids) > 1 else ""
        yield Finding("key ring", Verdict.OK, f"the key {ring.ids[0]} seals{others}")
    elif settings.is_alone:
        yield Finding("key ring", Verdict.OK, "not made yet (rota up makes it)")
    else:
        message = "none: what would be secret in the store is not kept, such as refresh tokens"
        advice = "set secrets_key or secrets_key_command, the same for all servers"
        yield Finding("key ring", Verdict.WARNING, message, advice)


def look_at_proxies(settings: Settings) -> Iterator[Finding]:
    """Check that a server with a public address knows the proxies before it."""
    if settings.public_url and not settings.trusted_proxies:
        message = f"people come by {settings.public_url}, and no proxy is trusted: all of them seem"
        yield Finding(
            "proxies",
            Verdict.WARNING,
            f"{message} to come from the proxy's address",
            "set trusted_proxies to the networks of the proxies",
        )
    elif settings.trusted_proxies:
        networks = ", ".join(map(str, settings.trusted_proxies))
        yield Finding("proxies", Verdict.OK, f"forwarded headers are believed from {networks}")


_LITTLE_SPACE = 256 * 1024 * 1024
_GUARDIAN_SECONDS = 10
_SERVER_SECONDS = 2


def run(settings: Settings, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Run all checks; nothing is changed. `environ` is what the CLI and SDK would use."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _python,
        _folder,
        look_at_store,
        look_at_queue,
        look_at_blobs,
        look_at_rpc,
        look_at_key_ring,
        look_at_proxies,
        _zones,
        partial(_server, environ=environ),
        _guardian,
    )
    return [finding for check in checks for finding in check(settings)]


def _python(settings: Settings) -> Iterator[Finding]:
    shown = f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield Finding("python", Verdict.PROBLEM, shown, "SQLite 3.38 or later is needed")
    else:
        yield Finding("python", Verdict.OK, shown)


def _folder(settings: Settings) -> Iterator[Finding]:
    home = settings.home.absolute()
    existing = next(path for path in (home, *home.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield Finding(
            "data folder", Verdict.PROBLEM, f"{existing} is not writable", "set ROTA_HOME"
        )
        return
    try:
        check_home(home)
    except UntrustedHome as error:
        yield Finding("data folder", Verdict.PROBLEM, error.message, error.hint)
        return
    if where := exchangeable_at(home):
        message = f"{where}: another folder could be put in place of {home}"
        yield Finding("data folder", Verdict.WARNING, message, "set ROTA_HOME to a safer place")
        return
    free = shutil.disk_usage(existing).free
    message = f"{home}, {free // 2**20} MiB free"
    if free < _LITTLE_SPACE:
        yield Finding("data folder", Verdict.WARNING, message, "free some space")
    else:
        yield Finding("data folder", Verdict.OK, message)


def _zones(settings: Settings) -> Iterator[Finding]:
    names = zoneinfo.available_timezones()
    if "Europe/Berlin" in names:
        yield Finding("time zones", Verdict.OK, f"{len(names)} zones known")
    else:
        yield Finding("time zones", Verdict.PROBLEM, "no tz database", "pip install tzdata")


def _server(settings: Settings, environ: Mapping[str, str] | None) -> Iterator[Finding]:
    if settings.url:
        yield from look_at_api(environ)
        return
    yield from look_at_token(environ)
    path = client_file(settings.home)
    try:
        note = json.loads(path.read_text("utf-8"))
        url, pid = str(note["url"]), int(note["pid"])
    except (FileNotFoundError, NotADirectoryError):
        message = "none runs on this data folder, and no ROTA_URL names another"
        yield Finding("server", Verdict.WARNING, message, "start one with: rota up")
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} cannot be read: {error}"
        yield Finding("server", Verdict.WARNING, message, "it is rota up's: start that again")
    else:
        server = _noted_server(url, pid, worker_socket(settings.home))
        yield server
        if server.verdict is Verdict.OK:
            yield from look_at_advice(environ)


def _noted_server(url: str, pid: int, worker: Path) -> Finding:
    if not _is_alive(pid):
        message = f"the one on {url} (pid {pid}) was killed"
        return Finding("server", Verdict.WARNING, message, "start it again with: rota up")
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), _SERVER_SECONDS):
            pass
    except OSError as error:
        message = f"{url} (pid {pid}) does not answer: {error}"
        return Finding("server", Verdict.WARNING, message, "look at its log; restart it")
    state = "reachable" if worker.exists() else "missing"
    return Finding("server", Verdict.OK, f"answers on {url} (pid {pid}); worker socket {state}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, and there
        return True
    return True


def _guardian(settings: Settings) -> Iterator[Finding]:
    command = guardian_command(["/bin/true"], namespace="require")
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=_GUARDIAN_SECONDS, check=False
    )
    if ended.returncode == 0:
        yield Finding("guardian", Verdict.OK, "process namespaces work: no job survives its worker")
    else:
        yield Finding(
            "guardian",
            Verdict.WARNING,
            "no process namespaces here: if guardian and keeper are all killed at the very same"
            " time, jobs may survive them until the worker starts again",
            "run as root, or allow user namespaces",
        )

"""What `rota doctor` finds out about store, queue, blobs and gRPC; nothing is written."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from datetime import timedelta

from rota.adapters.clock import SystemClock
from rota.adapters.store.inspection import StoreInspection
from rota.domain.durations import format_duration
from rota.domain.errors import NotFound, RotaError
from rota.domain.ids import instant
from rota.runtime.backends import needing_extra, open_blobs
from rota.runtime.blob_probe import ask_for_nothing
from rota.runtime.config import host_of, port_of
from rota.runtime.findings import Finding, Verdict
from rota.runtime.setting_values import POSTGRES_SCHEMES, without_secrets
from rota.runtime.settings import FILES, Settings

_CLOCK_TOLERANCE = timedelta(seconds=2)
_ANSWER_SECONDS = 3.0


def look_at_store(settings: Settings) -> Iterator[Finding]:
    """Whether it can be reached and is whole, and how its clock stands."""
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
        from rota.adapters.store.sqlite.inspection import inspect_sqlite

        return inspect_sqlite(settings.store_path)
    return _look_at_postgres(settings.store)


def _look_at_postgres(address: str) -> StoreInspection:
    with needing_extra():
        from rota.adapters.store.postgres.inspection import inspect_postgres
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
    """Whether a server of it answers; Rota works without, a little later."""
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
            from rota.adapters.queue.nats_inspection import inspect_nats
        return Finding("queue", Verdict.OK, asyncio.run(inspect_nats(address)))
    if scheme not in POSTGRES_SCHEMES:
        return Finding("queue", Verdict.OK, f"{without_secrets(address)}, not asked")
    found = _look_at_postgres(address)
    if found.is_pooled:
        advice = "set ROTA_QUEUE to the address of PostgreSQL itself: LISTEN needs it"
        return Finding("queue", Verdict.WARNING, found.place, advice)
    return Finding("queue", Verdict.OK, found.place)


def look_at_blobs(settings: Settings) -> Iterator[Finding]:
    """Whether a bucket answers; a folder was looked at with the data folder."""
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
        await ask_for_nothing(blobs)
    finally:
        await blobs.close()


def look_at_rpc(settings: Settings) -> Iterator[Finding]:
    """Whether the servers that this machine's worker dials can be reached."""
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

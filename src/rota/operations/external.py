"""Work of other systems: begun, announced, reported, and missed when they are silent."""

from __future__ import annotations

import secrets
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from random import random
from typing import Any

import structlog

from rota.domain.credentials import SecretKind, digest, new_secret
from rota.domain.errors import Conflict, Invalid, NotFound, RotaError
from rota.domain.external import (
    EXTERNAL_SESSION,
    Judgement,
    Notice,
    Occasion,
    StatusReport,
    calls_of,
    check_report,
    next_try,
)
from rota.domain.output import ChunkWriter, Stream
from rota.domain.run import Reason, Run
from rota.domain.spec import EXTERNAL_POOL
from rota.domain.states import LEASED_STATES, RunState, is_final
from rota.operations.engine import Engine
from rota.operations.runs import find_run, no_such_run
from rota.operations.specs import stamp
from rota.operations.tokens import Caller
from rota.ports.external import Announced, Announcement, Message, Reporting, ReportTaken, Sent
from rota.ports.queue import output as output_topic
from rota.ports.records import StoredChunk
from rota.ports.work import ChunkMeta

log = structlog.get_logger()

_BATCH = 100  # attempts, ends or announcements in one transaction
_SENDING = timedelta(seconds=90)  # longer than one call may take
_TELL_OF_CANCEL = timedelta(days=1)
_ERROR_SHOWN = 300  # characters


# --- what servers do by themselves


async def begin_waiting(engine: Engine) -> int:
    """Begin attempts at all runs that wait for no worker; return how many."""
    begun = 0
    while more := await engine.store.begin_external(_BATCH):
        begun += more
    return begun


async def end_silent(engine: Engine) -> int:
    """End what is overdue or cancelled; return how many attempts."""
    ended = 0
    while more := await engine.store.end_silent(_BATCH):
        ended += more
    return ended


async def announce_due(engine: Engine, most: int) -> list[Coroutine[Any, Any, None]]:
    """Return the sendings of what other systems are to be told now, to be awaited side by side.

    Each sends one message once, and raises nothing.
    """
    tokens = [new_secret(SecretKind.REPORT) for _ in range(most)]
    by_digest = {digest(token): token for token in tokens}
    leased = await engine.store.lease_announcements(list(by_digest), _SENDING)
    return [_send(engine, each, by_digest[used]) for each, used in leased]


async def _send(engine: Engine, announcement: Announcement, token: str) -> None:
    """Send one message, and keep how that went; the end of its lease sends what was not kept."""
    try:
        error = await _complaint(engine, announcement, token)
        next_at = await _next_try(engine, announcement) if error else None
        await engine.store.settle_announcements([Sent(announcement.id, error, next_at)])
    except RotaError as away:
        log.warning("announcement.unsettled", run_id=announcement.run, error=away.message)


async def _complaint(engine: Engine, announcement: Announcement, token: str) -> str:
    """Send one message; return why that was in vain, "" if it was not.

    What a project has written can break its own message, but not those of others.
    """
    try:
        await engine.outside.herald.send(await _message(engine, announcement, token))
    except RotaError as refused:
        said = f"{refused.message} — {refused.hint}" if refused.hint else refused.message
        error = said[:_ERROR_SHOWN] or refused.code
        log.warning(
            "announcement.failed",
            run_id=announcement.run,
            attempt=announcement.attempt,
            tries=announcement.tries,
            error=error,
        )
        return error
    except Exception as bug:
        log.error("announcement.broken", run_id=announcement.run, exc_info=bug)
        return f"internal error: {type(bug).__name__}"
    return ""


async def _next_try(engine: Engine, announcement: Announcement) -> datetime | None:
    """Return when to try again; None: a cancel that nobody wants to hear of is given up."""
    now = await engine.store.now()
    next_at = now + next_try(announcement.tries, random())  # noqa: S311 - no secret
    last_at = announcement.made_at + _TELL_OF_CANCEL
    return None if announcement.kind is Notice.CANCEL and next_at > last_at else next_at


async def _message(engine: Engine, announcement: Announcement, token: str) -> Message:
    ref = (announcement.job_id, announcement.job_version)
    spec = (await engine.specs.find(engine.store, [ref])).get(ref)
    calls = dict(calls_of(spec.external)) if spec is not None and spec.external else {}
    if spec is None or announcement.kind not in calls:
        raise NotFound(f"the job of run {announcement.run} says nothing of {announcement.kind}")
    heartbeat = announcement.heartbeat
    usual = {n: each.default for n, each in spec.inputs.items() if each.default is not None}
    occasion = Occasion(
        run=announcement.run,
        attempt=announcement.attempt,
        job=announcement.job,
        project=announcement.project,
        due_at=_stamp(announcement.due_at),
        inputs={**usual, **announcement.inputs},
        report_url=engine.outside.report_url(announcement.run, announcement.project),
        token=token if announcement.kind is Notice.ANNOUNCE else "",
        heartbeat_seconds=None if heartbeat is None else heartbeat.total_seconds(),
        ends_at=_stamp(announcement.ends_at),
    )
    return Message(announcement.id, announcement.kind, calls[announcement.kind], occasion)


def _stamp(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


# --- seen


async def standing(engine: Engine, run: Run) -> tuple[str, list[Reason]]:
    """Say how an attempt stands that goes on: until when it may be silent, and what was told."""
    found = await engine.store.external_attempt(run.id, run.attempt)
    if found is None or found.silent_at is None:
        return "it begins or ends this very moment", []
    due = "the report of its end" if found.silent_at == found.ends_at else "the next report"
    summary = f"another system does it; {due} is due by {stamp(found.silent_at)}"
    return summary, [_not_told(each) for each in found.told if each.sent_at is None]


def _not_told(told: Announced) -> Reason:
    what = "of it" if told.kind is Notice.ANNOUNCE else "of its cancel"
    if not told.error:
        return Reason("announcement", f"the other system is being told {what}")
    tries = "once" if told.tries == 1 else f"{told.tries} times"
    again = f"; again by {stamp(told.next_at)}" if told.next_at else ""
    message = f"the other system was told {what} {tries} in vain: {told.error}{again}"
    return Reason("announcement", message)


def loss_of(run: Run) -> str:
    """Say why nobody knows what became of an attempt."""
    is_external = run.pool == EXTERNAL_POOL
    return run.message if is_external and run.message else "its worker vanished while it ran"


# --- reports


async def reported_run(engine: Engine, caller: Caller, run: str, *, project: str) -> Run:
    """Find the run that a caller reports on; that of a token is the only one there is for it."""
    if caller.reports is None:
        return await find_run(engine, run, project=project)
    if run != caller.reports.run:
        raise no_such_run(run)
    return await find_run(engine, run, project=caller.reports.project)


def said_by(caller: Caller, said: StatusReport) -> StatusReport:
    """Return a report as its caller may make it: with a token, on its attempt, with a number."""
    if caller.reports is None:
        return said
    if said.number is None:
        hint = "count from 1: the same number again is the same report"
        raise Invalid("a report by token needs a number", code="bad_report", hint=hint)
    if said.attempt not in (None, caller.reports.attempt):
        raise Invalid(f"this token is for attempt {caller.reports.attempt}", code="bad_report")
    return replace(said, attempt=caller.reports.attempt)


async def report(engine: Engine, run: Run, said: StatusReport, *, actor: str) -> ReportTaken:
    """Take a report of another system; raise `Conflict` if it changes nothing."""
    check_report(said)
    if run.pool != EXTERNAL_POOL:
        raise _not_external(run)
    if said.attempt is not None and said.attempt > run.attempt:
        raise Conflict(f"run {run.id} has had {run.attempt} attempts", code="no_such_attempt")
    printed = (
        await _printed(engine, run, said.output) if await _may_print(engine, run, said) else None
    )
    taken = await engine.store.report_external(Reporting(run.id, said, actor, printed))
    _require_taken(said, taken)
    engine.queue.announce(output_topic(run.id))  # whoever watches it
    return taken


def _not_external(run: Run) -> Conflict:
    return Conflict(
        f"run {run.id} is not of type external: its worker reports how it stands",
        code="not_external",
        hint=f"rota run show {run.id}",
    )


def _require_taken(said: StatusReport, taken: ReportTaken) -> None:
    match taken.judgement:
        case Judgement.ACCEPTED | Judgement.REPEATED:
            return
        case Judgement.STALE:
            raise Conflict(
                f"report {said.number} is older than {taken.number}, which was accepted",
                code="report_stale",
                hint=f"count on from {taken.number}",
            )
        case Judgement.DIFFERENT:
            raise Conflict(
                f"report {said.number} was accepted, and said something else",
                code="report_differs",
                hint="give each report a number of its own",
            )
        case Judgement.LATE:
            raise _late(said, taken)


def _late(said: StatusReport, taken: ReportTaken) -> Conflict:
    run, state = taken.run, taken.state
    if is_final(state) or state is RunState.UNKNOWN:
        message = f"run {run} has ended: it is {state.lower()}"
    elif said.attempt is not None and said.attempt < taken.attempt:
        message = f"attempt {said.attempt} of run {run} is over: {taken.attempt} has begun"
    else:
        message = f"run {run} is {state.lower()}: no attempt goes on"
    kept = " (kept as a late result)" if said.state.is_final and taken.attempt else ""
    return Conflict(f"{message}{kept}", code="report_late", hint=f"rota run show {run}")


async def _may_print(engine: Engine, run: Run, said: StatusReport) -> bool:
    """Return whether what a report prints may be kept: what is late or repeated leaves nothing.

    What comes between this look and that of the store leaves no more than unnamed bytes.
    """
    attempt = run.attempt if said.attempt is None else said.attempt
    if not said.output or run.state not in LEASED_STATES or attempt != run.attempt:
        return False
    found = await engine.store.external_attempt(run.id, attempt)
    is_open = found is not None and found.silent_at is not None
    return is_open and (said.number is None or found is None or said.number > found.number)


async def _printed(engine: Engine, run: Run, text: str) -> StoredChunk:
    """Put what a report prints into the blob store."""
    now = await engine.store.now()
    writer = ChunkWriter()
    at_ms = int(now.timestamp() * 1000)
    body = text.removesuffix("\n").encode("utf-8", "replace")
    writer.write(at_ms, Stream.STDOUT, 0, body, ends_line=True)
    writer.pack()
    [chunk] = writer.take()
    # A key of its own: a report that turns out to be a repeat leaves nothing but unnamed bytes.
    key = f"runs/{run.id}/{run.attempt}-{EXTERNAL_SESSION}/{secrets.token_hex(8)}"
    await engine.blobs.put(key, chunk.data)
    meta = ChunkMeta(0, 0, chunk.lines, chunk.text_bytes, chunk.first_at_ms, chunk.last_at_ms)
    return StoredChunk(meta, key)

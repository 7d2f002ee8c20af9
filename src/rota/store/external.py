"""Work that other systems do: its attempts, what they report, and what they are told.

The attempts are leased to one session of all servers, which never ends (`EXTERNAL_SESSION`): they
are claimed as a worker's are, so that whatever runs share is taken and given back as for any run.
How long an attempt may go on without a report is a row of `external_attempt`, which is locked with
its run; whichever server finds it overdue ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import structs

from rota.domain.external import (
    EXTERNAL_SESSION,
    Judgement,
    Notice,
    Reported,
    Silence,
    StatusReport,
    judge,
    silence,
)
from rota.domain.ids import JobId, RunId, instant
from rota.domain.job import RunRules
from rota.domain.run import AttemptResult
from rota.domain.spec import EXTERNAL_POOL, Delivery
from rota.domain.states import LEASED_STATES, RunState
from rota.ports.external import (
    Announced,
    Announcement,
    ExternalAttempt,
    ExternalDue,
    Reporting,
    ReportTaken,
    ReportToken,
    Sent,
)
from rota.ports.records import StoredChunk
from rota.ports.work import Fence, Outcome
from rota.store.claims import claim
from rota.store.ends import SILENT, end_attempts
from rota.store.gates import lock_gates_of
from rota.store.rows import from_json, optional_instant, optional_micros, to_json
from rota.store.runs import chunk_values
from rota.store.script import Many, Row, Script, query
from rota.store.tx import Tx, lock_carts, runs_ended

_MICROSECOND = timedelta(microseconds=1)
_LONGEST = timedelta(days=30) // _MICROSECOND  # for a job that has no timeout, though it must
_KEPT = timedelta(days=90) // _MICROSECOND  # how long late reports are told from forged ones


def due(now: int) -> Script[ExternalDue]:
    """Whether there is anything to do: asked often, and nearly always nothing."""
    [row] = yield query("any_external_due", now=now, pool=EXTERNAL_POOL)
    return ExternalDue(bool(row["silent"]), bool(row["announcements"]), bool(row["waiting"]))


def begin(tx: Tx, limit: int) -> Script[int]:
    """Begin attempts at runs that wait for no worker; what is to be told of them is written."""
    claimed = yield from claim(tx, EXTERNAL_SESSION, limit)
    numbers = dict(zip(claimed.batch.runs, claimed.batch.numbers, strict=True))
    if not numbers:
        return 0
    rows = yield query("begun_external", ids=numbers)
    rules = yield from tx.rules.load({_ref(row) for row in rows})
    starts = [(tx.now, row["id"], numbers[row["id"]], EXTERNAL_SESSION) for row in rows]
    yield Many("start_runs", starts)
    begun = [_begun(tx.now, row, numbers[row["id"]], rules[_ref(row)].rules) for row in rows]
    yield Many("insert_external_attempt", begun)
    told = [row for row in rows if Notice.ANNOUNCE in rules[_ref(row)].rules.tells]
    yield from _announce(tx, Notice.ANNOUNCE, {row["id"]: numbers[row["id"]] for row in told})
    tx.record_each("run.started", rows, actor=EXTERNAL_SESSION)
    return len(numbers)


def _ref(row: Row) -> tuple[str, int]:
    return row["job_id"], row["job_version"]


def _begun(now: int, row: Row, number: int, rules: RunRules) -> tuple[object, ...]:
    """Values for `insert_external_attempt`, in its order."""
    timeout = _LONGEST if rules.timeout is None else rules.timeout // _MICROSECOND
    ends_at = now + timeout
    if row["deadline_at"] is not None:
        ends_at = min(ends_at, row["deadline_at"])
    heartbeat = None if rules.heartbeat is None else rules.heartbeat // _MICROSECOND
    return row["id"], number, _look_at(now, ends_at, heartbeat), ends_at, heartbeat


def _look_at(now: int, ends_at: int, heartbeat: int | None) -> int:
    """When the next report has to be there."""
    return ends_at if heartbeat is None else min(ends_at, now + heartbeat)


def _announce(tx: Tx, kind: Notice, attempts: Mapping[str, int]) -> Script[None]:
    """Write what another system is to be told, in the transaction in which it happens."""
    rows = [
        (f"{run}.{number}{'.cancel' if kind is Notice.CANCEL else ''}", kind, run, number, tx.now)
        for run, number in sorted(attempts.items())
    ]
    if rows:
        yield Many("insert_announcement", rows, exactly=False)


# --- reports


def report(tx: Tx, made: Reporting) -> Script[ReportTaken]:
    """Take a report of another system, or say why it does not count."""
    said = made.report
    is_bad_end = said.state.is_final and said.state.result is not AttemptResult.COMPLETED
    carts = (yield from lock_carts([made.run])) if is_bad_end else []
    gates = (yield from lock_gates_of([made.run])) if said.state.is_final else frozenset[str]()
    rows = {row["id"]: row for row in (yield query("runs_to_change", ids=[made.run]))}
    row = rows[made.run]
    attempt = row["attempt"] if said.attempt is None else said.attempt
    found = yield query("external_attempt", run=made.run, attempt=attempt)
    if not found:
        return _taken(Judgement.LATE, row, is_external=row["session"] == EXTERNAL_SESSION)
    held = found[0]
    judgement = judge(said, Reported(held["number"], held["digest"]), is_open=_is_open(row, held))
    if judgement is Judgement.LATE and said.state.is_final:
        yield from _keep_late(tx, row, held, made)
    if judgement is not Judgement.ACCEPTED:
        return _taken(judgement, row, held["number"])
    held = yield from _accepted(tx, row, held, made)
    if said.state.is_final:
        outcome = _outcome(tx.now, row, held, said)
        yield from end_attempts(tx, EXTERNAL_SESSION, [outcome], rows, gates, actor=made.actor)
        yield from runs_ended(tx, carts, gates)
    else:
        yield from _note_progress(row, said)
        tx.record_each(
            "run.reported", [row], actor=made.actor, state=said.state, number=held["number"]
        )
    return _taken(judgement, row, held["number"])


def _is_open(row: Row, held: Row) -> bool:
    return (
        row["session"] == EXTERNAL_SESSION
        and row["attempt"] == held["attempt"]
        and row["state"] in LEASED_STATES
        and held["look_at"] is not None
    )


def _taken(
    judgement: Judgement, row: Row, number: int = 0, *, is_external: bool = True
) -> ReportTaken:
    state = RunState(row["state"])
    return ReportTaken(judgement, RunId(row["id"]), row["attempt"], state, number, is_external)


def _keep_late(tx: Tx, row: Row, held: Row, made: Reporting) -> Script[None]:
    """Keep a report of an end that came too late; the first one of an attempt.

    Whoever has its token may make more of them: they leave nothing behind.
    """
    said = made.report
    known = yield query("select_late_results", run=row["id"])
    if any(late["attempt"] == held["attempt"] for late in known):
        return
    late = (row["id"], held["attempt"], EXTERNAL_SESSION, tx.now, said.state.result, said.message)
    yield Many("insert_late_result", [late], exactly=False)
    tx.record_each("run.late_result", [row], actor=made.actor)


def _accepted(tx: Tx, row: Row, held: Row, made: Reporting) -> Script[Row]:
    """Keep a report with what it printed; return the attempt as it is then."""
    rules = yield from tx.rules.load({_ref(row)})
    limit, said, printed = rules[_ref(row)].rules.log_limit, made.report, made.printed
    size = printed.meta.bytes if printed else 0
    is_too_long = limit is not None and held["bytes"] + size > limit
    kept_chunk = None if is_too_long else printed
    if kept_chunk is not None:
        yield Many("insert_chunk", [_chunk(held, kept_chunk)])
    kept: dict[str, Any] = {
        "look_at": None if said.state.is_final else _next_look(tx.now, row, held),
        # Reports that are not counted leave the count as it is.
        "number": held["number"] if said.number is None else said.number,
        "digest": held["digest"] if said.number is None else said.digest,
        "chunks": held["chunks"] + (kept_chunk is not None),
        "lines": held["lines"] + (kept_chunk.meta.lines if kept_chunk else 0),
        "bytes": held["bytes"] + (kept_chunk.meta.bytes if kept_chunk else 0),
        "truncated": int(held["truncated"] or is_too_long),
    }
    yield Many("keep_report", [(*kept.values(), row["id"], held["attempt"])])
    return {**dict(held), **kept}


def _next_look(now: int, row: Row, held: Row) -> int:
    """When a server looks again at an attempt that goes on, as was just reported."""
    if row["cancel_at"] is not None:  # it is to end, however busy it is
        return int(held["look_at"])
    return _look_at(now, held["ends_at"], held["heartbeat"])


def _chunk(held: Row, stored: StoredChunk) -> tuple[object, ...]:
    """Values for a chunk of a report, whose place follows what was printed before."""
    meta = structs.replace(
        stored.meta,
        number=held["chunks"],
        first_line=held["lines"],
    )
    fence = Fence(held["run_id"], held["attempt"])
    return chunk_values(EXTERNAL_SESSION, fence, StoredChunk(meta, stored.key))


def _outcome(now: int, row: Row, held: Row, said: StatusReport) -> Outcome:
    return Outcome(
        row["id"],
        held["attempt"],
        said.state.result,
        row["started_at"] or 0,
        now,
        message=said.message,
        outputs=None if said.outputs is None else dict(said.outputs),
        output_bytes=held["bytes"],
        output_lines=held["lines"],
        truncated=bool(held["truncated"]),
    )


def _note_progress(row: Row, said: StatusReport) -> Script[None]:
    if said.progress is None and not said.message:
        return
    told: dict[str, Any]
    if said.progress is None:  # it is as far as it was
        [known] = yield query("known_progress", run=row["id"])
        told = {"done": 0.0, "total": None, **(from_json(known["progress"]) or {})}
    else:
        told = {"done": said.progress.done, "total": said.progress.total}
    told |= {"message": said.message}
    values = (to_json(told), row["id"], row["attempt"], EXTERNAL_SESSION)
    yield Many("set_progress", [values], exactly=False)


# --- silence


def end_silent(tx: Tx, limit: int) -> Script[int]:
    """End attempts of which no report came in time, and those that somebody cancelled."""
    runs = [row["id"] for row in (yield query("due_external", now=tx.now, limit=limit))]
    if not runs:
        return 0
    carts = yield from lock_carts(runs)
    gates = yield from lock_gates_of(runs)
    rows = {row["id"]: row for row in (yield query("runs_to_change", ids=runs))}
    # Read under the locks of their runs: a report may have come meanwhile.
    held = {row["run_id"]: row for row in (yield query("external_attempts", ids=runs))}
    overdue = {
        run: row
        for run, row in rows.items()
        if run in held and _is_open(row, held[run]) and held[run]["look_at"] <= tx.now
    }
    ends = {run: _silence(tx.now, row, held[run]) for run, row in overdue.items()}
    over = [run for run in rows if run not in held or not _is_open(rows[run], held[run])]
    yield query("close_external", ids=[*overdue, *over])
    for is_lost in (False, True):
        outcomes = [
            _silent(tx.now, overdue[run], held[run], end)
            for run, end in sorted(ends.items())
            if (end.result is AttemptResult.LOST) is is_lost
        ]
        yield from end_attempts(
            tx, EXTERNAL_SESSION, outcomes, rows, gates, SILENT, actor="scheduler"
        )
    yield from _tell_cancelled(tx, overdue)
    yield from runs_ended(tx, carts, gates)
    return len(overdue)


def _silence(now: int, row: Row, held: Row) -> Silence:
    return silence(
        now,
        held["ends_at"],
        Delivery(row["delivery"]),
        is_cancelled=row["cancel_at"] is not None,
    )


def _silent(now: int, row: Row, held: Row, end: Silence) -> Outcome:
    return Outcome(
        row["id"],
        row["attempt"],
        end.result,
        row["started_at"] or 0,
        now,
        message=end.message,
        output_bytes=held["bytes"],
        output_lines=held["lines"],
        truncated=bool(held["truncated"]),
        cause=end.cause,
    )


def _tell_cancelled(tx: Tx, ended: Mapping[str, Row]) -> Script[None]:
    cancelled = [row for row in ended.values() if row["cancel_at"] is not None]
    rules = yield from tx.rules.load({_ref(row) for row in cancelled})
    telling = [row for row in cancelled if Notice.CANCEL in rules[_ref(row)].rules.tells]
    yield from _announce(tx, Notice.CANCEL, {row["id"]: row["attempt"] for row in telling})


# --- announcements


def lease_announcements(
    tx: Tx, digests: Sequence[str], lease: timedelta
) -> Script[list[tuple[Announcement, str]]]:
    """Announcements that are due, for this server to send, each with one of these digests.

    That of a token that is for its attempt from now on. As many as there are digests, at most.
    """
    until = tx.now + lease // _MICROSECOND
    leased = yield query("lease_announcements", now=tx.now, until=until, limit=len(digests))
    if not leased:
        return []
    runs = {row["id"]: row for row in (yield query("announced_runs", ids=_runs(leased)))}
    found = [
        (_announcement(row, runs[row["run_id"]]), digest)
        for row, digest in zip(leased, digests, strict=False)
        if row["run_id"] in runs
    ]
    stale = [each for each, _ in found if each.kind is Notice.ANNOUNCE and not each.is_open]
    going = [(each, digest) for each, digest in found if each not in stale]
    tokens = [(d, a.run, a.attempt, tx.now) for a, d in going if a.kind is Notice.ANNOUNCE]
    if tokens:
        yield Many("insert_report_token", tokens)
    gone = {row["id"] for row in leased}.difference(each.id for each, _ in going)
    if gone:
        yield Many("settle_announcements", [(None, None, "", each) for each in sorted(gone)])
    return going


def _runs(leased: Sequence[Row]) -> set[str]:
    return {row["run_id"] for row in leased}


def _announcement(row: Row, run: Row) -> Announcement:
    is_latest = run["attempt"] == row["attempt"]
    heartbeat = run["heartbeat"]
    return Announcement(
        id=row["id"],
        kind=Notice(row["told"]),
        run=RunId(run["id"]),
        attempt=row["attempt"],
        made_at=instant(row["made_at"]),
        tries=row["tries"],
        project=run["project"],
        job=run["job"],
        job_id=JobId(run["job_id"]),
        job_version=run["job_version"],
        due_at=instant(run["due_at"]),
        inputs=from_json(run["inputs"]) or {},
        ends_at=instant(run["ends_at"]),
        heartbeat=None if heartbeat is None else heartbeat * _MICROSECOND,
        is_open=is_latest and run["state"] in LEASED_STATES,
    )


def settle_announcements(tx: Tx, tries: Sequence[Sent]) -> Script[None]:
    """Keep how tries went."""
    rows = [
        (optional_micros(each.next_at), None if each.error else tx.now, each.error, each.id)
        for each in sorted(tries, key=lambda each: each.id)
    ]
    if rows:
        yield Many("settle_announcements", rows)


def report_token(digest: str) -> Script[ReportToken | None]:
    """The attempt that a token is for, which may have ended."""
    rows = yield query("report_token", digest=digest)
    if not rows:
        return None
    return ReportToken(RunId(rows[0]["run_id"]), rows[0]["attempt"], rows[0]["project"])


def forget_report_tokens(tx: Tx, limit: int) -> Script[int]:
    """Forget tokens of attempts that ended long ago."""
    rows = yield query("forget_report_tokens", before=tx.now - _KEPT, limit=limit)
    return len(rows)


def external_attempt(run: RunId, attempt: int) -> Script[ExternalAttempt | None]:
    """How an attempt stands that another system does; None: no other system does it."""
    rows = yield query("external_attempt", run=run, attempt=attempt)
    if not rows:
        return None
    told = yield query("announcements_of", run=run, attempt=attempt)
    return ExternalAttempt(
        attempt,
        optional_instant(rows[0]["look_at"]),
        instant(rows[0]["ends_at"]),
        rows[0]["number"],
        tuple(map(_told_of, told)),
    )


def _told_of(row: Row) -> Announced:
    return Announced(
        Notice(row["told"]),
        row["tries"],
        row["error"],
        optional_instant(row["sent_at"]),
        optional_instant(row["next_at"]),
    )

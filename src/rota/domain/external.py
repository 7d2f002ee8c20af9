"""Work that another system does and reports: announcements, reports, silence.

    gates ──▶ QUEUED ──▶ PROCESSING ──▶ report ──▶ … ──▶ the end
                 └─ announced, until somebody answers     └─ reported; or silent for too long

An attempt is held by no worker. Until when the next report has to come is an instant in the store,
so that whichever server is alive finds out that it did not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from rota.domain.addresses import Target
from rota.domain.errors import Invalid
from rota.domain.http import KEY_HEADER, SAFE, Built, Facts, build, values_of
from rota.domain.http import OWN_HEADERS as _OF_HTTP
from rota.domain.http import RUN_FACTS as _OF_RUNS
from rota.domain.ids import SessionId
from rota.domain.run import AttemptResult, why_not_portable
from rota.domain.spec import Delivery, External, HttpCall

EXTERNAL_SESSION = SessionId("external")  # has the attempts leased; it is no worker's
REPORTER = "external"  # who acts with the token of an attempt
TOKEN = "report_token"  # noqa: S105 - the name of a fact
RUN_FACTS = (*_OF_RUNS, "report_url", TOKEN)
MESSAGE_HEADER = "webhook-id"
OWN_HEADERS = _OF_HTTP | {MESSAGE_HEADER, KEY_HEADER.lower()}
MAX_MESSAGE = 4_000  # characters
MAX_OUTPUTS = 256 * 1024  # bytes of JSON
MAX_OUTPUT = 64 * 1024  # bytes of text in one report: one piece of a log
MAX_NUMBER = 2**62
_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(minutes=5)
_MAX_DOUBLINGS = 20


class Notice(StrEnum):
    """Kinds of announcements: what another system is told of."""

    ANNOUNCE = "announce"  # an attempt begins
    CANCEL = "cancel"  # somebody cancelled it


class ReportState(StrEnum):
    """How work stands that another system does, as it reports."""

    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self is not ReportState.PROCESSING

    @property
    def result(self) -> AttemptResult:
        """Return how an attempt ended that such a report ends."""
        return AttemptResult(self.value.upper())


@dataclass(frozen=True, slots=True)
class Progress:
    """How far work is."""

    done: float
    total: float | None = None
    message: str = ""


def share_done(share: float) -> Progress:
    """Return the progress of which a share is done, from 0 to 1."""
    if not 0 <= share <= 1:
        raise _malformed("progress must be from 0 to 1, or {done: …, total: …}")
    return Progress(round(share * 100, 3), 100.0)


@dataclass(frozen=True, slots=True)
class StatusReport:
    """One report of another system."""

    state: ReportState
    number: int | None = None  # grows with each report of an attempt; None: not counted
    attempt: int | None = None  # None: the latest one
    message: str = ""
    progress: Progress | None = None
    outputs: Mapping[str, Any] | None = None
    output: str = ""  # text for the log

    @property
    def digest(self) -> str:
        """Return what tells whether two reports say the same."""
        said = [self.state, self.message, self.outputs, self.output]
        how_far = [self.progress.done, self.progress.total] if self.progress else None
        text = json.dumps([*said, how_far], sort_keys=True)
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def check_report(report: StatusReport) -> None:
    """Raise `Invalid` for a report that cannot be taken, whatever run it is of."""
    _check_numbers(report)
    if len(report.message) > MAX_MESSAGE:
        raise _malformed(f"message must have at most {MAX_MESSAGE:,} characters")
    if report.outputs is not None and report.state is not ReportState.COMPLETED:
        raise _malformed("outputs go with the state completed only")
    if report.progress is not None and report.state.is_final:
        raise _malformed("progress goes with the state processing only")
    if report.progress is not None:
        _check_progress(report.progress)
    if "\0" in report.message:
        raise _malformed("message cannot have the character NUL")
    if complaint := why_not_portable([report.message, report.outputs, report.output]):
        raise _malformed(f"the report cannot be kept: {complaint}")
    if len(json.dumps(report.outputs).encode()) > MAX_OUTPUTS:
        raise _malformed(f"outputs must have at most {MAX_OUTPUTS // 1024} KiB")
    if len(report.output.encode()) > MAX_OUTPUT:
        size = MAX_OUTPUT // 1024
        raise _malformed(f"output must have at most {size} KiB: send the rest with the next report")


def _check_numbers(report: StatusReport) -> None:
    if report.number is not None and not 0 < report.number <= MAX_NUMBER:
        raise _malformed(f"number must be from 1 to {MAX_NUMBER}, growing with each report")
    if report.attempt is not None and report.attempt < 1:
        raise _malformed("attempt must be 1 or more")


def _check_progress(progress: Progress) -> None:
    numbers = [progress.done] if progress.total is None else [progress.done, progress.total]
    if not all(math.isfinite(each) and each >= 0 for each in numbers):
        raise _malformed("progress must be finite, and not below 0")


def _malformed(message: str) -> Invalid:
    return Invalid(message, code="bad_report")


class Judgement(StrEnum):
    """Judgement of a report: whether it counts."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"  # it was accepted before: the same answer
    STALE = "stale"  # a later one was accepted before
    DIFFERENT = "different"  # another one with its number was accepted before
    LATE = "late"  # its attempt has ended, or another one has begun


@dataclass(frozen=True, slots=True)
class Reported:
    """Latest report of an attempt that was accepted."""

    number: int = 0  # of the last one that was accepted; 0: there was none
    digest: str = ""  # of that one


def judge(report: StatusReport, last: Reported, *, is_open: bool) -> Judgement:
    """Decide what becomes of a report. `is_open`: its attempt goes on.

    Repeats come first: who did not hear the answer to the report of the end asks again after it.
    """
    number = report.number
    if number is not None and number == last.number:
        return Judgement.REPEATED if report.digest == last.digest else Judgement.DIFFERENT
    if not is_open:
        return Judgement.LATE
    if number is not None and number < last.number:
        return Judgement.STALE
    return Judgement.ACCEPTED


@dataclass(frozen=True, slots=True)
class Silence:
    """End of an attempt of which no report came in time."""

    result: AttemptResult
    cause: str
    message: str


SILENT = "silent"


def silence(now: int, ends_at: int, delivery: Delivery, *, is_cancelled: bool) -> Silence:
    """Decide how an attempt ended whose next report is overdue, or that somebody cancelled.

    Nobody can stop what another system does. Where it must not be done twice, a timeout leaves
    open whether it was done, as silence does.
    """
    if is_cancelled:
        return Silence(AttemptResult.CANCELLED, "", "")
    if now < ends_at:
        return Silence(AttemptResult.LOST, SILENT, "no report came within its heartbeat")
    if delivery is Delivery.AT_MOST_ONCE:
        return Silence(AttemptResult.LOST, SILENT, "no report of its end came within its timeout")
    message = "no report of its end came within its timeout"
    return Silence(AttemptResult.TIMED_OUT, "", message)


def next_try(tries: int, fraction: float) -> timedelta:
    """Return the pause after so many announcements in vain; `fraction` in [0, 1) spreads them."""
    doublings: int = 2 ** min(tries - 1, _MAX_DOUBLINGS)
    pause = min(_FIRST_PAUSE * doublings, _LONGEST_PAUSE)
    return pause * (1 + fraction / 4)


# --- announcements


def calls_of(external: External) -> Iterator[tuple[str, HttpCall]]:
    """Yield the calls of a job, by name."""
    if external.announce is not None:
        yield Notice.ANNOUNCE, external.announce
    if external.cancel is not None:
        yield Notice.CANCEL, external.cancel


@dataclass(frozen=True, slots=True)
class Occasion:
    """Facts of an attempt that another system is told of."""

    run: str
    attempt: int
    job: str
    project: str
    due_at: str  # as people write it
    inputs: Mapping[str, Any]
    report_url: str
    token: str = field(default="", repr=False)  # "": there is none any more
    heartbeat_seconds: float | None = None
    ends_at: str = ""

    def facts(self) -> dict[str, str]:
        """Return what values of a call may be taken from."""
        known = {
            "id": self.run,
            "job": self.job,
            "project": self.project,
            "due_at": self.due_at,
            "attempt": str(self.attempt),
            "report_url": self.report_url,
        }
        return known | ({TOKEN: self.token} if self.token else {})

    def message(self, kind: Notice) -> dict[str, Any]:
        """Return Rota's own body of a call."""
        said: dict[str, Any] = {
            "type": f"run.{'announced' if kind is Notice.ANNOUNCE else 'cancelled'}",
            "run": self.run,
            "attempt": self.attempt,
            "job": self.job,
            "project": self.project,
            "due_at": self.due_at,
            "inputs": dict(self.inputs),
        }
        if kind is Notice.ANNOUNCE:
            said["report"] = {
                "url": self.report_url,
                "token": self.token,
                "heartbeat_seconds": self.heartbeat_seconds,
                "ends_at": self.ends_at,
            }
        return said


def build_call(
    kind: Notice,
    call: HttpCall,
    occasion: Occasion,
    message_id: str,
    secrets: Mapping[str, str],
) -> Built:
    """Build the request that tells another system of an attempt; `Invalid` if it cannot be."""
    built = build(call, Facts(occasion.inputs, occasion.facts(), secrets))
    key = occasion.run if kind is Notice.ANNOUNCE else f"{occasion.run}-cancel"
    headers = {**built.headers, MESSAGE_HEADER: message_id, KEY_HEADER: key}
    body = built.body
    if call.body is None and call.method not in SAFE:
        # Not filled as a body of the job is: a value of an input is never a reference.
        body = json.dumps(occasion.message(kind), ensure_ascii=False).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json", **headers}
    return Built(built.method, built.target, headers, body)


def place_of(call: HttpCall, occasion: Occasion) -> Target:
    """Return where a call goes, which secrets may depend on; an address has none itself."""
    bare = replace(call, query={}, headers={}, body=None)
    return build(bare, Facts(occasion.inputs, occasion.facts())).target


def secrets_of(call: HttpCall) -> list[str]:
    """List the names of secrets of the servers' settings that a call has."""
    return sorted({value.secret for value in values_of(call) if value.secret})

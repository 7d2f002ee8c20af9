"""Work of other systems, as the store keeps it, and the port by which these are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from rota.domain.errors import Unavailable
from rota.domain.external import Judgement, Notice, Occasion, StatusReport
from rota.domain.ids import JobId, RunId
from rota.domain.spec import HttpCall
from rota.domain.states import RunState
from rota.ports.records import StoredChunk


@dataclass(frozen=True, slots=True)
class Reporting:
    """A report of a run, and who makes it."""

    run: RunId
    report: StatusReport
    actor: str
    printed: StoredChunk | None = None  # output that is in the blob store; it counts from 0


@dataclass(frozen=True, slots=True)
class ReportTaken:
    """Report that was judged, and how its run stands."""

    judgement: Judgement
    run: RunId
    attempt: int  # the latest one of the run
    state: RunState  # of the run, when the report came
    number: int = 0  # of the last report that was accepted
    is_external: bool = True  # whether the run is of a job of this type


@dataclass(frozen=True, slots=True)
class ReportToken:
    """Attempt that a token for reports is for."""

    run: RunId
    attempt: int
    project: str


@dataclass(frozen=True, slots=True)
class Announcement:
    """Something that another system is to be told, leased to this server."""

    id: str  # the same at each try
    kind: Notice
    run: RunId
    attempt: int
    made_at: datetime
    tries: int  # this one included
    project: str
    job: str
    job_id: JobId
    job_version: int
    due_at: datetime
    inputs: Mapping[str, Any]
    ends_at: datetime
    heartbeat: timedelta | None
    is_open: bool  # the attempt goes on


@dataclass(frozen=True, slots=True)
class Sent:
    """How a try to tell another system went."""

    id: str
    error: str = ""  # "": it was answered
    next_at: datetime | None = None  # None: there is no other try


@dataclass(frozen=True, slots=True)
class Announced:
    """How far an announcement has come."""

    kind: Notice
    tries: int
    error: str  # why the last try was in vain; "": it was not, or there was none
    sent_at: datetime | None  # None: it was not answered
    next_at: datetime | None  # None: there is no other try


@dataclass(frozen=True, slots=True)
class ExternalAttempt:
    """How an attempt stands that another system does."""

    attempt: int
    silent_at: datetime | None  # when the next report is due; None: it has ended
    ends_at: datetime  # its timeout
    number: int  # of the last report that was accepted; 0: none was, or they are not counted
    told: tuple[Announced, ...] = ()


@dataclass(frozen=True, slots=True)
class ExternalDue:
    """Whether there is anything to do for work of other systems."""

    silent: bool
    announcements: bool
    waiting: bool  # runs wait to begin


class ExternalStore(Protocol):
    """Part of a store that is about work of other systems."""

    async def external_due(self) -> ExternalDue: ...

    async def begin_external(self, limit: int) -> int:
        """Begin attempts at waiting runs, as a claim does; return how many.

        What is to be told of them is durable with them.
        """
        ...

    async def report_external(self, made: Reporting) -> ReportTaken:
        """Take a report. One that comes too late changes nothing, and its end is kept aside."""
        ...

    async def end_silent(self, limit: int) -> int:
        """End attempts that are silent for too long, or cancelled; return how many."""
        ...

    async def lease_announcements(
        self, digests: Sequence[str], lease: timedelta
    ) -> list[tuple[Announcement, str]]:
        """Return what is to be told now, at most one for each of these digests of new tokens.

        Nobody else is given it until the lease ends. The tokens are valid from then on.
        """
        ...

    async def settle_announcements(self, tries: Sequence[Sent]) -> None: ...

    async def report_token(self, digest: str) -> ReportToken | None:
        """Return the attempt that a token is for, also of one that has ended."""
        ...

    async def forget_report_tokens(self, limit: int) -> int: ...

    async def external_attempt(self, run: RunId, attempt: int) -> ExternalAttempt | None: ...


@dataclass(frozen=True, slots=True)
class Message:
    """A request to another system, and what it is about."""

    id: str
    kind: Notice
    call: HttpCall
    occasion: Occasion = field(repr=False)


class Herald(Protocol):
    """Sender of announcements, to addresses that may be reached."""

    async def send(self, message: Message) -> None:
        """Send a message, and return once it was answered with 2xx.

        Every call ends within the timeout of the message's call. Raise a `RotaError` that says why
        it was not sent, or not answered so.
        """
        ...


class NoHerald:
    """Herald of a process that may not send anything."""

    async def send(self, message: Message) -> None:
        raise Unavailable("this server sends no announcements", code="no_herald")

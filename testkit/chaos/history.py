"""Observations from outside: by the client, the nemesis, and finally through the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rota.sdk.answers import LedgerEntry, RunDetail


@dataclass(slots=True)
class Submission:
    """Request for a run, repeated with its key until it is acknowledged or given up."""

    job: str
    key: str
    answers: list[str] = field(default_factory=list)  # the run that each acknowledgement named
    tries: int = 0

    @property
    def run(self) -> str | None:
        """Return the run; None: unknown whether there is one."""
        return self.answers[0] if self.answers else None


@dataclass(frozen=True, slots=True)
class Sight:
    """Run as one answer showed it. Each was asked for after the one before it had come."""

    run: str
    state: str
    attempt: int
    ended_at: datetime | None
    server: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answer that no fault excuses."""

    asked: str
    error: str


@dataclass(slots=True)
class ClientLog:
    submissions: list[Submission] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    cancelled: dict[str, float] = field(default_factory=dict)  # boot time of the acknowledgement
    refusals: list[Refusal] = field(default_factory=list)
    unanswered: int = 0  # requests whose outcome nobody knows


@dataclass(slots=True)
class Injection:
    """Fault, from its beginning to its end in boot time."""

    kind: str
    target: str
    detail: str
    began: float
    was_felt: bool = False
    healed: float = 0.0


@dataclass(frozen=True, slots=True)
class Dump:
    """State of the cluster at rest, as its own API shows it."""

    runs: Mapping[str, RunDetail]
    ledgers: Mapping[str, Sequence[LedgerEntry]]  # of jobs with due times, by time
    digests: Mapping[str, str]  # of the stored output of runs that print
    events: Mapping[str, int]  # how often each type happened


@dataclass(frozen=True, slots=True)
class Times:
    """Instants that separate the parts of a campaign, in boot time."""

    epoch: datetime  # when the boot time was 0
    healed: float  # the last fault was over
    stopped: float  # nothing was due any more

    def boot_time(self, instant: datetime) -> float:
        return (instant - self.epoch).total_seconds()

"""The tables of fields of a workload file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.jobfile.declarations import DECLARATIONS
from rota.domain.jobfile.demands import Amount
from rota.domain.jobfile.fields import JOB
from rota.domain.jobfile.kinds import Integer, Number, Schema, Text
from rota.domain.jobfile.measures import Duration, Size
from rota.domain.jobfile.report import At
from rota.domain.jobfile.sections import Field, ListOf, MapOf, Section
from rota.domain.jobfile.vocabulary import LABELS, NAME
from rota.domain.spec import DEFAULT_POOL

MOST_WORKERS = 100_000  # of one kind
DEFAULT_SLOTS = 4
MOST_SCHEDULES = 1_000_000_000
_LENGTH = Duration(timedelta(milliseconds=1))
_SHARE = Text("a share key, such as billing or default/alice", 200, pattern=r"[^\x00-\x1f]{1,200}")
_FIELDS_OF_JOBS = (
    "schedule",
    "timezone",
    "spread",
    "max_concurrency",
    "start_within",
    "timeout",
    "priority",
    "share",
    "pool",
    "needs",
    "resources",
    "rate_limits",
)

WORKERS = Section(
    "workers",
    (
        Field("name", NAME, "What this kind of worker is called.", required=True),
        Field("count", Integer(1, MOST_WORKERS), "How many of them there are.", 1),
        Field("pool", NAME, "The pool they belong to.", DEFAULT_POOL),
        Field("slots", Integer(1, 10_000), "Runs that each has at once.", DEFAULT_SLOTS),
        Field("resources", MapOf(NAME, Amount(), most=64), "What each offers."),
        Field("labels", LABELS, "What jobs may need."),
    ),
)

ARRIVALS = Section(
    "arrivals",
    (
        Field("mean", Integer(1, MOST_SCHEDULES), "How many runs come.", required=True),
        Field("per", _LENGTH, "In which time.", required=True),
    ),
)

SPREAD_DURATION = Section(
    "duration",
    (
        Field("from", _LENGTH, "The shortest; all up to `to` are equally frequent."),
        Field("to", _LENGTH, "The longest."),
        Field("median", _LENGTH, "Half of them are shorter; with `p95`, a long tail."),
        Field("p95", _LENGTH, "95 of a hundred are shorter."),
    ),
)


@dataclass(frozen=True, slots=True)
class _Durations:
    """One time for all runs, or how their times are spread."""

    words: str = "a duration such as 30s, from and to, or median and p95"

    def check(self, value: object, at: At) -> object:
        return (SPREAD_DURATION if isinstance(value, Mapping) else _LENGTH).check(value, at)

    def schema(self) -> Schema:
        return {"anyOf": [_LENGTH.schema(), SPREAD_DURATION.schema()]}


JOB_MIX = Section(
    "job",
    (
        Field("name", NAME, "Unique in the file.", required=True),
        *(JOB.by_name[name] for name in _FIELDS_OF_JOBS),
        Field("schedules", Integer(1, MOST_SCHEDULES), "How many such jobs there are.", 1),
        Field("arrivals", ARRIVALS, "Instead of a schedule: runs that come at random."),
        Field("duration", _Durations(), "How long runs take.", required=True),
        Field("user", NAME, "Who asks for the runs, unless there is a `share`.", "anybody"),
        Field("output", Size(0, 2**50), "What a run prints."),
    ),
    needs_one_of=("schedule", "arrivals"),
)

FILE = Section(
    "",
    (
        Field("workers", ListOf(WORKERS, most=1_000, least=1), "", required=True),
        Field("jobs", ListOf(JOB_MIX, most=10_000, least=1), "", required=True),
        Field("shares", MapOf(_SHARE, Number(), most=10_000), "Weights of shares."),
        *DECLARATIONS,
    ),
)

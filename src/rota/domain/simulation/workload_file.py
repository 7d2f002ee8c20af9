"""Reader of the workload file: text in, a validated `Workload` out.

Its jobs are written in the job file's own words, as far as they say when and where runs go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from rota.domain.job import rules_of
from rota.domain.jobfile.build import Document, build_job
from rota.domain.jobfile.declarations import DECLARATIONS, build_declarations, check_declarations
from rota.domain.jobfile.demands import Access, Amount, build_resources
from rota.domain.jobfile.fields import JOB
from rota.domain.jobfile.kinds import (
    INVALID,
    Duration,
    Integer,
    Number,
    Rejected,
    Schema,
    Size,
    Text,
)
from rota.domain.jobfile.rules import check_schedule
from rota.domain.jobfile.sections import LABELS, NAME, Field, ListOf, MapOf, Section
from rota.domain.jobfile.text import At, Report, parse_text, refuse_repeated
from rota.domain.jobfile.uses import Known, problems_of, uses_of
from rota.domain.quantities import parse_duration, parse_size
from rota.domain.resources import SLOTS, capacity_of
from rota.domain.simulation.workload import (
    Fixed,
    JobMix,
    Lengths,
    Lognormal,
    Poisson,
    Uniform,
    Workers,
    Workload,
)
from rota.domain.spec import DEFAULT_POOL, DEFAULT_PROJECT

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
    "late",
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
    """Duration of all runs, or the distribution of their durations."""

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


_PAIRS = (("from", "to"), ("median", "p95"))  # how durations may be spread


def read_workload(text: str) -> Workload:
    """Read the workload of a YAML or JSON text; `Invalid` has every problem in it."""
    source = parse_text(text)
    report = Report(source.problems)
    root = At.root(report, source.mark)
    checked = FILE.check(source.data, root)
    file = {} if isinstance(checked, Rejected) else checked
    _check(file, source.data, root)
    report.raise_errors("the workload file")
    workload = _build(file, root)
    report.raise_errors("the workload file")
    return workload


def _check(file: Document, written: Any, root: At) -> None:
    """Apply what the tables of fields cannot say."""
    check_declarations(file, written, root)
    for field, check in (("workers", _check_workers), ("jobs", _check_job)):
        first: dict[str, At] = {}
        for index, document in enumerate(file.get(field, ())):
            if document is not INVALID:
                at = root.child(field).child(index)
                check(document, at)
                if name := document.get("name"):
                    refuse_repeated(name, name, at.child("name"), first)
    for share, weight in _valid(file.get("shares", {})):
        if weight <= 0:
            root.child("shares").child(share).refuse(f"the weight of {share} must be above 0")


def _check_workers(document: Document, at: At) -> None:
    for name, amount in _valid(document.get("resources", {})):
        place = at.child("resources").child(name)
        if amount in list(Access):
            place.refuse(f"a worker offers an amount of {name}", f"write {name}: 4")
        if name == SLOTS:
            place.refuse_key("slots are no resource", "write slots beside resources")


def _check_job(document: Document, at: At) -> None:
    check_schedule(document, at)
    if "arrivals" in document:
        for name in document.keys() & {"schedule", "schedules", "spread"}:
            place = at.child(name)
            place.refuse_key(f'"{name}" does not go with "arrivals"', "leave one out")
    if "duration" in document:
        _check_duration(document["duration"], at.child("duration"))


def _check_duration(written: str | Document, at: At) -> None:
    if isinstance(written, str):
        return
    pair = next((pair for pair in _PAIRS if written.keys() == set(pair)), None)
    if pair is None:
        at.refuse("duration is one time, or from and to, or median and p95", "write duration: 30s")
        return
    low, high = pair
    if _seconds(written[low]) >= _seconds(written[high]):
        at.child(high).refuse(f"{high} must be longer than {low}")


def _build(file: Document, root: At) -> Workload:
    declared = build_declarations(file, DEFAULT_PROJECT)
    workers = [_workers(document) for document in file["workers"]]
    offered = sorted({name for each in workers for name in each.capacity})
    known = replace(Known.of(declared, is_all=True), offered=offered)
    jobs = [
        _job(document, root.child("jobs").child(index), known)
        for index, document in enumerate(file["jobs"])
    ]
    return Workload(workers, jobs, declared, file.get("shares", {}))


def _workers(document: Document) -> Workers:
    slots = document.get("slots", DEFAULT_SLOTS)
    return Workers(
        name=document["name"],
        count=document.get("count", 1),
        pool=document.get("pool", DEFAULT_POOL),
        capacity=capacity_of(slots, build_resources(document.get("resources", {}))),
        labels=document.get("labels", {}),
    )


def _job(document: Document, at: At, known: Known) -> JobMix:
    """Build the job; report names that are nowhere declared."""
    # Of a workload `output` is how much a run prints.
    spec = build_job({name: value for name, value in document.items() if name != "output"})
    for problem in problems_of(uses_of(spec, document, at), known):
        at.report.add(problem)
    within = document.get("start_within")
    return JobMix(
        rules=rules_of(spec, known.resources),
        lengths=_lengths(document["duration"]),
        arrivals=spec.schedule or _poisson(document["arrivals"]),
        schedules=document.get("schedules", 1),
        user=document.get("user", "anybody"),
        start_within=_seconds(within) if within else None,
        output_bytes=parse_size(document["output"]) if "output" in document else 0,
    )


def _poisson(document: Document) -> Poisson:
    return Poisson(document["mean"], _seconds(document["per"]))


def _lengths(written: str | Document) -> Lengths:
    match written:
        case {"from": least, "to": most}:
            return Uniform(_seconds(least), _seconds(most))
        case {"median": median, "p95": p95}:
            return Lognormal(_seconds(median), _seconds(p95))
        case _:
            return Fixed(_seconds(str(written)))


def _seconds(written: str) -> float:
    return parse_duration(written).total_seconds()


def _valid(mapping: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in mapping.items() if value is not INVALID)

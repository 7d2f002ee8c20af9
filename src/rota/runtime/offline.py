"""What `rota` can do without a server: check files, explain schedules, import a crontab."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rota.domain import crontab, durations, jobfile
from rota.domain.errors import (
    Conflict,
    Denied,
    Invalid,
    NotFound,
    Problem,
    RotaError,
    Unavailable,
)
from rota.domain.jobfile.text import parse_text
from rota.domain.schedule import (
    clock_changes,
    clock_remark,
    compile_schedule,
    describe,
    warnings,
)
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import Schedule

__all__ = [
    "CheckedFile",
    "Conflict",
    "Denied",
    "DueTime",
    "ExplainedSchedule",
    "Invalid",
    "NotFound",
    "Problem",
    "RotaError",
    "Unavailable",
    "check_file",
    "explain",
    "file_schema",
    "host_timezone",
    "import_crontab",
    "job_file",
    "parse_duration",
    "read_mapping",
]

_LOCAL_ZONE = Path("/etc/localtime")


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """What reading a job file found."""

    jobs: tuple[str, ...]  # their names; () when the file is not valid
    problems: tuple[Problem, ...]  # errors and warnings, in the order of its lines
    is_valid: bool


@dataclass(frozen=True, slots=True)
class DueTime:
    """One due time on the clocks of the schedule's zone."""

    at: datetime
    remark: str  # what a change of clocks did to it, or ""


@dataclass(frozen=True, slots=True)
class ExplainedSchedule:
    """A schedule in words and in due times."""

    words: str
    kinds: tuple[str, ...]  # of each expression: how it behaves when clocks change
    next: tuple[DueTime, ...]
    clock_changes: tuple[str, ...]  # the next ones that move, drop or double a due time
    warnings: tuple[Problem, ...]


def check_file(text: str, *, name: str) -> CheckedFile:
    """Read a job file as the server would; `name` is its stem."""
    try:
        found = jobfile.read_file(text, name=name)
    except Invalid as error:
        return CheckedFile((), error.problems, is_valid=False)
    return CheckedFile(tuple(job.name for job in found.jobs), found.warnings, is_valid=True)


def read_mapping(text: str) -> Mapping[str, Any]:
    """A YAML or JSON mapping as written; `Invalid` if it cannot be read."""
    source = parse_text(text)
    if source.problems:
        raise Invalid("the file cannot be read", source.problems)
    if not isinstance(source.data, Mapping):
        raise Invalid("the file cannot be read", [Problem("it is no mapping of names to values")])
    return source.data


def file_schema() -> Mapping[str, Any]:
    """The JSON Schema of the job file."""
    return jobfile.json_schema()


def parse_duration(text: str) -> timedelta:
    """`90s`, `1h30m`; a ValueError says what is wrong and what fits."""
    return durations.parse_duration(text)


def job_file(
    documents: Iterable[Mapping[str, Any]], calendars: Sequence[Mapping[str, Any]] = ()
) -> str:
    """A job file of these jobs and calendars, which reads back unchanged."""
    return jobfile.to_yaml(documents, calendars)


def explain(
    expressions: Sequence[str], *, timezone: str, after: datetime, count: int
) -> ExplainedSchedule:
    """A schedule's meaning and its due times later than `after`; `Invalid` if it has none.

    An `after` without an offset is a time on the clocks of the zone.
    """
    schedule = Schedule(tuple(expressions), timezone=timezone)
    begin = after if after.tzinfo else _instant(after, timezone)
    timetable = compile_schedule(schedule, key="", anchor=begin)
    due_times = timetable.upcoming(begin, count)
    return ExplainedSchedule(
        words=describe(timetable),
        kinds=tuple(timetable.kinds),
        next=tuple(
            DueTime(timetable.zone.local(due), clock_remark(timetable, due)) for due in due_times
        ),
        clock_changes=tuple(it.text for it in clock_changes(timetable, begin) if it.is_affected),
        warnings=tuple(warnings(schedule)),
    )


def _instant(local: datetime, timezone: str) -> datetime:
    try:
        return load_zone(timezone).instant(local)
    except ValueError:  # compiling the schedule says so, with all else that is wrong
        return local.replace(tzinfo=UTC)


def import_crontab(text: str, *, timezone: str, system: bool) -> crontab.CrontabImport:
    """A crontab as a job file; `system` says that its lines have a user column."""
    home = "" if system else str(Path.home())
    return crontab.import_crontab(text, timezone=timezone, system=system, home=home)


def host_timezone() -> str:
    """The zone of this machine's clocks as cron sees it; UTC where the machine does not say."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if named and not named.startswith("/"):
        return named
    _, found, name = str(_LOCAL_ZONE.resolve()).partition("/zoneinfo/")
    return name if found else "UTC"

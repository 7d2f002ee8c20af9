"""Functions that need no server: check files, explain schedules, import a crontab."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from rota.domain import crontab, jobfile, quantities
from rota.domain.errors import Conflict, Denied, Invalid, NotFound, Problem, RotaError, Unavailable
from rota.domain.jobfile.text import parse_text
from rota.domain.keys import Limit, Resource
from rota.domain.schedule import Explanation
from rota.domain.schedule import explain as explain_schedule
from rota.domain.schedule.explanation import MOST_EXPLAINED
from rota.domain.schedule.expressions import Looking, Reading, read_instant
from rota.domain.schedule.zones import load_zone
from rota.domain.simulation.report import (
    JobResult,
    Report,
    Saturation,
    ShareResult,
    Tell,
    Throughput,
    Use,
    Waits,
    report_document,
    report_to_nobody,
    simulate_workload,
)
from rota.domain.simulation.workload import Period
from rota.domain.simulation.workload_file import read_workload
from rota.domain.spec import DEFAULT_POOL, DEFAULT_PROJECT, Dst, Fold, Gap, Schedule
from rota.runtime.cart_files import CheckedItems, check_item_files

__all__ = [
    "DEFAULT_POOL",
    "MOST_EXPLAINED",
    "CheckedFile",
    "CheckedItems",
    "Conflict",
    "Denied",
    "Explanation",
    "Fold",
    "Gap",
    "Invalid",
    "JobResult",
    "NotFound",
    "Problem",
    "Report",
    "RotaError",
    "Saturation",
    "ShareResult",
    "Simulation",
    "Throughput",
    "Unavailable",
    "Use",
    "Waits",
    "check_file",
    "explain",
    "file_schema",
    "host_timezone",
    "import_crontab",
    "job_file",
    "parse_duration",
    "parse_size",
    "read_mapping",
    "read_time",
    "report_document",
    "require_zone",
    "simulate_text",
]


_LOCAL_ZONE = Path("/etc/localtime")


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """Result of reading a job file."""

    jobs: tuple[str, ...]  # their names; () when the file is not valid
    problems: tuple[Problem, ...]  # errors and warnings, in the order of its lines
    is_valid: bool
    carts: tuple[str, ...] = ()  # their names; () when the file is not valid
    limits: tuple[str, ...] = ()  # likewise
    resources: tuple[str, ...] = ()  # likewise
    item_files: tuple[CheckedItems, ...] = ()  # that its carts name


def check_file(text: str, *, name: str, folder: Path) -> CheckedFile:
    """Read a job file as the server would, and the files of items that its carts name.

    `name` is the job file's stem, and `folder` is its own.
    """
    try:
        found = jobfile.read_file(text, name=name)
    except Invalid as error:
        return CheckedFile((), error.problems, is_valid=False)
    item_files = tuple(check_item_files(found, folder))
    return CheckedFile(
        tuple(job.name for job in found.jobs),
        found.warnings,
        is_valid=all(file.is_valid for file in item_files),
        carts=tuple(cart.template.name for cart in found.carts),
        limits=tuple(it.name for it in found.declarations if isinstance(it, Limit)),
        resources=tuple(it.name for it in found.declarations if isinstance(it, Resource)),
        item_files=item_files,
    )


def read_mapping(text: str) -> Mapping[str, Any]:
    """Read a YAML or JSON mapping; raise `Invalid` if it cannot be parsed."""
    source = parse_text(text)
    if source.problems:
        raise Invalid("the file cannot be read", source.problems)
    if not isinstance(source.data, Mapping):
        raise Invalid("the file cannot be read", [Problem("it is no mapping of names to values")])
    return source.data


def file_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of the job file."""
    return jobfile.json_schema()


def parse_duration(text: str) -> timedelta:
    """Parse `90s`, `1h30m`; raise ValueError saying what is wrong and what is valid."""
    return quantities.read_amount(text)


def parse_size(text: str) -> int:
    """Parse `10GiB`, `500MB` to bytes; raise ValueError saying what is wrong and what is valid."""
    return quantities.parse_size(text)


def job_file(documents: Iterable[Mapping[str, Any]], **beside: Sequence[Mapping[str, Any]]) -> str:
    """Write a job file of these jobs and what they use, which reads back unchanged."""
    return jobfile.to_yaml(documents, beside)


def require_zone(name: str) -> None:
    """Raise ValueError with the nearest name unless the tz database has this one."""
    load_zone(name)


def read_time(text: str, zone: str | None, *, ahead: bool) -> datetime:
    """Parse a time on the clocks of a zone; raise ValueError if it is none.

    `5m` is in five minutes when looking ahead, and five minutes ago when looking back. Without a
    zone, days and times that have no offset are refused.
    """
    now = datetime.now(UTC)  # noqa: TID251 - by the reader's clock, as "today" is
    looking = Looking.AHEAD if ahead else Looking.BACK
    return read_instant(text, Reading(now, load_zone(zone) if zone else None, looking))


def explain(
    expressions: Sequence[str],
    *,
    timezone: str,
    after: datetime | str,
    count: int,
    dst: tuple[Gap, Fold] = (Gap.RUN_AFTER, Fold.FIRST),
    job: str = "",
) -> Explanation:
    """Explain a schedule with its due times later than `after`; raise `Invalid` if it is none.

    A text `after` is read by `read_time`, on the clocks of the zone. `job` is the name that
    `H` depends on, with its project before a slash if that is not the default one.
    """
    schedule = Schedule(tuple(expressions), timezone=timezone, dst=Dst(*dst))
    begin = _instant(after, timezone) if isinstance(after, str) else after
    key = job if not job or "/" in job else f"{DEFAULT_PROJECT}/{job}"
    return explain_schedule(schedule, key=key, after=begin, count=count)


def _instant(text: str, timezone: str) -> datetime:
    try:
        load_zone(timezone)
    except ValueError:  # explaining the schedule says so, with all else that is wrong
        timezone = "UTC"
    try:
        return read_time(text, timezone, ahead=True)
    except ValueError as error:
        raise Invalid("the time cannot be read", [Problem(str(error), "from")]) from error


def import_crontab(text: str, *, timezone: str, system: bool | None) -> crontab.CrontabImport:
    """Convert a crontab to a job file; `system`: it has a user column, None: detect."""
    users = _users_that_are_no_programs() if system is None else frozenset()
    return crontab.import_crontab(
        text, timezone=timezone, system=system, home=str(Path.home()), users=users
    )


def _users_that_are_no_programs() -> frozenset[str]:
    """Return users of this machine; not `git` or `mail`, which a user's crontab may run."""
    names = {user.pw_name for user in pwd.getpwall()}
    return frozenset(name for name in names if shutil.which(name) is None)


def host_timezone() -> str:
    """Return the zone of this machine's clocks as cron sees it; UTC where the machine has none."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if named and not named.startswith("/"):
        return named
    _, found, name = str(_LOCAL_ZONE.resolve()).partition("/zoneinfo/")
    return name if found else "UTC"


# A Monday, at midnight: what a simulated day looks like must not depend on when it is asked for.
_BEGINS_AT = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Simulation:
    """Options of a simulation."""

    length: timedelta
    part: float = 1.0  # of the workload
    seed: int = 1  # the same seed finds the same


def simulate_text(text: str, simulation: Simulation, tell: Tell = report_to_nobody) -> Report:
    """Simulate the workload of a file; `Invalid` says what is wrong with it.

    `tell` is called now and then with the share that is done, from 0 to 1.
    """
    workload = read_workload(text)
    period = Period(_BEGINS_AT, simulation.length)
    random = Random(simulation.seed)  # noqa: S311 - no secret, and it must repeat itself
    return simulate_workload(workload, period, simulation.part, random, tell)

"""Calendars of a job file: their table of fields, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rota.domain.calendars import Calendar, Holidays, Inside, compile_calendar
from rota.domain.calendars.compilation import MAX_WINDOWS
from rota.domain.calendars.grammar import MAX_LENGTH
from rota.domain.errors import Invalid, Problem, did_you_mean, quoted
from rota.domain.jobfile.build import Document
from rota.domain.jobfile.kinds import INVALID, Choice, Rejected, Text, Zone
from rota.domain.jobfile.sections import NAME, Field, ListOf, Section
from rota.domain.jobfile.text import At, Position, Report, parse_text

MAX_CALENDARS = 1_000
MAX_CALENDARS_OF_JOB = 10

_PART = re.compile(r"[a-z]+|[0-9]+")

HOLIDAYS = Section(
    "holidays",
    (
        Field(
            "country",
            Text("the two letters of a country", 2, pattern="[A-Z]{2}"),
            "The country, by its code of ISO 3166.",
            examples=("DE",),
            required=True,
        ),
        Field(
            "subdivision",
            Text("the name of a state or region", 60),
            "The state or region whose own holidays count too.",
            examples=("BY",),
        ),
    ),
)

CALENDAR = Section(
    "calendar",
    (
        Field("name", NAME, "Unique in its project.", required=True),
        Field(
            "windows",
            ListOf(Text("a window such as Sat,Sun 00:00-06:00", MAX_LENGTH), most=MAX_WINDOWS),
            "When nothing runs: days with or without a span of the day, or an absolute stretch.",
            examples=(
                ["Sat,Sun 00:00-24:00"],
                ["Mon-Fri 22:00-06:00", "day 1,15,L", "Dec 24"],
                ["2026-12-24T00:00/2026-12-27T00:00"],
            ),
        ),
        Field("holidays", HOLIDAYS, "Public holidays on which nothing runs."),
        Field("timezone", Zone(), "Whose clocks the windows are on.", "UTC", ("Europe/Berlin",)),
        Field(
            "inside",
            Choice(Inside),
            "Skip due times inside, or run the last of them when the window ends.",
            "skip",
        ),
    ),
)

CALENDARS = Field(
    "calendars",
    ListOf(CALENDAR, most=MAX_CALENDARS),
    "Named windows in which the jobs that use them do not run.",
)
CALENDARS_OF_JOB = Field(
    "calendars",
    ListOf(NAME, most=MAX_CALENDARS_OF_JOB),
    "Names of the calendars in whose windows the job does not run.",
    examples=(["no-deploy-weekends"],),
)


def read_calendar(text: str, *, name: str = "") -> Calendar:
    """Read the calendar of a YAML or JSON text; `Invalid` has every problem in it.

    If its address names it, the text may leave the name out, but not say another.
    """
    source = parse_text(text)
    report = Report(source.problems)
    root = At.root(report, source.mark)
    written = source.data
    if name and isinstance(written, dict) and written.setdefault("name", name) != name:
        root.child("name").refuse(f"the address says {name}", "leave one out")
    checked = CALENDAR.check(written, root)
    fields = {} if isinstance(checked, Rejected) else checked
    if isinstance(written, dict):
        _check(fields, written, root)
    report.raise_errors("the calendar")
    return build_calendar(fields)


def check_calendars(file: Document, written: Any, root: At) -> None:
    """Apply what a table of fields cannot say to the calendars of a file.

    `file` has passed its table; `written` is the same before that.
    """
    first: dict[str, At] = {}
    for index, document in enumerate(file.get("calendars", ())):
        at = root.child("calendars").child(index)
        if document is not INVALID:
            _check(document, written["calendars"][index], at)
            _refuse_repeated_name(document, at, first)


def build_calendar(document: Document) -> Calendar:
    """Build the calendar of a document that has passed every check."""
    holidays = document.get("holidays")
    return Calendar(
        name=document.get("name", ""),
        windows=tuple(document.get("windows", ())),
        timezone=document.get("timezone", "UTC"),
        holidays=Holidays(**holidays) if holidays else None,
        inside=Inside(document.get("inside", Inside.SKIP)),
    )


def calendar_document(calendar: Calendar) -> dict[str, Any]:
    """Write the calendar in the file's vocabulary, without what is left at its default."""
    holidays = calendar.holidays
    written = {
        "name": calendar.name,
        "windows": list(calendar.windows),
        "holidays": _holidays_document(holidays) if holidays else None,
        "timezone": calendar.timezone,
        "inside": str(calendar.inside),
    }
    defaults = {row.name: row.default for row in CALENDAR.fields}
    return {name: value for name, value in written.items() if value and value != defaults[name]}


def _holidays_document(holidays: Holidays) -> dict[str, str]:
    region = {"subdivision": holidays.subdivision} if holidays.subdivision else {}
    return {"country": holidays.country, **region}


def unknown_calendars(
    names: Sequence[str], positions: Sequence[Position], known: Collection[str]
) -> list[Problem]:
    """Report unknown names in a job's `calendars`, given the names that its project has."""
    return [
        Problem(
            f"there is no calendar {quoted(name)}",
            f"calendars[{index}]",
            *position,
            hint=did_you_mean(name, known),
        )
        for index, (name, position) in enumerate(zip(names, positions, strict=True))
        if name not in known
    ]


def _check(document: Document, written: Mapping[str, object], at: At) -> None:
    """Report what is wrong with windows and holidays that passed their table."""
    if not _is_readable(document, written):
        return
    try:
        compile_calendar(build_calendar(document))
    except Invalid as error:
        for problem in error.problems:
            _at_path(at, problem.path).refuse(problem.message, problem.hint)


def _is_readable(document: Document, written: Mapping[str, object]) -> bool:
    given = {name for name in ("windows", "holidays") if written.get(name) is not None}
    return (
        given <= document.keys()
        and INVALID not in document.get("windows", ())
        and ("holidays" not in given or "country" in document["holidays"])
    )


def _refuse_repeated_name(document: Document, at: At, first: dict[str, At]) -> None:
    if name := document.get("name"):
        earlier = first.setdefault(name, at)
        if earlier is not at and earlier.position:
            at.child("name").refuse(f"calendar {name} is already in line {earlier.position.line}")


def _at_path(at: At, path: str) -> At:
    """Return the position of `windows[2]` or `holidays.country`, below the calendar's."""
    for part in _PART.findall(path):
        at = at.child(int(part) if part.isdigit() else part)
    return at

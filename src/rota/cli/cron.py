"""`rota cron`: schedules in words and in due times, without a server."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.cli import times
from rota.cli.exits import CommandFailed, Exit
from rota.cli.inert import inert
from rota.cli.local_errors import told_as_failures
from rota.cli.options import DISPLAY, Display, Format
from rota.cli.printing import print_data
from rota.runtime.offline import DueTime, ExplainedSchedule
from rota.runtime.offline import explain as explain_schedule

app = App(name="cron", help="Explain a schedule, show its next times.")

Expressions = Annotated[
    tuple[str, ...],
    Parameter(
        name="EXPRESSION…",
        help='Cron expression, interval, @daily or ISO time, in quotes: "0 2 * * *".',
    ),
]
Zone = Annotated[str, Parameter(name="--tz", help="Time zone, such as Europe/Berlin.")]
Start = Annotated[
    str | None, Parameter(name="--from", help="Times after this one, ISO 8601. Default: now.")
]
_MOST = 10_000


@app.command
def explain(
    expression: Expressions,
    /,
    *,
    tz: Zone = "UTC",
    from_: Start = None,
    count: Annotated[
        int, Parameter(validator=Number(gte=1, lte=_MOST), help="How many times.")
    ] = 3,
    display: Display = DISPLAY,
) -> None:
    """Say in words when a schedule is due, and what a change of clocks does to it."""
    explained = _explained(expression, tz, from_, count)
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, _document(explained))
        return
    terminal = display.terminal()
    terminal.write(inert(explained.words))
    shown = " · ".join(_due(time) for time in explained.next)
    terminal.write(f"  {shown} …" if shown else "  no due time is to come")
    for change in explained.clock_changes:
        terminal.write(f"  clocks: {inert(change)}")
    for warning in explained.warnings:
        terminal.tell(inert(f"warning: {warning.message}"))


@app.command(name="next")
def next_(
    expression: Expressions,
    /,
    *,
    tz: Zone = "UTC",
    from_: Start = None,
    count: Annotated[
        int, Parameter(validator=Number(gte=1, lte=_MOST), help="How many times.")
    ] = 5,
    display: Display = DISPLAY,
) -> None:
    """Print the next due times, one a line, with their offset from UTC."""
    explained = _explained(expression, tz, from_, count)
    due_times = [time.at.isoformat() for time in explained.next]
    if display.format in (Format.JSON, Format.YAML):
        print_data(display, due_times)
        return
    terminal = display.terminal()
    for time, text in zip(explained.next, due_times, strict=True):
        remark = f"  {time.remark}" if time.remark and display.format is Format.TABLE else ""
        terminal.write(f"{text}{remark}")
    for warning in explained.warnings:
        terminal.tell(inert(f"warning: {warning.message}"))


def _explained(
    expressions: tuple[str, ...], zone: str, start: str | None, count: int
) -> ExplainedSchedule:
    with told_as_failures():
        return explain_schedule(expressions, timezone=zone, after=_instant(start), count=count)


def _instant(text: str | None) -> datetime:
    """Without an offset it is a time on the clocks of the schedule's zone."""
    if text is None:
        return times.now()
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        message = f'--from "{text}" is not an ISO 8601 time'
        raise CommandFailed(message, code=Exit.USAGE, hint="--from 2026-03-27T00:00") from None


def _due(time: DueTime) -> str:
    at = time.at
    clock = f"{at:%H:%M:%S}" if at.second or at.microsecond else f"{at:%H:%M}"
    remark = f" ({time.remark})" if time.remark else ""
    return f"{at:%a} {at.day} {at:%b} {clock}{remark}"


def _document(explained: ExplainedSchedule) -> dict[str, object]:
    return {
        "words": explained.words,
        "kinds": list(explained.kinds),
        "next": [time.at.isoformat() for time in explained.next],
        "clock_changes": list(explained.clock_changes),
        "warnings": [problem.message for problem in explained.warnings],
    }

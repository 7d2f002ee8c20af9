"""`rota cron`: schedules in words and in due times; `rota import`: take over a crontab."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter, Token, UnknownOptionError
from cyclopts.validators import Number

from rota.cli import times
from rota.cli.failures import counted, describe_problem, errors_as_failures
from rota.cli.options import DISPLAY, Display, Format
from rota.cli.printing import print_data
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.cli.texts import read_text
from rota.runtime import offline
from rota.runtime.offline import MOST_EXPLAINED, Explanation, host_timezone, import_crontab

app = App(name="cron", help="Explain a schedule, show its next times.")

Expressions = Annotated[
    tuple[str, ...],
    Parameter(
        name="EXPRESSION…",
        allow_leading_hyphen=True,  # "-1 * * * *" is a wrong schedule, not an unknown option
        help='Cron expression, interval, ISO time or words, in quotes: "0 2 * * *", "@daily".',
    ),
]
Count = Annotated[
    int, Parameter(validator=Number(gte=1, lte=MOST_EXPLAINED), help="How many times.")
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Setting:
    """Options beside its text that decide what a schedule means."""

    tz: Annotated[str, Parameter(help="Time zone, such as Europe/Berlin.")] = "UTC"
    from_: Annotated[
        str | None,
        Parameter(name="--from", help="Times after this one (tomorrow, 2026-11-18). Default: now."),
    ] = None
    gap: Annotated[
        Literal["run_after", "skip"], Parameter(help="A time that clocks going forward leave out.")
    ] = "run_after"
    fold: Annotated[
        Literal["first", "both"], Parameter(help="A time that clocks going back repeat.")
    ] = "first"
    job: Annotated[
        str, Parameter(metavar="NAME", help="Job whose own times H stands for.", show_default=False)
    ] = ""


_USUAL = Setting()


@app.command
def explain(
    expression: Expressions,
    /,
    *,
    setting: Setting = _USUAL,
    count: Count = 3,
    display: Display = DISPLAY,
) -> None:
    """Say in words when a schedule is due, and what a change of clocks does to it."""
    _refuse_options(expression, "explain")
    explained = _explained(expression, setting, times.now(), count)
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, _document(explained))
        return
    terminal = display.terminal()
    terminal.write(inert(explained.words))
    shown = " · ".join(_due_times(explained))
    terminal.write(f"  {shown} …" if shown else "  no due time is to come")
    terminal.write(f"  type: {', '.join(explained.kinds)}")
    for change in explained.clock_changes:
        terminal.write(f"  clocks: {inert(change.text)}")
    _warn(terminal, explained)


@app.command(name="next")
def next_(
    expression: Expressions,
    /,
    *,
    setting: Setting = _USUAL,
    count: Count = 5,
    display: Display = DISPLAY,
) -> None:
    """Print the next due times, one a line, with their offset from UTC."""
    _refuse_options(expression, "next")
    explained = _explained(expression, setting, times.now(), count)
    due_times = [time.at.isoformat() for time in explained.next]
    if display.format in (Format.JSON, Format.YAML):
        print_data(display, due_times)
        return
    terminal = display.terminal()
    for time, text in zip(explained.next, due_times, strict=True):
        remark = f"  {time.remark}" if time.remark and display.format is Format.TABLE else ""
        terminal.write(f"{text}{remark}")
    _warn(terminal, explained)


def _refuse_options(expressions: tuple[str, ...], command: str) -> None:
    """Refuse mistyped options, which the parser lets pass as words that begin with a hyphen."""
    for word in expressions:
        if word.startswith("-") and len(word.split()) == 1:
            raise UnknownOptionError(
                token=Token(value=word, source="cli"),
                argument_collection=app[command].assemble_argument_collection(),
                command_chain=("cron", command),
            )


def _explained(
    expressions: tuple[str, ...], setting: Setting, present: datetime, count: int
) -> Explanation:
    with errors_as_failures():
        return offline.explain(
            expressions,
            timezone=setting.tz,
            after=setting.from_ or present,
            count=count,
            dst=(offline.Gap(setting.gap), offline.Fold(setting.fold)),
            job=setting.job,
        )


def _warn(terminal: Terminal, explained: Explanation) -> None:
    for warning in explained.warnings:
        hint = f" — {warning.hint}" if warning.hint else ""
        terminal.tell(inert(f"warning: {warning.message}{hint}"))


def _due_times(explained: Explanation) -> Iterator[str]:
    """Yield the due times, each with its year if it differs from the one before."""
    year = explained.after.year
    for time in explained.next:
        remark = f" ({time.remark})" if time.remark else ""
        yield f"{_date(time.at, year)} {_clock(time.at)}{remark}"
        year = time.at.year


def _date(at: datetime, year: int) -> str:
    return f"{at:%a} {at.day} {at:%b}" + (f" {at.year}" if at.year != year else "")


def _clock(at: datetime) -> str:
    if at.microsecond:
        return f"{at:%H:%M:%S.%f}".rstrip("0")
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"


def _document(explained: Explanation) -> dict[str, object]:
    return {
        "words": explained.words,
        "kinds": list(explained.kinds),
        "next": [time.at.isoformat() for time in explained.next],
        "clock_changes": [
            {"at": change.at.isoformat(), "text": change.text} for change in explained.clock_changes
        ],
        "warnings": [problem.message for problem in explained.warnings],
    }


import_app = App(name="import", help="Turn a crontab into a job file.")


@import_app.command
def crontab(
    file: Annotated[Path, Parameter(help="A crontab; - is standard input.")],
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="Write the job file here, not to standard output."),
    ] = None,
    tz: Annotated[
        str | None, Parameter(name="--tz", help="Time zone of the crontab. Default: this host's.")
    ] = None,
    force: Annotated[bool, Parameter(help="Replace the file of -o if it is there.")] = False,
    system: Annotated[
        bool | None,
        Parameter(
            negative="--no-system",
            help="Its lines have a user column, as in /etc/crontab. Default: have a look.",
        ),
    ] = None,
) -> Exit:
    """Turn a crontab into a job file; lines that cannot be taken over are told."""
    zone = _zone_of_crontab(tz)
    if out is not None and not force:
        _refuse_existing(out)
    source = read_text(file)
    terminal = Display().terminal()
    imported = import_crontab(source.text, timezone=zone, system=system)
    label = "left out: " if imported.jobs else ""
    for problem in imported.problems:
        terminal.tell(describe_problem(problem, file=source.label, error_label=label))
    wrong = sum(not problem.warning for problem in imported.problems)
    if not imported.jobs:
        found = f"{counted(wrong, 'line')} cannot be" if wrong else "there is no line to be"
        terminal.tell(f"nothing was imported: {found} taken over")
    elif out is None:
        terminal.write(imported.text.removesuffix("\n"))
    else:
        _write(out, imported.text)
        terminal.tell(f"wrote {out} · look at it, then: rota apply {out} --plan")
    if wrong and imported.jobs:
        terminal.tell(f"{counted(wrong, 'line')} left out")
    return Exit.INVALID_FILE if wrong else Exit.DONE


def _zone_of_crontab(given: str | None) -> str:
    """Return the zone of the crontab's times; refuse one that the tz database does not have."""
    name = host_timezone() if given is None else given
    try:
        offline.require_zone(name)
    except ValueError as error:
        place, hint = "--tz", ""
        if given is None:
            place, hint = "the zone of this machine", "name that of the crontab: --tz Europe/Berlin"
        raise CommandFailed(f"{place}: {error}", code=Exit.USAGE, hint=hint) from error
    return name


def _refuse_existing(path: Path) -> None:
    if path.is_file():  # not a device such as /dev/stdout
        hint = "choose another name, or replace it with --force"
        raise CommandFailed(f"{path} is already there", code=Exit.CONFLICT, hint=hint)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise CommandFailed(message, code=Exit.UNEXPECTED) from error

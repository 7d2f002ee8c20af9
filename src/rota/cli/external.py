"""`rota run report`, and what is shown of runs that another system does."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from rota.cli import times
from rota.cli.options import WRITING, Writing
from rota.cli.printing import print_one
from rota.cli.references import ActiveRunReference, active_run, ask
from rota.cli.terminal import CommandFailed, Exit, Terminal
from rota.sdk.answers import Announcement, External, Reported
from rota.sdk.client import Client

_GOES_ON = frozenset({"CLAIMED", "PROCESSING"})


def report(
    run: ActiveRunReference,
    /,
    *,
    state: Annotated[
        Literal["processing", "completed", "failed", "cancelled"], Parameter(help="How it stands.")
    ],
    progress: Annotated[
        float | None, Parameter(metavar="SHARE", help="How far it is, from 0 to 1.")
    ] = None,
    message: Annotated[
        str, Parameter(metavar="TEXT", help="What it is doing, or why it failed.")
    ] = "",
    result: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME=VALUE",
            help="An output of a run that completed; repeatable. JSON, or else text.",
        ),
    ] = (),
    log: Annotated[str, Parameter(metavar="TEXT", help="Text for the log of the run.")] = "",
    number: Annotated[
        int | None,
        Parameter(
            metavar="N",
            help="Grows with each report: needed with the token of an attempt. The same number"
            " again is the same report.",
        ),
    ] = None,
    writing: Writing = WRITING,
) -> None:
    """Report how a run stands that another system does: one of a job of type external.

    Operators may, and whoever has the token of the attempt as ROTA_TOKEN: then the run is named by
    its whole id, and ROTA_URL names the server.
    """
    outputs = dict(map(_pair, result)) if result else None
    with writing.connect() as client:
        found = active_run(client, run)
        if writing.dry_run:
            _rehearse(writing, client, found, state)
        call = Client.report_run(
            found,
            state,
            number=number,
            message=message,
            progress=progress,
            outputs=outputs,
            output=log,
        )
        reported = ask(client, call)
    print_one(writing, reported, name=lambda it: it.run, page=_write_reported)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f'--result "{text}" is not NAME=VALUE'
        raise CommandFailed(message, code=Exit.USAGE, hint="--result receipt=A-17")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _rehearse(writing: Writing, client: Client, run: str, state: str) -> None:
    found = client.get_run(run)
    goes_on = found.external is not None and found.state in _GOES_ON
    would = f"would report {run} as {state}; it is {found.state.lower()} now"
    why_not = "it has not begun, or is over" if found.external else "its worker reports"
    would_not = f"would not report on {run}: it is {found.state.lower()}, {why_not}"
    writing.rehearse(would if goes_on else would_not, changes=goes_on)


def _write_reported(terminal: Terminal, reported: Reported) -> None:
    terminal.tell(f"reported {reported.run} as {reported.state}, attempt {reported.attempt}")


def external_pairs(external: External | None, present: datetime) -> list[tuple[str, str]]:
    """Return the lines of a run that another system does."""
    if external is None:
        return []
    due = external.report_due_at
    return [
        ("report due", times.moment(due, present) if due else ""),
        *((told.what, _told(told, present)) for told in external.told),
    ]


def _told(told: Announcement, present: datetime) -> str:
    if told.sent_at is not None:
        return f"answered {times.moment(told.sent_at, present)}"
    if not told.error:
        return "under way" if told.next_at else "not sent: the attempt was over before"
    tries = "once" if told.tries == 1 else f"{told.tries} times"
    again = f", again {times.moment(told.next_at, present)}" if told.next_at else ", given up"
    return f"{tries} in vain: {told.error}{again}"

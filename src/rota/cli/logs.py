"""`rota logs`: what a run printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rota.cli.exits import CommandFailed, Exit
from rota.cli.inert import inert_output
from rota.cli.options import Format, Remote
from rota.cli.printing import print_line
from rota.cli.references import RunReference, run_or_latest
from rota.cli.steps import failed_steps
from rota.sdk import calls
from rota.sdk.answers import LogLine, LogWindow
from rota.sdk.client import Client


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Selection:
    """Which lines."""

    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], help="Stay for lines to come, until the run ends.")
    ] = False
    failed: Annotated[bool, Parameter(help="Only what the failed steps printed.")] = False
    raw: Annotated[bool, Parameter(help="The exact bytes, escape sequences included.")] = False
    attempt: Annotated[int | None, Parameter(help="This attempt, not the latest.")] = None
    tail: Annotated[
        int | None, Parameter(help="Only the last so many lines.", validator=Number(gte=1))
    ] = None
    search: Annotated[str | None, Parameter(help="Only lines that contain this text.")] = None
    timestamps: Annotated[
        bool, Parameter(name=["--timestamps", "-t"], help="When each line was printed, in UTC.")
    ] = False

    def check(self) -> None:
        exclusive = {
            "--follow": self.follow,
            "--failed": self.failed,
            "--raw": self.raw,
            "--search": self.search is not None,
        }
        chosen = [flag for flag, is_given in exclusive.items() if is_given]
        if len(chosen) > 1:
            raise CommandFailed(f"{' and '.join(chosen)} exclude one another", exit=Exit.USAGE)
        if self.tail is not None and (self.raw or self.search is not None):
            raise CommandFailed(f"--tail and {chosen[0]} exclude one another", exit=Exit.USAGE)


def logs(
    run: RunReference, /, *, selection: Selection = Selection(), remote: Remote = Remote()
) -> None:
    """Print what a run printed; with a job's name, what its newest run printed.

    Escape sequences of the output are left out: only --raw lets them reach the terminal.
    """
    selection.check()
    with remote.connect() as client:
        found = run_or_latest(client, run)
        if selection.raw:
            _copy_raw(client, found, selection.attempt)
            return
        for line in _lines(client, found, selection):
            _print(line, selection, remote)


def _copy_raw(client: Client, run: str, attempt: int | None) -> None:
    sys.stdout.flush()
    for data in client.stream(calls.raw_log(run, attempt=attempt)):
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _lines(client: Client, run: str, selection: Selection) -> Iterator[LogLine]:
    if selection.search is not None:
        return _matches(client, run, selection.search)
    if selection.failed:
        return _failed_lines(client, run, selection)
    if selection.follow:
        return _live_lines(client, run, selection)
    return _stored_lines(client, run, selection)


def _stored_lines(client: Client, run: str, selection: Selection) -> Iterator[LogLine]:
    attempt = selection.attempt
    window = client.get_log(run, attempt=attempt, tail=selection.tail)
    yield from window.lines
    while selection.tail is None and window.lines:
        window = client.get_log(run, attempt=attempt, first_line=window.next_line)
        yield from window.lines


def _live_lines(client: Client, run: str, selection: Selection) -> Iterator[LogLine]:
    first_line = 0
    if selection.tail is not None:
        window = client.get_log(run, attempt=selection.attempt, tail=selection.tail)
        yield from window.lines
        first_line = window.next_line
    for news in client.follow_log(run, attempt=selection.attempt, from_line=first_line):
        if isinstance(news, LogWindow):
            yield from news.lines


def _failed_lines(client: Client, run: str, selection: Selection) -> Iterator[LogLine]:
    attempts = client.get_run(run).attempts
    wanted = selection.attempt or (attempts[-1].number if attempts else 0)
    bad = [number for each in attempts if each.number == wanted for number in failed_steps(each)]
    if not bad:
        raise CommandFailed(
            f"no step of {run} failed", exit=Exit.NOT_FOUND, hint=f"rota logs {run}"
        )
    lines = (line for line in _stored_lines(client, run, selection) if line.step in bad)
    return iter(lines)


def _matches(client: Client, run: str, text: str) -> Iterator[LogLine]:
    position: int | None = None
    while True:
        found = client.search_log(run, text, after_line=position)
        yield from found.matches
        if found.next_line is None:
            return
        position = found.next_line


def _print(line: LogLine, selection: Selection, remote: Remote) -> None:
    ...

"""`rota logs`: what a run printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from msgspec import to_builtins
from msgspec.json import encode

from rota.cli import times
from rota.cli.options import REMOTE, Format, Remote
from rota.cli.printing import print_data
from rota.cli.references import LatestRunReference, run_or_latest, run_or_started
from rota.cli.terminal import CommandFailed, Exit, inert, inert_json, inert_output, paged
from rota.cli.watching import failed_steps
from rota.sdk.answers import LogLine, LogWindow
from rota.sdk.client import Client


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of lines."""

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
        bool,
        Parameter(
            name=["--timestamps", "-t"], help="When each line was printed, in the zone of --tz."
        ),
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
            raise CommandFailed(f"{' and '.join(chosen)} exclude one another", code=Exit.USAGE)
        if self.tail is not None and (self.raw or self.search is not None):
            raise CommandFailed(f"--tail and {chosen[0]} exclude one another", code=Exit.USAGE)


_EVERYTHING = Selection()
_PAST_THE_END = 10**12  # a window without lines: only what is known about them


def logs(
    run: LatestRunReference, /, *, selection: Selection = _EVERYTHING, remote: Remote = REMOTE
) -> Exit:
    """Print what a run printed; with a job's name, what its newest run printed.

    Escape sequences of the output are left out: only --raw lets them reach the terminal.
    """
    selection.check()
    with remote.connect() as client:
        found = (run_or_latest if selection.follow else run_or_started)(client, run)
        try:
            if selection.raw:
                _copy_raw(client, found, selection.attempt)
            else:
                _print(_lines(client, found, selection), found, selection, remote)
            _report_pending_output(client, found, selection.attempt, remote)
        except KeyboardInterrupt:
            remote.terminal().tell(f"stopped following; {found} goes on · rota logs {found} -f")
            return Exit.INTERRUPTED
    return Exit.DONE


def _report_pending_output(client: Client, run: str, attempt: int | None, remote: Remote) -> None:
    """Report output of ended attempts that is still on their worker, not delivered yet."""
    window = client.get_log(run, attempt=attempt, first_line=_PAST_THE_END, limit=1)
    if window.pending_bytes:
        size = f"{window.pending_bytes:,} bytes"
        remote.terminal().tell(f"output is still on worker {inert(window.worker)}, {size}")


def _copy_raw(client: Client, run: str, attempt: int | None) -> None:
    sys.stdout.flush()
    for data in client.stream(Client.raw_log(run, attempt=attempt)):
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _lines(client: Client, run: str, selection: Selection) -> Iterator[LogLine]:
    if selection.search is not None:
        return _matches(client, run, selection.search)
    if selection.follow:
        return _live_lines(client, run, selection)
    lines = _stored_lines(client, run, selection)
    return _of_failed_steps(client, run, selection, lines) if selection.failed else lines


def _stored_lines(client: Client, run: str, selection: Selection) -> Iterator[LogLine]:
    window = client.get_log(run, attempt=selection.attempt, tail=selection.tail)
    yield from window.lines
    while selection.tail is None and window.lines:
        window = client.get_log(run, attempt=window.attempt, first_line=window.next_line)
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


def _of_failed_steps(
    client: Client, run: str, selection: Selection, lines: Iterable[LogLine]
) -> Iterator[LogLine]:
    """Yield what the failed steps printed; all output if no single step is to blame."""
    attempts = client.get_run(run).attempts
    wanted = selection.attempt or (attempts[-1].number if attempts else 0)
    bad = {number for each in attempts if each.number == wanted for number in failed_steps(each)}
    return (line for line in lines if not bad or line.step in bad)


def _matches(client: Client, run: str, text: str) -> Iterator[LogLine]:
    position: int | None = None
    while True:
        found = client.search_log(run, text, after_line=position)
        yield from found.matches
        if found.next_line is None:
            return
        position = found.next_line


def _print(lines: Iterator[LogLine], run: str, selection: Selection, remote: Remote) -> None:
    terminal = remote.terminal()
    match remote.format:
        case Format.JSON | Format.YAML if not selection.follow:
            print_data(remote, {"run": run, "lines": [to_builtins(line) for line in lines]})
        case Format.TABLE | Format.WIDE | Format.NAME:
            if selection.follow:
                _write(terminal.out, lines, timestamps=selection.timestamps)
                return
            with paged(terminal) as page:
                _write(page, lines, timestamps=selection.timestamps)
        case _:
            for line in lines:
                terminal.show(inert_json(encode(line).decode()))


def _write(out: IO[str], lines: Iterator[LogLine], *, timestamps: bool) -> None:
    is_mid_line = False
    for line in lines:
        stamp = ""
        if timestamps and not is_mid_line:
            stamp = f"{times.here(line.at):%H:%M:%S.%f}"[:-3] + "  "
        is_mid_line = line.continues
        out.write(stamp + inert_output(line.text) + ("" if is_mid_line else "\n"))
        out.flush()
    if is_mid_line:
        out.write("\n")

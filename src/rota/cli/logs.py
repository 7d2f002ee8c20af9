"""`rota logs`: what a run printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from msgspec import to_builtins
from msgspec.json import encode
from msgspec.json import format as indented

from rota.cli import times
from rota.cli.options import REMOTE, Format, Remote
from rota.cli.printing import print_data
from rota.cli.references import LatestRunReference, run_or_latest, run_or_started
from rota.cli.terminal import (
    CommandFailed,
    Exit,
    Terminal,
    inert,
    inert_json,
    inert_output,
    paged,
)
from rota.cli.watching import failed_steps
from rota.sdk.answers import LogBlock, LogLine, LogPage, LogWindow
from rota.sdk.client import Client
from rota.sdk.errors import NotFound
from rota.sdk.following import AWAY

Printed = Sequence[LogBlock | LogLine]  # that arrived together


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
_FEW = 1_000  # lines that are made data of at once
_MATCHES = 1_000  # lines that one request for matches returns at most
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
                printed = _read(client, found, selection, remote.terminal())
                _print(printed, found, selection, remote)
            _report_missing_output(client, found, selection.attempt, remote.terminal())
        except KeyboardInterrupt:
            remote.terminal().tell(f"stopped following; {found} goes on · rota logs {found} -f")
            return Exit.INTERRUPTED
    return Exit.DONE


def _report_missing_output(
    client: Client, run: str, attempt: int | None, terminal: Terminal
) -> None:
    """Report output that is not here: still on the worker, still to come, or lost with it."""
    window = client.get_log(run, attempt=attempt, first_line=_PAST_THE_END, limit=1)
    worker = inert(window.worker)
    if window.pending_bytes:
        terminal.tell(f"output is still on worker {worker}, {window.pending_bytes:,} bytes")
    elif window.output_state == "torn":
        terminal.tell(f"what worker {worker} had not delivered of the output is lost")
    elif window.attempt and not window.complete:
        terminal.tell(f"output may still be on worker {worker} · rota logs {run} -f")


def _copy_raw(client: Client, run: str, attempt: int | None) -> None:
    sys.stdout.flush()
    for data in client.stream(Client.raw_log(run, attempt=attempt)):
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _read(client: Client, run: str, selection: Selection, terminal: Terminal) -> Iterator[Printed]:
    if selection.search is not None:
        return _matches(client, run, selection)
    if selection.follow:
        return _live(client, run, selection, terminal)
    if selection.failed:
        return _of_failed_steps(client, run, selection, terminal)
    return (page.blocks for page in _pages(client, run, selection))


def _pages(client: Client, run: str, selection: Selection) -> Iterator[LogPage]:
    return client.read_log(run, attempt=selection.attempt, last=selection.tail)


def _live(client: Client, run: str, selection: Selection, terminal: Terminal) -> Iterator[Printed]:
    page = LogPage()
    # Following goes on where this broke off, and waits for an attempt that was not made yet. Only
    # the last lines cannot be found again.
    with suppress(*(() if selection.tail else (*AWAY, NotFound))):
        for page in _pages(client, run, selection):
            yield page.blocks
    attempt = page.attempt or selection.attempt
    for news in client.follow_log(run, attempt=attempt, from_line=page.next_line):
        if isinstance(news, LogWindow):
            if attempt and news.attempt != attempt:
                terminal.tell(f"attempt {news.attempt} begins")
            attempt = news.attempt
            yield news.lines


def _of_failed_steps(
    client: Client, run: str, selection: Selection, terminal: Terminal
) -> Iterator[Printed]:
    """Yield what the failed steps printed; all output if the attempt failed without one."""
    attempts = client.get_run(run).attempts
    wanted = selection.attempt or (attempts[-1].number if attempts else 0)
    attempt = next((each for each in attempts if each.number == wanted), None)
    bad = failed_steps(attempt) if attempt else []
    if attempt is not None and not bad and attempt.result in (None, "COMPLETED"):
        terminal.tell(f"no step of attempt {wanted} failed")
        return
    for page in _pages(client, run, selection):
        yield [block for block in page.blocks if not bad or block.step in bad]


def _matches(client: Client, run: str, selection: Selection) -> Iterator[Printed]:
    assert selection.search is not None
    position: int | None = None
    while True:
        found = client.search_log(
            run,
            selection.search,
            attempt=selection.attempt,
            after_line=position,
            limit=_MATCHES,
        )
        yield found.matches
        if found.next_line is None:
            return
        position = found.next_line


def _print(printed: Iterator[Printed], run: str, selection: Selection, remote: Remote) -> None:
    terminal = remote.terminal()
    match remote.format:
        case Format.JSON if not selection.follow:
            _write_json(terminal, run, _few_lines(printed))
        case Format.YAML if not selection.follow:
            lines = [to_builtins(line) for few in _few_lines(printed) for line in few]
            print_data(remote, {"run": run, "lines": lines})
        case Format.TABLE | Format.WIDE | Format.NAME:
            if selection.follow:
                _write(terminal.out, printed, timestamps=selection.timestamps)
                return
            with paged(terminal) as page:
                _write(page, printed, timestamps=selection.timestamps)
        case _:
            for few in _few_lines(printed):
                terminal.show(inert_json("\n".join(encode(line).decode() for line in few)))


def _few_lines(printed: Iterable[Printed]) -> Iterator[list[LogLine]]:
    """Yield the lines, few at a time: a page of blocks may have a million."""
    for parts in printed:
        lines = (line for part in parts for line in part.lines())
        while few := list(islice(lines, _FEW)):
            yield few


def _write_json(terminal: Terminal, run: str, lines: Iterable[list[LogLine]]) -> None:
    """Write one document as the lines come, because all of them may not fit into memory."""
    terminal.out.write(f'{{\n  "run": {encode(run).decode()},\n  "lines": [')
    separator, end = "", ""
    for few in lines:
        items = indented(encode(few), indent=2).decode()[1:-2]  # without the brackets of the list
        items = inert_json(items.replace("\n", "\n  "))
        terminal.out.write(separator + terminal.plain(items))
        separator, end = ",", "\n  "
    terminal.out.write(end + "]\n}\n")


def _write(out: IO[str], printed: Iterator[Printed], *, timestamps: bool) -> None:
    is_mid_line = False
    for parts in printed:
        for part in parts:
            text = inert_output(part.text)
            if timestamps:
                stamp = f"{times.here(part.at):%H:%M:%S.%f}"[:-3] + "  "
                text = ("" if is_mid_line else stamp) + text.replace("\n", "\n" + stamp)
            is_mid_line = part.continues
            out.write(text if is_mid_line else text + "\n")
        out.flush()  # somebody may wait for it
    if is_mid_line:
        out.write("\n")

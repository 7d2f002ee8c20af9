"""Watching a run to its end, on a terminal or in a log of a build."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from rota.cli.asking import ask
from rota.cli.exits import OF_FINAL_STATE, Exit
from rota.cli.options import Display, Format
from rota.cli.printing import print_data
from rota.cli.transcript import Transcript
from rota.sdk import calls
from rota.sdk.answers import RunDetail
from rota.sdk.client import Client
from rota.sdk.following import AWAY, PATIENCE_SECONDS, Pauses


def watch(client: Client, run: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Tell what happens to a run until it ends; the exit code says how it did."""
    terminal = display.terminal()
    is_for_people = display.format in (Format.TABLE, Format.WIDE)
    transcript = Transcript(client, terminal, terminal.out if is_for_people else terminal.err)
    try:
        ended = _follow(client, run, transcript, timeout)
    except KeyboardInterrupt:
        transcript.end_line()
        terminal.tell(f"stopped watching; {run} goes on · rota run watch {run}")
        return Exit.INTERRUPTED
    if ended is None:
        transcript.end_line()
        terminal.tell(f"{run} is still going · rota run watch {run}")
        return Exit.STILL_GOING
    if not is_for_people:
        print_data(display, ask(client, calls.get_run(run)).data)
    return OF_FINAL_STATE.get(ended.state, Exit.UNEXPECTED)


def _follow(
    client: Client, run: str, transcript: Transcript, timeout: timedelta | None
) -> RunDetail | None:
    """The run once it has ended; None if the time was up first.

    Asks again and again: that survives a restart of the server, which a stream does not.
    """
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    last_answer = time.monotonic()
    pauses = Pauses()
    while True:
        try:
            found = client.get_run(run)
            last_answer = time.monotonic()
            if transcript.take(found):
                pauses.restart()
            if found.is_settled:
                return found
        except AWAY:
            if time.monotonic() - last_answer > PATIENCE_SECONDS:
                raise
        seconds = pauses.next_seconds()
        if end is not None:
            seconds = min(seconds, end - time.monotonic())
            if seconds <= 0:
                return None
        _pause(seconds)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)

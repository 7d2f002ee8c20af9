"""Output of attempts, by lines."""

from __future__ import annotations

from typing import Annotated

from rota.api.answers import UNSENT, Answer, Instant, one_of
from rota.api.runs import OutputState

Stream = Annotated[str, one_of("Where a text came from.", "stdout", "stderr", "rota")]


class LogLine(Answer, frozen=True, kw_only=True):
    n: int  # from 0, over the whole output of the attempt
    at: Instant = UNSENT
    stream: Stream = "stdout"
    step: int = 0  # counted from 0
    text: str = ""  # UTF-8; what is not is replaced
    continues: bool = False  # the line goes on in the next one of its stream and step


class LogWindow(Answer, frozen=True, kw_only=True):
    """Lines in a row of one attempt."""

    run: str = ""
    attempt: int = 0  # 0: the run has not been tried yet
    lines: tuple[LogLine, ...] = ()
    next_line: int = 0  # where the following window begins
    total_lines: int = 0  # that have arrived
    complete: bool = False  # no more will arrive
    truncated: bool = False  # the job's `log_limit` cut it
    output_state: OutputState = ""
    worker: str = ""  # that executes it, or did
    pending_bytes: int = 0  # that an ended attempt left on its worker, which goes on sending


class LogMatches(Answer, frozen=True, kw_only=True):
    """Lines that contain a text."""

    matches: tuple[LogLine, ...] = ()
    next_line: int | None = None  # where the search goes on; None: all was looked through

"""Output of attempts, by lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
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

    def lines(self) -> Iterator[LogLine]:
        yield self


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


class LinesNews(LogWindow, frozen=True, kw_only=True):
    """Lines that a watched run printed, the newest of what came together."""

    skipped: int = 0  # before these: told to nobody, and in the log


class LogBlock(Answer, frozen=True, kw_only=True):
    """Lines in a row with the same time, stream and step."""

    n: int  # number of the first one
    at: Instant = UNSENT
    stream: Stream = "stdout"
    step: int = 0  # counted from 0
    text: str = ""  # the lines, with line feeds between them
    continues: bool = False  # a single one, which goes on in the next block of its stream and step

    def lines(self) -> Iterator[LogLine]:
        for number, text in enumerate(self.text.split("\n"), self.n):
            yield LogLine(
                n=number,
                at=self.at,
                stream=self.stream,
                step=self.step,
                text=text,
                continues=self.continues,
            )


class LogPage(Answer, frozen=True, kw_only=True):
    """Blocks in a row of one attempt."""

    run: str = ""
    attempt: int = 0  # 0: the run has not been tried yet
    blocks: tuple[LogBlock, ...] = ()
    next_line: int = 0  # where the following page begins
    total_lines: int = 0  # that have arrived
    complete: bool = False  # no more will arrive
    truncated: bool = False  # the job's `log_limit` cut it
    output_state: OutputState = ""
    worker: str = ""  # that executes it, or did
    pending_bytes: int = 0  # that an ended attempt left on its worker, which goes on sending

    def windows(self, limit: int = 10_000) -> Iterator[LogWindow]:
        """Yield the page by lines, so few at a time that they are never many in memory."""
        lines = chain.from_iterable(block.lines() for block in self.blocks)
        while part := tuple(islice(lines, limit)):
            yield LogWindow(
                run=self.run,
                attempt=self.attempt,
                lines=part,
                next_line=part[-1].n + 1,
                total_lines=self.total_lines,
                complete=self.complete,
                truncated=self.truncated,
                output_state=self.output_state,
                worker=self.worker,
                pending_bytes=self.pending_bytes,
            )


class LogMatches(Answer, frozen=True, kw_only=True):
    """Lines that contain a text."""

    matches: tuple[LogLine, ...] = ()
    next_line: int | None = None  # where the search goes on; None: all was looked through

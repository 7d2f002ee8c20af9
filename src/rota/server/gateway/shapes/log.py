"""What attempts print, by lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota.domain.output import Stream
from rota.domain.run import OutputState, OutputSummary
from rota.operations.output import OutputLine, OutputWindow, SearchPage
from rota.server.gateway.shapes.models import Answer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogLine(Answer):
    n: int  # from 0, over the whole output of the attempt
    at: datetime
    stream: Stream
    step: int  # counted from 0
    text: str  # UTF-8; what is not is replaced
    continues: bool  # the line goes on in the next one of its stream and step

    @classmethod
    def of(cls, line: OutputLine) -> LogLine:
        record = line.record
        return cls(
            n=line.number,
            at=_EPOCH + timedelta(milliseconds=record.at_ms),
            stream=record.stream,
            step=record.step,
            text=record.text.decode(errors="replace"),
            continues=not record.ends_line,
        )


class LogWindow(Answer):
    """Lines in a row of one attempt."""

    run: str
    attempt: int  # 0: the run has not been tried yet
    lines: list[LogLine]
    next_line: int  # where the following window begins
    total_lines: int  # that have arrived
    complete: bool  # no more will arrive
    truncated: bool  # the job's `log_limit` cut it
    output_state: OutputState
    worker: str  # that executes it, or did
    pending_bytes: int  # that an ended attempt left on its worker, which goes on sending

    @classmethod
    def of(cls, run: str, attempt: int, window: OutputWindow, summary: OutputSummary) -> LogWindow:
        return cls(
            run=run,
            attempt=attempt,
            lines=[LogLine.of(line) for line in window.lines],
            next_line=window.next_line,
            total_lines=window.total_lines,
            complete=window.is_complete,
            truncated=summary.truncated,
            output_state=summary.state,
            worker=window.worker,
            pending_bytes=window.pending_bytes,
        )

    @classmethod
    def before_first_attempt(cls, run: str, *, complete: bool) -> LogWindow:
        window = OutputWindow((), next_line=0, total_lines=0, is_complete=complete)
        return cls.of(run, 0, window, OutputSummary())


class LogMatches(Answer):
    """Lines that contain a text."""

    matches: list[LogLine]
    next_line: int | None  # where the search goes on; None: all was looked through

    @classmethod
    def of(cls, page: SearchPage) -> LogMatches:
        return cls(
            matches=[LogLine.of(line) for line in page.hits],
            next_line=None if page.is_exhausted else page.next_line,
        )

"""What happens to a run, told as it becomes known."""

from __future__ import annotations

from typing import TextIO

from rota.cli import times
from rota.cli.inert import inert, width_of
from rota.cli.run_views import ended_by
from rota.cli.steps import failed_steps, output_tail, step_line
from rota.cli.terminal import Terminal
from rota.sdk.answers import Attempt, RunDetail
from rota.sdk.client import Client

_WAITING = frozenset({"SCHEDULED", "BLOCKED", "QUEUED"})
_LINES_LOOKED_AT = 500


class Transcript:
    """Remembers what has been told, so that each look at the run adds only what is new."""

    def __init__(self, client: Client, terminal: Terminal, stream: TextIO) -> None:
        self._client = client
        self._terminal = terminal
        self._stream = stream
        self._is_mid_line = False
        self._told: set[str] = set()

    def take(self, run: RunDetail) -> bool:
        """Tell what is new about the run; whether there was anything."""
        before = len(self._told)
        if self._is_new("run"):
            self._add(f"run {run.id}")
        for attempt in run.attempts:
            self._take_attempt(run, attempt)
        if run.state in _WAITING:
            self._take_waiting(run)
        if run.is_settled:
            self._take_end(run)
        return len(self._told) > before

    def end_line(self) -> None:
        if self._is_mid_line:
            self._write("\n")
            self._is_mid_line = False

    def _take_waiting(self, run: RunDetail) -> None:
        state = run.state.lower()
        if self._is_new(f"{state} before attempt {run.attempt + 1}"):
            reason = f": {inert(run.waiting)}" if run.waiting and run.state != "QUEUED" else ""
            self._add(f"{state}{reason}")

    def _take_attempt(self, run: RunDetail, attempt: Attempt) -> None:
        which = f"attempt {attempt.number}"
        if self._is_new(f"{which} claimed"):
            again = f"{which} " if attempt.number > 1 else ""
            self._add(f"{again}claimed by {inert(attempt.worker)}{_waited(run, attempt)}")
        if attempt.started_at is not None and self._is_new(f"{which} started"):
            self._add("processing")
            self.end_line()
        if attempt.result is not None and self._is_new(f"{which} ended"):
            self._take_result(run, attempt)

    def _take_result(self, run: RunDetail, attempt: Attempt) -> None:
        self.end_line()
        lines = ()
        bad_steps = failed_steps(attempt)
        if attempt.result != "COMPLETED" and attempt.output.lines:
            window = self._client.get_log(run.id, attempt=attempt.number, tail=_LINES_LOOKED_AT)
            lines = window.lines
        width = max((width_of(inert(step.name)) for step in attempt.steps), default=0)
        for number, step in enumerate(attempt.steps):
            self._line(step_line(step, width))
            if number in bad_steps:
                self._quote(output_tail(lines, number))
        if not attempt.steps:
            self._quote(output_tail(lines, None))
        if attempt.message and not bad_steps:
            self._line(f"  {inert(attempt.message)}")
        if not (run.is_settled and attempt.number == run.attempt):
            how = ended_by(attempt)
            self._line(f"  attempt {attempt.number} {_words(attempt, how)}; it is tried again")

    def _take_end(self, run: RunDetail) -> None:
        self.end_line()
        took = "" if run.duration_seconds is None else times.length(run.duration_seconds)
        address = f"{self._client.server.url}{run.url}"
        state = self._terminal.state(run.state)
        match run.state:
            case "COMPLETED":
                self._line(f"✔ {state} in {took or 'no time'} · rota logs {run.id} · {address}")
            case "UNKNOWN":
                action = f"rota run resolve {run.id} --as completed|failed|retry"
                self._line(f"✖ {state}: a person must decide · {action} · {address}")
            case _:
                after = f" after {took}" if took else ""
                cause = f" ({inert(run.cause)})" if run.cause else ""
                logs = f" · rota logs {run.id} --failed" if run.attempts else ""
                self._line(f"✖ {state}{after}{cause}{logs} · {address}")

    def _is_new(self, fact: str) -> bool:
        if fact in self._told:
            return False
        self._told.add(fact)
        return True

    def _add(self, text: str) -> None:
        """Go on with the line of what led from one state to the next."""
        separator = " → " if self._is_mid_line else ""
        if separator and len(self._told) == 2:
            separator = " "
        self._write(f"{separator}{text}")
        self._is_mid_line = True

    def _quote(self, lines: list[str]) -> None:
        for line in lines:
            self._line(f"    | {line}")

    def _line(self, text: str) -> None:
        self.end_line()
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(self._terminal.plain(text))
        self._stream.flush()


def _waited(run: RunDetail, attempt: Attempt) -> str:
    if run.queued_at is None or attempt.claimed_at is None or attempt.number > 1:
        return ""
    waited = (attempt.claimed_at - run.queued_at).total_seconds()
    return f" ({times.length(waited)})" if waited >= 0 else ""


def _words(attempt: Attempt, how: str) -> str:
    result = (attempt.result or "").lower().replace("_", " ")
    return f"{result} ({how})" if how else result

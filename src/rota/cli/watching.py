"""Watching a run to its end, on a terminal or in a log of a build."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TextIO

from rota.cli import times
from rota.cli.asking import ask
from rota.cli.exits import OF_FINAL_STATE, Exit
from rota.cli.options import Display, Format
from rota.cli.printing import print_data
from rota.cli.terminal import Terminal, inert, inert_output, width_of
from rota.sdk.answers import Attempt, LogLine, RunDetail, Step
from rota.sdk.client import Client
from rota.sdk.errors import Unavailable

_MARKS = {"completed": "✔", "skipped": "–"}
_SHOWN = 10


def step_line(step: Step, width: int) -> str:
    """`  Test       ✖ exit 1  (12.0 s)`."""
    name = inert(step.name)
    padded = name + " " * (width - width_of(name))
    mark = _MARKS.get(step.result, "✖")
    if step.result == "skipped":
        return f"  {padded}  {mark} skipped"
    if step.result == "completed":
        return f"  {padded}  {mark} {times.length(step.seconds)}{_tries(step)}"
    return f"  {padded}  {mark} {_ending(step)}  ({times.length(step.seconds)}){_tries(step)}"


def failed_steps(attempt: Attempt) -> list[int]:
    """The numbers of the steps that ended badly."""
    return [number for number, step in enumerate(attempt.steps) if step.result not in _MARKS]


def output_tail(lines: Iterable[LogLine], step: int | None) -> list[str]:
    """The last lines that a step printed; None: whatever step it was."""
    printed = [line for line in lines if step is None or line.step == step]
    return [inert_output(line.text) for line in printed[-_SHOWN:]]


def _ending(step: Step) -> str:
    if step.signal is not None:
        return f"signal {step.signal}"
    if step.result == "failed" and step.exit_code is not None:
        return f"exit {step.exit_code}"
    return step.result.replace("_", " ")


def _tries(step: Step) -> str:
    return f"  after {step.tries} tries" if step.tries > 1 else ""


_WAITING = frozenset({"SCHEDULED", "BLOCKED", "QUEUED"})
_LINES_LOOKED_AT = 500


class Transcript:
    """Remembers what has been told, so that each look at the run adds only what is new."""

    def __init__(self, client: Client, terminal: Terminal, stream: TextIO) -> None:
        self._client = client
        self._terminal = terminal
        self._stream = stream
        self._told: set[str] = set()
        self._separator = ""  # before the next piece of the line being written; "": there is none

    def take(self, run: RunDetail) -> None:
        """Tell what is new about the run."""
        for attempt in run.attempts:
            self._take_attempt(run, attempt)
        is_between = not run.attempts or run.attempts[-1].result is not None
        if run.state in _WAITING and is_between:
            self._take_waiting(run)
        if run.is_settled:
            self._take_end(run)

    def end_line(self) -> None:
        if self._separator:
            self._write("\n")
            self._separator = ""

    def _take_waiting(self, run: RunDetail) -> None:
        number = run.attempt + 1
        if self._is_new(f"{run.state} before attempt {number}"):
            self._begin(run, number)
            self._add(run.state.lower() + _waiting_for(run))

    def _take_attempt(self, run: RunDetail, attempt: Attempt) -> None:
        which = f"attempt {attempt.number}"
        if self._is_new(f"{which} claimed"):
            self._begin(run, attempt.number)
            if run.queued_at and self._is_new(f"QUEUED before {which}"):
                self._add("queued")
            self._add(f"claimed by {inert(attempt.worker)}{_waited(run, attempt)}")
        if attempt.started_at is not None and self._is_new(f"{which} started"):
            self._add("processing")
            self.end_line()
        if attempt.result is not None and self._is_new(f"{which} ended"):
            self._take_result(run, attempt)

    def _take_result(self, run: RunDetail, attempt: Attempt) -> None:
        self.end_line()
        lines = self._last_lines(run, attempt)
        bad_steps = failed_steps(attempt)
        width = max((width_of(inert(step.name)) for step in attempt.steps), default=0)
        for number, step in enumerate(attempt.steps):
            self._line(step_line(step, width))
            if number in bad_steps:
                self._quote(output_tail(lines, number))
        if not attempt.steps:
            self._quote(output_tail(lines, None))
        if attempt.output.state == "pending":
            self._line(f"  output is still on worker {inert(attempt.worker)}")
        if attempt.message and not bad_steps:
            self._line(f"  {inert(attempt.message)}")
        if not (run.is_settled and attempt.number == run.attempt):
            result = (attempt.result or "").lower().replace("_", " ")
            limit = "" if run.losses else f" of {run.max_attempts}"  # lost ones do not count
            self._line(f"  attempt {attempt.number}{limit} {result}")

    def _last_lines(self, run: RunDetail, attempt: Attempt) -> Sequence[LogLine]:
        if attempt.result == "COMPLETED" or not attempt.output.lines:
            return ()
        with suppress(Unavailable):  # the run has an end to tell, also while its output is away
            return self._client.get_log(run.id, attempt=attempt.number, tail=_LINES_LOOKED_AT).lines
        return ()

    def _take_end(self, run: RunDetail) -> None:
        if self._is_new("end"):
            self._line(f"{self._verdict(run)} · {self._client.server.url}{run.url}")

    def _verdict(self, run: RunDetail) -> str:
        state, took = self._terminal.state(run.state), _took(run)
        match run.state:
            case "COMPLETED":
                return f"✔ {state}{f' in {took}' if took else ''} · rota logs {run.id}"
            case "UNKNOWN":
                action = f"rota run resolve {run.id} --as completed|failed|retry"
                return f"✖ {state}: a person must decide · {action}"
            case _:
                after = f" after {took}" if took else ""
                cause = f" ({inert(run.cause)})" if run.cause else ""
                logs = f" · rota logs {run.id} --failed" if run.attempts else ""
                return f"✖ {state}{after}{cause}{logs}"

    def _is_new(self, fact: str) -> bool:
        is_new = fact not in self._told
        self._told.add(fact)
        return is_new

    def _begin(self, run: RunDetail, attempt: int) -> None:
        """Start the line that tells how the run comes to this attempt."""
        if self._is_new(f"way to attempt {attempt}"):
            self.end_line()
            self._write(f"run {run.id}" if attempt == 1 else f"attempt {attempt}")
            self._separator = " "

    def _add(self, text: str) -> None:
        self._write(f"{self._separator}{text}")
        self._separator = " → "

    def _quote(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(f"    | {line}")

    def _line(self, text: str) -> None:
        self.end_line()
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(self._terminal.plain(text))
        self._stream.flush()


def _waiting_for(run: RunDetail) -> str:
    if run.state == "QUEUED":
        return ""
    if run.waiting:
        return f": {inert(run.waiting)}"
    return f" {times.relative(run.eligible_at, times.now())}" if run.eligible_at else ""


def _waited(run: RunDetail, attempt: Attempt) -> str:
    if run.queued_at is None or attempt.number != run.attempt:
        return ""
    waited = (attempt.claimed_at - run.queued_at).total_seconds()
    return f" ({times.length(waited)})" if waited >= 0 else ""


def _took(run: RunDetail) -> str:
    """From its first start to its end, back-offs included."""
    if run.first_started_at is None or run.ended_at is None:
        return ""
    return times.length((run.ended_at - run.first_started_at).total_seconds())


def watch(client: Client, run: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Tell what happens to a run until it ends; the exit code says how it did."""
    terminal = display.terminal()
    is_for_people = display.format in (Format.TABLE, Format.WIDE)
    transcript = Transcript(client, terminal, terminal.out if is_for_people else terminal.err)
    seconds = None if timeout is None else timeout.total_seconds()
    ended: RunDetail | None = None
    try:
        for ended in client.follow_run(run, seconds):
            transcript.take(ended)
    except KeyboardInterrupt:
        transcript.end_line()
        terminal.tell(f"stopped watching; {run} goes on · rota run watch {run}")
        return Exit.INTERRUPTED
    except TimeoutError:
        transcript.end_line()
        terminal.tell(f"{run} is still going · rota run watch {run}")
        return Exit.STILL_GOING
    assert ended is not None  # following hands out at least the run that has ended
    if not is_for_people:
        print_data(display, ask(client, Client.get_run(run)).data)
    return OF_FINAL_STATE.get(ended.state, Exit.UNEXPECTED)

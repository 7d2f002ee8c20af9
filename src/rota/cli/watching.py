"""Watching of a run or a cart to its end, on a terminal or in a build's log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TextIO

from rota.api.carts import CartDetail
from rota.cli import times
from rota.cli.cart_views import actions, standing, verdict
from rota.cli.options import Display, Format
from rota.cli.printing import print_data
from rota.cli.references import ask, page_address
from rota.cli.terminal import (
    CLEAR_REST,
    OF_FINAL_STATE,
    TO_LINE_START,
    Exit,
    Terminal,
    bar,
    can_be_drawn_over,
    inert,
    inert_output,
    width_of,
)
from rota.sdk.answers import Attempt, LogLine, Run, RunDetail, Step
from rota.sdk.client import Client
from rota.sdk.errors import Unavailable

_MARKS = {"completed": "✔", "skipped": "–"}
_SHOWN = 10


def step_line(step: Step, width: int) -> str:
    """Format `  Test       ✖ exit 1  (12.0 s)`."""
    name = inert(step.name)
    padded = name + " " * (width - width_of(name))
    mark = _MARKS.get(step.result, "✖")
    if step.result == "skipped":
        return f"  {padded}  {mark} skipped"
    if step.result == "completed":
        return f"  {padded}  {mark} {times.length(step.seconds)}{_tries(step)}"
    return f"  {padded}  {mark} {_ending(step)}  ({times.length(step.seconds)}){_tries(step)}"


def failed_steps(attempt: Attempt) -> list[int]:
    """Return the numbers of the failed steps."""
    return [number for number, step in enumerate(attempt.steps) if step.result not in _MARKS]


def output_tail(lines: Iterable[LogLine], step: int | None) -> list[str]:
    """Return the last lines that a step printed; None: of any step."""
    printed = [line for line in lines if step is None or line.step == step]
    return [inert_output(line.text) for line in printed[-_SHOWN:]]


def _ending(step: Step) -> str:
    cause = f", {inert(step.cause)}" if step.cause else ""
    if step.signal is not None:
        return f"signal {step.signal}{cause}"
    if step.result == "failed" and step.exit_code is not None:
        return f"exit {step.exit_code}{cause}"
    return f"{step.result.replace('_', ' ')}{cause}"


def _tries(step: Step) -> str:
    return f"  after {step.tries} tries" if step.tries > 1 else ""


_WAITING = frozenset({"SCHEDULED", "BLOCKED", "QUEUED"})
_LINES_LOOKED_AT = 500


class Transcript:
    """Remembers what was printed, so that each look at the run adds only what is new."""

    def __init__(self, client: Client, terminal: Terminal, stream: TextIO) -> None:
        self._client = client
        self._terminal = terminal
        self._stream = stream
        self._told: set[str] = set()
        self._separator = ""  # before the next piece of the line being written; "": there is none

    def take(self, run: RunDetail) -> None:
        """Print what is new about the run."""
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
            # What was lost or interrupted does not count against the limit.
            limit = "" if run.losses or interrupted(run) else f" of {run.max_attempts}"
            self._line(f"  attempt {attempt.number}{limit} {result}")

    def _last_lines(self, run: RunDetail, attempt: Attempt) -> Sequence[LogLine]:
        if attempt.result == "COMPLETED" or not attempt.output.lines:
            return ()
        with suppress(Unavailable):  # the run has an end to tell, also while its output is away
            return self._client.get_log(run.id, attempt=attempt.number, tail=_LINES_LOOKED_AT).lines
        return ()

    def _take_end(self, run: RunDetail) -> None:
        if self._is_new("end"):
            address = page_address(self._client.server.url, run.url)
            self._line(f"{self._verdict(run)} · {address}")

    def _verdict(self, run: RunDetail) -> str:
        state, length = self._terminal.state(run.state), took(run)
        match run.state:
            case "COMPLETED":
                return f"✔ {state}{f' in {length}' if length else ''} · rota logs {run.id}"
            case "UNKNOWN":
                action = f"rota run resolve {run.id} --as completed|failed|retry"
                return f"✖ {state}: a person must decide · {action}"
            case _:
                after = f" after {length}" if length else ""
                cause = f" ({inert(run.cause)})" if run.cause else ""
                logs = f" · rota logs {run.id} --failed" if run.attempts else ""
                return f"✖ {state}{after}{cause}{logs}"

    def _is_new(self, fact: str) -> bool:
        is_new = fact not in self._told
        self._told.add(fact)
        return is_new

    def _begin(self, run: RunDetail, attempt: int) -> None:
        """Begin the line that says how the run comes to this attempt."""
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


_ALL_ATTEMPTS_ENDED = _WAITING | {"FAILED", "TIMED_OUT"}


def interrupted(run: Run) -> int:
    """Count the attempts that neither failed nor were lost, without the latest if it may count."""
    others = run.attempt - run.failures - run.losses
    return max(0, others if run.state in _ALL_ATTEMPTS_ENDED else others - 1)


def took(run: Run) -> str:
    """Format how long its latest attempt took; with others before it `2.0 s, 35.0 s in total`."""
    if run.duration_seconds is None:
        return ""
    latest = times.length(run.duration_seconds)
    if run.attempt < 2 or run.first_started_at is None or run.ended_at is None:
        return latest
    total = times.length((run.ended_at - run.first_started_at).total_seconds())
    return f"{latest}, {total} in total"


def watch(client: Client, run: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Print what happens to a run until it ends; return its exit code."""
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


_STEPS = 20  # lines at most that progress alone is worth where nothing can be drawn over


class ProgressDisplay:
    """Remembers what was shown, so that only what is new is written."""

    def __init__(self, terminal: Terminal, stream: TextIO) -> None:
        self._terminal = terminal
        self._stream = stream
        self._is_live = can_be_drawn_over(stream)
        self._shown = ""
        self._told: tuple[object, ...] = ()

    def take(self, cart: CartDetail) -> None:
        """Print the progress of the cart, if that is new."""
        line = progress_line(cart, times.now())
        if not self._is_live and self._is_worth_a_line(cart):
            self.write(line)
        if self._is_live and line != self._shown:
            self._draw(line)
        self._shown = line

    def end_line(self) -> None:
        """End the drawn line, and leave it as it is."""
        if self._is_live and self._shown:
            self._stream.write("\n")
            self._stream.flush()
            self._shown = ""

    def write(self, line: str) -> None:
        self._stream.write(self._terminal.plain(line) + "\n")
        self._stream.flush()

    def _draw(self, line: str) -> None:
        text = self._terminal.plain(line)
        while self._terminal.width and width_of(text) >= self._terminal.width:
            text = text[:-1]
        self._stream.write(f"{TO_LINE_START}{text}{CLEAR_REST}")
        self._stream.flush()

    def _is_worth_a_line(self, cart: CartDetail) -> bool:
        share = cart.done * _STEPS // max(cart.items, 1)
        # Of very many small waves not each is worth a line.
        place = cart.place if _waves(cart) <= _STEPS else ""
        told = (cart.state, cart.reason, place, share)
        is_new, self._told = told != self._told, told
        return is_new


def progress_line(cart: CartDetail, present: datetime) -> str:
    """Format `wave 4/13  ██░░…  106/1,000  ✔ 103  ✖ 3  ▶ 20  ETA 03:52 UTC`."""
    parts = [
        f"wave {cart.place.replace(' of ', '/')}" if cart.place else "",
        bar(cart.done / max(cart.items, 1)),
        f"{cart.done:,}/{cart.items:,}",
        f"✔ {cart.completed:,}",
        f"✖ {cart.failed:,}",
        f"▶ {cart.open - cart.progress.waiting:,}",
        f"{cart.progress.waiting:,} not started" if cart.progress.waiting else "",
        _ahead(cart, present),
    ]
    return "  ".join(part for part in parts if part)


def _ahead(cart: CartDetail, present: datetime) -> str:
    if cart.state != "RUNNING" or cart.reason:
        return inert(standing(cart))
    if cart.eta is None:
        return ""
    eta, zone = times.here(cart.eta), times.zone_mark(cart.eta)
    is_today = eta.date() == times.here(present).date()
    return f"ETA {eta:%H:%M} {zone}" if is_today else f"ETA {eta:%Y-%m-%d %H:%M} {zone}"


def _waves(cart: CartDetail) -> int:
    _, _, total = cart.place.partition(" of ")
    return int(total) if total.isdigit() else 0


def watch_cart(client: Client, cart: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Show a cart's progress until it ends or a person has to decide; return its exit code."""
    terminal = display.terminal()
    is_for_people = display.format in (Format.TABLE, Format.WIDE)
    progress = ProgressDisplay(terminal, terminal.out if is_for_people else terminal.err)
    seconds = None if timeout is None else timeout.total_seconds()
    settled: CartDetail | None = None
    try:
        for settled in client.follow_cart(cart, seconds):
            progress.take(settled)
    except KeyboardInterrupt:
        progress.end_line()
        terminal.tell(f"stopped watching; {cart} goes on · rota cart watch {cart}")
        return Exit.INTERRUPTED
    except TimeoutError:
        progress.end_line()
        terminal.tell(f"{cart} is still going · rota cart watch {cart}")
        return Exit.STILL_GOING
    assert settled is not None  # following hands out at least the cart that is settled
    progress.end_line()
    if not is_for_people:
        print_data(display, ask(client, Client.get_cart(cart)).data)
    _tell_end(terminal, progress, settled, client.address_of_cart(cart))
    return exit_of_cart(settled)


def exit_of_cart(cart: CartDetail) -> Exit:
    """Return the exit code of a cart that has ended or is paused."""
    if cart.state == "PAUSED":
        return Exit.CART_PAUSED
    if cart.failed_too_often:
        return Exit.RUN_FAILED
    return Exit.RUN_STOPPED if cart.was_stopped else Exit.DONE


def _tell_end(
    terminal: Terminal, progress: ProgressDisplay, cart: CartDetail, address: str
) -> None:
    progress.write(f"{verdict(terminal, cart)} · {address}")
    if cart.state == "PARTIAL" and not cart.has_failed:
        terminal.tell(f"{cart.failed:,} of {cart.items:,} items failed, within what is allowed")
    for action in actions(cart):
        terminal.tell(action)

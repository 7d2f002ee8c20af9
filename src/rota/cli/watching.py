"""Watching of a run to its end, on a terminal or in a build's log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol, TextIO, TypeVar

from msgspec.json import encode

from rota.cli import times
from rota.cli.options import Display, Format
from rota.cli.printing import print_data
from rota.cli.references import ask, page_address
from rota.cli.terminal import (
    OF_FINAL_STATE,
    Exit,
    Screen,
    Terminal,
    bar,
    cut,
    inert,
    inert_json,
    inert_output,
    width_of,
)
from rota.sdk.answers import (
    Attempt,
    CartDetail,
    LinesNews,
    Progress,
    ProgressNews,
    Run,
    RunDetail,
    Step,
    StepNews,
    TimeNews,
)
from rota.sdk.client import Client
from rota.sdk.watching import CartNews, RunNews

N = TypeVar("N", RunNews, CartNews)
N_contra = TypeVar("N_contra", contravariant=True)

_MARKS = {"completed": "✔", "skipped": "–"}
_LONGEST_MESSAGE = 200  # cells


def step_line(step: Step, width: int) -> str:
    """Format `  Test       ✖ exit 1  (12.0 s)`."""
    padded = _padded(inert(step.shown), width)
    if step.is_running:
        return f"  {padded}  ▶ {elapsed(step.started_at, times.now())}".rstrip()
    mark = _MARKS.get(step.result, "✖")
    if step.result == "skipped":
        return f"  {padded}  {mark} skipped"
    if step.result == "completed":
        return f"  {padded}  {mark} {times.length(step.seconds)}{_tries(step)}"
    return f"  {padded}  {mark} {_ending(step)}  ({times.length(step.seconds)}){_tries(step)}"


def failed_steps(attempt: Attempt) -> list[int]:
    """Return the numbers of the failed steps."""
    return [number for number, step in enumerate(attempt.steps) if step.result not in _MARKS]


def _padded(name: str, width: int) -> str:
    return name + " " * (width - width_of(name))


def progress_words(progress: Progress) -> str:
    """Format `█████████░░░░░░░░░░░  45%  copying`; without a total `45  copying`."""
    share, message = share_of(progress), cut(inert(progress.message), _LONGEST_MESSAGE)
    far = f"{progress.done:g}" if share is None else f"{bar(share)}  {share:.0%}"
    return f"{far}  {message}" if message else far


def share_of(progress: Progress) -> float | None:
    """Return the part that is done, from 0 to 1; None: it did not say of how much."""
    if progress.total is None or progress.total <= 0:
        return None
    return min(max(progress.done / progress.total, 0.0), 1.0)


def elapsed(since: datetime | None, now: datetime | None) -> str:
    """Format a time that goes on, in whole seconds: `12 s`, `1 m 02 s`; "" if it is unknown."""
    if since is None or now is None:
        return ""
    seconds = max((now - since).total_seconds(), 0.0)
    return f"{int(seconds)} s" if seconds < 60 else times.length(int(seconds))


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
_NEWEST = 20  # lines of output that are shown of what came at once
_SHARES = 20  # lines at most that progress is worth where nothing can be drawn over
_LONGEST_LINE = 4_000  # characters of an unfinished line that are kept
_WIDEST_NAME = 24  # cells that names of steps are aligned to


class Transcript:
    """Shows what happens to a run: what has happened stays, how it stands is drawn below.

    Where nothing can be drawn, the begin of a step is a line, too, and so is progress now and then.
    """

    def __init__(self, client: Client, terminal: Terminal, stream: TextIO) -> None:
        self._address = client.server.url
        self._terminal = terminal
        self._screen = Screen(terminal, stream)
        self._told: set[str] = set()
        self._way = ""  # of the run to a worker: the line that is being written
        self._separator = " "  # before its next piece
        self._run: Run | None = None
        self._later: Run | None = None  # what is to be shown once its latest attempt has ended
        self._ended: Attempt | None = None  # the latest that has, unless that was summed up
        self._now: datetime | None = None  # by the server's clock
        self._steps: dict[int, Step] = {}  # that go on
        self._width = 0  # of the longest name of a step
        self._open: dict[tuple[str, int], str] = {}  # unfinished lines, by stream and step
        self._progress: Progress | None = None
        self._share = 0

    def take(self, news: RunNews) -> None:
        """Show what is new."""
        match news:
            case RunDetail():
                self._take_detail(news)
            case Run():
                self._take_run(news)
            case StepNews():
                self._take_step(news)
            case ProgressNews():
                self._take_progress(news.progress)
            case LinesNews():
                self._take_lines(news)
            case Attempt():
                self._take_attempt(news)
            case TimeNews():
                self._now = news.at
                self._tell_begun()
                self._tell_doubt()
        self._draw()

    def end_line(self) -> None:
        """Leave the screen to others: what was drawn is gone."""
        self._end_way()
        self._screen.clear()

    # --- the run

    def _take_run(self, run: Run) -> None:
        self._run = run
        if run.state in _WAITING:
            if run.attempt and f"attempt {run.attempt} ended" not in self._told:
                self._take_claim(run)  # and the rest of this attempt first
                self._later = run
                return
            number = run.attempt + 1
            if self._is_new(f"{run.state} before attempt {number}"):
                self._begin_way(run, number)
                self._add(run.state.lower() + _waiting_for(run))
        elif run.attempt:
            self._take_claim(run)

    def _tell_doubt(self) -> None:
        """Show that the run is UNKNOWN, and is not left to a person, or that were its end."""
        run = self._run
        if run is None or run.state != "UNKNOWN" or "end" in self._told:
            return
        if self._is_new(f"doubt about attempt {run.attempt}"):
            self._line(f"{self._terminal.state(run.state)}: its probe is to tell how it ended")

    def _take_claim(self, run: Run) -> None:
        """Show that a worker has the run, in its latest attempt."""
        number = run.attempt
        if self._is_new(f"attempt {number} claimed"):
            self._begin_way(run, number)
            if run.queued_at and self._is_new(f"QUEUED before attempt {number}"):
                self._add("queued")
            self._add(f"{_claimed_by(run.worker)}{_waited(run)}")
        if run.started_at is not None:
            self._take_start()

    def _take_start(self) -> None:
        """Show that the work has begun, where the line says how it came to that."""
        if self._way:
            self._add("processing")
            self._end_way()

    def _take_detail(self, run: RunDetail) -> None:
        """Show the run as a whole; most of it was told before."""
        for attempt in run.attempts:
            if attempt.number < run.attempt:
                self._take_claimed(run, attempt)
            else:
                self._take_claim(run)
            if attempt.result is not None:
                self._take_attempt(attempt)
        self._take_run(run)
        if run.is_settled and self._is_new("end"):
            self._end_way()
            address = page_address(self._address, run.url)
            self._line(f"{self._verdict(run)} · {address}")

    def _take_claimed(self, run: Run, attempt: Attempt) -> None:
        """Show that a worker had the run in an earlier attempt, of which no stream told."""
        if self._is_new(f"attempt {attempt.number} claimed"):
            self._begin_way(run, attempt.number)
            self._add(_claimed_by(attempt.worker))
            if attempt.started_at is not None:
                self._add("processing")
            self._end_way()

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

    # --- the way to a worker, which is one line however long it takes

    def _begin_way(self, run: Run, attempt: int) -> None:
        if self._is_new(f"way to attempt {attempt}"):
            self._end_way()
            self._sum_up(run)
            is_first = self._is_new("first way")
            which = "" if attempt == 1 else f"attempt {attempt}"
            self._way = " ".join(filter(None, [f"run {run.id}" if is_first else "", which]))
            self._separator = " "
            if not self._screen.is_live:
                self._screen.write_part(self._way)

    def _add(self, text: str) -> None:
        piece, self._separator = f"{self._separator}{text}", " → "
        self._way += piece
        if not self._screen.is_live:
            self._screen.write_part(piece)

    def _end_way(self) -> None:
        way, self._way = self._way, ""
        if way:
            self._screen.draw([])  # it is what was drawn
            self._screen.write(way if self._screen.is_live else "")

    def _sum_up(self, run: Run | None) -> None:
        """Say how an attempt ended that another one follows."""
        attempt, self._ended = self._ended, None
        if attempt is not None:
            result = (attempt.result or "").lower().replace("_", " ")
            # What was lost or interrupted does not count against the limit.
            is_counted = run is not None and not (run.losses or interrupted(run))
            limit = f" of {run.max_attempts}" if run is not None and is_counted else ""
            self._line(f"  attempt {attempt.number}{limit} {result}")

    # --- an attempt

    def _take_step(self, news: StepNews) -> None:
        self._take_start()
        step, number = news.step, news.number
        self._width = max(self._width, min(width_of(inert(step.shown)), _WIDEST_NAME))
        if step.is_running:
            self._tell_begun()
            self._steps[number] = step
            return
        self._flush_open(number)
        self._steps.pop(number, None)
        self._told.discard(f"step {number} begun")
        self._line(step_line(step, self._width))
        self._told.add(f"steps of attempt {news.attempt}")

    def _tell_begun(self) -> None:
        """Say which steps have begun, where that is not drawn."""
        for number, step in self._steps.items():
            if not self._screen.is_live and self._is_new(f"step {number} begun"):
                self._line(f"  {_padded(inert(step.shown), self._width)}  ▶")

    def _take_lines(self, news: LinesNews) -> None:
        self._take_start()
        self._tell_begun()
        if news.skipped:
            self._open.clear()
            self._line(f"    … {news.skipped:,} lines · rota logs {news.run}")
        for line in news.lines:
            place = (line.stream, line.step)
            text = self._open.pop(place, "") + line.text
            if line.continues and len(text) < _LONGEST_LINE:
                self._open[place] = text
            else:
                self._quote(text)

    def _flush_open(self, step: int | None = None) -> None:
        """Show lines that were never finished."""
        for place in [each for each in self._open if step is None or each[1] == step]:
            self._quote(self._open.pop(place))

    def _quote(self, text: str) -> None:
        shown = f"    | {inert_output(text)}"
        width = self._screen.width
        self._line(shown if width is None else cut(shown, width - 1))

    def _take_progress(self, progress: Progress) -> None:
        self._progress = progress
        share = share_of(progress)
        if self._screen.is_live or share is None or share == 1:  # all of it: the end comes next
            return
        if int(share * _SHARES) == self._share:
            return
        self._share = int(share * _SHARES)
        self._take_start()
        self._tell_begun()
        self._line(f"    {progress_words(progress)}")

    def _take_attempt(self, attempt: Attempt) -> None:
        """Say how an attempt ended, unless it is all that the verdict says."""
        which = f"attempt {attempt.number}"
        if not self._is_new(f"{which} ended"):
            return
        self._told.add(f"{which} claimed")
        self._end_way()
        self._sum_up(self._run)
        self._flush_open()
        if f"steps of {which}" not in self._told:
            widest = max((width_of(inert(step.shown)) for step in attempt.steps), default=0)
            for step in attempt.steps:
                self._line(step_line(step, min(widest, _WIDEST_NAME)))
        if attempt.output.state == "pending":
            self._line(f"  output is still on worker {inert(attempt.worker)}")
        if attempt.message and not failed_steps(attempt):
            self._line(f"  {inert(attempt.message)}")
        self._ended = attempt
        self._steps, self._progress, self._share, self._width = {}, None, 0, 0
        self._told = {fact for fact in self._told if not fact.endswith(" begun")}
        if self._later is not None and self._later.attempt == attempt.number:
            later, self._later = self._later, None
            self._take_run(later)

    # --- the screen

    def _draw(self) -> None:
        if self._screen.is_live:
            line = self._standing()
            self._screen.draw([line] if line else [])

    def _standing(self) -> str:
        """Return how the run stands now, in a line; "" once nothing more happens."""
        run = self._run
        if run is None or run.is_settled:
            return ""
        if self._way:
            return f"{self._way}  {elapsed(run.queued_at or run.created_at, self._now)}"
        if run.state in _WAITING:
            return ""
        step = next(reversed(self._steps.values()), None)
        name = run.state.lower() if step is None else inert(step.shown)
        parts = [f"▶ {cut(name, _WIDEST_NAME)}", _lasting(run, step, self._now)]
        if self._progress is not None:
            parts.append(progress_words(self._progress))
        return "  ".join(filter(None, parts))

    def _is_new(self, fact: str) -> bool:
        is_new = fact not in self._told
        self._told.add(fact)
        return is_new

    def _line(self, text: str) -> None:
        self._end_way()
        self._screen.write(text)


def _lasting(run: Run, step: Step | None, now: datetime | None) -> str:
    """Format `12 s of 1 m 02 s`: how long the step and the attempt have gone on."""
    whole = elapsed(run.started_at, now)
    part = "" if step is None else elapsed(step.started_at, now)
    return f"{part} of {whole}" if part and part != whole else whole


def _waiting_for(run: Run) -> str:
    if run.state == "QUEUED":
        return ""
    if run.waiting:
        return f": {inert(run.waiting)}"
    return f" {times.relative(run.eligible_at, times.now())}" if run.eligible_at else ""


def _claimed_by(worker: str) -> str:
    """Return who has it; another system does what no worker has."""
    return f"claimed by {inert(worker)}" if worker else "begun by another system"


def _waited(run: Run) -> str:
    if run.queued_at is None or run.claimed_at is None:
        return ""
    waited = (run.claimed_at - run.queued_at).total_seconds()
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


_EVENTS: dict[type, str] = {
    StepNews: "step",
    ProgressNews: "progress",
    LinesNews: "lines",
    Attempt: "attempt",
}


def watch(client: Client, run: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Show what happens to a run until it is settled; return its exit code."""
    terminal = display.terminal()
    is_for_people = display.format in (Format.TABLE, Format.WIDE)
    is_data = display.format in (Format.JSON, Format.JSONL)
    transcript = Transcript(client, terminal, terminal.out if is_for_people else terminal.err)
    seconds = None if timeout is None else timeout.total_seconds()
    news = client.follow_run(run, seconds, lines=None if is_data else _NEWEST)
    ended = show_news(news, transcript, terminal, f"rota run watch {run}", is_data=is_data)
    if isinstance(ended, Exit):
        return ended
    assert isinstance(ended, RunDetail), "following hands out the run that has ended as the last"
    if not is_for_people and not is_data:
        print_data(display, ask(client, Client.get_run(run)).data)
    return OF_FINAL_STATE.get(ended.state, Exit.UNEXPECTED)


class Drawing(Protocol[N_contra]):
    """Drawing of what is watched, for people."""

    def take(self, news: N_contra, /) -> None: ...

    def end_line(self) -> None: ...


def show_news(
    news: Iterable[N], drawing: Drawing[N], terminal: Terminal, command: str, *, is_data: bool
) -> N | Exit:
    """Show all that happens, drawn or as data; return the last of it.

    Or return how the command ends if somebody stopped it, or its time was over before: then it
    tells the `command` by which watching goes on.
    """
    last: N | None = None
    watched = command.rpartition(" ")[2]
    try:
        for last in news:
            if is_data:
                show_event(terminal, last)
            else:
                drawing.take(last)
    except KeyboardInterrupt:
        drawing.end_line()
        terminal.tell(f"stopped watching; {watched} goes on · {command}")
        return Exit.INTERRUPTED
    except TimeoutError:
        drawing.end_line()
        terminal.tell(f"{watched} is still going · {command}")
        return Exit.STILL_GOING
    assert last is not None, "following hands out at least what is settled"
    return last


def show_event(terminal: Terminal, news: RunNews | CartNews) -> None:
    """Print what happened as one line of JSON, unless it is only that time has passed."""
    if isinstance(news, TimeNews):
        return
    name = _EVENTS.get(type(news)) or _standing_event(news)
    terminal.show(inert_json(encode({"event": name, "data": news}).decode()))


def _standing_event(news: object) -> str:
    if isinstance(news, Run):
        return "end" if isinstance(news, RunDetail) and news.is_settled else "run"
    return "end" if isinstance(news, CartDetail) and news.is_settled else "cart"

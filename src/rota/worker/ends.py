"""Ends of attempts, from the executor's report to the server's answer.

Plain completions are kept and sent in columns, other ends as outcomes. Both stay here until a
server has answered: what was on its way when a connection broke is sent again by the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Final

import msgspec
import structlog

from rota.domain.run import AttemptResult
from rota.ports.executor import Completions
from rota.ports.work import MAX_ITEMS, MAX_PARCEL, EndBatch, Fence, Outcome, Report, StepOutcome

log = structlog.get_logger()

_END_BYTES = 100  # of one end in columns, about
_BREAKS_TOGETHER = 2  # after so many breaks of the link in a row, ends go alone
_BREAKS_ALONE = 3  # after so many alone, an outcome goes without what it carries
_FIRST_PAUSE = 0.5  # seconds, after the second break alone; then it doubles
_LONGEST_PAUSE = 60.0
_MOST_PAUSES = 15  # how much later, at most, a report goes again that is refused again and again
_TROUBLE = 3  # failures of an end in a row from which on people are told
_TRIES = 10  # failures in a row after which an end is given up, but not before
_PATIENCE = 600.0  # seconds after the first of them
_NO_WAY = "the link to the server broke whenever it was sent"
_TOLD_FOR = 600.0  # seconds, of what was given up
_TOLD_BY_NAME = 3  # of these, at most
_FEW_STEPS = 20  # of an outcome that goes without what it carries
_SHORT_NAME = 100  # characters, of these
_SHORT_MESSAGE = 300
_runs = attrgetter("run")
_numbers = attrgetter("number")


@dataclass(slots=True, eq=False)
class _Parcel:
    """Ends that travel together: completions, or one outcome."""

    content: Completions | Outcome
    size: int  # bytes in a message, about
    report_at: float = 0.0  # monotonic: not before, as the server could not take it yet
    breaks: int = 0  # of the link in a row, while it was on its way
    breaks_alone: int = 0  # while nothing else was
    refusals: int = 0  # in a row, by servers that could not take the report it was in
    company: int = MAX_ITEMS  # ends in a report with it, at most
    failures: int = 0  # in a row: it was refused, or broke the link alone
    failing_since: float = 0.0  # monotonic: the first of these

    def __len__(self) -> int:
        return 1 if isinstance(self.content, Outcome) else len(self.content)

    @property
    def is_plain(self) -> bool:
        return not isinstance(self.content, Outcome)

    @property
    def goes_alone(self) -> bool:
        return self.breaks >= _BREAKS_TOGETHER

    def fences(self) -> Sequence[Fence]:
        content = self.content
        return [content.fence] if isinstance(content, Outcome) else content.fences

    def note_failure(self, now: float) -> None:
        self.failing_since = self.failing_since if self.failures else now
        self.failures += 1

    def is_hopeless(self, now: float) -> bool:
        has_waited = now - self.failing_since >= _PATIENCE
        return len(self) == 1 and self.failures >= _TRIES and has_waited

    def part(self, content: Completions | Outcome) -> _Parcel:
        """Return a parcel of the same past with a part of the content."""
        return replace(self, content=content, size=_size(content))


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """Report that is on its way."""

    report: Report
    parcels: Sequence[_Parcel] = field(repr=False)

    def __len__(self) -> int:
        return sum(map(len, self.parcels))

    def fences(self) -> list[Fence]:
        return [fence for parcel in self.parcels for fence in parcel.fences()]


class EndQueue:
    """Ends that wait for their report, and those on their way."""

    def __init__(
        self, monotonic: Callable[[], float], note: Callable[[str], None] = lambda _: None
    ) -> None:
        """`note` is told what was given up, in words for people."""
        self._monotonic = monotonic
        self._note = note
        self._given_up: list[Fence] = []  # and not taken
        self._error = ""  # the latest
        self._plain: deque[_Parcel] = deque()
        self._told: deque[_Parcel] = deque()  # outcomes
        self._put_off: list[_Parcel] = []
        self._sent: dict[Sending, None] = {}  # in the order in which they were sent
        self._is_plain_first = True
        self._suspects = 0  # parcels that were on their way when the link broke
        self.waiting = 0  # ends that could be reported
        self.under_way = 0

    def complete(self, completions: Completions) -> None:
        """Add plain completions, in pieces that fit a message."""
        for piece in _cut(completions):
            self._wait(_Parcel(piece, _size(piece)))

    def end(self, outcome: Outcome) -> None:
        self._wait(_Parcel(outcome, _size(outcome)))

    @property
    def trouble(self) -> str:
        """Say what waits here because servers do not take it; "" if it works, or just failed."""
        kept = chain(self._all(), self._put_off)
        count = sum(len(parcel) for parcel in kept if parcel.failures >= _TROUBLE)
        if not count:
            return ""
        what = "the end of a run" if count == 1 else f"ends of {count:,} runs"
        return f"{what} cannot be reported: {self._error}"

    def take_given_up(self) -> list[Fence]:
        """Return the attempts whose ends were given up since the last call."""
        taken, self._given_up = self._given_up, []
        return taken

    @property
    def has_suspects(self) -> bool:
        """Return whether something waits or is sent that was on its way when the link broke.

        What is put off does not count until its time has come.
        """
        self._take_up_put_off()
        return self._suspects > 0

    def next_report(self) -> Sending | None:
        """Return what may be reported by now, as much as fits a message: it is on its way then."""
        self._take_up_put_off()
        parcels = self._next_parcels()
        if not parcels:
            return None
        sending = Sending(_report(parcels), parcels)
        self._sent[sending] = None
        self.waiting -= len(sending)
        self.under_way += len(sending)
        return sending

    def answered(self, sending: Sending, again: Collection[Fence], report_at: float) -> None:
        """Forget a report that was answered, but for what is to be sent again at that time."""
        if self._take_back(sending):
            for content in _chosen(sending, again):
                self._put_off.append(_Parcel(content, _size(content), report_at))

    def put_off(self, sending: Sending, pause: float, reason: str) -> None:
        """Keep a report that a server refused, to send it again after that many seconds or more.

        Its ends go in halves and ever later: one that cannot be taken keeps no others from it, and
        is given up after many tries. They did not break the link, which lives.
        """
        if not self._take_back(sending):
            return
        if not any(parcel.refusals for parcel in sending.parcels):
            log.warning("worker.report_put_off", ends=len(sending), error=reason)
        now, self._error = self._monotonic(), reason
        for parcel in sending.parcels:
            if self._gives_up(parcel):
                continue
            parcel.refusals += 1
            parcel.report_at = now + pause * min(parcel.refusals, _MOST_PAUSES)
            parcel.company = max(len(sending) // 2, 1)
            parcel.breaks = parcel.breaks_alone = 0
            self._put_off += map(parcel.part, _pieces(parcel.content, parcel.company))

    def _gives_up(self, parcel: _Parcel) -> bool:
        """Count a failure; give up an end that failed too often and for too long.

        Whoever holds its attempt lets go of it then, and the server counts that as lost: nothing of
        it runs any more, and what servers may still have of its reports has an old fence by then.
        """
        now = self._monotonic()
        parcel.note_failure(now)
        if not parcel.is_hopeless(now):
            return False
        [fence] = parcel.fences()
        log.error("end.given_up", run=fence.run, tries=parcel.failures, error=self._error)
        self._note(f"the end of {fence.run}")
        self._given_up.append(fence)
        return True

    def break_link(self, *, is_suspicious: bool = True) -> None:
        """Let everything wait again that is unanswered, the eldest first.

        A report that breaks the link again and again must not keep it broken: its ends are sent in
        halves, at last one by one, and then an outcome without what it carries. What broke it alone
        goes behind all others and ever later, so that they get through meanwhile. Nothing of this
        if the connection ended for a reason that has nothing to do with reports.
        """
        sent = [parcel for sending in self._sent for parcel in sending.parcels]
        self._sent.clear()
        self.under_way = 0
        for parcel in reversed(sent):  # each goes before all that wait
            if is_suspicious:
                self._suspect(parcel, is_alone=len(sent) == 1)
            else:
                self._wait(parcel, is_first=True)
        self._suspects = sum(parcel.breaks > 0 for parcel in self._all())

    def _suspect(self, parcel: _Parcel, *, is_alone: bool) -> None:
        parcel.breaks += 1
        parcel.breaks_alone += is_alone
        if is_alone:
            self._error = _NO_WAY
            if self._gives_up(parcel):
                return
        before = parcel.content
        parts = _lighter(parcel)
        if isinstance(before, Outcome) and parcel.content is not before:
            self._note(f"the result of {before.run}")
        if is_alone and parcel.goes_alone:
            now = self._monotonic()
            for part in parts:
                part.report_at = now + _pause(part)
            self._put_off += parts
            return
        for part in reversed(parts):
            self._wait(part, is_first=True)

    def _take_back(self, sending: Sending) -> bool:
        """Take a report from those on their way; return False if it is of an earlier stream."""
        if sending not in self._sent:
            return False
        del self._sent[sending]
        self.under_way -= len(sending)
        self._suspects -= sum(parcel.breaks > 0 for parcel in sending.parcels)
        return True

    def _all(self) -> Iterator[_Parcel]:
        sent = (parcel for sending in self._sent for parcel in sending.parcels)
        return chain(self._plain, self._told, sent)

    def _wait(self, parcel: _Parcel, *, is_first: bool = False) -> None:
        queue = self._plain if parcel.is_plain else self._told
        (queue.appendleft if is_first else queue.append)(parcel)
        self.waiting += len(parcel)

    def _take_up_put_off(self) -> None:
        if self._put_off:
            now = self._monotonic()
            due = [parcel for parcel in self._put_off if parcel.report_at <= now]
            self._put_off = [parcel for parcel in self._put_off if parcel.report_at > now]
            for parcel in due:
                self._wait(parcel)
                self._suspects += parcel.breaks > 0

    def _next_parcels(self) -> list[_Parcel]:
        """Take parcels from both queues, which come first by turns: none waits for the other."""
        first, second = self._plain, self._told
        if not self._is_plain_first:
            first, second = second, first
        if self._sent and self._suspects and any(parcel.goes_alone for parcel in self._all()):
            return []  # one of them is on its way, or waits until nothing else is
        self._is_plain_first = not self._is_plain_first
        taken: list[_Parcel] = []
        size = count = 0
        most = MAX_ITEMS
        for queue in (first, second):
            while queue:
                parcel = queue[0]
                size += parcel.size
                count += len(parcel)
                most = min(most, parcel.company)
                if taken and (parcel.goes_alone or count > most or size > MAX_PARCEL):
                    return taken
                taken.append(queue.popleft())
                if parcel.goes_alone:
                    return taken
        return taken


class GivenUp:
    """Record of what was given up lately, for people: no later success hides it at once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._noted: dict[str, float] = {}  # when, the latest last

    def note(self, what: str) -> None:
        self._noted.pop(what, None)
        self._noted[what] = self._monotonic()

    @property
    def trouble(self) -> str:
        """Say what it is; "" after some minutes."""
        since = self._monotonic() - _TOLD_FOR
        self._noted = {what: at for what, at in self._noted.items() if at > since}
        if not self._noted:
            return ""
        named = list(self._noted)[-_TOLD_BY_NAME:]
        rest = len(self._noted) - len(named)
        more = f" and {rest:,} more" if rest else ""
        return f"given up, because no server took it: {', '.join(named)}{more}"


def _report(parcels: Sequence[_Parcel]) -> Report:
    plain = [each.content for each in parcels if isinstance(each.content, Completions)]
    outcomes = tuple(each.content for each in parcels if isinstance(each.content, Outcome))
    return Report(_end_batch(plain), outcomes)


def _end_batch(parts: Sequence[Completions]) -> EndBatch:
    whole = parts[0] if len(parts) == 1 else _joined(parts)
    return EndBatch(
        list(map(_runs, whole.fences)),
        list(map(_numbers, whole.fences)),
        whole.started_at,
        whole.ended_at,
        whole.cpu_micros,
        whole.outputs,
    )


def _joined(parts: Sequence[Completions]) -> Completions:
    whole = Completions([], [], [], [])
    for part in parts:
        shift = len(whole.fences)
        whole.fences.extend(part.fences)
        whole.started_at.extend(part.started_at)
        whole.ended_at.extend(part.ended_at)
        whole.cpu_micros.extend(part.cpu_micros)
        whole.outputs.update((shift + at, text) for at, text in part.outputs.items())
    return whole


def _pieces(content: Completions | Outcome, most: int) -> Iterable[Completions | Outcome]:
    return [content] if isinstance(content, Outcome) else _cut(content, most)


def _cut(whole: Completions, most: int = MAX_ITEMS) -> Iterable[Completions]:
    """Cut completions into pieces that fit a message, of at most so many."""
    if len(whole) <= most and (not whole.outputs or _size(whole) <= MAX_PARCEL):
        return [whole] if len(whole) else []
    if len(whole) == 1:
        return [whole]
    return chain.from_iterable(_cut(half, most) for half in halves(whole))


def halves(whole: Completions) -> list[Completions]:
    middle = len(whole) // 2
    return [picked(whole, range(middle)), picked(whole, range(middle, len(whole)))]


def picked(whole: Completions, positions: Sequence[int]) -> Completions:
    """Return the completions at these positions."""
    return Completions(
        [whole.fences[at] for at in positions],
        [whole.started_at[at] for at in positions],
        [whole.ended_at[at] for at in positions],
        [whole.cpu_micros[at] for at in positions],
        {new: whole.outputs[at] for new, at in enumerate(positions) if at in whole.outputs}
        if whole.outputs
        else {},
    )


def interrupted(outcome: Outcome) -> Outcome:
    """Return the end of an attempt that its worker stopped, because it stops itself."""
    if outcome.result == AttemptResult.COMPLETED:
        return outcome
    return msgspec.structs.replace(
        outcome, result=AttemptResult.INTERRUPTED, message="its worker was stopped before it ended"
    )


def outcome_at(whole: Completions, at: int) -> Outcome:
    """Return one of the completions as an outcome, which has room for more."""
    fence, text = whole.fences[at], whole.outputs.get(at)
    return Outcome(
        fence.run,
        fence.number,
        AttemptResult.COMPLETED,
        whole.started_at[at],
        whole.ended_at[at],
        outputs=None if text is None else msgspec.json.decode(text),
        cpu_seconds=whole.cpu_micros[at] / 1e6,
    )


def _chosen(sending: Sending, fences: Collection[Fence]) -> Iterator[Completions | Outcome]:
    if not fences:
        return
    for parcel in sending.parcels:
        content = parcel.content
        if isinstance(content, Outcome):
            if content.fence in fences:
                yield content
        elif positions := [at for at, fence in enumerate(content.fences) if fence in fences]:
            yield picked(content, positions)


def _lighter(parcel: _Parcel) -> Sequence[_Parcel]:
    """Return a parcel in parts or without its load, if it broke the link too often; else itself."""
    content = parcel.content
    if isinstance(content, Outcome):
        if parcel.breaks_alone == _BREAKS_ALONE:
            parcel.content = _without_load(content)
            parcel.size = _size(parcel.content)
        return [parcel]
    if not parcel.goes_alone:
        return [parcel]
    if len(content) > 1:
        parcel.breaks_alone = 0
        return [parcel.part(half) for half in halves(content)]
    if content.outputs:
        parcel.breaks_alone = 0
        return [parcel.part(outcome_at(content, 0))]
    return [parcel]


_UNDELIVERED: Final = "its result and output were left out: the link broke whenever they were sent"


def _without_load(outcome: Outcome) -> Outcome:
    log.error("outcome.cut", run=outcome.run, size=_size(outcome), error=_UNDELIVERED)
    message = outcome.message[:_SHORT_MESSAGE]
    lighter = msgspec.structs.replace(
        outcome,
        outputs=None,
        message=f"{message}; {_UNDELIVERED}" if message else _UNDELIVERED,
        steps=tuple(map(_without_long_name, outcome.steps[:_FEW_STEPS])),
    )
    if not outcome.output:  # what it printed, if anything, goes another way
        return lighter
    # The store would wait for what it is told of and does not get.
    return msgspec.structs.replace(
        lighter, output=b"", output_bytes=0, output_lines=0, truncated=True
    )


def _without_long_name(step: StepOutcome) -> StepOutcome:
    return msgspec.structs.replace(step, name=step.name[:_SHORT_NAME])


def _pause(parcel: _Parcel) -> float:
    """Return for how many seconds a parcel is put off that broke the link alone."""
    if parcel.breaks_alone < _BREAKS_TOGETHER:
        return 0.0
    doublings: int = min(parcel.breaks_alone - _BREAKS_TOGETHER, 10)
    return min(_FIRST_PAUSE * 2.0**doublings, _LONGEST_PAUSE)


def _size(content: Completions | Outcome) -> int:
    """Estimate the size in a message, in bytes."""
    if isinstance(content, Completions):
        return _END_BYTES * len(content) + sum(map(len, content.outputs.values()))
    outputs = 0 if content.outputs is None else len(msgspec.msgpack.encode(content.outputs))
    steps = sum(200 + len(step.name) for step in content.steps)
    return 500 + len(content.output) + len(content.message) + steps + outputs

"""Attempts that a worker holds, from dispatch to the acknowledged report."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import msgspec
import structlog

from rota.domain.errors import Unavailable
from rota.domain.ids import instant, micros
from rota.domain.lease import StoreTime
from rota.domain.quantities import format_duration
from rota.domain.retry import STALLED
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, JobSpec
from rota.ports.clock import Clock
from rota.ports.executor import Completions, Executor, JobBatch
from rota.ports.work import (
    KNOWN_SPECS,
    MAX_ITEMS,
    RUNNING,
    Beat,
    Dispatch,
    Fence,
    JobRef,
    Outcome,
    Progress,
    RemoteHandle,
    ReportAnswer,
    SpecEntry,
    Start,
    StepNote,
    StepOutcome,
    storable,
)
from rota.worker.batches import by_job, checked
from rota.worker.ends import EndQueue, GivenUp, Sending, interrupted, outcome_at, picked
from rota.worker.notes import NoteBook, ProgressBook, Silences
from rota.worker.output import AttemptOutput, OutputTimes
from rota.worker.spool import OutputSpool

log = structlog.get_logger()

REPORT_AGAIN = timedelta(seconds=2)  # what a server could not take yet
# How long an end waits for the last of its output to arrive. Its slot waits as well, and is to be
# idle for a second at most: the rest is for a new link, the report and the next start.
_SETTLING = timedelta(milliseconds=500)
_ENOUGH_ENDS = 32  # for a report that need not wait for more
_QUICK = timedelta(milliseconds=5)  # ends that come faster than this may wait for one another


@dataclass(slots=True, eq=False)
class Held:
    """Attempts at one job version that came together."""

    job: JobBatch
    received_at: float  # monotonic
    started_at: int = 0  # store's microseconds; 0: not begun
    is_announced: bool = False  # the store knows that they began

    @property
    def needs_permit(self) -> bool:
        return self.job.spec.delivery is Delivery.AT_MOST_ONCE


@dataclass(frozen=True, slots=True, eq=False)
class _PendingHandle:
    handle: str
    kept: asyncio.Future[bool]


class Attempts:
    """Implements `rota.ports.executor.AttemptReports` and `RemoteWork`; has what is leased.

    What came together is one entry for all its fences; what only few attempts have is kept apart.
    """

    def __init__(self, clock: Clock, spool: OutputSpool) -> None:
        self.spool = spool
        self._clock = clock
        self._times = OutputTimes(clock.monotonic, lambda: self.store_micros() // 1000)
        self._executors: Mapping[str, Executor] = {}  # by type of jobs
        self._specs: dict[JobRef, JobSpec] = {}
        self._held: dict[Fence, Held] = {}
        self._cancelled: set[Fence] = set()
        self._interrupted: set[Fence] = set()  # the worker stops: another one tries them
        self._outputs: dict[Fence, AttemptOutput] = {}
        self._ended: set[Fence] = set()  # the held ones that are over
        self._probes: set[Fence] = set()  # attempts that ask about others
        self._silences = Silences(clock.monotonic)  # of attempts that may not be silent for long
        self._given_up = GivenUp(clock.monotonic)
        self._untold: dict[Fence, None] = {}  # ends given up that no beat was answered with
        spool.on_given_up = self._given_up.note
        self._ends = EndQueue(  # of these, until they are acknowledged
            clock.monotonic, self._given_up.note
        )
        self._ended_at = 0.0  # monotonic: when the latest did
        self._are_quick = False  # the latest ends came soon after one another
        self._received = 0  # items of work, in this stream
        self._store_time = StoreTime(instant(0), clock.monotonic())
        self._finishing: set[asyncio.Task[None]] = set()
        self.shortage = ""  # what this machine lacks to take on more; "": nothing
        self._notes = NoteBook(clock.monotonic, self.store_micros)
        self._progress = ProgressBook(clock.monotonic)
        self._handles: dict[Fence, _PendingHandle] = {}  # that no server has acknowledged
        self.has_handles = asyncio.Event()
        self.has_news = asyncio.Event()  # an end waits to be reported
        self.has_enough = asyncio.Event()  # so many wait that none need wait any longer

    def serve_with(self, executors: Mapping[str, Executor]) -> None:
        self._executors = executors

    @property
    def held(self) -> Mapping[Fence, Held]:
        return self._held

    def learn_time(self, store_now: int, received_at: float) -> None:
        """Record the store's time, and the monotonic time at which it was received."""
        self._store_time = StoreTime(instant(store_now), received_at)

    def beat(self, stream: int, *, stopping: bool = False) -> Beat:
        """Build a beat: held attempts and the count of received work, of the same moment.

        A machine that lacks something takes nothing new, as one that stops: all servers know that.
        """
        return Beat(
            tuple(self._held),
            stopping or bool(self.shortage),
            self._received,
            stream,
            self.trouble,
            tuple(self._untold),
        )

    def beaten(self, beat: Beat) -> None:
        """Note that a beat was answered."""
        for fence in beat.given_up:
            self._untold.pop(fence, None)

    @property
    def trouble(self) -> str:
        """Say what cannot be delivered, and for some minutes what was given up."""
        told = (self.shortage, self._ends.trouble, self.spool.trouble, self._given_up.trouble)
        return "; ".join(filter(None, told))

    def _let_go_of_given_up(self) -> None:
        """Free the slots of attempts whose ends no server takes: they count as lost."""
        if given_up := self._ends.take_given_up():
            self._untold.update(dict.fromkeys(given_up))
            self.forget(given_up)

    # --- from the server

    def begin_stream(self, *, after_break: bool = True) -> None:
        """Reset the count of received work, as the server does, and resend unanswered reports.

        `after_break` tells that the stream before broke, perhaps by what was on its way.
        """
        self._received = 0
        self._notes.begin_stream()
        self._ends.break_link(is_suspicious=after_break)
        self._let_go_of_given_up()
        self._note_ends()

    def accept(self, dispatch: Dispatch) -> tuple[list[Held], list[Held]]:
        """Accept work; return what may begin at once, and what needs a permit first.

        Work whose spec did not come, because this version cannot read it, fails. A dispatch that
        comes twice is ignored, however long ago its attempts have ended. Raise `Unavailable` if one
        before it is missing, or if it makes no sense: nothing of it is accepted then.
        """
        batch = dispatch.batch
        fences = checked(batch)
        if not self._is_next(dispatch):
            return [], []
        self._received += len(batch)
        self._learn(dispatch.specs)
        now = self._clock.monotonic()
        jobs = by_job(batch, fences, self._specs, self._held.keys())
        taken = [Held(job, now) for job in jobs]
        for held in taken:
            self._held.update(dict.fromkeys(held.job.fences, held))
            if held.job.batch.probes:
                self._probes.update(held.job.fences)
        self._refuse_unreadable([held for held in taken if _ref(held) not in self._specs])
        known = [held for held in taken if _ref(held) in self._specs]
        return (
            [held for held in known if not held.needs_permit],
            [held for held in known if held.needs_permit],
        )

    def _is_next(self, dispatch: Dispatch) -> bool:
        """Return False if the dispatch came before; raise `Unavailable` if one is missing."""
        if dispatch.first > self._received + 1:
            raise Unavailable("a part of the stream from the server is missing")
        return dispatch.first in (0, self._received + 1)

    def _learn(self, entries: Sequence[SpecEntry]) -> None:
        """Remember the specs that were sent last; held work keeps its own."""
        for entry in entries:
            ref = (entry.job_id, entry.job_version)
            self._specs.pop(ref, None)
            self._specs[ref] = entry.spec
        for ref in list(self._specs)[:-KNOWN_SPECS]:
            del self._specs[ref]

    def _refuse_unreadable(self, items: Sequence[Held]) -> None:
        for held in items:
            self._refuse(held.job, "this worker's version of Rota cannot read the job")

    def begin(self, items: Iterable[Held]) -> None:
        """Hand attempts to the executor of their type, except those cancelled meanwhile."""
        now = self.store_micros()
        by_type: dict[str, list[JobBatch]] = {}
        for item in items:
            if item.started_at:
                continue  # begun before
            job = item.job
            item.started_at = now
            self._silences.begin(item.job)
            if self._cancelled:
                self.withdraw([fence for fence in job.fences if fence in self._cancelled])
                job = job.without(self._cancelled)
            if len(job):
                by_type.setdefault(job.spec.type, []).append(job)
        for kind, jobs in by_type.items():
            executor = self._executors.get(kind)
            if executor is not None:
                self._start(executor, jobs)
                continue
            for job in jobs:
                self._refuse(job, f"this worker does not run {kind} jobs")

    def _start(self, executor: Executor, jobs: Sequence[JobBatch]) -> None:
        """Hand attempts over; an executor that breaks at it, a plug-in's perhaps, costs no others.

        Nobody knows which of them it has begun.
        """
        try:
            executor.start(jobs)
        except Exception as error:
            log.error("executor.broken", type=jobs[0].spec.type, exc_info=error)
            for job in jobs:
                is_once = job.spec.delivery is Delivery.AT_MOST_ONCE
                result = AttemptResult.LOST if is_once else AttemptResult.FAILED
                self._refuse(job, f"its executor could not start it: {error!r}", result)

    def _refuse(
        self, job: JobBatch, message: str, result: AttemptResult = AttemptResult.FAILED
    ) -> None:
        now = self.store_micros()
        self.ended(
            [Outcome(f.run, f.number, result, now, now, message=message) for f in job.fences]
        )

    def permitted(self, fences: Sequence[Fence]) -> None:
        """Begin attempts that have a permit now; what is not held or has begun is passed over."""
        granted = {f for f in fences if f in self._held and f not in self._ended}
        by_held: dict[Held, set[Fence]] = {}
        for fence in granted:
            by_held.setdefault(self._held[fence], set()).add(fence)
        self.begin([self._split(held, some) for held, some in by_held.items()])
        self.mark_announced(list(granted))

    def _split(self, held: Held, fences: set[Fence]) -> Held:
        """Keep some attempts of an entry as an entry of their own; return it."""
        if len(fences) == len(held.job):
            return held
        rest = held.job.without(fences)
        part = Held(held.job.without(set(rest.fences)), held.received_at)
        held.job = rest
        self._held.update(dict.fromkeys(part.job.fences, part))
        return part

    def unpermitted(self) -> list[Fence]:
        """List attempts that need a permit and have not begun: the request may be unanswered."""
        return [
            fence
            for fence, held in self._held.items()
            if held.needs_permit and not held.started_at and fence not in self._ended
        ]

    def withdraw(self, fences: Sequence[Fence]) -> None:
        """Report attempts as cancelled before they began."""
        now = self.store_micros()
        self.ended([Outcome(f.run, f.number, AttemptResult.CANCELLED, 0, now) for f in fences])

    def give_back(self, items: Sequence[Held]) -> None:
        """Return work that arrived while the worker stops: others may begin it at once."""
        for item in items:
            self._interrupted.update(item.job.fences)
            self.withdraw(item.job.fences)

    def forget(self, fences: Sequence[Fence]) -> None:
        """Forget attempts whose reports were acknowledged or refused for good."""
        for fence in fences:
            self._held.pop(fence, None)
        self._ended.difference_update(fences)
        self._silences.forget(fences)
        for few in (self._cancelled, self._interrupted, self._probes):
            if few:
                few.difference_update(fences)
        if self._outputs:
            for fence in fences:
                self._outputs.pop(fence, None)
        self._notes.forget(fences)
        self._progress.forget(fences)
        if self._handles:
            self._settle_handles(fences, is_kept=False)

    def cancel(self, fences: Sequence[Fence]) -> None:
        """Stop attempts; repeating this is harmless."""
        by_type: dict[str, list[Fence]] = {}
        for fence in fences:
            held = self._held.get(fence)
            if held is None or fence in self._cancelled or fence in self._ended:
                continue
            self._cancelled.add(fence)
            if held.started_at:  # else `begin` will see it
                by_type.setdefault(held.job.spec.type, []).append(fence)
        for kind, stopped in by_type.items():
            try:
                if kind in self._executors:
                    self._executors[kind].cancel(stopped)
            except Exception as error:
                log.error("executor.broken", type=kind, exc_info=error)

    def drop(self, fences: Sequence[Fence]) -> None:
        """Stop attempts that the store knows nothing of: another worker may go on with them."""
        self._interrupted.update(fence for fence in fences if self._is_going(fence))
        self.cancel(fences)

    def interrupt(self) -> None:
        """Stop all attempts because the worker must stop; they are retried elsewhere."""
        going = self._held.keys() - self._ended
        self._interrupted |= going - self._cancelled
        self.cancel(list(going))

    def watch(self, runs: Sequence[str]) -> None:
        """Deliver the output of these runs promptly, because somebody follows it."""
        wanted = set(runs)
        for fence in self._held:
            if fence.run in wanted and fence not in self._ended:
                self.output(fence).set_watched(True)

    # --- from executors

    def store_micros(self) -> int:
        return micros(self._store_time.at(self._clock.monotonic()))

    def output(self, fence: Fence) -> AttemptOutput:
        output = self._outputs.get(fence)
        if output is None:
            spec = self._held[fence].job.spec
            output = AttemptOutput.of(spec, self._times, self.spool.outbox(fence))
            self._outputs[fence] = output
        return output

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None:
        self._silences.end(fence)
        told = storable(message)
        self._progress.keep(Progress(fence.run, fence.number, done, total, told))

    def stepped(self, fence: Fence, number: int, step: StepOutcome) -> StepOutcome:
        self._silences.end(fence)
        output = self._outputs.get(fence)
        if output is not None and step.result != RUNNING:
            output.end_step(number)
        return self._notes.stepped(fence, number, step, output)

    async def keep_handle(self, fence: Fence, handle: str) -> bool:
        if not self._is_going(fence):
            return False
        self._settle_handles([fence], is_kept=False)
        pending = _PendingHandle(handle, asyncio.get_running_loop().create_future())
        self._handles[fence] = pending
        self.has_handles.set()
        return await pending.kept

    def goes_on_elsewhere(self, fence: Fence) -> bool:
        return fence in self._interrupted

    def untold_handles(self) -> list[RemoteHandle]:
        """Return remote handles that no server has acknowledged, at most one request of them."""
        first = itertools.islice(self._handles.items(), MAX_ITEMS)
        return [RemoteHandle(each.run, each.number, pending.handle) for each, pending in first]

    def handles_answered(self, told: Sequence[RemoteHandle], refused: Collection[Fence]) -> None:
        """Let executors go on whose handles were kept, or refused for good."""
        for item in told:
            pending = self._handles.get(item.fence)
            if pending is not None and pending.handle == item.handle:
                self._settle_handles([item.fence], is_kept=item.fence not in refused)

    def _settle_handles(self, fences: Iterable[Fence], *, is_kept: bool) -> None:
        for fence in fences:
            pending = self._handles.pop(fence, None)
            if pending is not None and not pending.kept.done():
                pending.kept.set_result(is_kept)

    def completed(self, completions: Completions) -> None:
        fences = completions.fences
        if self._outputs and not self._outputs.keys().isdisjoint(fences):
            printed = [at for at, fence in enumerate(fences) if fence in self._outputs]
            self.ended([outcome_at(completions, at) for at in printed])
            rest = [at for at, fence in enumerate(fences) if fence not in self._outputs]
            completions = picked(completions, rest)
            fences = completions.fences
        if self._probes and not self._probes.isdisjoint(fences):  # the store tells them by that
            asking = [at for at, fence in enumerate(fences) if fence in self._probes]
            self.ended([outcome_at(completions, at) for at in asking])
            rest = [at for at, fence in enumerate(fences) if fence not in self._probes]
            completions = picked(completions, rest)
            fences = completions.fences
        fresh = set(fences)
        if not (self._ended.isdisjoint(fresh) and self._held.keys() >= fresh):
            going = [at for at, fence in enumerate(fences) if self._is_going(fence)]
            completions = picked(completions, going)
            fresh = set(completions.fences)
        self._ended |= fresh
        self._ends.complete(completions)
        self._note_ends()

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            fence = outcome.fence
            if not self._is_going(fence):
                continue
            final = interrupted(outcome) if fence in self._interrupted else outcome
            if self._silences.has_stopped(fence):
                final = _stalled(final, self._held[fence].job.spec)
            output = self._outputs.get(fence)
            final = self._notes.completed(final, 0 if output is None else output.totals.lines)
            self._ended.add(fence)
            if output is None:
                self._ends.end(final)
            else:
                task = asyncio.get_running_loop().create_task(self._finish_output(output, final))
                self._finishing.add(task)
                task.add_done_callback(self._finishing.discard)
        self._note_ends()

    def stop_stalled(self) -> None:
        """Stop attempts that have printed nothing and told no progress for too long."""
        for fence in self._silences.too_long(self._outputs):
            if self._is_going(fence) and fence not in self._cancelled:
                self._silences.stop(fence)
                self.cancel([fence])

    def _is_going(self, fence: Fence) -> bool:
        return fence in self._held and fence not in self._ended

    async def _finish_output(self, output: AttemptOutput, outcome: Outcome) -> None:
        """Deliver the rest of the output before the end is reported, but wait only briefly.

        The store compares what has arrived with what was printed, and knows what is still here.
        """
        rest = output.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLING.total_seconds()):
                await output.settled()
        self._ends.end(
            msgspec.structs.replace(
                outcome,
                output=rest.inline,
                output_bytes=rest.totals.bytes,
                output_lines=rest.totals.lines,
                truncated=rest.totals.truncated,
            )
        )
        self._note_ends()

    def _note_ends(self) -> None:
        if not self._ends.waiting:
            return
        now = self._clock.monotonic()
        self._are_quick = now - self._ended_at < _QUICK.total_seconds()
        self._ended_at = now
        self.has_news.set()
        if not self.may_wait:
            self.has_enough.set()

    # --- for the session's loops

    @property
    def may_wait(self) -> bool:
        """Return whether the ends that wait may wait for more of them, a few milliseconds.

        A report costs the same for one end and for many. But the server gives new work for it: so
        ends wait only while they come quickly and fewer wait than run, and the rest of the slots
        keeps the machine busy meanwhile. An end that nothing runs beside is reported at once.
        """
        waiting = self._ends.waiting
        going = len(self._held) - len(self._ended)
        return self._are_quick and 0 < waiting < min(_ENOUGH_ENDS, going)

    def post_due_output(self) -> None:
        for fence, output in self._outputs.items():
            if fence not in self._ended:
                output.post_due()

    def due_notes(self) -> list[StepNote]:
        """Return notes that are due, of attempts that go on."""
        concerned = self._notes.kept.keys() | self._outputs.keys()
        due = [
            self._notes.due(fence, self._outputs.get(fence), self._held[fence].received_at)
            for fence in concerned
            if self._is_going(fence)
        ]
        return [note for note in due if note is not None]

    def noted(self, notes: Sequence[StepNote]) -> None:
        """Send what watched attempts printed, too: the steps that printed it are known by now."""
        for note in notes:
            if output := self._outputs.get(note.fence):
                output.post_if_watched()

    def put_off_notes(self, notes: Sequence[StepNote]) -> None:
        """Tell these notes again later: no server took them."""
        self._notes.put_off(notes)

    def due_progress(self, ending: Sending | None = None) -> list[Progress]:
        """Return progress that is due, and all of attempts whose end is about to be told."""
        if not self._progress:
            return []
        return self._progress.due(() if ending is None else ending.fences())

    @property
    def has_suspects(self) -> bool:
        """Return whether ends are to be sent that were on their way when the link broke."""
        return self._ends.has_suspects

    def next_report(self) -> Sending | None:
        """Return the next report, which is on its way from now on; None: nothing waits.

        None also while more ends are under way than wait, so that reports do not get small.
        """
        if self._ends.waiting < self._ends.under_way:
            return None
        return self._ends.next_report()

    def answered(
        self, sending: Sending, answer: ReportAnswer, report_again: timedelta = REPORT_AGAIN
    ) -> None:
        """Forget what a server has accepted or refused for good; send the rest again later."""
        again = frozenset(answer.again)
        report_at = self._clock.monotonic() + report_again.total_seconds()
        self._ends.answered(sending, again, report_at)
        fences = sending.fences()
        self.forget([fence for fence in fences if fence not in again] if again else fences)

    def put_off(self, sending: Sending, reason: str, report_again: timedelta) -> None:
        """Send a report again later that a server refused as a whole."""
        self._ends.put_off(sending, report_again.total_seconds(), reason)
        self._let_go_of_given_up()

    def starts_to_report(self, older_than: float) -> list[Start]:
        """List starts of attempts that have run for so long; shorter ones only report their end."""
        limit = self._clock.monotonic() - older_than
        return [
            Start(fence.run, fence.number, held.started_at)
            for fence, held in self._held.items()
            if held.started_at
            and not held.is_announced
            and held.received_at < limit
            and fence not in self._ended
        ]

    def mark_announced(self, fences: Sequence[Fence]) -> None:
        """Note that the store knows that attempts began; those that ended need not be told."""
        granted = set(fences)
        for held in {self._held[fence] for fence in fences if fence in self._held}:
            left = [fence for fence in held.job.fences if self._is_going(fence)]
            held.is_announced = held.is_announced or granted.issuperset(left)


def _ref(held: Held) -> JobRef:
    return held.job.batch.job(0)


def _stalled(outcome: Outcome, spec: JobSpec) -> Outcome:
    if outcome.result != AttemptResult.CANCELLED or spec.stalled_after is None:
        return outcome
    silence = format_duration(spec.stalled_after)
    return msgspec.structs.replace(
        outcome,
        result=AttemptResult.TIMED_OUT,
        cause=STALLED,
        message=f"it printed nothing and told no progress for {silence} (stalled_after)",
    )

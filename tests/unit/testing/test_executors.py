"""The conformance suite of executors is passed by an honest one, and by no other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from rota.clock import SystemClock
from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec
from rota.ports.executor import Assignment, AttemptReports, JobBatch, OutputSink
from rota.ports.work import RUNNING, Fence, Outcome, StepOutcome
from rota.testing.executors import Behaviour, ExecutorConformance

_LINES = "".join(f"{number}\n" for number in range(1, 500_001)).encode()
_PIECE = 64 * 1024


class Honest:
    """Implements `rota.ports.executor.Executor` with coroutines that behave as they are named."""

    def __init__(self, reports: AttemptReports, folder: Path) -> None:
        self.reports = reports
        self.folder = folder
        self.clock = SystemClock()
        self.left: list[asyncio.Task[None]] = []
        self.stops: dict[Fence, asyncio.Future[AttemptResult]] = {}
        self.tasks: dict[Fence, asyncio.Task[None]] = {}

    def start(self, batches: Sequence[JobBatch]) -> None:
        loop = asyncio.get_running_loop()
        for assignment in (each for batch in batches for each in batch.assignments()):
            fence = assignment.work.fence
            self.stops[fence] = loop.create_future()
            self.tasks[fence] = loop.create_task(self.run(assignment))

    def cancel(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            self.stop(fence, AttemptResult.CANCELLED)

    def stop(self, fence: Fence, result: AttemptResult) -> None:
        stop = self.stops.get(fence)
        if stop is not None and not stop.done():
            stop.set_result(result)

    async def close(self) -> None:
        await asyncio.gather(*self.tasks.values())
        for task in self.left:
            task.cancel()
        await asyncio.gather(*self.left, return_exceptions=True)

    async def run(self, assignment: Assignment) -> None:
        fence, began = assignment.work.fence, self.reports.store_micros()
        seconds = assignment.seconds_allowed(began)
        timer = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(seconds, self.stop, fence, AttemptResult.TIMED_OUT)
        outcome = await self.behave(
            assignment, Outcome(fence.run, fence.number, AttemptResult.COMPLETED, began, began)
        )
        if timer is not None:
            timer.cancel()
        self.end(structs.replace(outcome, ended_at=self.reports.store_micros()))

    def end(self, outcome: Outcome) -> None:
        self.tasks.pop(outcome.fence)
        self.stops.pop(outcome.fence)
        self.reports.ended([outcome])

    async def behave(self, assignment: Assignment, outcome: Outcome) -> Outcome:
        fence = assignment.work.fence
        sink = self.reports.output(fence)
        match Behaviour(assignment.spec.name):
            case Behaviour.SPEAK:
                self.feed(sink, Stream.STDOUT, b"out 1\n")
                self.feed(sink, Stream.STDERR, b"err 1\n")
                self.feed(sink, Stream.STDOUT, b"out 2\n")
            case Behaviour.POUR:
                await self.pour(sink)
            case Behaviour.LEAVE:
                self.leave()
            case Behaviour.FAIL:
                return self.failed(outcome)
            case Behaviour.STEPS:
                outcome, ends = await self.steps(assignment, outcome, sink)
                return structs.replace(outcome, steps=tuple(ends))
            case Behaviour.RESULT:
                return structs.replace(outcome, outputs={"rows": 3})
            case Behaviour.HOLD | Behaviour.DEAF | Behaviour.PROGRESS as behaviour:
                if behaviour is Behaviour.PROGRESS:
                    self.progress(fence)
                return await self.hold(assignment, outcome, sink)
            case _:
                pass
        return outcome

    async def pour(self, sink: OutputSink) -> None:
        for at in range(0, len(_LINES), _PIECE):
            self.feed(sink, Stream.STDOUT, _LINES[at : at + _PIECE])
            if sink.is_full:
                await self.drained(sink)

    def leave(self) -> None:
        forever = self.clock.sleep(timedelta(hours=1))
        self.left.append(asyncio.get_running_loop().create_task(forever))

    def feed(self, sink: OutputSink, stream: Stream, data: bytes) -> None:
        sink.feed(stream, 0, data)

    async def drained(self, sink: OutputSink) -> None:
        await sink.drained()

    async def ignore(self, grace: timedelta) -> None:
        await self.clock.sleep(grace)

    def progress(self, fence: Fence) -> None:
        self.reports.progressed(fence, 1.0, 4.0, "quarter")

    def failed(self, outcome: Outcome) -> Outcome:
        return structs.replace(
            outcome, result=AttemptResult.FAILED, exit_code=3, message="exit 3: no water"
        )

    async def hold(self, assignment: Assignment, outcome: Outcome, sink: OutputSink) -> Outcome:
        self.feed(sink, Stream.STDOUT, b"ready\n")
        stopped = await self.stops[assignment.work.fence]
        if assignment.spec.name == Behaviour.DEAF:
            await self.ignore(assignment.spec.grace)
        else:
            self.tidy(sink)
        return structs.replace(outcome, result=stopped)

    def tidy(self, sink: OutputSink) -> None:
        self.feed(sink, Stream.STDOUT, b"tidy\n")

    def note(self, fence: Fence, number: int, name: str, result: str) -> None:
        at = self.reports.store_micros()
        self.reports.stepped(fence, number, StepOutcome(name, result, started_at=at))

    async def steps(
        self, assignment: Assignment, outcome: Outcome, sink: OutputSink
    ) -> tuple[Outcome, list[StepOutcome]]:
        fence = assignment.work.fence
        self.note(fence, 0, "one", RUNNING)
        self.note(fence, 0, "one", "completed")
        self.note(fence, 1, "two", RUNNING)
        outcome = await self.hold(assignment, outcome, sink)
        self.note(fence, 1, "two", "cancelled")
        return outcome, [StepOutcome("one", "completed"), StepOutcome("two", "cancelled")]


# --- broken ones, each in one way


class Silent(Honest):
    def end(self, outcome: Outcome) -> None:
        """Report no success."""
        if outcome.result == AttemptResult.COMPLETED:
            self.tasks.pop(outcome.fence)
            return
        super().end(outcome)


class Repeating(Honest):
    def end(self, outcome: Outcome) -> None:
        super().end(outcome)
        self.reports.ended([outcome])


class Optimist(Honest):
    def failed(self, outcome: Outcome) -> Outcome:
        return outcome


class Speechless(Honest):
    def failed(self, outcome: Outcome) -> Outcome:
        return structs.replace(super().failed(outcome), message="failed")


class WithoutCode(Honest):
    def failed(self, outcome: Outcome) -> Outcome:
        return structs.replace(super().failed(outcome), exit_code=1)


class Raising(Honest):
    """The failure of the work breaks the task that should report it."""

    def failed(self, outcome: Outcome) -> Outcome:
        raise ValueError("no water")


class WrongClock(Honest):
    def end(self, outcome: Outcome) -> None:
        super().end(structs.replace(outcome, started_at=1, ended_at=2))


class Forgetful(Honest):
    def end(self, outcome: Outcome) -> None:
        super().end(structs.replace(outcome, outputs=None))


class Retelling(Honest):
    """Each attempt fails once one has."""

    has_failed = False

    def end(self, outcome: Outcome) -> None:
        if self.has_failed:
            outcome = structs.replace(outcome, result=AttemptResult.FAILED)
        self.has_failed |= outcome.result == AttemptResult.FAILED
        super().end(outcome)


class OneStream(Honest):
    def feed(self, sink: OutputSink, stream: Stream, data: bytes) -> None:
        super().feed(sink, Stream.STDOUT, data)


class WrongStep(Honest):
    def feed(self, sink: OutputSink, stream: Stream, data: bytes) -> None:
        sink.feed(stream, 1, data)


class AllAtTheEnd(Honest):
    """Nothing is seen of the output before the end."""

    def __init__(self, reports: AttemptReports, folder: Path) -> None:
        super().__init__(reports, folder)
        self.kept: list[tuple[OutputSink, Stream, bytes]] = []

    def feed(self, sink: OutputSink, stream: Stream, data: bytes) -> None:
        self.kept.append((sink, stream, data))

    def end(self, outcome: Outcome) -> None:
        for sink, stream, data in self.kept:
            sink.feed(stream, 0, data)
        super().end(outcome)


class Cutting(Honest):
    """Lets go of what does not fit."""

    def feed(self, sink: OutputSink, stream: Stream, data: bytes) -> None:
        super().feed(sink, stream, data[:1000])


class Greedy(Honest):
    """Takes all output, whether there is room or not."""

    async def drained(self, sink: OutputSink) -> None:
        pass


class Dropping(Honest):
    """Drops what comes while there is no room."""

    def feed(self, sink: OutputSink, stream: Stream, data: bytes) -> None:
        if not sink.is_full:
            super().feed(sink, stream, data)

    async def drained(self, sink: OutputSink) -> None:
        await self.clock.sleep(timedelta(milliseconds=5))


class Late(Honest):
    """Prints after the end."""

    def end(self, outcome: Outcome) -> None:
        super().end(outcome)
        self.reports.output(outcome.fence).feed(Stream.STDOUT, 0, b"late")


class WithoutProgress(Honest):
    def progress(self, fence: Fence) -> None:
        pass


class WrongProgress(Honest):
    def progress(self, fence: Fence) -> None:
        self.reports.progressed(fence, 25.0, 100.0, "quarter")


class StepsAtTheEnd(Honest):
    def note(self, fence: Fence, number: int, name: str, result: str) -> None:
        pass


class StepsOnlyNoted(Honest):
    async def steps(
        self, assignment: Assignment, outcome: Outcome, sink: OutputSink
    ) -> tuple[Outcome, list[StepOutcome]]:
        return (await super().steps(assignment, outcome, sink))[0], []


class Deaf(Honest):
    def stop(self, fence: Fence, result: AttemptResult) -> None:
        pass


class WithoutTimeouts(Honest):
    def stop(self, fence: Fence, result: AttemptResult) -> None:
        if result is AttemptResult.CANCELLED:
            super().stop(fence, result)


class WithoutDeadlines(Honest):
    async def run(self, assignment: Assignment) -> None:
        await super().run(
            replace(assignment, work=structs.replace(assignment.work, deadline_at=None))
        )


class Brutal(Honest):
    """Leaves no time to tidy up."""

    def tidy(self, sink: OutputSink) -> None:
        pass

    async def ignore(self, grace: timedelta) -> None:
        pass


class Patient(Honest):
    """Never kills."""

    async def ignore(self, grace: timedelta) -> None:
        await self.clock.sleep(timedelta(hours=1))


class AllOrNone(Honest):
    """A cancel ends all."""

    def cancel(self, fences: Sequence[Fence]) -> None:
        super().cancel(list(self.tasks))


class OnceOnly(Honest):
    """Knows no attempt but those it has, and none twice."""

    def stop(self, fence: Fence, result: AttemptResult) -> None:
        self.stops[fence].set_result(result)


class DeafAtFirst(Honest):
    """Forgets a cancel of what has not begun."""

    def __init__(self, reports: AttemptReports, folder: Path) -> None:
        super().__init__(reports, folder)
        self.begun: set[Fence] = set()

    def feed(self, sink: OutputSink, stream: Stream, data: bytes) -> None:
        self.begun |= self.tasks.keys()
        super().feed(sink, stream, data)

    def cancel(self, fences: Sequence[Fence]) -> None:
        super().cancel([fence for fence in fences if fence in self.begun])


class MixedUp(Honest):
    """Ends attempts under the names of others."""

    def start(self, batches: Sequence[JobBatch]) -> None:
        fences = [fence for batch in batches for fence in batch.fences]
        self.other = dict(zip(fences, reversed(fences), strict=True))
        super().start(batches)

    def end(self, outcome: Outcome) -> None:
        other = self.other[outcome.fence]
        self.tasks.pop(outcome.fence)
        self.reports.ended([structs.replace(outcome, run=other.run)])


class OneOfABatch(Honest):
    """Loses all but the first of a batch."""

    def start(self, batches: Sequence[JobBatch]) -> None:
        first = batches[0]
        super().start([first.without(set(first.fences[1:]))])


class InAHurry(Honest):
    """Closes without waiting."""

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()


class Stuck(Honest):
    async def close(self) -> None:
        await self.clock.sleep(timedelta(hours=1))


class Littering(Honest):
    """Leaves what attempts started."""

    async def close(self) -> None:
        self.left.clear()
        await super().close()


class LeavingOpen(Honest):
    """Leaves something open for each attempt."""

    def end(self, outcome: Outcome) -> None:
        os.open(self.folder, os.O_RDONLY)
        super().end(outcome)


class LeavingFiles(Honest):
    def end(self, outcome: Outcome) -> None:
        (self.folder / outcome.run).touch()
        super().end(outcome)


class Boastful(Honest):
    """Fills fields that are the worker's."""

    def end(self, outcome: Outcome) -> None:
        super().end(structs.replace(outcome, output_lines=1))


class Inventive(Honest):
    """Reports what nobody started."""

    def end(self, outcome: Outcome) -> None:
        super().end(outcome)
        self.reports.ended([structs.replace(outcome, run="r_other")])


SLOW = "not within"  # what must happen does not

# Who is broken, which test of the suite tells it, and in which words.
BROKEN: list[tuple[type[Honest], str, str]] = [
    (Silent, "success_is_reported", SLOW),
    (WrongClock, "success_is_reported", "the times of start and end"),
    (Repeating, "success_is_reported", "ended again, as COMPLETED"),
    (Late, "cancel_is_for_the_attempts_it_names", "printed after its end"),
    (Boastful, "success_is_reported", "filled fields of output"),
    (Inventive, "success_is_reported", "r_other/1 was reported, but never started"),
    (LeavingOpen, "success_is_reported", "left behind: open descriptors"),
    (LeavingFiles, "success_is_reported", "left behind: files"),
    (Optimist, "failure_is_a_value_with_its_reason", "the result"),
    (Speechless, "failure_is_a_value_with_its_reason", "'no water' is in 'failed'"),
    (WithoutCode, "failure_is_a_value_with_its_reason", "the exit code: 1"),
    (Raising, "failure_is_a_value_with_its_reason", SLOW),
    (Forgetful, "result_is_passed_on", "the result: None"),
    (Retelling, "next_attempt_does_not_feel_a_failure", "the result"),
    (OneStream, "streams_are_told_apart", "standard output"),
    (WrongStep, "streams_are_told_apart", "the step that printed: {1}"),
    (AllAtTheEnd, "output_comes_while_it_runs", SLOW),
    (Cutting, "long_output_is_whole_and_in_order", "all lines have come"),
    (Greedy, "full_output_holds_what_prints", "although nobody took"),
    (Dropping, "full_output_holds_what_prints", "although nobody took"),
    (WithoutProgress, "progress_is_told_while_it_runs", SLOW),
    (WrongProgress, "progress_is_told_while_it_runs", "the progress: [(25.0, 100.0"),
    (StepsAtTheEnd, "steps_are_noted_while_they_go_on", SLOW),
    (StepsOnlyNoted, "steps_are_noted_while_they_go_on", "the steps at the end: []"),
    (Deaf, "cancelled_attempt_has_time_to_tidy_up", SLOW),
    (Brutal, "cancelled_attempt_has_time_to_tidy_up", "what it printed: 'ready\\n'"),
    (Brutal, "what_does_not_obey_is_killed_after_the_grace", "it had the whole grace"),
    (Patient, "what_does_not_obey_is_killed_after_the_grace", SLOW),
    (DeafAtFirst, "cancel_may_come_before_it_has_begun", SLOW),
    (AllOrNone, "cancel_is_for_the_attempts_it_names", "the other one is over"),
    (OnceOnly, "cancel_may_come_twice_and_too_late", "r_1"),
    (WithoutTimeouts, "timeout_ends_it", SLOW),
    (WithoutDeadlines, "deadline_of_the_run_ends_it", SLOW),
    (Patient, "what_ignores_its_timeout_is_killed", SLOW),
    (MixedUp, "many_at_once_are_not_mixed_up", "the result"),
    (OneOfABatch, "many_at_once_are_not_mixed_up", SLOW),
    (InAHurry, "close_waits_for_what_still_ends", "the results once it was closed: [None, None]"),
    (Stuck, "close_without_any_attempt", "not closed within"),
    (Littering, "what_an_attempt_started_does_not_outlive_the_executor", "left behind: tasks"),
]


class Suite(ExecutorConformance):
    """The suite for an executor of the test's."""

    many = 6

    def __init__(self, make: type[Honest] = Honest) -> None:
        self.make = make

    @asynccontextmanager
    async def executor(self, reports: AttemptReports, folder: Path) -> AsyncIterator[Honest]:
        yield self.make(reports, folder)

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return JobSpec("any")


class TestHonest(ExecutorConformance):
    """The suite as an author of an executor has it."""

    executor = Suite().executor
    spec = Suite().spec


@pytest.mark.parametrize(
    ("make", "name", "words"), BROKEN, ids=lambda value: getattr(value, "__name__", None)
)
def test_broken_executor_is_told(
    make: type[Honest], name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(make)
    if words in (SLOW, "not closed within") or words.startswith("left behind"):
        monkeypatch.setattr(Suite, "patience", 1.3 if make is Patient else 0.2)

    failure = pytest.raises((AssertionError, KeyError))
    with failure as caught, suite.opened(tmp_path) as bench:
        getattr(suite, f"test_{name}")(bench)

    assert words in str(caught.value)


def test_each_test_of_the_suite_can_fail() -> None:
    tests = {name for name in dir(ExecutorConformance) if name.startswith("test_")}

    assert {f"test_{name}" for _, name, _ in BROKEN} == tests

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rota.clock import SystemClock
from rota.domain.errors import Unavailable
from rota.domain.jobfile import read_job
from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.ports.executor import Completions, JobBatch
from rota.ports.work import (
    Beat,
    Dispatch,
    EndBatch,
    Fence,
    Outcome,
    Report,
    ReportAnswer,
    SpecEntry,
    Work,
    WorkBatch,
)
from rota.worker.attempts import Attempts
from rota.worker.spool import OutputSpool
from testkit.builders import outcome
from testkit.clock import FakeClock, FakeTicker
from tests.unit.worker.test_spool import chunks

FENCE = Fence("r_1", 1)


class Recorder:
    """An executor that only notes what it is asked to do."""

    def __init__(self) -> None:
        self.batches: list[JobBatch] = []
        self.started: list[Fence] = []
        self.cancelled: list[Fence] = []

    def start(self, batches: Sequence[JobBatch]) -> None:
        self.batches += batches
        self.started += [fence for batch in batches for fence in batch.fences]

    def cancel(self, fences: Sequence[Fence]) -> None:
        self.cancelled += fences

    async def close(self) -> None: ...


def dispatch(delivery: str, *fences: Fence, first: int = 0) -> Dispatch:
    spec = read_job({"name": "job", "steps": [{"run": "true"}], "delivery": delivery})
    works = [Work(fence.run, fence.number, "j_1", 1, due_at=0) for fence in fences or (FENCE,)]
    return Dispatch(WorkBatch.of(works), (SpecEntry("j_1", 1, spec),), first)


def fences(count: int) -> list[Fence]:
    return [Fence(f"r_{number}", 1) for number in range(1, count + 1)]


def completions(*ended: Fence) -> Completions:
    count = len(ended)
    return Completions(list(ended), [1] * count, [2] * count, [3] * count)


@pytest.fixture
def executor() -> Recorder:
    return Recorder()


@pytest.fixture
def attempts(executor: Recorder, tmp_path: Path) -> Attempts:
    attempts = Attempts(SystemClock(), OutputSpool(tmp_path))
    attempts.serve_with({JobType.SHELL: executor})
    return attempts


def outcomes(attempts: Attempts) -> tuple[Outcome, ...]:
    """What the next report tells of attempts that did not just complete."""
    sending = attempts.next_report()
    return sending.report.outcomes if sending else ()


def results(attempts: Attempts) -> list[str]:
    return [outcome.result for outcome in outcomes(attempts)]


def test_attempt_whose_job_cannot_be_read_fails_and_others_go_on(
    attempts: Attempts, executor: Recorder
) -> None:
    unreadable = Work("r_2", 1, "j_of_a_later_version", 1, due_at=0)
    readable = dispatch("at_least_once")

    both = WorkBatch.of([unreadable, *readable.batch.works()])

    free, _ = attempts.accept(Dispatch(both, readable.specs))
    attempts.begin(free)

    [refused] = outcomes(attempts)
    assert (refused.run, refused.result) == ("r_2", AttemptResult.FAILED)
    assert "cannot read the job" in refused.message
    assert executor.started == [FENCE]


def test_attempt_cancelled_while_it_waits_for_its_permit_never_starts(
    attempts: Attempts, executor: Recorder
) -> None:
    _, guarded = attempts.accept(dispatch("at_most_once"))

    attempts.cancel([FENCE])
    attempts.begin(guarded)

    assert executor.started == []
    assert results(attempts) == [AttemptResult.CANCELLED]


def test_attempt_that_has_begun_is_cancelled_by_its_executor_once(
    attempts: Attempts, executor: Recorder
) -> None:
    free, _ = attempts.accept(dispatch("at_least_once"))
    attempts.begin(free)

    attempts.cancel([FENCE])
    attempts.cancel([FENCE])

    assert executor.cancelled == [FENCE]
    assert results(attempts) == []


def test_attempt_interrupted_before_it_began_may_be_tried_elsewhere(
    attempts: Attempts, executor: Recorder
) -> None:
    _, guarded = attempts.accept(dispatch("at_most_once"))

    attempts.interrupt()
    attempts.begin(guarded)

    assert executor.started == []
    assert results(attempts) == [AttemptResult.INTERRUPTED]


def test_work_that_arrives_twice_is_held_once(attempts: Attempts) -> None:
    assert len(attempts.accept(dispatch("at_least_once"))[0]) == 1

    assert attempts.accept(dispatch("at_least_once")) == ([], [])


def test_work_that_arrives_again_after_its_end_was_acknowledged_is_passed_over(
    attempts: Attempts,
) -> None:
    counted = dispatch("at_least_once", first=1)
    attempts.begin(attempts.accept(counted)[0])
    attempts.ended([outcome(FENCE)])
    attempts.forget([FENCE])

    assert attempts.accept(counted) == ([], [])
    assert attempts.beat(stream=1) == Beat(received=1, stream=1)


def test_stream_with_a_gap_is_broken(attempts: Attempts) -> None:
    with pytest.raises(Unavailable, match="missing"):
        attempts.accept(dispatch("at_least_once", first=2))

    assert not attempts.held


def test_each_stream_counts_its_own_work(attempts: Attempts) -> None:
    attempts.accept(dispatch("at_least_once", first=1))
    attempts.forget([FENCE])

    attempts.begin_stream()

    assert attempts.beat(stream=2).received == 0
    assert len(attempts.accept(dispatch("at_least_once", first=1))[0]) == 1


def test_end_that_was_put_off_is_reported_when_its_time_has_come(tmp_path: Path) -> None:
    ticker = FakeTicker()
    attempts = Attempts(FakeClock(ticker), OutputSpool(tmp_path))
    free, _ = attempts.accept(dispatch("at_least_once"))
    attempts.give_back(free)
    sending = attempts.next_report()
    assert sending is not None
    attempts.answered(sending, ReportAnswer(again=(FENCE,)), timedelta(seconds=2))

    before = results(attempts)
    ticker.advance(timedelta(seconds=2))

    assert (before, results(attempts)) == ([], [AttemptResult.INTERRUPTED])


def test_type_that_nobody_executes_fails_with_its_name(attempts: Attempts) -> None:
    attempts.serve_with({})
    free, _ = attempts.accept(dispatch("at_least_once"))

    attempts.begin(free)

    [outcome] = outcomes(attempts)
    assert (outcome.result, "shell" in outcome.message) == (AttemptResult.FAILED, True)


class TestPermits:
    def test_one_that_was_never_answered_is_asked_again(self, attempts: Attempts) -> None:
        attempts.accept(dispatch("at_most_once"))

        before = attempts.unpermitted()
        attempts.permitted([FENCE])

        assert before == [FENCE]
        assert attempts.unpermitted() == []

    def test_only_what_was_granted_begins(self, attempts: Attempts, executor: Recorder) -> None:
        first, second, third = fences(3)
        attempts.accept(dispatch("at_most_once", first, second, third))

        attempts.permitted([second])

        assert executor.started == [second]
        assert attempts.unpermitted() == [first, third]

    def test_what_nobody_asked_for_and_what_has_begun_is_passed_over(
        self, attempts: Attempts, executor: Recorder
    ) -> None:
        attempts.accept(dispatch("at_most_once"))

        attempts.permitted([FENCE, Fence("r_foreign", 1)])
        attempts.permitted([FENCE])

        assert executor.started == [FENCE]

    def test_what_was_granted_need_not_be_announced(self, attempts: Attempts) -> None:
        first, second = fences(2)
        attempts.accept(dispatch("at_most_once", first, second))

        attempts.permitted([first])
        before = attempts.starts_to_report(older_than=-1)
        attempts.permitted([second])

        assert (before, attempts.starts_to_report(older_than=-1)) == ([], [])


class TestInterrupting:
    def test_an_attempt_that_outlives_a_second_stop_was_still_interrupted(
        self, attempts: Attempts, executor: Recorder
    ) -> None:
        attempts.begin(attempts.accept(dispatch("at_least_once"))[0])

        attempts.interrupt()
        attempts.interrupt()
        attempts.ended([outcome(FENCE, AttemptResult.CANCELLED)])

        assert results(attempts) == [AttemptResult.INTERRUPTED]
        assert executor.cancelled == [FENCE]

    def test_what_was_cancelled_before_stays_cancelled(self, attempts: Attempts) -> None:
        attempts.begin(attempts.accept(dispatch("at_least_once"))[0])

        attempts.cancel([FENCE])
        attempts.interrupt()
        attempts.ended([outcome(FENCE, AttemptResult.CANCELLED)])

        assert results(attempts) == [AttemptResult.CANCELLED]


def test_attempt_that_died_with_its_host_is_reported_as_lost(attempts: Attempts) -> None:
    attempts.begin(attempts.accept(dispatch("at_least_once"))[0])

    attempts.ended([outcome(FENCE, AttemptResult.LOST)])

    assert results(attempts) == [AttemptResult.LOST]


SOUND = WorkBatch(["r_1", "r_2"], [1, 1], [0, 0], [("j_1", 1)])


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": [1]},
        {"due_at": [0, 0, 0]},
        {"numbers": [1, -1]},
        {"numbers": [1, 2**63]},
        {"runs": ["r_1", "r_1"]},
        {"jobs": []},
        {"job_of": [0]},
        {"job_of": [0, 1]},
        {"job_of": [0, -1]},
        {"inputs": {2: "{}"}},
        {"inputs": {0: "{"}},
        {"inputs": {0: "[]"}},
        {"deadlines": {-1: 0}},
        {"carts": {7: ("c_1", None)}},
    ],
    ids=str,
)
def test_dispatch_that_makes_no_sense_breaks_the_stream_and_nothing_of_it_is_taken(
    attempts: Attempts, change: dict[str, object]
) -> None:
    odd = msgspec.structs.replace(SOUND, **change)

    with pytest.raises(Unavailable, match="makes no sense"):
        attempts.accept(Dispatch(odd, first=1))

    assert attempts.beat(stream=1) == Beat(received=0, stream=1)


def test_attempts_of_a_job_begin_together_with_what_they_have(
    attempts: Attempts, executor: Recorder
) -> None:
    spec = read_job({"name": "job", "steps": [{"run": "true"}]})
    works = [Work(f"r_{n}", 1, f"j_{n % 2}", 1, n, {"n": n}) for n in range(4)]
    specs = (SpecEntry("j_0", 1, spec), SpecEntry("j_1", 1, spec))

    free, _ = attempts.accept(Dispatch(WorkBatch.of(works), specs))
    attempts.begin(free)

    begun = [[each.work for each in batch.assignments()] for batch in executor.batches]
    assert begun == [works[::2], works[1::2]]


class TestCompletions:
    @pytest.fixture
    def three(self, attempts: Attempts) -> list[Fence]:
        """Attempts that are going."""
        three = fences(3)
        attempts.begin(attempts.accept(dispatch("at_least_once", *three))[0])
        return three

    def test_they_are_reported_in_columns(self, attempts: Attempts, three: list[Fence]) -> None:
        attempts.completed(completions(*three))

        sending = attempts.next_report()

        assert sending is not None
        assert sending.report == Report(
            EndBatch(["r_1", "r_2", "r_3"], [1] * 3, [1] * 3, [2] * 3, [3] * 3)
        )

    def test_what_was_answered_is_held_no_more(
        self, attempts: Attempts, three: list[Fence]
    ) -> None:
        attempts.completed(completions(*three))
        sending = attempts.next_report()
        assert sending is not None

        attempts.answered(sending, ReportAnswer(refused=(three[0],), again=(three[1],)))

        assert list(attempts.held) == [three[1]]

    def test_each_ends_once(self, attempts: Attempts, three: list[Fence]) -> None:
        attempts.ended([outcome(three[0], AttemptResult.FAILED)])
        attempts.completed(completions(*three, Fence("r_foreign", 1)))
        attempts.completed(completions(*three))

        sending = attempts.next_report()

        assert sending is not None
        assert sending.fences() == [three[1], three[2], three[0]]

    @pytest.mark.anyio
    async def test_one_that_printed_has_more_to_tell(
        self, attempts: Attempts, three: list[Fence]
    ) -> None:
        attempts.output(three[1]).feed(Stream.STDOUT, 0, b"a line")
        attempts.completed(completions(*three))
        reports: list[Report] = []
        async with asyncio.timeout(10):
            while sum(map(len, reports)) < 3:
                await attempts.has_news.wait()
                attempts.has_news.clear()
                if sending := attempts.next_report():
                    attempts.answered(sending, ReportAnswer())
                    reports.append(sending.report)

        assert [run for report in reports for run in report.ends.runs] == ["r_1", "r_3"]
        [told] = [told for report in reports for told in report.outcomes]
        assert (told.run, told.result, told.output_bytes) == ("r_2", "COMPLETED", 6)


class TestWaitingForMore:
    """A report costs the same for one end and for many."""

    MOMENT = timedelta(milliseconds=1)

    @pytest.fixture
    def ticker(self) -> FakeTicker:
        return FakeTicker()

    @pytest.fixture
    def attempts(self, ticker: FakeTicker, executor: Recorder, tmp_path: Path) -> Attempts:
        """Sixty attempts are going, and one of them has just ended."""
        attempts = Attempts(FakeClock(ticker), OutputSpool(tmp_path))
        attempts.serve_with({JobType.SHELL: executor})
        attempts.begin(attempts.accept(dispatch("at_least_once", *fences(61)))[0])
        attempts.completed(completions(Fence("r_61", 1)))
        assert attempts.next_report() is not None
        attempts.has_enough.clear()
        return attempts

    def test_quick_ends_wait_for_one_another_while_others_run(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        ticker.advance(self.MOMENT)
        attempts.completed(completions(*fences(1)))

        assert attempts.may_wait
        assert not attempts.has_enough.is_set()

    def test_an_end_that_comes_alone_does_not_wait(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        ticker.advance(timedelta(milliseconds=6))
        attempts.completed(completions(*fences(1)))

        assert not attempts.may_wait

    @pytest.mark.parametrize("enough", [32, 60])
    def test_enough_ends_do_not_wait(
        self, attempts: Attempts, ticker: FakeTicker, enough: int
    ) -> None:
        ticker.advance(self.MOMENT)
        attempts.completed(completions(*fences(enough)))

        assert not attempts.may_wait
        assert attempts.has_enough.is_set()

    def test_ends_do_not_wait_while_fewer_run_than_wait(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        attempts.forget(fences(61)[3:])
        ticker.advance(self.MOMENT)

        attempts.completed(completions(*fences(2)))

        assert not attempts.may_wait


class TestOutputThatIsStillHere:
    PRINTED = b"a line that was printed\n" * 1_000

    @pytest.fixture
    def printing(self, attempts: Attempts) -> Attempts:
        """An attempt that has printed more than rides in a report."""
        attempts.spool.open()
        free, _ = attempts.accept(dispatch("at_least_once"))
        attempts.begin(free)
        attempts.output(FENCE).feed(Stream.STDOUT, 0, self.PRINTED)
        return attempts

    def end(self, attempts: Attempts) -> None:
        attempts.ended([Outcome(FENCE.run, 1, AttemptResult.COMPLETED, 1, 2, exit_code=0)])

    @pytest.mark.anyio
    async def test_an_end_does_not_wait_while_nobody_takes_output(self, printing: Attempts) -> None:
        printing.spool.mark_stalled("the blob store is away")

        self.end(printing)
        await asyncio.wait_for(printing.has_news.wait(), 0.5)

        [outcome] = outcomes(printing)
        assert (outcome.output, outcome.output_bytes) == (b"", len(self.PRINTED))
        assert not printing.spool.is_empty

    @pytest.mark.anyio
    async def test_an_end_follows_output_that_is_being_delivered(self, printing: Attempts) -> None:
        self.end(printing)
        news = asyncio.ensure_future(printing.has_news.wait())
        await asyncio.wait([news], timeout=0.05)
        assert outcomes(printing) == ()

        printing.spool.mark_delivered(printing.spool.next_batch())
        await news

        assert len(outcomes(printing)) == 1

    @pytest.mark.anyio
    async def test_an_end_waits_no_longer_than_a_moment(
        self, printing: Attempts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rota.worker.attempts._SETTLING", timedelta(milliseconds=20))

        self.end(printing)
        await asyncio.wait_for(printing.has_news.wait(), 10)

        assert len(outcomes(printing)) == 1

    def test_output_of_a_reported_attempt_goes_on_its_way(self, printing: Attempts) -> None:
        printing.output(FENCE).finish()

        printing.forget([FENCE])

        assert printing.held == {}
        assert len(printing.spool.next_batch().chunks) == 1


class TestSpecs:
    """They are told once, and not for ever."""

    @staticmethod
    def told(*numbers: int) -> Dispatch:
        spec = read_job({"name": "job", "steps": [{"run": "true"}]})
        return Dispatch(WorkBatch(), tuple(SpecEntry(f"j_{number}", 1, spec) for number in numbers))

    @staticmethod
    def is_known(attempts: Attempts, number: int) -> bool:
        work = Work(f"r_of_{number}", 1, f"j_{number}", 1, due_at=0)
        free, _ = attempts.accept(Dispatch(WorkBatch.of([work])))
        return bool(free)

    def test_as_many_as_a_server_counts_on_are_remembered(
        self, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rota.worker.attempts.KNOWN_SPECS", 3)

        attempts.accept(self.told(1, 2, 3))
        attempts.accept(self.told(1))
        attempts.accept(self.told(4))

        assert [self.is_known(attempts, number) for number in (1, 2, 3, 4)] == [
            True,
            False,
            True,
            True,
        ]


class TestEndThatNoServerTakes:
    async def fail(self, attempts: Attempts, clock: FakeClock, minutes: float) -> None:
        """Let every server refuse the reports for so long."""
        until = clock.monotonic() + 60 * minutes
        while clock.monotonic() < until:
            if sending := attempts.next_report():
                attempts.put_off(sending, "odd", timedelta(seconds=2))
            await clock.sleep(timedelta(seconds=1))

    @pytest.mark.anyio
    async def test_its_slot_is_free_after_many_tries_and_servers_are_told(
        self, tmp_path: Path
    ) -> None:
        clock = FakeClock(FakeTicker())
        attempts = Attempts(clock, OutputSpool(tmp_path))
        executor = Recorder()
        attempts.serve_with({JobType.SHELL: executor})
        first, second = fences(2)
        attempts.begin(attempts.accept(dispatch("at_least_once", first, second))[0])
        attempts.completed(completions(first))

        await self.fail(attempts, clock, 5)
        before = attempts.beat(1)
        await self.fail(attempts, clock, 6)
        after = attempts.beat(1)
        attempts.beaten(before)
        told_again = attempts.beat(1)
        attempts.beaten(after)
        await self.fail(attempts, clock, 11)

        assert (before.held, before.given_up) == ((first, second), ())
        assert before.trouble == "the end of a run cannot be reported: odd"
        assert (after.held, after.given_up) == ((second,), (first,))
        assert after.trouble == "given up, because no server took it: the end of r_1"
        assert told_again == after
        assert attempts.beat(1) == Beat(held=(second,), received=2, stream=1)

    def test_output_that_was_given_up_is_told_for_a_while(
        self, attempts: Attempts, tmp_path: Path
    ) -> None:
        outbox = attempts.spool.outbox(FENCE)
        outbox.add(chunks(1))
        spool = attempts.spool
        for connection in range(1, 9):
            batch = spool.next_batch(connection)
            spool.mark_failed(batch, "the connection broke", connection, is_alone=True)
        failing = attempts.beat(1).trouble
        spool.mark_delivered(spool.next_batch(9))

        assert spool.is_empty
        assert failing.startswith("output of a run (0.0 MB) cannot be delivered: the connection")
        assert attempts.beat(1).trouble == "given up, because no server took it: output of r_1"


@pytest.mark.anyio
async def test_an_end_waits_for_output_that_does_not_arrive_for_less_than_a_second(
    attempts: Attempts,
) -> None:
    attempts.spool.open()
    attempts.begin(attempts.accept(dispatch("at_least_once"))[0])
    attempts.output(FENCE).feed(Stream.STDOUT, 0, b"line\n" * 2_000)
    loop = asyncio.get_running_loop()
    ended_at = loop.time()

    attempts.ended([outcome(FENCE)])
    await asyncio.wait_for(attempts.has_news.wait(), 10)

    assert loop.time() - ended_at < 1
    assert results(attempts) == [AttemptResult.COMPLETED]


class Broken(Recorder):
    """An executor that breaks whatever it is told, as that of a plug-in may."""

    def start(self, batches: Sequence[JobBatch]) -> None:
        raise ZeroDivisionError("odd")

    def cancel(self, fences: Sequence[Fence]) -> None:
        raise ZeroDivisionError("odd")


@pytest.mark.parametrize(
    ("delivery", "result"),
    [("at_least_once", AttemptResult.FAILED), ("at_most_once", AttemptResult.LOST)],
)
def test_an_executor_that_breaks_ends_its_attempts_alone(
    attempts: Attempts, delivery: str, result: AttemptResult
) -> None:
    attempts.serve_with({JobType.SHELL: Broken()})
    free, guarded = attempts.accept(dispatch(delivery))

    attempts.begin([*free, *guarded])

    [end] = outcomes(attempts)
    assert (end.result, "could not start it" in end.message) == (result, True)


def test_an_executor_that_breaks_at_a_cancel_breaks_nothing_else(
    attempts: Attempts, executor: Recorder
) -> None:
    free, _ = attempts.accept(dispatch("at_least_once"))
    attempts.begin(free)
    attempts.serve_with({JobType.SHELL: Broken()})

    attempts.cancel([FENCE])

    assert executor.started == list(attempts.held) == [FENCE]


def test_progress_that_is_no_number_is_not_told(attempts: Attempts) -> None:
    free, _ = attempts.accept(dispatch("at_least_once"))
    attempts.begin(free)

    attempts.progressed(FENCE, float("nan"), None, "")
    attempts.progressed(FENCE, 1.0, float("inf"), "")

    assert attempts.due_progress() == []

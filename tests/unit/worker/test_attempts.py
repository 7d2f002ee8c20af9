from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.errors import Unavailable
from rota.domain.jobfile import read_job
from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.ports.executor import Assignment
from rota.ports.work import Beat, Dispatch, Fence, Outcome, SpecEntry, Work
from rota.worker.attempts import Attempts
from rota.worker.spool import OutputSpool
from testkit.builders import outcome
from testkit.clock import FakeClock, FakeTicker

FENCE = Fence("r_1", 1)


class Recorder:
    """An executor that only notes what it is asked to do."""

    def __init__(self) -> None:
        self.started: list[Fence] = []
        self.cancelled: list[Fence] = []

    def start(self, assignments: Sequence[Assignment]) -> None:
        self.started += [assignment.work.fence for assignment in assignments]

    def cancel(self, fences: Sequence[Fence]) -> None:
        self.cancelled += fences

    async def close(self) -> None: ...


def dispatch(delivery: str, *, first: int = 0) -> Dispatch:
    spec = read_job({"name": "job", "steps": [{"run": "true"}], "delivery": delivery})
    work = Work(FENCE.run, FENCE.attempt, "j_1", 1, due_at=0)
    return Dispatch((work,), (SpecEntry("j_1", 1, spec),), first)


@pytest.fixture
def executor() -> Recorder:
    return Recorder()


@pytest.fixture
def attempts(executor: Recorder, tmp_path: Path) -> Attempts:
    attempts = Attempts(SystemClock(), OutputSpool(tmp_path))
    attempts.serve_with({JobType.SHELL: executor})
    return attempts


def results(attempts: Attempts) -> list[str]:
    return [outcome.result for outcome in attempts.unreported()]


def test_attempt_whose_job_cannot_be_read_fails_and_others_go_on(
    attempts: Attempts, executor: Recorder
) -> None:
    unreadable = Work("r_2", 1, "j_of_a_later_version", 1, due_at=0)
    readable = dispatch("at_least_once")

    free, _ = attempts.accept(Dispatch((unreadable, *readable.work), readable.specs))
    attempts.begin(free)

    [refused] = attempts.unreported()
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
    attempts.put_off(attempts.unreported(), timedelta(seconds=2))

    before = results(attempts)
    ticker.advance(timedelta(seconds=2))

    assert (before, results(attempts)) == ([], [AttemptResult.INTERRUPTED])


def test_type_that_nobody_executes_fails_with_its_name(attempts: Attempts) -> None:
    attempts.serve_with({})
    free, _ = attempts.accept(dispatch("at_least_once"))

    attempts.begin(free)

    [outcome] = attempts.unreported()
    assert (outcome.result, "shell" in outcome.message) == (AttemptResult.FAILED, True)


def test_permit_that_was_never_answered_is_asked_again(attempts: Attempts) -> None:
    _, guarded = attempts.accept(dispatch("at_most_once"))

    before = attempts.unpermitted()
    attempts.begin(guarded)

    assert before == guarded
    assert attempts.unpermitted() == []


def test_report_is_cut_by_its_size(attempts: Attempts) -> None:
    spec = read_job({"name": "job", "steps": [{"run": "true"}]})
    works = tuple(Work(f"r_{n}", 1, "j_1", 1, due_at=0) for n in range(20))
    attempts.accept(Dispatch(works, (SpecEntry("j_1", 1, spec),)))

    attempts.ended(
        [Outcome(w.run, 1, AttemptResult.COMPLETED, 1, 1, outputs="x" * 1_000_000) for w in works]
    )

    assert 1 <= len(attempts.unreported()) < 20


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

        [outcome] = printing.unreported()
        assert (outcome.output, outcome.output_bytes) == (b"", len(self.PRINTED))
        assert not printing.spool.is_empty

    @pytest.mark.anyio
    async def test_an_end_follows_output_that_is_being_delivered(self, printing: Attempts) -> None:
        self.end(printing)
        news = asyncio.ensure_future(printing.has_news.wait())
        await asyncio.wait([news], timeout=0.05)
        assert printing.unreported() == []

        printing.spool.mark_delivered(printing.spool.next_batch(), refused=())
        await news

        assert len(printing.unreported()) == 1

    @pytest.mark.anyio
    async def test_an_end_waits_no_longer_than_a_moment(
        self, printing: Attempts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rota.worker.attempts._SETTLING", timedelta(milliseconds=20))

        self.end(printing)
        await asyncio.wait_for(printing.has_news.wait(), 10)

        assert len(printing.unreported()) == 1

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
        return Dispatch((), tuple(SpecEntry(f"j_{number}", 1, spec) for number in numbers))

    @staticmethod
    def is_known(attempts: Attempts, number: int) -> bool:
        work = Work(f"r_of_{number}", 1, f"j_{number}", 1, due_at=0)
        free, _ = attempts.accept(Dispatch((work,)))
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

"""Conformance suite for executors: what a worker relies on, as tests for pytest.

    from rota.testing.executors import Behaviour, ExecutorConformance

    class TestMine(ExecutorConformance):
        @asynccontextmanager
        async def executor(self, reports, folder):
            yield MyExecutor(reports, folder)

        def spec(self, behaviour):
            return JobSpec("conformance", type=..., steps=STEPS_IN_SHELL[behaviour])

pytest collects the tests of the base with the class. Each makes an executor, has it carry out jobs
that behave in a known way, and at its end closes it and looks for what is left. An event loop is
made for each test, so no plug-in of pytest is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec, Step
from rota.ports.executor import Executor
from rota.ports.work import RUNNING
from rota.testing.bench import Attempt, Bench, Reports, expect

__all__ = [
    "LEFT_SECONDS",
    "STEPS_IN_SHELL",
    "Attempt",
    "Behaviour",
    "Bench",
    "ExecutorConformance",
    "Reports",
]

LEFT_SECONDS = "987654321"  # what the process of `Behaviour.LEAVE` sleeps: it is found by that
_CODE = 3  # of what fails
_COMPLAINT = "no water"
_ROWS = {"rows": 3}
_PROGRESS = (1.0, 4.0, "quarter")
_POURED = 500_000  # lines
_SOON = timedelta(seconds=0.5)
_CLOCKS_APART = 100_000  # microseconds that two readings of one clock may differ


class Behaviour(StrEnum):
    """How a job of the suite behaves."""

    SUCCEED = "succeed"  # prints nothing, and ends well at once
    SPEAK = "speak"  # prints the lines `out 1`, `out 2`; and, on standard error, `err 1`; ends well
    FAIL = "fail"  # prints `no water` on standard error, and fails: with exit code 3, if it can
    RESULT = "result"  # its result is {"rows": 3}
    HOLD = "hold"  # prints `ready`; goes on until it is to end; then prints `tidy`, and ends
    DEAF = "deaf"  # prints `ready`; goes on whatever it is told
    PROGRESS = "progress"  # tells `1 of 4, quarter`, then as HOLD
    STEPS = "steps"  # three steps: `one` ends well, `two` is as HOLD, `three` for success only
    POUR = "pour"  # prints the numbers 1 to 500000, each in a line
    LEAVE = "leave"  # starts something that would outlive it, and ends well
    BREAK = "break"  # of `RemoteConformance` only: submitting it ends without an answer


_HOLD = "trap 'echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
_SCRIPTS: Mapping[Behaviour, str] = {
    Behaviour.SUCCEED: "true",
    Behaviour.SPEAK: "echo out 1; echo err 1 >&2; echo out 2",
    Behaviour.FAIL: f"echo {_COMPLAINT} >&2; exit {_CODE}",
    Behaviour.RESULT: """echo '{"rows": 3}' > "$ROTA_OUTPUT" """,
    Behaviour.HOLD: _HOLD,
    Behaviour.DEAF: "trap '' TERM; echo ready; while :; do sleep 0.1; done",
    Behaviour.PROGRESS: f"""echo '1/4 quarter' > "$ROTA_PROGRESS"; {_HOLD}""",
    Behaviour.POUR: f"seq 1 {_POURED}",
    Behaviour.LEAVE: f"setsid sleep {LEFT_SECONDS} > /dev/null 2>&1 & sleep 0.1",
}
# All behaviours as steps, for executors that run scripts in a POSIX shell.
STEPS_IN_SHELL: Mapping[Behaviour, tuple[Step, ...]] = {
    **{behaviour: (Step("step 1", script),) for behaviour, script in _SCRIPTS.items()},
    Behaviour.STEPS: (
        Step("one", "true"),
        Step("two", _HOLD),
        Step("three", "true"),
    ),
}


class ExecutorConformance:
    """Tests of what every executor promises. Subclass it, and tell how yours is made."""

    patience: ClassVar[float] = 30.0  # seconds until what must happen has failed
    many: ClassVar[int] = 40  # attempts at once
    has_exit_codes: ClassVar[bool] = True
    lacks: ClassVar[Mapping[Behaviour, str]] = {}  # which jobs of this type cannot have, and why
    slack: ClassVar[int] = 2 * 1024 * 1024  # bytes that may come once the output is full

    def executor(self, reports: Reports, folder: Path) -> AbstractAsyncContextManager[Executor]:
        """Make an executor that reports there, and may have its files in that folder.

        For work that another system does, `reports` is also the `RemoteWork`.

        The suite closes the executor itself, before it leaves the context.
        """
        raise NotImplementedError

    def spec(self, behaviour: Behaviour) -> JobSpec:
        """Return a job that behaves so. Its timeout and grace are given by the tests."""
        raise NotImplementedError

    def leftovers(self) -> Sequence[object]:
        """Return what attempts left outside of this process: asked after the executor's close.

        What `Behaviour.LEAVE` starts must be found by this.
        """
        return ()

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of a test."""
        return asyncio.new_event_loop()

    def given(self, behaviour: Behaviour) -> JobSpec:
        """Return the job, or skip the test where this type lacks such jobs."""
        if reason := self.lacks.get(behaviour):
            pytest.skip(reason)
        spec = self.spec(behaviour)
        return replace(spec, name=behaviour, timeout=None, grace=timedelta(minutes=5))

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        with self.opened(tmp_path) as bench:
            yield bench

    @contextmanager
    def opened(self, folder: Path) -> Iterator[Bench]:
        """Open a bench; close it and look for what is left, unless a test has failed."""
        bench = Bench(self, folder)
        try:
            yield bench
        except BaseException:
            with suppress(Exception):
                bench.finish()
            raise
        bench.finish()

    def start(
        self,
        bench: Bench,
        behaviour: Behaviour,
        deadline: timedelta | None = None,
        capacity: int | None = None,
        **fields: Any,
    ) -> Attempt:
        """Start an attempt at a job that behaves so; fields are those of its spec."""
        [attempt] = bench.start([replace(self.given(behaviour), **fields)], deadline, capacity)
        return attempt

    def start_together(self, bench: Bench, behaviours: Sequence[Behaviour]) -> list[Attempt]:
        """Start attempts by one call."""
        return bench.start([self.given(each) for each in behaviours])

    # --- the end of an attempt

    def test_success_is_reported(self, bench: Bench) -> None:
        began = bench.reports.store_micros()
        attempt = self.start(bench, Behaviour.SUCCEED)
        outcome = attempt.outcome(AttemptResult.COMPLETED)

        expect(attempt.printed(), "", "what is printed")
        now = bench.reports.store_micros() + _CLOCKS_APART
        times = [began - _CLOCKS_APART, outcome.started_at, outcome.ended_at, now]
        expect(sorted(times), times, "the times of start and end, between those of the test")

    def test_failure_is_a_value_with_its_reason(self, bench: Bench) -> None:
        outcome = self.start(bench, Behaviour.FAIL).outcome(AttemptResult.FAILED)

        expect(_COMPLAINT in outcome.message, True, f"{_COMPLAINT!r} is in {outcome.message!r}")
        if self.has_exit_codes:
            expect(outcome.exit_code, _CODE, "the exit code")

    def test_result_is_passed_on(self, bench: Bench) -> None:
        outcome = self.start(bench, Behaviour.RESULT).outcome(AttemptResult.COMPLETED)

        expect(outcome.outputs, _ROWS, "the result")

    def test_next_attempt_does_not_feel_a_failure(self, bench: Bench) -> None:
        self.start(bench, Behaviour.FAIL).outcome(AttemptResult.FAILED)

        self.start(bench, Behaviour.SPEAK).outcome(AttemptResult.COMPLETED)

    # --- output and progress

    def test_streams_are_told_apart(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.SPEAK)
        attempt.outcome(AttemptResult.COMPLETED)

        expect(attempt.printed(Stream.STDOUT), "out 1\nout 2\n", "standard output")
        expect(attempt.printed(Stream.STDERR), "err 1\n", "standard error")
        expect({step for _, step, _ in attempt.sink.fed}, {0}, "the step that printed")

    def test_output_comes_while_it_runs(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.HOLD)
        attempt.shows("ready\n")

        expect(attempt.is_over, False, "the attempt is over")
        attempt.cancel()
        attempt.outcome()

    def test_long_output_is_whole_and_in_order(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.POUR)
        attempt.outcome(AttemptResult.COMPLETED)

        expect(attempt.printed(Stream.STDOUT) == _poured(), True, "all lines have come")

    def test_full_output_holds_what_prints(self, bench: Bench) -> None:
        """Nothing is lost by that, and no more is taken than fits."""
        capacity = 64 * 1024
        attempt = self.start(bench, Behaviour.POUR, capacity=capacity)
        bench.until(lambda: attempt.sink.is_full, "the output is full")
        bench.pass_time(_SOON)

        expect(attempt.is_over, False, "it ended, although nobody took what it printed")
        most = capacity + self.slack
        expect(attempt.sink.size <= most, True, f"{attempt.sink.size} bytes are at most {most}")
        bench.call(attempt.sink.open)
        attempt.outcome(AttemptResult.COMPLETED)
        expect(attempt.printed(Stream.STDOUT) == _poured(), True, "all lines have come")

    def test_progress_is_told_while_it_runs(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.PROGRESS)
        bench.until(lambda: attempt.fence in bench.reports.progress, "progress is told")

        expect(bench.reports.progress[attempt.fence], [_PROGRESS], "the progress")
        attempt.cancel()
        attempt.outcome()

    def test_steps_are_noted_while_they_go_on(self, bench: Bench) -> None:
        """What is over within a moment may be told at the end only."""
        attempt = self.start(bench, Behaviour.STEPS)
        attempt.shows("ready")
        notes = bench.reports.steps.setdefault(attempt.fence, [])
        bench.until(lambda: any(number == 1 for number, _ in notes), "the second step is told")

        latest = {number: (step.name, step.result) for number, step in notes}
        expect(latest, {0: ("one", "completed"), 1: ("two", RUNNING)}, "the steps as they stand")
        expect([step.started_at > 0 for _, step in notes[-1:]], [True], "it has a start")
        expect(attempt.is_over, False, "the attempt is over")
        attempt.cancel()
        ends = {step.name: step.result for step in attempt.outcome().steps}
        expect(list(ends)[:2], ["one", "two"], "the steps at the end")
        expect(ends["one"], "completed", "the end of the first step")
        expect(ends["two"] in ("cancelled", "failed"), True, f"{ends['two']} is no end of a cancel")
        expect(ends.get("three", "skipped"), "skipped", "the end of the third step")

    # --- stopping

    def test_cancelled_attempt_has_time_to_tidy_up(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.HOLD)
        attempt.shows("ready")

        attempt.cancel()

        attempt.outcome(AttemptResult.CANCELLED)
        expect(attempt.printed(Stream.STDOUT), "ready\ntidy\n", "what it printed")

    def test_what_does_not_obey_is_killed_after_the_grace(self, bench: Bench) -> None:
        grace = timedelta(seconds=1)
        attempt = self.start(bench, Behaviour.DEAF, grace=grace)
        attempt.shows("ready")
        began = bench.reports.store_micros()

        attempt.cancel()

        attempt.outcome(AttemptResult.CANCELLED)
        seconds = (bench.reports.store_micros() - began) / 1e6
        expect(seconds >= grace.total_seconds(), True, f"it had the whole grace, not {seconds} s")

    def test_cancel_may_come_before_it_has_begun(self, bench: Bench) -> None:
        spec = replace(self.given(Behaviour.HOLD), grace=_SOON)

        [attempt] = bench.start([spec], and_cancel=True)

        attempt.outcome(AttemptResult.CANCELLED)

    def test_cancel_is_for_the_attempts_it_names(self, bench: Bench) -> None:
        first, second = self.start_together(bench, [Behaviour.HOLD, Behaviour.HOLD])
        first.shows("ready")
        second.shows("ready")

        first.cancel()

        first.outcome(AttemptResult.CANCELLED)
        expect(second.is_over, False, "the other one is over")
        second.cancel()
        second.outcome(AttemptResult.CANCELLED)

    def test_cancel_may_come_twice_and_too_late(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.HOLD)
        attempt.shows("ready")
        attempt.cancel()
        attempt.cancel()
        attempt.outcome(AttemptResult.CANCELLED)

        attempt.cancel()
        bench.cancel_unknown()

        self.start(bench, Behaviour.SUCCEED).outcome(AttemptResult.COMPLETED)

    def test_timeout_ends_it(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.HOLD, timeout=_SOON)

        attempt.outcome(AttemptResult.TIMED_OUT)

    def test_deadline_of_the_run_ends_it(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.HOLD, deadline=_SOON)

        attempt.outcome(AttemptResult.TIMED_OUT)

    def test_what_ignores_its_timeout_is_killed(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.DEAF, timeout=_SOON, grace=_SOON)

        attempt.outcome(AttemptResult.TIMED_OUT)

    # --- many, and none

    def test_many_at_once_are_not_mixed_up(self, bench: Bench) -> None:
        half = self.many // 2
        attempts = self.start_together(bench, [Behaviour.SPEAK, Behaviour.FAIL] * half)

        for speaking, failing in zip(attempts[::2], attempts[1::2], strict=True):
            speaking.outcome(AttemptResult.COMPLETED)
            failing.outcome(AttemptResult.FAILED)
            expect(speaking.printed(Stream.STDOUT), "out 1\nout 2\n", "what each printed")
            expect("out" in failing.printed(), False, "one has what the other printed")

    def test_close_waits_for_what_still_ends(self, bench: Bench) -> None:
        attempts = self.start_together(bench, [Behaviour.HOLD, Behaviour.HOLD])
        for attempt in attempts:
            attempt.shows("ready")

        bench.close(*attempts)

        results = [bench.reports.outcomes.get(attempt.fence) for attempt in attempts]
        told = [None if each is None else each.result for each in results]
        expect(told, [AttemptResult.CANCELLED] * 2, "the results once it was closed")

    def test_close_without_any_attempt(self, bench: Bench) -> None:
        bench.close()

        expect(bench.reports.outcomes, {}, "the outcomes")

    def test_what_an_attempt_started_does_not_outlive_the_executor(self, bench: Bench) -> None:
        self.start(bench, Behaviour.LEAVE).outcome(AttemptResult.COMPLETED)

        bench.close()


def _poured() -> str:
    return "".join(f"{number}\n" for number in range(1, _POURED + 1))

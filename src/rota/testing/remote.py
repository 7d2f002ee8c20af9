"""Conformance suite of executors whose work another system does, beside that of all executors.

    from rota.testing.remote import RemoteConformance

    class TestMine(RemoteConformance):
        @asynccontextmanager
        async def executor(self, reports, folder):
            yield MyExecutor(reports, reports)

        def spec(self, behaviour):
            return JobSpec("conformance", type="mine", parameters={"behaviour": behaviour})

        def submissions(self):
            return self.system.keys

These tests come to those of `ExecutorConformance`. The other system is a double in the tests of the
plug-in, which behaves as the suite asks and remembers what was submitted to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, JobSpec
from rota.testing.bench import Attempt, Bench, expect
from rota.testing.executors import Behaviour, ExecutorConformance

__all__ = ["RemoteConformance"]

_A_FEW_LOOKS = timedelta(seconds=0.5)


class RemoteConformance(ExecutorConformance):
    """Tests of what executors promise whose work another system does."""

    has_exit_codes: ClassVar[bool] = False

    def submissions(self) -> Sequence[str]:
        """Return the idempotency keys with which work was submitted, in their order."""
        raise NotImplementedError

    # --- submitting

    def test_work_is_submitted_once_with_the_run_as_its_key(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.HOLD)
        attempt.shows("ready")

        expect(self.submissions(), [attempt.fence.run], "the keys that were submitted")
        attempt.cancel()
        attempt.outcome()

    def test_what_names_the_work_is_kept_before_the_first_look(self, bench: Bench) -> None:
        bench.reports.acknowledge(now=False)
        attempt = self.start(bench, Behaviour.PROGRESS)
        bench.until(lambda: attempt.fence in bench.reports.handles, "a handle is told")
        bench.pass_time(_A_FEW_LOOKS)

        expect(bench.reports.progress, {}, "what was seen before the handle was kept")
        bench.call(lambda: bench.reports.acknowledge(now=True))
        bench.until(lambda: attempt.fence in bench.reports.progress, "progress is told")
        attempt.cancel()
        attempt.outcome()

    def test_attempt_that_is_another_worker_s_looks_at_nothing(self, bench: Bench) -> None:
        bench.reports.takes_handles = False
        attempt = self.start(bench, Behaviour.PROGRESS)

        attempt.outcome(AttemptResult.INTERRUPTED)
        expect(bench.reports.progress, {}, "what was seen")

    def test_submission_without_an_answer_is_a_failure(self, bench: Bench) -> None:
        """The key keeps it from being done twice."""
        self.start(bench, Behaviour.BREAK).outcome(AttemptResult.FAILED)

    def test_submission_without_an_answer_is_not_repeated_at_most_once(self, bench: Bench) -> None:
        attempt = self.start(bench, Behaviour.BREAK, delivery=Delivery.AT_MOST_ONCE)

        attempt.outcome(AttemptResult.LOST)

    # --- the next attempt

    def test_next_attempt_goes_on_with_the_work(self, bench: Bench) -> None:
        first, spec = self._lost(bench)

        second = bench.start_next(spec, first)
        bench.pass_time(_A_FEW_LOOKS)

        expect(second.is_over, False, "the second attempt is over")
        expect(self.submissions(), [first.fence.run], "the keys that were submitted")
        second.cancel()
        second.outcome(AttemptResult.CANCELLED)
        expect("tidy" in second.printed(), True, "the other system was told to stop")

    def test_work_that_another_attempt_goes_on_with_is_not_told_to_stop(self, bench: Bench) -> None:
        first, _ = self._lost(bench)

        expect("tidy" in first.printed(), False, "the other system was told to stop")

    def test_retry_of_a_failure_begins_anew(self, bench: Bench) -> None:
        first = self.start(bench, Behaviour.FAIL)
        first.outcome(AttemptResult.FAILED)

        bench.start_next(self.given(Behaviour.FAIL), first).outcome(AttemptResult.FAILED)

        expect(self.submissions(), [first.fence.run] * 2, "the keys that were submitted")

    def test_handle_that_cannot_be_read_is_a_failure(self, bench: Bench) -> None:
        first = self.start(bench, Behaviour.SUCCEED)
        first.outcome(AttemptResult.COMPLETED)
        bench.reports.handles[first.fence] = ["{"]

        second = bench.start_next(self.given(Behaviour.SUCCEED), first)

        second.outcome(AttemptResult.FAILED)
        expect(self.submissions(), [first.fence.run], "the keys that were submitted")

    def _lost(self, bench: Bench) -> tuple[Attempt, JobSpec]:
        """Begin work, and lose the attempt once what names the work is kept."""
        spec = self.given(Behaviour.HOLD)
        [attempt] = bench.start([spec])
        attempt.shows("ready")
        bench.until(lambda: attempt.fence in bench.reports.handles, "a handle is kept")
        bench.lose(attempt)
        attempt.outcome()
        return attempt, spec

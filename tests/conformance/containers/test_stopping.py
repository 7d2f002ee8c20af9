from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import Step, StepCondition
from tests.conformance.containers.bench import Bench, job

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
# A shell runs its trap once the command before it has ended: so that one ends soon.
OBEYS = (
    "trap 'echo told; sleep 0.5; echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
)


class TestCancel:
    async def test_term_reaches_all_that_a_step_started(self, bench: Bench) -> None:
        script = f"({OBEYS.replace('ready', 'child')}) & trap 'wait' TERM; echo ready; wait; wait"
        run = bench.start(job(script))
        await run.shows("child")
        await run.shows("ready")

        run.cancel()
        await run.outcome()

        assert "tidy" in run.sink.text()

    async def test_cancel_before_the_container_is_ready_leaves_none(self, bench: Bench) -> None:
        run = bench.start(job("sleep 1000"))

        await asyncio.get_running_loop().run_in_executor(None, _wait_for_first_request, bench)
        run.cancel()

        outcome = await run.outcome()
        assert outcome.result == AttemptResult.CANCELLED
        assert bench.engine.names(**bench.labels) == []

    async def test_step_that_tidies_up_has_the_rest_of_the_grace(self, bench: Bench) -> None:
        last = Step("last", "echo last", condition=StepCondition.ALWAYS)
        run = bench.start(job(OBEYS, last))
        await run.shows("ready")

        run.cancel()

        outcome = await run.outcome()
        assert [step.result for step in outcome.steps] == ["cancelled", "completed"]
        assert run.sink.text(Stream.STDOUT).endswith("last\n")


def _wait_for_first_request(bench: Bench) -> None:
    """Wait until the journal has the container, which is before the engine has it."""
    journal = bench.folder / "journal"
    while not journal.read_text():
        pass


class TestTimeouts:
    async def test_step_has_its_own(self, bench: Bench) -> None:
        step = Step("a", "sleep 1000", timeout=SECOND)

        outcome, _ = await bench.run(job(step))

        assert (outcome.result, outcome.message) == (AttemptResult.TIMED_OUT, "step a: timed out")


class TestLease:
    async def test_nothing_is_started_once_the_lease_is_over(self, bench: Bench) -> None:
        bench.may_start = False

        outcome, _ = await bench.run(job("echo started"))

        assert outcome.result == AttemptResult.FAILED
        assert outcome.message == "the worker's lease was over before its container could start"
        assert bench.keeper.kept == {}

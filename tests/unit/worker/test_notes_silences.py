from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.jobfile import read_job
from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.ports.executor import JobBatch
from rota.ports.work import Dispatch, Fence, Outcome, SpecEntry, StepOutcome, Work, WorkBatch
from rota.worker.attempts import Attempts
from rota.worker.spool import OutputSpool
from testkit.builders import outcome
from testkit.clock import FakeClock, FakeTicker

pytestmark = pytest.mark.anyio

FENCE = Fence("r_1", 1)
BEGUN = StepOutcome("step 1", "running")


class Obedient:
    """An executor that ends what it is told to stop."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts

    def start(self, batches: Sequence[JobBatch]) -> None: ...

    def cancel(self, fences: Sequence[Fence]) -> None:
        self._attempts.ended([outcome(fence, AttemptResult.CANCELLED) for fence in fences])

    async def close(self) -> None: ...


@pytest.fixture
def ticker() -> FakeTicker:
    return FakeTicker()


@pytest.fixture
async def attempts(ticker: FakeTicker, tmp_path: Path) -> Attempts:
    clock = FakeClock(ticker)
    found = Attempts(clock, OutputSpool(tmp_path))
    found.learn_time(ticker.now(), clock.monotonic())
    found.serve_with({JobType.SHELL: Obedient(found), JobType.PYTHON: Obedient(found)})
    return found


def begin(attempts: Attempts, **fields: object) -> None:
    document = {"name": "job", "steps": [{"run": "x"}], "stalled_after": "10s"} | fields
    spec = read_job({name: value for name, value in document.items() if value is not None})
    batch = WorkBatch.of([Work(FENCE.run, FENCE.number, "j_1", 1, due_at=0)])
    free, _ = attempts.accept(Dispatch(batch, (SpecEntry("j_1", 1, spec),)))
    attempts.begin(free)


async def ended(attempts: Attempts) -> Outcome | None:
    """What was reported of the attempt; None: it goes on."""
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 (what it printed is finished first)
    sending = attempts.next_report()
    return sending.report.outcomes[0] if sending else None


@pytest.mark.parametrize("fields", [{}, {"type": "python", "function": "f", "steps": None}])
async def test_an_attempt_that_gives_no_sign_is_stopped(
    attempts: Attempts, ticker: FakeTicker, fields: dict[str, object]
) -> None:
    begin(attempts, **fields)

    ticker.advance(timedelta(seconds=9.9))
    attempts.stop_stalled()
    assert await ended(attempts) is None
    ticker.advance(timedelta(seconds=0.1))
    attempts.stop_stalled()
    attempts.stop_stalled()

    told = await ended(attempts)
    assert told is not None
    assert (told.result, told.cause) == (AttemptResult.TIMED_OUT, "stalled")
    assert told.message == "it printed nothing and told no progress for 10s (stalled_after)"


@pytest.mark.parametrize("sign", ["output", "progress", "step"])
async def test_each_sign_of_life_begins_a_new_silence(
    attempts: Attempts, ticker: FakeTicker, sign: str
) -> None:
    begin(attempts)

    for _ in range(5):
        ticker.advance(timedelta(seconds=9))
        match sign:
            case "output":
                attempts.output(FENCE).feed(Stream.STDOUT, 0, b"x")
            case "progress":
                attempts.progressed(FENCE, 1, None, "")
            case _:
                attempts.stepped(FENCE, 0, BEGUN)
        attempts.stop_stalled()
    assert await ended(attempts) is None

    ticker.advance(timedelta(seconds=11))
    attempts.stop_stalled()
    assert await ended(attempts) is not None


async def test_output_beyond_its_limit_is_a_sign_of_life(
    attempts: Attempts, ticker: FakeTicker
) -> None:
    begin(attempts, log_limit="1KiB")

    for _ in range(5):
        ticker.advance(timedelta(seconds=9))
        attempts.output(FENCE).feed(Stream.STDOUT, 0, b"x" * 1024)
        attempts.stop_stalled()

    assert await ended(attempts) is None


async def test_what_somebody_cancels_was_not_silent(attempts: Attempts, ticker: FakeTicker) -> None:
    begin(attempts)

    attempts.cancel([FENCE])
    ticker.advance(timedelta(seconds=11))
    attempts.stop_stalled()

    told = await ended(attempts)
    assert told is not None
    assert told.result == AttemptResult.CANCELLED


async def test_jobs_without_it_may_be_silent(attempts: Attempts, ticker: FakeTicker) -> None:
    begin(attempts, stalled_after=None)

    ticker.advance(timedelta(days=9))
    attempts.stop_stalled()

    assert await ended(attempts) is None

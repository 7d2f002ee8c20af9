"""When a worker tells of attempts that go on, and what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import JobType
from rota.ports.work import (
    MAX_NOTED_STEPS,
    RUNNING,
    STEPS,
    Fence,
    Hello,
    Outcome,
    Progress,
    Refused,
    Start,
    StartAnswer,
    StepNote,
    StepOutcome,
    Welcome,
)
from rota.worker.attempts import Attempts
from rota.worker.notes import ProgressBook
from rota.worker.spool import OutputSpool
from testkit.clock import FakeClock, FakeTicker
from tests.unit.worker.test_attempts import FENCE, Recorder, dispatch
from tests.unit.worker.test_stopping import Link, Worker, until

pytestmark = pytest.mark.anyio

BUILD = StepOutcome("build", RUNNING, started_at=1)
BUILT = StepOutcome("build", "completed", seconds=2.0, started_at=1)
TEST = StepOutcome("test", RUNNING, started_at=2)


@pytest.fixture
def ticker() -> FakeTicker:
    return FakeTicker()


@pytest.fixture
def attempts(ticker: FakeTicker, tmp_path: Path) -> Attempts:
    """With one attempt that has just begun."""
    attempts = Attempts(FakeClock(ticker), OutputSpool(tmp_path))
    attempts.serve_with({JobType.SHELL: Recorder()})
    attempts.begin(attempts.accept(dispatch("at_least_once"))[0])
    return attempts


def told(attempts: Attempts) -> StepNote | None:
    """The note that is due now, if any is."""
    return next(iter(attempts.due_notes()), None)


def after(ticker: FakeTicker, seconds: float) -> None:
    ticker.advance(timedelta(seconds=seconds))


class TestPacing:
    def test_an_attempt_of_less_than_a_second_tells_nothing(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        attempts.stepped(FENCE, 0, BUILD)
        after(ticker, 0.99)

        assert told(attempts) is None

    def test_one_that_goes_on_tells_its_steps_and_what_it_printed(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        attempts.stepped(FENCE, 0, BUILD)
        attempts.output(FENCE).feed(Stream.STDOUT, 0, b"one\ntwo\n")
        attempts.stepped(FENCE, 0, BUILT)
        attempts.stepped(FENCE, 1, TEST)
        after(ticker, 1)

        note = told(attempts)

        assert note is not None
        assert (note.run, note.number, note.first_step) == ("r_1", 1, 0)
        assert note.steps == (
            msgspec.structs.replace(BUILT, first_line=0, lines=2),
            msgspec.structs.replace(TEST, first_line=2),
        )
        assert (note.output_lines, note.output_bytes, note.last_line) == (2, 8, "two")

    def test_changes_are_told_once_a_second_and_output_alone_every_two(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        attempts.stepped(FENCE, 0, BUILD)
        after(ticker, 1)
        notes = [told(attempts)]
        for _ in range(40):
            after(ticker, 0.1)
            attempts.output(FENCE).feed(Stream.STDOUT, 0, b"more\n")
            notes.append(told(attempts))
        attempts.stepped(FENCE, 0, BUILT)
        notes.append(told(attempts))
        after(ticker, 1)
        notes.append(told(attempts))

        assert [at for at, note in enumerate(notes) if note] == [0, 20, 40, 42]

    def test_a_watched_attempt_tells_twice_a_second_and_sooner(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        attempts.watch([FENCE.run])
        attempts.stepped(FENCE, 0, BUILD)
        notes = []
        for number in range(12):
            after(ticker, 0.1)
            attempts.stepped(FENCE, number, BUILD)
            notes.append(told(attempts))

        assert [at for at, note in enumerate(notes) if note] == [1, 6, 11]

    def test_what_does_not_change_is_told_again_after_a_minute(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        attempts.stepped(FENCE, 0, BUILD)
        after(ticker, 1)
        first = told(attempts)
        after(ticker, 59)
        soon = told(attempts)
        after(ticker, 1)

        assert (first is None, soon is None, told(attempts) is None) == (False, True, False)

    def test_an_attempt_without_steps_or_output_has_nothing_to_tell(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        after(ticker, 3_600)

        assert told(attempts) is None

    def test_an_attempt_that_is_over_tells_nothing(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        attempts.stepped(FENCE, 0, BUILD)
        attempts.ended([Outcome("r_1", 1, AttemptResult.COMPLETED, 1, 2)])
        after(ticker, 5)

        assert told(attempts) is None
        attempts.forget([FENCE])
        assert told(attempts) is None

    def test_a_new_stream_is_told_all_again(self, attempts: Attempts, ticker: FakeTicker) -> None:
        attempts.stepped(FENCE, 0, BUILD)
        after(ticker, 1)
        first = told(attempts)

        attempts.begin_stream()

        again = told(attempts)
        assert first is not None
        assert again is not None
        assert again.steps == first.steps

    def test_only_the_latest_of_many_steps_are_told(
        self, attempts: Attempts, ticker: FakeTicker
    ) -> None:
        for number in range(MAX_NOTED_STEPS + 7):
            attempts.stepped(FENCE, number, StepOutcome(f"step {number}", "completed"))
        after(ticker, 1)

        note = told(attempts)

        assert note is not None
        assert (note.first_step, len(note.steps)) == (7, MAX_NOTED_STEPS)
        assert note.steps[0].name == "step 7"


class TestEnds:
    def ended(self, attempts: Attempts, outcome: Outcome) -> Outcome:
        attempts.ended([outcome])
        sending = attempts.next_report()
        assert sending is not None
        [found] = sending.report.outcomes
        return found

    def test_an_end_that_knows_no_steps_has_those_that_were_told(self, attempts: Attempts) -> None:
        attempts.stepped(FENCE, 0, BUILT)
        attempts.stepped(FENCE, 1, TEST)

        found = self.ended(attempts, Outcome("r_1", 1, AttemptResult.FAILED, 1, 2))

        assert [(step.name, step.result) for step in found.steps] == [
            ("build", "completed"),
            ("test", "failed"),
        ]

    def test_steps_of_an_end_have_the_begin_that_was_noted(self, attempts: Attempts) -> None:
        attempts.stepped(FENCE, 0, BUILD)
        attempts.stepped(FENCE, 0, BUILT)
        attempts.stepped(FENCE, 1, TEST)
        steps = (BUILT, StepOutcome("test", "failed"))

        found = self.ended(attempts, Outcome("r_1", 1, AttemptResult.FAILED, 1, 2, steps=steps))

        assert [(step.name, step.started_at) for step in found.steps] == [("build", 1), ("test", 2)]


class TestProgressBook:
    def test_only_the_latest_is_told_and_once_a_second(self) -> None:
        now = 0.0
        book = ProgressBook(lambda: now)
        sent = []
        for number in range(25):
            now = number / 10
            book.keep(Progress("r_1", 1, number, None))
            sent += book.due(())

        assert [each.done for each in sent] == [0, 10, 20]

    def test_the_last_one_is_told_before_the_end(self) -> None:
        book = ProgressBook(lambda: 0.0)
        book.keep(Progress("r_1", 1, 1, None))
        book.due(())
        book.keep(Progress("r_1", 1, 2, None))
        book.keep(Progress("r_2", 1, 3, None))
        book.due(())
        book.keep(Progress("r_2", 1, 4, None))

        assert [each.done for each in book.due([Fence("r_1", 1)])] == [2]


class NotedLink(Link):
    """A server that takes notes, or says that it does not."""

    def __init__(self, *offers: str, refusals: int = 0) -> None:
        super().__init__()
        self.takes_output = True
        self.offers = offers
        self.refusals = refusals
        self.notes: list[StepNote] = []
        self.starts = 0

    async def register(self, hello: Hello) -> Welcome:
        return msgspec.structs.replace(await super().register(hello), requests=self.offers)

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        self.starts += 1
        return StartAnswer(granted=tuple(start.fence for start in starts))

    async def note(self, items: Sequence[StepNote]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Refused("the store is busy")
        self.notes += items


async def work_until(tmp_path: Path, link: NotedLink, enough: Callable[[], bool]) -> None:
    """Have a watched attempt go on until something has happened."""
    worker = Worker(tmp_path / "spool")
    worker.link = link
    running = asyncio.ensure_future(worker.run())
    link.orders.put_nowait(dispatch("at_least_once"))
    await until(lambda: worker.executor.started == [FENCE])
    worker.attempts.watch([FENCE.run])
    worker.attempts.stepped(FENCE, 0, BUILD)
    await until(enough)
    worker.attempts.ended([Outcome("r_1", 1, "COMPLETED", 1, 2)])
    worker.session.stop()
    await asyncio.wait_for(running, 10)


async def test_a_server_that_offers_it_is_told(tmp_path: Path) -> None:
    link = NotedLink(STEPS)

    await work_until(tmp_path, link, lambda: bool(link.notes))

    assert link.notes[0].steps[0].name == "build"


async def test_what_a_server_refused_is_told_again(tmp_path: Path) -> None:
    link = NotedLink(STEPS, refusals=1)

    await work_until(tmp_path, link, lambda: bool(link.notes))

    assert (link.refusals, len(link.notes)) == (0, 1)


async def test_a_server_that_does_not_offer_it_is_told_nothing(tmp_path: Path) -> None:
    link = NotedLink()
    ticks = 0

    def has_ticked_on() -> bool:
        nonlocal ticks
        ticks += 1
        return link.starts > 0 and ticks > 400

    await work_until(tmp_path, link, has_ticked_on)

    assert link.notes == []

"""Reports of workers, which are not trusted to send only what every part can carry."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from rota.domain.errors import Invalid
from rota.domain.ids import SessionId
from rota.domain.run import AttemptResult
from rota.domain.spec import EXTERNAL_POOL
from rota.operations.workers import Refusals, bounded, register
from rota.ports.work import MAX_TEXT, EndBatch, Fence, Offer, Outcome, Report, StepOutcome
from testkit.builders import ends, hello, outcome
from tests.unit.server.scheduler.timeline import Timeline

FIRST, SECOND, THIRD = (Fence(f"r_{number}", 1) for number in range(3))


def batch(outputs: dict[int, str]) -> EndBatch:
    """Three ends, some with outputs."""
    plain = ends(*(outcome(fence, at=7, cpu_seconds=0.5) for fence in (FIRST, SECOND, THIRD)))
    return EndBatch(
        plain.runs, plain.numbers, plain.started_at, plain.ended_at, plain.cpu_micros, outputs
    )


def test_what_has_no_outputs_stays_as_it_is() -> None:
    report = Report(batch({}), (outcome(FIRST, AttemptResult.FAILED),))

    assert bounded(report) == report


def test_outputs_in_columns_are_kept_as_they_were_understood() -> None:
    kept = bounded(Report(batch({0: ' {"a": 1, "a": 2}', 2: "null"})))

    assert kept.ends == batch({0: '{"a":2}', 2: "null"})
    assert kept.outcomes == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "they are not JSON"),
        ("[" * 5_000, "they are not JSON"),
        ("[" * 40 + "]" * 40, "it is nested deeper than 32 levels"),
        (str(2**63), "a whole number in it does not fit 64 bits"),
    ],
)
def test_an_end_whose_outputs_cannot_be_kept_says_so(text: str, complaint: str) -> None:
    kept = bounded(Report(batch({0: "1", 1: text, 2: "2"}), (outcome(FIRST),)))

    message = f"its outputs were not kept: {complaint}"
    told = Outcome(*_of(SECOND), AttemptResult.COMPLETED, 7, 7, message=message, cpu_seconds=0.5)
    assert kept.ends.fences() == [FIRST, THIRD]
    assert kept.ends.outputs == {0: "1", 1: "2"}
    assert kept.outcomes == (told, outcome(FIRST))


def test_texts_lose_what_no_store_can_hold() -> None:
    step = StepOutcome("a\0b", "failed", cause="c\0")
    told = outcome(FIRST, AttemptResult.FAILED, message="a\0\ud800b", cause="o\0m", steps=(step,))

    [kept] = bounded(Report(outcomes=(told,))).outcomes

    assert (kept.message, kept.cause) == ("a\ufffd?b", "o\ufffdm")
    assert kept.steps == (StepOutcome("a\ufffdb", "failed", cause="c\ufffd"),)


def test_a_text_is_cut_if_it_is_too_long() -> None:
    [kept] = bounded(Report(outcomes=(outcome(FIRST, message="x" * 10**6),))).outcomes

    assert len(kept.message) == MAX_TEXT


@pytest.mark.parametrize("position", [-1, 3, 10**9])
def test_outputs_of_no_end_are_dropped(position: int) -> None:
    assert bounded(Report(batch({position: "1", 1: "2"}))) == Report(batch({1: "2"}))


@pytest.mark.parametrize("column", ["runs", "numbers", "started_at", "ended_at", "cpu_micros"])
def test_columns_that_do_not_fit_one_another_are_refused(column: str) -> None:
    short = structs.replace(batch({}), **{column: getattr(batch({}), column)[:2]})

    with pytest.raises(Invalid, match="same length"):
        bounded(Report(short))


def _of(fence: Fence) -> tuple[str, int]:
    return fence.run, fence.number


class TestRefusals:
    """Forged acts of workers are in the history, at most once a minute."""

    @pytest.fixture
    def now(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def refusals(self, timeline: Timeline, now: list[float]) -> Refusals:
        return Refusals(timeline.engine, lambda: now[0])

    async def told(self, timeline: Timeline) -> list[tuple[str, int]]:
        events = await timeline.engine.store.events(0, 1_000)
        refused = [event for event in events if event.kind == "worker.refused"]
        return [(event.data["worker"], event.data["count"]) for event in refused]

    @pytest.mark.anyio
    async def test_the_first_is_told_at_once_and_the_rest_once_a_minute(
        self, timeline: Timeline, refusals: Refusals, now: list[float]
    ) -> None:
        for _ in range(3):
            await refusals.note_acts(SessionId("w_1"), "w1", "start", [FIRST, SECOND])
        await refusals.note("t_1", "w2", "hello")
        at_once = await self.told(timeline)
        now[0] = 59.9
        await refusals.tell("w1")
        within_the_minute = await self.told(timeline)
        now[0] = 60.0
        await refusals.tell("w1")
        await refusals.tell("w1")

        assert at_once == [("w1", 2), ("w2", 1)]
        assert within_the_minute == at_once
        assert await self.told(timeline) == [*at_once, ("w1", 4)]

    @pytest.mark.anyio
    async def test_what_was_the_worker_s_own_is_late_and_not_forged(
        self, timeline: Timeline, refusals: Refusals
    ) -> None:
        store = timeline.engine.store
        scene = timeline.scene
        await scene.trigger(await scene.job())
        worker = await scene.worker("w1")
        [work] = await scene.claim(worker)
        await store.lose(worker, [work.fence])

        await refusals.note_acts(worker, "w1", "report", [work.fence])

        assert await self.told(timeline) == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("asked", "granted"),
    [("", 30), ("7200", 7200), ("0.1", 1), ("1e9", 86400), ("nan", 30), ("long", 30)],
)
async def test_a_worker_gets_the_lease_that_it_asks_for_and_offers_it(
    timeline: Timeline, asked: str, granted: int
) -> None:
    wish = [Offer("lease", asked)] if asked else []

    session, welcome = await register(
        timeline.engine,
        hello("patient", offers=[Offer("type", "shell"), *wish]),
        timedelta(seconds=30),
    )

    assert (session.lease, welcome.lease_seconds) == (timedelta(seconds=granted), granted)
    assert session.offers == (Offer("type", "shell"), Offer("lease", str(granted)))


@pytest.mark.anyio
async def test_no_worker_is_in_the_pool_of_other_systems(timeline: Timeline) -> None:
    new = structs.replace(hello("w-1"), pool=EXTERNAL_POOL)

    with pytest.raises(Invalid, match="no worker can be in the pool"):
        await register(timeline.engine, new, timedelta(seconds=30))

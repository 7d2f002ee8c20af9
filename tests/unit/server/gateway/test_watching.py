"""Watching of a run: one stream with all that happens, in order, from any place on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.domain.access import Role
from rota.ports.work import RUNNING, StepOutcome
from tests.unit.server.gateway.served import Served, Worker, job
from tests.unit.server.gateway.streaming import Stream, streaming

pytestmark = pytest.mark.anyio

SETUP = StepOutcome("set up", "completed", seconds=0.5, started_at=1_000_000)
BUILDS = StepOutcome("build", RUNNING, started_at=2_000_000)
BUILT = StepOutcome("build", "completed", seconds=1.5, started_at=2_000_000, lines=1)
TESTS = StepOutcome("test", RUNNING, started_at=3_000_000, first_line=1)


async def next_of(stream: Stream, *names: str) -> dict[str, Any]:
    """The next event, or the next that has one of these names."""
    while True:
        event = await stream.event()
        if event["event"] in names or (not names and event["event"] != "time"):
            return event


async def told(stream: Stream) -> list[str]:
    """All that is told up to the end, in short."""
    found: list[str] = []
    while not found or found[-1] != "end":
        event = await next_of(stream)
        found.append(in_short(event["event"], event["data"]))
    return found


def in_short(name: str, data: dict[str, Any]) -> str:
    match name:
        case "run":
            return f"run {data['state']}"
        case "step":
            return f"step {data['number']} {data['step']['name']} {data['step']['result']}"
        case "lines":
            skipped = f"{data['skipped']} skipped, " if data["skipped"] else ""
            return f"lines {skipped}{' '.join(line['text'] for line in data['lines'])}"
        case "progress":
            return f"progress {data['progress']['done']:g}"
        case "attempt":
            return f"attempt {data['number']} {data['result']}"
        case _:
            return name


async def begun(served: Served, **fields: Any) -> tuple[str, Worker, Any]:
    """A run that a worker has."""
    await served.apply(job(**fields))
    run = await served.trigger()
    worker = await served.worker()
    [work] = await worker.claim()
    return str(run["id"]), worker, work


async def test_each_thing_is_told_as_it_happens(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()
    worker = await served.worker()
    async with streaming(served, f"runs/{run['id']}/stream") as stream:
        queued = await next_of(stream)
        [work] = await worker.claim()
        worker.announce(work)
        claimed = await next_of(stream)
        await worker.tells(work, SETUP, BUILDS)
        steps = [await next_of(stream) for _ in range(3)]
        await worker.prints(work, b"compiled\n")
        lines = await next_of(stream)
        await worker.tells(work, SETUP, BUILT, TESTS, at=2)
        steps += [await next_of(stream), await next_of(stream)]
        await worker.finish(work, steps=(SETUP, BUILT))
        rest = await told(stream)

    assert queued["data"]["state"] == "QUEUED"
    assert (claimed["data"]["state"], claimed["data"]["worker"]) == ("PROCESSING", "worker-1")
    assert [in_short("step", each["data"]) for each in steps] == [
        "step 0 set up running",
        "step 0 set up completed",
        "step 1 build running",
        "step 1 build completed",
        "step 2 test running",
    ]
    assert steps[2]["data"]["step"]["started_at"] == "1970-01-01T00:00:02Z"
    assert [line["text"] for line in lines["data"]["lines"]] == ["compiled"]
    assert rest == ["run COMPLETED", "attempt 1 COMPLETED", "end"]


async def test_the_end_of_a_step_waits_for_the_lines_that_it_printed(served: Served) -> None:
    run, worker, work = await begun(served)
    async with streaming(served, f"runs/{run}/stream") as stream:
        await next_of(stream, "run")
        await worker.tells(work, SETUP, BUILT, TESTS)  # of whose output nothing has arrived
        first = [await next_of(stream) for _ in range(3)]
        await worker.prints(work, b"compiled\n")
        then = [await next_of(stream) for _ in range(3)]

    assert [in_short(each["event"], each["data"]) for each in (*first, *then)] == [
        "step 0 set up running",
        "step 0 set up completed",
        "step 1 build running",
        "lines compiled",
        "step 1 build completed",
        "step 2 test running",
    ]


@pytest.mark.slow
async def test_lines_that_never_arrive_hold_the_end_of_a_step_back_for_a_moment_only(
    served: Served,
) -> None:
    run, worker, work = await begun(served)
    async with streaming(served, f"runs/{run}/stream") as stream:
        await worker.tells(work, SETUP, BUILT)
        events = [await next_of(stream, "step") for _ in range(4)]

    assert in_short("step", events[-1]["data"]) == "step 1 build completed"


async def test_what_is_over_before_anybody_watches_is_told_in_order(served: Served) -> None:
    run, worker, work = await begun(served)
    built = StepOutcome("build", "completed", seconds=1.5, started_at=2_000_000, lines=2)
    await worker.finish(work, printed=b"one\ntwo\n", steps=(SETUP, built))

    async with streaming(served, f"runs/{run}/stream") as stream:
        found = await told(stream)
        assert await stream.ended()

    assert found == [
        "run COMPLETED",
        "step 0 set up running",
        "step 0 set up completed",
        "step 1 build running",
        "lines one two",
        "step 1 build completed",
        "attempt 1 COMPLETED",
        "end",
    ]


async def test_steps_of_which_nobody_told_the_place_go_around_their_lines(served: Served) -> None:
    run, worker, work = await begun(served)
    steps = (StepOutcome("a", "completed", started_at=1), StepOutcome("b", "failed", started_at=2))
    await worker.finish(work, "FAILED", printed=b"said by b\n", steps=steps)

    async with streaming(served, f"runs/{run}/stream") as stream:
        found = await told(stream)

    assert found[1:6] == [
        "step 0 a running",
        "step 0 a completed",
        "step 1 b running",
        "lines said by b",
        "step 1 b failed",
    ]


async def test_only_the_newest_lines_of_many_are_told_and_the_others_counted(
    served: Served,
) -> None:
    run, worker, work = await begun(served)
    await worker.finish(work, printed=b"".join(b"%d\n" % n for n in range(50)))

    async with streaming(served, f"runs/{run}/stream", lines=2) as stream:
        found = await told(stream)

    assert "lines 48 skipped, 48 49" in found


async def test_progress_is_told_when_it_has_changed(served: Served) -> None:
    run, worker, work = await begun(served)
    async with streaming(served, f"runs/{run}/stream") as stream:
        await next_of(stream, "run")
        for done in (1, 1, 2):
            await worker.progresses(work, done)
            worker.announce(work)
        first = await next_of(stream, "progress")
        second = first
        while second["data"]["progress"]["done"] < 2:
            second = await next_of(stream, "progress")

    assert first["data"]["attempt"] == 1


async def test_the_next_attempt_starts_anew(served: Served) -> None:
    run, worker, work = await begun(served, retry={"attempts": 2, "delay": "0s"})
    async with streaming(served, f"runs/{run}/stream") as stream:
        await worker.tells(work, SETUP)
        await next_of(stream, "step")
        await worker.finish(work, "FAILED", steps=(SETUP,))
        ended = await next_of(stream, "attempt")
        await served.engine.store.release_eligible(10)
        [again] = await worker.claim()
        worker.announce(again)
        await worker.tells(again, SETUP)
        begins = await next_of(stream, "step")
        await worker.finish(again, steps=(SETUP,))
        rest = await told(stream)

    assert (ended["data"]["number"], ended["data"]["result"]) == (1, "FAILED")
    assert (begins["data"]["attempt"], begins["data"]["number"]) == (2, 0)
    assert rest[-2:] == ["attempt 2 COMPLETED", "end"]


async def test_whoever_comes_later_is_told_how_earlier_attempts_ended(served: Served) -> None:
    run, worker, work = await begun(served, retry={"attempts": 2, "delay": "0s"})
    await worker.finish(work, "FAILED", steps=(SETUP,))
    await served.engine.store.release_eligible(10)
    [again] = await worker.claim()
    await worker.finish(again, printed=b"better\n")

    async with streaming(served, f"runs/{run}/stream") as stream:
        found = await told(stream)

    assert found == [
        "attempt 1 FAILED",
        "run COMPLETED",
        "lines better",
        "attempt 2 COMPLETED",
        "end",
    ]


async def test_a_stream_goes_on_where_it_broke_off(served: Served) -> None:
    run, worker, work = await begun(served)
    await worker.tells(work, SETUP, BUILDS)
    async with streaming(served, f"runs/{run}/stream") as stream:
        await worker.prints(work, b"one\n")
        place = (await next_of(stream, "lines"))["id"]
    await worker.finish(work, steps=(SETUP, BUILT))

    headers = {"last-event-id": place}
    async with streaming(served, f"runs/{run}/stream", headers) as stream:
        found = await told(stream)

    assert "lines one" not in found
    assert "step 0 set up completed" not in found
    assert found[-3:] == ["step 1 build completed", "attempt 1 COMPLETED", "end"]


async def test_whoever_comes_back_after_the_end_is_told_the_end(served: Served) -> None:
    run, worker, work = await begun(served)
    await worker.finish(work, printed=b"one\n")

    async with streaming(served, f"runs/{run}/stream", {"last-event-id": "2.0.0"}) as stream:
        assert await told(stream) == ["run COMPLETED", "end"]


@pytest.mark.parametrize("place", ["1.0", "0.0.0", "1.-1.0", "1.0.x", "a" * 90, "1.0." + "9" * 30])
async def test_a_place_of_another_stream_is_refused(served: Served, place: str) -> None:
    run, _, _ = await begun(served)

    answer = await served.get(f"runs/{run}/stream", headers={"last-event-id": place})

    assert (answer.status_code, answer.json()["type"]) == (400, "urn:rota:problem:bad_cursor")


async def test_the_time_is_told_while_nothing_happens(served: Served) -> None:
    run, _, _ = await begun(served)
    async with streaming(served, f"runs/{run}/stream") as stream:
        first, second = await next_of(stream, "time"), await next_of(stream, "time")

    assert second["data"]["at"] > first["data"]["at"]


@pytest.mark.slow
async def test_whoever_may_no_longer_look_is_told_no_more(served: Served) -> None:
    run, _, _ = await begun(served)
    async with streaming(served, f"runs/{run}/stream") as stream:
        await next_of(stream, "run")
        tokens = await served.engine.store.tokens()
        [viewer] = [each for each in tokens if each.name == Role.VIEWER]
        await served.engine.store.revoke_token(viewer.id, actor="test")
        assert await asyncio.wait_for(stream.ended(), 15)


async def test_a_watched_run_that_nobody_runs_says_why(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    async with streaming(served, f"runs/{run['id']}/stream") as stream:
        first = await next_of(stream, "run")

    assert first["data"]["state"] == "BLOCKED"
    assert "worker" in first["data"]["waiting"]

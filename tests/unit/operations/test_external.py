"""Work of other systems on a store with a fake clock: what servers do about it by themselves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from rota.domain.errors import Unavailable
from rota.domain.external import Notice
from rota.domain.ids import RunId
from rota.domain.jobfile import read_file
from rota.domain.states import RunState
from rota.operations import definitions
from rota.operations.engine import Engine, Outside
from rota.operations.forecasts import forecasts_for
from rota.operations.tokens import authenticate
from rota.operations.why import why
from rota.ports.external import Message
from rota.server.scheduler.external import Announcer, ExternalKeeper
from testkit.clock import FakeClock
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
FILE = """
jobs:
  - name: build
    project: default
    type: external
    timeout: 1h
    delivery: {delivery}
    inputs: {{title: {{type: string, default: nightly}}}}
    external:
      announce: {{url: "https://ci.example.org/runs"}}
      cancel: {{url: "https://ci.example.org/cancelled"}}
      heartbeat: 5m
"""


@dataclass
class Hearing:
    """A system that is told things, or that is away."""

    messages: list[Message] = field(default_factory=list)
    is_away: bool = False
    slow: set[str] = field(default_factory=set)  # runs it answers about after others
    broken: set[str] = field(default_factory=set)  # runs of which nothing can be sent
    others: asyncio.Event = field(default_factory=asyncio.Event)  # it has heard of another one

    async def send(self, message: Message) -> None:
        if message.occasion.run in self.broken:
            raise TypeError("a header is no text")
        self.messages.append(message)
        if message.occasion.run in self.slow:
            await self.others.wait()
        self.others.set()
        if self.is_away:
            raise Unavailable("ci.example.org gave no answer", hint="is it on?")


@dataclass
class World:
    timeline: Timeline
    engine: Engine
    system: Hearing
    keeper: ExternalKeeper
    announcer: Announcer

    async def trigger(self, delivery: str = "at_least_once") -> RunId:
        file = read_file(FILE.format(delivery=delivery), name="f")
        await definitions.apply(self.engine, file, actor="ann")
        job = await definitions.find_job(self.engine, "build")
        [run] = await self.timeline.scene.trigger(job.id)
        return run

    async def tick(self) -> None:
        """Let the loops of a server do what is due."""
        await self.keeper.run_once()
        while await self.announcer.run_once():
            await self.announcer.sent()

    async def state(self, run: RunId) -> RunState:
        return await self.timeline.scene.state(run)


@pytest.fixture
async def world(timeline: Timeline) -> World:
    system = Hearing()
    outside = Outside(system, "https://rota.example.org")
    engine = replace(timeline.engine, outside=outside)
    clock = FakeClock(timeline.scene.clock)
    return World(timeline, engine, system, ExternalKeeper(engine, clock), Announcer(engine, clock))


async def test_an_attempt_is_announced_with_a_token_that_is_good_for_it(world: World) -> None:
    run = await world.trigger()

    await world.tick()

    [message] = world.system.messages
    caller = await authenticate(world.engine, message.occasion.token)
    assert (message.kind, message.id) == (Notice.ANNOUNCE, f"{run}.1")
    assert message.occasion.inputs == {"title": "nightly"}
    assert message.occasion.report_url == f"https://rota.example.org/api/v1/runs/{run}"
    assert caller.reports is not None
    assert (caller.reports.run, caller.reports.attempt) == (run, 1)
    assert caller.rights.projects() == ()


async def test_what_is_not_answered_is_sent_again_less_and_less_often(world: World) -> None:
    world.system.is_away = True
    run = await world.trigger()
    times: list[Any] = []

    for second in range(120):
        before = len(world.system.messages)
        await world.tick()
        times += [second] * (len(world.system.messages) - before)
        world.timeline.scene.advance(timedelta(seconds=1))

    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == sorted(pauses)
    assert 5 <= len(times) <= 8
    assert {message.id for message in world.system.messages} == {f"{run}.1"}
    tokens = {message.occasion.token for message in world.system.messages}
    assert len(tokens) == len(times)


async def test_why_says_what_went_wrong_and_what_would_help(world: World) -> None:
    world.system.is_away = True
    run = await world.trigger()
    await world.tick()

    found = await why(world.engine, await world.timeline.scene.show(run))

    [reason] = found.reasons
    assert "in vain: ci.example.org gave no answer — is it on?; again by" in reason.message


async def test_a_message_that_cannot_be_sent_keeps_none_of_others_back(world: World) -> None:
    odd, plain = await world.trigger(), await world.trigger()
    world.system.broken.add(odd)

    await world.tick()

    found = await world.engine.store.external_attempt(odd, 1)
    assert found is not None
    assert [each.error for each in found.told] == ["internal error: TypeError"]
    assert [message.occasion.run for message in world.system.messages] == [plain]


async def test_a_system_that_takes_its_time_keeps_no_other_back(world: World) -> None:
    slow = await world.trigger()
    world.system.slow.add(slow)
    async with asyncio.timeout(5):
        await world.keeper.run_once()
        assert await world.announcer.run_once() == 1
        other = await world.trigger()
        await world.tick()

    assert [message.occasion.run for message in world.system.messages] == [slow, other]


async def test_a_cancel_that_nobody_hears_is_given_up_after_a_day(world: World) -> None:
    run = await world.trigger()
    await world.tick()
    world.system.is_away = True

    await world.engine.store.cancel([run], actor="ann")
    for _ in range(30):
        await world.tick()
        world.timeline.scene.advance(timedelta(hours=1))
    heard = len(world.system.messages)
    world.timeline.scene.advance(timedelta(days=1))
    await world.tick()

    assert await world.state(run) is RunState.CANCELLED
    assert world.system.messages[-1].kind is Notice.CANCEL
    assert world.system.messages[-1].occasion.token == ""
    assert len(world.system.messages) == heard


async def test_silence_leads_to_the_next_attempt_which_is_announced(world: World) -> None:
    run = await world.trigger()
    await world.tick()

    world.timeline.scene.advance(6 * MINUTE)
    await world.tick()
    await world.timeline.scene.release()
    await world.tick()

    assert [message.id for message in world.system.messages] == [f"{run}.1", f"{run}.2"]


async def test_a_person_is_told_why_a_run_is_unknown(world: World) -> None:
    run = await world.trigger("at_most_once")
    await world.tick()

    world.timeline.scene.advance(6 * MINUTE)
    await world.tick()

    found = await world.timeline.scene.show(run)
    explained = await why(world.engine, found)
    assert found.state is RunState.UNKNOWN
    assert "no report came within its heartbeat" in explained.reasons[0].message


async def test_the_forecast_starts_what_needs_no_worker(world: World) -> None:
    run = await world.trigger()

    forecasts = await forecasts_for(world.engine, "default", is_member=False)
    forecast = await forecasts.within(MINUTE, timedelta(hours=1))

    assert forecast is not None
    [found] = [each for each in forecast.runs if each.id == run]
    assert found.start_at == found.ready_at
    assert found.waits_for == ""


async def test_nobody_is_warned_that_it_has_no_worker(world: World) -> None:
    await world.timeline.scene.worker("other")
    file = read_file(FILE.format(delivery="at_least_once"), name="f")

    plan = await definitions.apply(world.engine, file, actor="ann")

    assert [str(problem) for problem in plan.warnings] == []

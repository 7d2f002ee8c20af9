"""Frames that are truncated, doubled, reordered, changed or of foreign fences hurt nobody else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from structlog.testing import capture_logs

from rota.contracts import worker_pb2 as pb
from rota.domain.states import RunState
from rota.link.local import (
    PROTOCOL,
    Frame,
    LocalLink,
    LocalLinkServer,
    Registration,
    encode,
    packed,
)
from rota.ports.work import (
    Beat,
    ChunkMeta,
    Dispatch,
    EndBatch,
    Outcome,
    OutputChunk,
    Progress,
    Report,
    Start,
    Work,
    WorkerLink,
)
from rota.server.dispatcher.floor import Floor
from testkit.builders import Scene, hello
from testkit.clock import FakeTicker
from tests.unit.link.conftest import Cluster, Stream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SEEDS = 40
STREAMS = 5  # for each seed, one after another
QUIET = timedelta(milliseconds=50)  # without an answer: the server has dealt with all it will
HELLO = pb.FromWorker(
    number=1, hello=pb.Hello(worker="hostile", pool="default", slots=2, functions=["f"])
)

Frames = list[bytes]
Mutation = Callable[[random.Random, Frames], Frames]


def conversation(own: Work, foreign: Work) -> list[pb.FromWorker]:
    """Everything a worker may say, about its own attempt and about somebody else's."""
    runs, numbers = [own.run, foreign.run], [own.number, foreign.number]
    fences = pb.Fences(runs=runs, fences=numbers)
    return [
        pb.FromWorker(number=2, beat=pb.Beat(held=fences, received=1, stream=1)),
        pb.FromWorker(number=3, start=pb.Starts(runs=runs, fences=numbers, started_at=[1, 1])),
        pb.FromWorker(
            number=4,
            progress=pb.ProgressItems(items=[pb.Progress(run=foreign.run, fence=1, done=1)]),
        ),
        pb.FromWorker(
            number=5,
            output=pb.OutputChunks(
                items=[pb.OutputChunk(run=foreign.run, fence=1, lines=1, data=b"x")]
            ),
        ),
        pb.FromWorker(
            number=6,
            report=pb.Report(
                ends=pb.Ends(
                    runs=runs,
                    fences=numbers,
                    started_at=[1, 1],
                    ended_at=[2, 2],
                    cpu_micros=[1, 1],
                ),
                outcomes=[
                    pb.Outcome(run=foreign.run, fence=1, result=pb.ATTEMPT_RESULT_FAILED),
                ],
            ),
        ),
        pb.FromWorker(number=7, leave=pb.Leave()),
    ]


def truncate(rng: random.Random, frames: Frames) -> Frames:
    at = rng.randrange(len(frames))
    frames[at] = frames[at][: rng.randrange(len(frames[at]) + 1)]
    return frames


def change(rng: random.Random, frames: Frames) -> Frames:
    at = rng.randrange(len(frames))
    changed = bytearray(frames[at])
    for _ in range(rng.randint(1, 4) if changed else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    frames[at] = bytes(changed)
    return frames


def double(rng: random.Random, frames: Frames) -> Frames:
    at = rng.randrange(len(frames))
    return [*frames[:at], *[frames[at]] * rng.randint(2, 5), *frames[at:]]


def reorder(rng: random.Random, frames: Frames) -> Frames:
    rng.shuffle(frames)
    return frames


def inflate(rng: random.Random, frames: Frames) -> Frames:
    """Repeat what is inside a message: repeated fields grow, others take the last value."""
    at = rng.randrange(len(frames))
    frames[at] *= rng.choice([2, 50, 2_000])
    return frames


MUTATIONS: list[Mutation] = [truncate, change, double, reorder, inflate]


async def talk(stream: Stream, frames: Frames) -> None:
    """Send it all, whether or not the server still listens, until it has no more to say."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
        for frame in frames:
            await stream.write(frame)
        while await asyncio.wait_for(stream.read(), QUIET.total_seconds()) is not grpc.aio.EOF:
            pass
    stream.cancel()


async def taken(scene: Scene, floor: Floor, link: WorkerLink, session: str) -> Work:
    await scene.trigger(await scene.job())
    await floor.claim_for(session)
    order = await link.receive()
    assert isinstance(order, Dispatch)
    return order.batch.work(0)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_fuzzed_frames_change_nothing_of_others_and_crash_nobody(
    cluster: Cluster, seed: int
) -> None:
    rng = random.Random(seed)
    reception = await cluster.open()
    scene = Scene(cluster.engine.store, FakeTicker())
    bystander = await reception.connect(await reception.token("bystander"))
    welcome = await bystander.register(hello("bystander"))
    foreign = await taken(scene, reception.floor, bystander, welcome.session)
    token = await reception.token("hostile")

    with capture_logs() as logged:
        for _ in range(STREAMS):
            own = Work(rng.choice(["r_1", foreign.run]), rng.choice([1, 2, 2**32 + 1]), "j", 1, 0)
            frames = [message.SerializeToString() for message in conversation(own, foreign)]
            for mutate in rng.choices(MUTATIONS, k=rng.randint(1, 3)):
                frames = mutate(rng, frames)
            await talk(await reception.talk(token), [HELLO.SerializeToString(), *frames])

    run = await scene.show(foreign.run)
    assert (run.state, run.attempt, run.progress) == (RunState.CLAIMED, 1, None)
    assert (await bystander.beat(Beat((foreign.fence,), received=1))).alive
    assert await scene.state(foreign.run) is RunState.CLAIMED
    assert "worker stream failed" not in {line["event"] for line in logged}


def local_conversation(rng: random.Random, own: Work, foreign: Work) -> Frames:
    """The same over a socket, with bodies that were mutated, or frames, or both."""
    fences = (own.fence, foreign.fence)
    runs, numbers = [own.run, foreign.run], [own.number, foreign.number]
    requests: list[tuple[str, Any]] = [
        ("beat", Beat(fences, received=1, stream=1)),
        ("start", tuple(Start(fence.run, fence.number, 1) for fence in fences)),
        ("progress", (Progress(foreign.run, 1, 1.0, None),)),
        ("output", (OutputChunk(foreign.run, 1, ChunkMeta(0, 0, 1, 1, 0, 0), b"x"),)),
        (
            "report",
            Report(
                EndBatch(runs, numbers, [1, 1], [2, 2], [1, 1]),
                (Outcome(foreign.run, 1, "FAILED", 1, 2),),
            ),
        ),
        ("leave", None),
    ]
    verbs = [verb for verb, _ in requests]
    bodies = mutated(rng, [encode(body) for _, body in requests])
    frames = [
        packed(Frame(number, verbs[number % len(verbs)], msgspec.Raw(body)))
        for number, body in enumerate(bodies, start=2)
        if body
    ]
    return mutated(rng, frames)


def mutated(rng: random.Random, frames: Frames) -> Frames:
    for mutate in rng.choices(MUTATIONS, k=rng.randint(0, 2)):
        frames = mutate(rng, frames)
    return frames


async def talk_locally(path: Path, frames: Frames) -> None:
    """Send it all, whether or not the server still listens, until it has no more to say."""
    reader, writer = await asyncio.open_unix_connection(path)
    with suppress(OSError, TimeoutError):
        for frame in frames:
            writer.write(frame)
            await writer.drain()
        while await asyncio.wait_for(reader.read(2**16), QUIET.total_seconds()):
            pass
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_fuzzed_frames_at_the_socket_change_nothing_of_others_and_crash_nobody(
    cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    odd: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: odd.append(context))
    rng = random.Random(seed)
    path = tmp_path / "run" / "worker.sock"
    floor = Floor(cluster.engine)
    server = LocalLinkServer(floor, path)
    await server.open()
    scene = Scene(cluster.engine.store, FakeTicker())
    bystander = await LocalLink.connect(path)
    welcome = await bystander.register(hello("bystander"))
    foreign = await taken(scene, floor, bystander, welcome.session)
    greeting = Registration(PROTOCOL, msgspec.Raw(encode(hello("hostile", functions=("f",)))))

    with capture_logs() as logged:
        for _ in range(STREAMS):
            own = Work(rng.choice(["r_1", foreign.run]), rng.choice([1, 2, 2**32 + 1]), "j", 1, 0)
            first = packed(Frame(1, "register", msgspec.Raw(encode(greeting))))
            await talk_locally(path, [first, *local_conversation(rng, own, foreign)])

    run = await scene.show(foreign.run)
    assert (run.state, run.attempt, run.progress) == (RunState.CLAIMED, 1, None)
    assert (await bystander.beat(Beat((foreign.fence,), received=1))).alive
    assert await scene.state(foreign.run) is RunState.CLAIMED
    assert "worker stream failed" not in {line["event"] for line in logged}
    assert odd == []
    await bystander.close()
    await server.close()

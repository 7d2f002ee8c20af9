"""Nonsense on a stream ends that stream, with a status that says why, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import grpc
import pytest

from rota.contracts import worker_pb2 as pb
from rota.link import grpc_server
from rota.ports.work import Beat
from rota.server.dispatcher.floor import FloorConfig
from testkit.builders import hello
from testkit.waiting import PATIENCE
from tests.unit.link.conftest import Cluster, Reception, Stream

pytestmark = pytest.mark.anyio

HELLO = pb.FromWorker(number=1, hello=pb.Hello(worker="worker", pool="default", slots=1))


def report(**fields: Any) -> pb.FromWorker:
    outcome = pb.Outcome(run="r_1", fence=1, result=pb.ATTEMPT_RESULT_COMPLETED)
    outcome.MergeFrom(pb.Outcome(**fields))
    return pb.FromWorker(number=2, report=pb.Report(outcomes=[outcome]))


def ends(**columns: Any) -> pb.FromWorker:
    """The end of one attempt in columns, some of them other than they should be."""
    right = {
        "runs": ["r_1"],
        "fences": [1],
        "started_at": [1],
        "ended_at": [1],
        "cpu_micros": [1],
    }
    return pb.FromWorker(number=2, report=pb.Report(ends=pb.Ends(**{**right, **columns})))


def printed(**fields: Any) -> pb.FromWorker:
    chunk = pb.OutputChunk(run="r_1", fence=1, lines=1)
    chunk.MergeFrom(pb.OutputChunk(**fields))
    return pb.FromWorker(number=2, output=pb.OutputChunks(items=[chunk]))


def hello_with(**fields: Any) -> pb.FromWorker:
    message = pb.FromWorker()
    message.CopyFrom(HELLO)
    message.hello.MergeFrom(pb.Hello(**fields))
    return message


async def ending(stream: Stream, messages: Iterable[pb.FromWorker | bytes]) -> grpc.aio.AioRpcError:
    """How the server ends a stream on which these messages come."""
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            for message in messages:
                await stream.write(message)
            async for _ in stream:
                pass
    except grpc.aio.AioRpcError as ended:
        return ended
    raise AssertionError("the stream ended well")


NONSENSE: dict[str, tuple[list[pb.FromWorker | bytes], grpc.StatusCode]] = {
    "bytes that are no message": ([b"\xff\xff\xff"], grpc.StatusCode.INVALID_ARGUMENT),
    "text that is no text": (
        [HELLO, b"\x08\x02\x22\x03\x0a\x01\xff"],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "nothing": ([b""], grpc.StatusCode.FAILED_PRECONDITION),
    "a beat before the hello": (
        [pb.FromWorker(number=1, beat=pb.Beat())],
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    "a second hello": ([HELLO, HELLO], grpc.StatusCode.INVALID_ARGUMENT),
    "no number": ([HELLO, pb.FromWorker(beat=pb.Beat())], grpc.StatusCode.INVALID_ARGUMENT),
    "no request": ([HELLO, pb.FromWorker(number=2)], grpc.StatusCode.INVALID_ARGUMENT),
    "a request of a later version": (
        [HELLO, b"\x08\x02\xfa\x3e\x00"],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "an unknown result": ([HELLO, report(result=99)], grpc.StatusCode.INVALID_ARGUMENT),
    "a time beyond all calendars": (
        [HELLO, report(started_at=2**62)],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "outputs that are no JSON": (
        [HELLO, report(outputs_json="{]")],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "outputs nested without end": (
        [HELLO, report(outputs_json="[" * 1_000_000)],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "too much output in a report": (
        [HELLO, report(output=b"x" * 5_000)],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a run's id with a NUL in it": ([HELLO, report(run="r\0")], grpc.StatusCode.INVALID_ARGUMENT),
    "a name with control characters": (
        [hello_with(worker="work\ner")],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "no slots": (
        [pb.FromWorker(number=1, hello=pb.Hello(worker="worker", pool="default"))],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "slots without end": ([hello_with(slots=2**32 - 1)], grpc.StatusCode.INVALID_ARGUMENT),
    "resources without end": (
        [hello_with(resources={str(n): 1 for n in range(101)})],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "more of a resource than there can be": (
        [hello_with(resources={"memory": 2**64 - 1})],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "labels without end": (
        [hello_with(labels={str(n): "" for n in range(101)})],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a label that is a book": (
        [hello_with(labels={"site": "x" * 201})],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "functions without end": (
        [hello_with(functions=["f"] * 10_001)],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a long hello": (
        [hello_with(functions=["f" * 200] * 6_000)],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "ends without their fences": ([HELLO, ends(fences=[])], grpc.StatusCode.INVALID_ARGUMENT),
    "ends with too many starts": (
        [HELLO, ends(started_at=[1, 1])],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a result of nobody": (
        [HELLO, ends(outputs_json={1: "{}"})],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a result that is no JSON, in a column": (
        [HELLO, ends(outputs_json={0: "{]"})],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a beat that holds runs without fences": (
        [HELLO, pb.FromWorker(number=2, beat=pb.Beat(held=pb.Fences(runs=["r_1"])))],
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "a giant": ([HELLO, b"\0" * (33 << 20)], grpc.StatusCode.RESOURCE_EXHAUSTED),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_nonsense_ends_its_own_stream_only(reception: Reception, nonsense: str) -> None:
    messages, status = NONSENSE[nonsense]
    bystander = await reception.connect(await reception.token("bystander"))
    await bystander.register(hello("bystander"))
    stream = await reception.talk(await reception.token())

    ended = await ending(stream, messages)

    assert ended.code() is status
    assert ended.details()
    assert (await bystander.beat(Beat())).alive


def held(fence: int) -> pb.FromWorker:
    fences = pb.Fences(runs=["r_1"], fences=[fence])
    return pb.FromWorker(number=2, beat=pb.Beat(held=fences))


def started(fence: int = 1, started_at: int = 1) -> pb.FromWorker:
    starts = pb.Starts(runs=["r_1"], fences=[fence], started_at=[started_at])
    return pb.FromWorker(number=2, start=starts)


def progressed(**fields: Any) -> pb.FromWorker:
    item = pb.Progress(run="r_1", **fields)
    return pb.FromWorker(number=2, progress=pb.ProgressItems(items=[item]))


OUT_OF_BOUNDS = [
    ("fences of fences", held(2**63)),
    ("fences of starts", started(fence=2**63)),
    ("started_at", started(started_at=-1)),
    ("fence", progressed(fence=2**63)),
    ("done", progressed(fence=1, done=float("inf"))),
    ("fence", report(fence=2**63)),
    ("fences of ends", ends(fences=[2**63])),
    ("started_at", ends(started_at=[-1])),
    ("ended_at", ends(ended_at=[2**62])),
    ("cpu_micros", ends(cpu_micros=[2**63])),
    ("ended_at", report(ended_at=2**62)),
    ("cpu_seconds", report(cpu_seconds=1e300)),
    ("max_memory_bytes", report(max_memory_bytes=2**63 - 1)),
    ("output_bytes", report(output_bytes=2**63 - 1)),
    ("output_lines", report(output_lines=2**63 - 1)),
    (
        "seconds",
        report(steps=[pb.StepOutcome(name="s", result=pb.STEP_RESULT_FAILED, seconds=-1.0)]),
    ),
    ("tries", report(steps=[pb.StepOutcome(name="s", result=pb.STEP_RESULT_FAILED, tries=2**31)])),
    ("fence", printed(fence=2**63)),
    ("number", printed(number=2**31)),
    ("first_line", printed(first_line=2**63 - 1)),
    ("lines", printed(lines=2**63 - 1)),
    ("text_bytes", printed(text_bytes=2**63 - 1)),
    ("first_at_ms", printed(first_at_ms=2**62)),
    ("last_at_ms", printed(last_at_ms=-1)),
]


@pytest.mark.parametrize(("field", "message"), OUT_OF_BOUNDS)
async def test_a_number_out_of_bounds_is_refused_by_the_name_of_its_field(
    reception: Reception, field: str, message: pb.FromWorker
) -> None:
    stream = await reception.talk(await reception.token())

    ended = await ending(stream, [HELLO, message])

    assert ended.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (ended.details() or "").startswith(f"{field}: ")


STEP = pb.StepOutcome(name="s", result=pb.STEP_RESULT_COMPLETED)
TOO_MANY = {
    "fences": pb.FromWorker(number=2, beat=pb.Beat(held=pb.Fences(runs=["r_1"] * 50_001))),
    "starts": pb.FromWorker(number=2, start=pb.Starts(runs=["r_1"] * 1_001)),
    "ends": pb.FromWorker(
        number=2, report=pb.Report(ends=pb.Ends(runs=["r_1"]), outcomes=[pb.Outcome()] * 1_000)
    ),
    "steps": report(steps=[STEP] * 1_001),
    "output": pb.FromWorker(number=2, output=pb.OutputChunks(items=[pb.OutputChunk()] * 1_001)),
    "progress": pb.FromWorker(number=2, progress=pb.ProgressItems(items=[pb.Progress()] * 1_001)),
}


@pytest.mark.parametrize("what", TOO_MANY)
async def test_too_many_items_are_refused_before_any_is_read(
    reception: Reception, what: str
) -> None:
    stream = await reception.talk(await reception.token())

    ended = await ending(stream, [HELLO, TOO_MANY[what]])

    assert ended.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (ended.details() or "").startswith(f"{what}: ")
    assert "more than" in (ended.details() or "")


async def test_a_worker_that_says_nothing_is_not_waited_for(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "_HELLO_SECONDS", 0.01)
    stream = await reception.talk(await reception.token())

    ended = await ending(stream, [])

    assert ended.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_worker_that_stops_beating_is_not_listened_to(cluster: Cluster) -> None:
    """It may have been revoked, which only a beat would find out."""
    reception = await cluster.open(config=FloorConfig(lease=timedelta(milliseconds=100)))
    stream = await reception.talk(await reception.token())

    ended = await ending(stream, [HELLO])

    assert ended.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "no beat came" in (ended.details() or "")


async def test_a_report_of_runs_that_are_not_its_own_changes_nothing(reception: Reception) -> None:
    stream = await reception.talk(await reception.token())
    await stream.write(HELLO)
    await stream.read()

    await stream.write(report(run="r_of_somebody_else"))

    answer = await stream.read()
    assert isinstance(answer, pb.FromServer)
    assert list(answer.report.refused.runs) == ["r_of_somebody_else"]


@pytest.mark.parametrize("request_of", ["secrets", "handles", "credential"])
async def test_what_the_welcome_does_not_offer_is_refused_and_the_stream_goes_on(
    reception: Reception, request_of: str
) -> None:
    stream = await reception.talk(await reception.token())
    await stream.write(HELLO)
    welcome = await stream.read()

    message = pb.FromWorker(number=2)
    getattr(message, request_of).SetInParent()
    await stream.write(message)

    answer = await stream.read()
    assert isinstance(welcome, pb.FromServer)
    assert isinstance(answer, pb.FromServer)
    assert request_of not in welcome.welcome.requests
    assert answer.refusal.code == "not_offered"
    await stream.write(pb.FromWorker(number=3, beat=pb.Beat()))
    answer = await stream.read()
    assert isinstance(answer, pb.FromServer)
    assert answer.beat.alive

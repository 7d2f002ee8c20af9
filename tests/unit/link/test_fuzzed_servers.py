"""A worker outlives whatever a server says, and begins nothing twice, whatever carries it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from rota.clock import SystemClock
from rota.contracts import worker_pb2 as pb
from rota.domain.errors import Denied, Unavailable
from rota.domain.spec import JobType
from rota.link import grpc_messages as messages
from rota.link.grpc_checks import ADMITTED
from rota.link.grpc_client import GrpcAccess, GrpcLink
from rota.link.local import (
    ORDER,
    PROTOCOL,
    VERBS,
    Frame,
    LocalLink,
    Registered,
    Registration,
    encode,
    packed,
    read_frame,
)
from rota.ports.executor import Completions, JobBatch
from rota.ports.work import (
    Beat,
    BeatAnswer,
    Cancel,
    Fence,
    Hello,
    Move,
    Order,
    Report,
    ReportAnswer,
    Start,
    StartAnswer,
    Watch,
    Welcome,
    WorkerLink,
)
from rota.worker.attempts import Attempts
from rota.worker.session import SessionConfig, SessionLost, WorkerSession
from rota.worker.spool import OutputSpool
from testkit.guards import NoGuard
from tests.unit.link.test_fuzzed_frames import MUTATIONS, QUIET, Frames
from tests.unit.worker.test_attempts import Recorder, dispatch

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SEEDS = 12
CONNECTIONS = 6  # in which the server is hostile
SOON = timedelta(milliseconds=1)
LAST = Fence("r_last", 1)
FOREIGN = Fence("r_foreign", 2**32 + 1)

Answer = Welcome | BeatAnswer | StartAnswer | ReportAnswer | None
Connect = Callable[[], Awaitable[WorkerLink]]


class Hostile:
    """What a server says: for some connections whatever comes to its mind, then what it should."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._connections = 0
        self.has_last = asyncio.Event()  # the run that it gave when it was honest has ended

    @property
    def is_honest(self) -> bool:
        return self._connections > CONNECTIONS

    def connected(self) -> None:
        self._connections += 1

    def heard(self, verb: str, request: Any) -> Answer:
        """Return the right answer."""
        match verb:
            case "register":
                assert isinstance(request, Hello)
                return Welcome(request.resumes or "w_1", lease_seconds=30, store_now=1)
            case "beat":
                return BeatAnswer(alive=True, store_now=1, cancel=(FOREIGN,), unknown=(FOREIGN,))
            case "start":
                return StartAnswer(granted=(*(start.fence for start in request), FOREIGN))
            case "report":
                if LAST in request.fences():
                    self.has_last.set()
                return ReportAnswer(refused=(FOREIGN,), again=(FOREIGN,))
            case _:
                return None

    def orders(self) -> list[Order]:
        """Return what it orders after its welcome."""
        if self.is_honest:
            return [dispatch("at_least_once", LAST, first=1)]
        fences = [Fence(f"r_{self._connections}_{number}", 1) for number in range(4)]
        return [
            dispatch("at_least_once", *fences[:2], first=1),
            dispatch("at_most_once", *fences[2:], first=3),
            Cancel((FOREIGN, fences[0])),
            Watch(("r_foreign", fences[1].run)),
            *([Move()] if self._rng.random() < 0.2 else []),
        ]

    def said(self, frames: Frames) -> Frames:
        """Return what it says instead of these frames."""
        if self.is_honest or self._rng.random() < 0.4:
            return frames
        for mutate in self._rng.choices(MUTATIONS, k=self._rng.randint(1, 2)):
            frames = mutate(self._rng, frames)
        return frames


@asynccontextmanager
async def over_socket(hostile: Hostile, folder: Path) -> AsyncIterator[Connect]:
    conversations: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        conversations.add(task)
        hostile.connected()
        with suppress(OSError, TimeoutError, asyncio.CancelledError):
            try:
                while True:
                    frame = await listened(hostile, read_frame(reader))
                    for data in hostile.said(answers_by_socket(hostile, frame)):
                        writer.write(data)
                    await writer.drain()
            finally:
                writer.close()
                await writer.wait_closed()

    (folder / "run").mkdir(mode=0o700)
    path = folder / "run" / "worker.sock"
    server = await asyncio.start_unix_server(serve, path)
    yield lambda: LocalLink.connect(path)
    server.close()
    for task in conversations:
        task.cancel()
    await asyncio.gather(*conversations, return_exceptions=True)


def answers_by_socket(hostile: Hostile, frame: Frame) -> Frames:
    request = VERBS[frame.verb].request.decode(frame.body)
    if frame.verb != "register":
        return [answered(frame.number, hostile.heard(frame.verb, request))]
    registration = msgspec.msgpack.decode(request, type=Registration)
    welcome = hostile.heard("register", msgspec.msgpack.decode(registration.hello, type=Hello))
    registered = Registered(PROTOCOL, msgspec.Raw(encode(welcome)))
    orders = [answered(ORDER, order) for order in hostile.orders()]
    return [answered(frame.number, registered), *orders]


def answered(number: int, body: Any) -> bytes:
    return packed(Frame(number, "", msgspec.Raw(encode(body))))


@asynccontextmanager
async def over_grpc(hostile: Hostile, _: Path) -> AsyncIterator[Connect]:
    async def work(requests: AsyncIterator[pb.FromWorker], context: Any) -> None:
        hostile.connected()
        await context.send_initial_metadata(((ADMITTED, "1"),))
        with suppress(StopAsyncIteration, TimeoutError):
            while True:
                message = await listened(hostile, anext(requests))
                for data in hostile.said(list(answers_by_grpc(hostile, message))):
                    await context.write(data)

    server = grpc.aio.server()
    method = grpc.stream_stream_rpc_method_handler(
        work, request_deserializer=pb.FromWorker.FromString, response_serializer=bytes
    )
    handlers = grpc.method_handlers_generic_handler("rota.v2.Workers", {"Work": method})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    yield lambda: GrpcLink.open(address, GrpcAccess((address,), "token"))
    await server.stop(1)


def answers_by_grpc(hostile: Hostile, message: pb.FromWorker) -> Iterator[bytes]:
    verb = message.WhichOneof("request") or ""
    verb, request = "register" if verb == "hello" else verb, getattr(message, verb)
    answer = hostile.heard(verb, GRPC_REQUESTS.get(verb, lambda _: None)(request))
    kind, write = GRPC_ANSWERS[type(answer)]
    yield pb.FromServer(number=message.number, **{kind: write(answer)}).SerializeToString()
    if verb == "register":
        for order in hostile.orders():
            yield from (each.SerializeToString() for each in messages.order_messages(order))


GRPC_REQUESTS: dict[str, Callable[[Any], Hello | Sequence[Start] | Report]] = {
    "register": messages.hello_from,
    "start": messages.starts_from,
    "report": messages.report_from,
}


GRPC_ANSWERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Welcome: ("welcome", messages.welcome_message),
    BeatAnswer: ("beat", messages.beat_answer_message),
    StartAnswer: ("start", messages.start_answer_message),
    ReportAnswer: ("report", messages.report_answer_message),
    type(None): ("done", lambda _: pb.Done()),
}


async def listened(hostile: Hostile, coming: Any) -> Any:
    """Wait for a request; a hostile server that hears nothing for a moment hangs up."""
    return await asyncio.wait_for(coming, None if hostile.is_honest else QUIET.total_seconds())


class Senseless(Hostile):
    """Answers as it should, but with values that nobody can use."""

    def __init__(self, **welcome: float) -> None:
        super().__init__(seed=0)
        self._welcome = welcome

    def heard(self, verb: str, request: Any) -> Answer:
        right = super().heard(verb, request)
        if isinstance(right, Welcome):
            return msgspec.structs.replace(right, **self._welcome)
        return BeatAnswer(alive=True, store_now=-1)

    def said(self, frames: Frames) -> Frames:
        return frames


async def greet(link: WorkerLink) -> None:
    await link.register(Hello("worker", "default", 1))
    await link.beat(Beat())


@pytest.mark.parametrize(
    "welcome",
    [
        {"lease_seconds": float("nan")},
        {"lease_seconds": float("inf")},
        {"lease_seconds": 0.0},
        {"store_now": 2**62},
        {},  # but its answer to the beat makes none
    ],
    ids=str,
)
@pytest.mark.parametrize("link", [over_socket, over_grpc])
async def test_an_answer_that_makes_no_sense_is_as_good_as_none(
    link: Callable[[Hostile, Path], Any], tmp_path: Path, welcome: dict[str, float]
) -> None:
    odd = note_what_is_odd()
    async with link(Senseless(**welcome), tmp_path) as connect:
        opened = await connect()

        with pytest.raises(Unavailable):
            await greet(opened)

        await opened.close()
    assert odd == []


def note_what_is_odd() -> list[dict[str, Any]]:
    """Collect what callbacks of this event loop raise.

    gRPC's poller is one for all event loops, also for those of earlier tests: that another loop
    was quicker, or that one is closed, is no matter.
    """
    odd: list[dict[str, Any]] = []

    def note(_: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        is_pollers = isinstance(error, BlockingIOError) or "loop is closed" in str(error)
        if not is_pollers:
            odd.append(context)

    asyncio.get_running_loop().set_exception_handler(note)
    return odd


class Quick(Recorder):
    """Executes in no time."""

    def __init__(self, attempts: Attempts) -> None:
        super().__init__()
        self._attempts = attempts

    def start(self, batches: Sequence[JobBatch]) -> None:
        super().start(batches)
        fences = [fence for batch in batches for fence in batch.fences]
        ones = [1] * len(fences)
        asyncio.get_running_loop().call_soon(
            self._attempts.completed, Completions(fences, ones, ones, ones)
        )


async def work(connect: Connect, folder: Path) -> None:
    """Be a worker that is started again whenever it is right that it ends."""
    while True:
        attempts = Attempts(SystemClock(), OutputSpool(folder))
        executor = Quick(attempts)
        attempts.serve_with({JobType.SHELL: executor})
        session = WorkerSession(
            connect,
            attempts,
            Hello("worker", "default", 4),
            NoGuard(),
            SystemClock(),
            SessionConfig(reconnect_delay=SOON, report_again=SOON),
        )
        try:
            await session.run()
        except* (SessionLost, Denied):
            pass
        finally:
            assert len(executor.started) == len(set(executor.started))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("link", [over_socket, over_grpc])
async def test_whatever_a_server_says_crashes_no_worker_and_nothing_begins_twice(
    link: Callable[[Hostile, Path], Any], tmp_path: Path, seed: int
) -> None:
    odd = note_what_is_odd()
    hostile = Hostile(seed)
    async with AsyncExitStack() as stack:
        connect = await stack.enter_async_context(link(hostile, tmp_path))
        working = asyncio.ensure_future(work(connect, tmp_path / "spool"))
        ended = asyncio.ensure_future(hostile.has_last.wait())

        await asyncio.wait([working, ended], timeout=30, return_when=asyncio.FIRST_COMPLETED)

        assert not working.done() or working.result()
        assert ended.done()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert odd == []

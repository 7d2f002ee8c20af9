"""Worker side of the gRPC stream: `rota.v2.Workers` at any of the servers."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from rota.contracts import worker_pb2 as pb
from rota.contracts.worker_pb2_grpc import WorkersStub
from rota.domain.errors import Denied, Invalid, RotaError, Unavailable
from rota.link import grpc_messages as messages
from rota.link.grpc_attempts import (
    blob_piece_from,
    blob_piece_message,
    blob_read_message,
    blob_written_from,
    commits_message,
    handles_message,
    note_message,
    progress_message,
)
from rota.link.grpc_checks import ADMITTED
from rota.link.parts import OUTDATED_SERVER, in_requests
from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit
from rota.ports.rpc import MAX_MESSAGE
from rota.ports.work import (
    MAX_ITEMS,
    Beat,
    BeatAnswer,
    Credential,
    Hello,
    JoinWish,
    Order,
    OutputChunk,
    Progress,
    RemoteHandle,
    Report,
    ReportAnswer,
    Start,
    StartAnswer,
    StepNote,
    Welcome,
)

M = TypeVar("M")
T = TypeVar("T")
Stream = grpc.aio.StreamStreamCall[pb.FromWorker, pb.FromServer]

_ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_HUNG_UP = ("Socket closed", "Connection reset")
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A new link dials at once, however often the one before it had failed.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Certificates by which a worker verifies the servers."""

    ca: bytes | None = None  # PEM of who signed their certificates; None: the usual authorities


@dataclass(frozen=True, slots=True)
class GrpcAccess:
    """Addresses of a cluster's servers, and the worker's credentials."""

    servers: tuple[str, ...]  # host:port; any of them will do
    token: str | Callable[[], str] = field(repr=False)  # what it is now, if it changes
    tls: ClientTls | None = None  # None: in the clear, for loopback only


class GrpcConnector:
    """Connects to the servers in turn, and stays with one as long as it works."""

    def __init__(self, access: GrpcAccess) -> None:
        self._access = access
        self._servers = list(access.servers)
        secrets.SystemRandom().shuffle(self._servers)  # spreads the workers over the servers
        self._has_connected = False

    async def connect(self) -> GrpcLink:
        """Connect to the first server that accepts the worker; a call after a loss tries the next.

        Raise `Unavailable` if none answers, `Denied` if the token is refused.
        """
        if self._has_connected:
            self._turn()
        link = await self._first(lambda server: GrpcLink.open(server, self._access))
        self._has_connected = True
        return link

    async def join(self, wish: JoinWish) -> Credential:
        """Trade a join token, which is the token here, at the first server that answers.

        Raise `Unavailable` if none does, `Denied` if it is refused.
        """
        return await self._first(lambda server: _join(server, self._access, wish))

    async def _first(self, ask: Callable[[str], Awaitable[T]]) -> T:
        problems = []
        for _ in self._servers:
            try:
                return await ask(self._servers[0])
            except Unavailable as error:
                problems.append(str(error))
                self._turn()
        raise Unavailable("; ".join(sorted(problems)))  # the same message in any order of servers

    def _turn(self) -> None:
        self._servers.append(self._servers.pop(0))


def _credentials(access: GrpcAccess) -> tuple[tuple[str, str], ...]:
    token = access.token if isinstance(access.token, str) else access.token()
    return (("authorization", f"Bearer {token}"),)


async def _join(server: str, access: GrpcAccess, wish: JoinWish) -> Credential:
    channel = _channel(server, access.tls)
    try:
        answer = await WorkersStub(channel).Join(
            pb.JoinRequest(worker=wish.worker, pool=wish.pool, replace=wish.replaces),
            metadata=_credentials(access),
            timeout=_ANSWER_SECONDS,
        )
    except grpc.aio.AioRpcError as error:
        raise _translated(server, error, _advice(error, access.tls)) from error
    finally:
        await channel.close()
    return messages.credential_from(answer)


class GrpcLink:
    """Implements `rota.ports.work.WorkerLink`."""

    def __init__(self, server: str, channel: grpc.aio.Channel, stream: Stream) -> None:
        self.server = server
        self._channel = channel
        self._stream = stream
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[pb.FromServer]] = {}
        self._orders: asyncio.Queue[Order | RotaError] = asyncio.Queue()
        self._writing = asyncio.Lock()
        self._broken: RotaError | None = None
        self._pump = asyncio.ensure_future(self._receive_all())

    @classmethod
    async def open(cls, server: str, access: GrpcAccess) -> GrpcLink:
        """Open a link; raise `Unavailable` if nobody listens, `Denied` if the token is refused."""
        channel = _channel(server, access.tls)
        stream: Stream = WorkersStub(channel).Work(metadata=_credentials(access))
        try:
            await _until_admitted(server, stream, access.tls)
        except BaseException:
            await channel.close()
            raise
        return cls(server, channel, stream)

    async def register(self, hello: Hello) -> Welcome:
        answer = await self._ask("welcome", hello=messages.hello_message(hello))
        return self._read(messages.welcome_from, answer.welcome)

    async def beat(self, beat: Beat) -> BeatAnswer:
        answer = await self._ask("beat", beat=messages.beat_message(beat))
        return self._read(messages.beat_answer_from, answer.beat)

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        whole = pb.StartAnswer()
        for items in _in_pieces(starts):
            answer = await self._ask("start", start=messages.starts_message(items))
            whole.MergeFrom(answer.start)
        return self._read(messages.start_answer_from, whole)

    async def report(self, report: Report) -> ReportAnswer:
        answer = await self._ask("report", report=messages.report_message(report))
        return self._read(messages.report_answer_from, answer.report)

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        items = [messages.chunk_message(chunk) for chunk in chunks]
        answer = await self._ask("report", output=pb.OutputChunks(items=items))
        return self._read(messages.report_answer_from, answer.report)

    async def progress(self, items: Sequence[Progress]) -> None:
        for piece in _in_pieces(items):
            told = [progress_message(item) for item in piece]
            await self._ask("done", progress=pb.ProgressItems(items=told))

    async def note(self, items: Sequence[StepNote]) -> None:
        for piece in in_requests(items):
            await self._ask("done", steps=pb.StepNotes(items=map(note_message, piece)))

    async def commits(self, items: Sequence[SourceCommit]) -> ReportAnswer:
        answer = await self._ask("report", commits=commits_message(items))
        return self._read(messages.report_answer_from, answer.report)

    async def read_blob(self, wish: BlobRead) -> BlobPiece:
        answer = await self._ask("blob", blob_read=blob_read_message(wish))
        return self._read(blob_piece_from, answer.blob)

    async def write_blob(self, piece: BlobPiece) -> BlobWritten:
        answer = await self._ask("blob_written", blob_write=blob_piece_message(piece))
        return self._read(blob_written_from, answer.blob_written)

    async def keep_handles(self, items: Sequence[RemoteHandle]) -> ReportAnswer:
        whole = pb.ReportAnswer()
        for piece in _in_pieces(items):
            answer = await self._ask("report", handles=handles_message(piece))
            whole.MergeFrom(answer.report)
        return self._read(messages.report_answer_from, whole)

    async def leave(self) -> None:
        await self._ask("done", leave=pb.Leave())

    async def renew_credential(self) -> Credential:
        answer = await self._ask("credential", credential=pb.CredentialRequest())
        return messages.credential_from(answer.credential)

    async def receive(self) -> Order:
        order = await self._orders.get()
        if isinstance(order, RotaError):
            raise order
        return order

    async def close(self) -> None:
        self._stream.cancel()
        await self._pump
        await self._channel.close()

    async def _ask(self, expected: str, **request: Any) -> pb.FromServer:
        """Send a request and wait for its answer, which must be of the expected kind."""
        if self._broken is not None:
            raise self._broken
        number = next(self._numbers)
        future: asyncio.Future[pb.FromServer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._write(pb.FromWorker(number=number, **request))
                answer = await future
        except TimeoutError as error:
            raise Unavailable(f"{self.server} did not answer {next(iter(request))}") from error
        finally:
            self._waiting.pop(number, None)
            _discard(future)
        return _accepted(answer, expected)

    def _read(self, reader: Callable[[M], T], message: M) -> T:
        """Read an answer; one that makes no sense is as good as none."""
        try:
            return reader(message)
        except Invalid as error:
            raise self._nonsense(error) from error

    def _nonsense(self, error: Exception) -> Unavailable:
        return Unavailable(f"{self.server} sent what cannot be read: {error}")

    async def _write(self, message: pb.FromWorker) -> None:
        try:
            async with self._writing:  # gRPC takes one message of a stream at a time
                await self._stream.write(message)
        except grpc.aio.AioRpcError as error:
            raise _translated(self.server, error) from error
        except asyncio.InvalidStateError as error:
            raise self._broken or Unavailable(f"the stream to {self.server} is over") from error

    async def _receive_all(self) -> None:
        try:
            async for message in self._stream:
                self._accept(message)
            problem: RotaError = Unavailable(f"{self.server} ended the stream")
        except grpc.aio.AioRpcError as error:
            problem = _translated(self.server, error)
        except Invalid as error:
            problem = self._nonsense(error)
        except asyncio.CancelledError:  # how gRPC reports a stream that `close` cancelled
            problem = Unavailable("this link was closed")
        self._broken = problem
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(problem)
        self._orders.put_nowait(problem)

    def _accept(self, message: pb.FromServer | None) -> None:
        if message is None:  # how gRPC hands over what it could not read
            raise Invalid("a message of another form")
        if message.number:
            future = self._waiting.get(message.number)
            if future is not None and not future.done():
                future.set_result(message)
        elif (order := messages.order_from(message)) is not None:
            self._orders.put_nowait(order)


async def _until_admitted(server: str, stream: Stream, tls: ClientTls | None) -> None:
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            if ADMITTED not in dict(await stream.initial_metadata()):
                await stream.read()  # raises what it was refused with
                raise Unavailable(f"{server} is not a server of Rota")
    except grpc.aio.AioRpcError as error:
        raise _translated(server, error, _advice(error, tls)) from error
    except TimeoutError as error:
        raise Unavailable(f"{server} does not answer") from error


def _in_pieces(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield items in as many batches as there have to be."""
    return (items[first : first + MAX_ITEMS] for first in range(0, len(items), MAX_ITEMS))


def _discard(future: asyncio.Future[pb.FromServer]) -> None:
    """Let go of an answer that nobody waits for any more; asyncio would log its exception."""
    if not future.cancel() and not future.cancelled():
        future.exception()


def _accepted(answer: pb.FromServer, expected: str) -> pb.FromServer:
    kind = answer.WhichOneof("message")
    if kind == "refusal":
        raise messages.refusal_from(answer.refusal)
    if kind != expected:
        raise Unavailable(f"an answer of the kind {kind} came instead of {expected}")
    return answer


def _channel(server: str, tls: ClientTls | None) -> grpc.aio.Channel:
    if tls is None:
        return grpc.aio.insecure_channel(server, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(root_certificates=tls.ca)
    return grpc.aio.secure_channel(server, credentials, options=_OPTIONS)


def _advice(error: grpc.aio.AioRpcError, tls: ClientTls | None) -> str:
    """Return a hint about certificates, recognised by gRPC's error text."""
    details = error.details() or ""
    if tls is None and any(word in details for word in _HUNG_UP):
        return " — if the server has a certificate, set ROTA_TLS_CA to its authority"
    if _UNTRUSTED in details:
        return " — set ROTA_TLS_CA to the authority that signed its certificate"
    return ""


def _translated(server: str, error: grpc.aio.AioRpcError, advice: str = "") -> RotaError:
    """Translate the end of a stream into a `RotaError`."""
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return Unavailable(f"{server}: {OUTDATED_SERVER}", code="outdated_server")
    message = f"{server}: {error.details() or error.code().name.lower()}{advice}"
    codes = [value for key, value in error.trailing_metadata() or () if key == "rota-code"]
    code = str(codes[0]) if codes else ""
    if error.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
        return Denied(message, code=code)
    return Unavailable(message, code=code)

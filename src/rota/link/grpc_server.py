"""Server side of the workers' gRPC streams: `rota.v2.Workers` over a `WorkerDesk`.

A worker can affect only its own stream and its own session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from rota.contracts import worker_pb2 as pb
from rota.contracts.worker_pb2_grpc import WorkersServicer, add_WorkersServicer_to_server
from rota.domain.errors import Conflict, Denied, NotFound, RotaError, Unavailable, first_of
from rota.link import grpc_checks as checks
from rota.link import grpc_messages as messages
from rota.link.grpc_attempts import (
    blob_piece_from,
    blob_piece_message,
    blob_read_from,
    blob_written_message,
    commits_from,
    handles_from,
    note_from,
    progress_from,
)
from rota.link.parts import OUTDATED_WORKER
from rota.ports.credentials import CredentialDesk
from rota.ports.rpc import bearer_in, host_of_peer, rpc_status_of
from rota.ports.work import (
    Credential,
    JoinWish,
    WorkerDesk,
    WorkerIdentity,
)

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[pb.FromWorker, pb.FromServer]
JoinContext = grpc.aio.ServicerContext[pb.JoinRequest, pb.Credential]

_HELLO_SECONDS = 10.0
_MAX_WAITING = 64  # requests of one stream that are being answered at once


class WorkersService(WorkersServicer):
    """Service for all workers that are connected to this server by gRPC."""

    def __init__(self, desk: WorkerDesk, credentials: CredentialDesk) -> None:
        self._desk = desk
        self._credentials = credentials
        self._conversations: set[_Conversation] = set()
        self._outdated: set[str] = set()  # names of workers of an older release that came
        self._is_closing = False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a server that has not been started yet."""
        add_WorkersServicer_to_server(self, server)
        outdated: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
            self._refuse_outdated
        )
        former = grpc.method_handlers_generic_handler("rota.v1.Workers", {"Work": outdated})
        server.add_generic_rpc_handlers((former,))

    async def _refuse_outdated(
        self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Tell a worker of an older release what to do, and whoever reads our log that it came.

        Not that it is denied: it would end at once, with all that it runs, while another server may
        still be of its release.
        """
        with suppress(RotaError):
            worker = (await self._shown(context).check()).name
            if worker not in self._outdated:  # it comes again every two seconds
                self._outdated.add(worker)
                log.warning("worker.outdated", worker=worker, hint="install this release there")
        await context.abort(
            grpc.StatusCode.UNAVAILABLE,
            OUTDATED_WORKER,
            (("rota-code", "outdated_worker"),),
        )

    def close(self) -> None:
        """Send every worker to another server, once its open requests are answered."""
        self._is_closing = True
        for conversation in self._conversations:
            conversation.stop_listening()

    async def Work(self, request_iterator: AsyncIterator[pb.FromWorker], context: Context) -> None:
        conversation = _Conversation(self._desk, self._shown(context), request_iterator, context)
        ending: Ending | None = None
        self._conversations.add(conversation)
        try:
            if not self._is_closing:
                await conversation.run()
        except* Exception as group:  # noqa: BLE001 (the edge of a stream: others go on)
            ending = _ending(first_of(group))
        finally:
            self._conversations.discard(conversation)
        if ending is None and self._is_closing:
            ending = _STOPPING
        if ending is not None:
            status, code, message = ending
            await context.abort(status, message, (("rota-code", code),))

    def _shown(self, context: grpc.aio.ServicerContext[Any, Any]) -> _Credential:
        secret = bearer_in(context.invocation_metadata())
        return _Credential(secret, self._credentials, host_of_peer(context.peer()))

    async def Join(self, request: pb.JoinRequest, context: JoinContext) -> pb.Credential:
        secret = bearer_in(context.invocation_metadata())
        try:
            named = checks.name(request.worker, "worker"), checks.name(request.pool, "pool")
            wish = JoinWish(*named, request.replace)
            address = host_of_peer(context.peer())
            credential = await self._credentials.join(secret, wish, address)
        except Exception as error:  # noqa: BLE001 (the edge of a call: others go on)
            status, code, message = _ending(error)
            await context.abort(status, message, (("rota-code", code),))
        return messages.credential_message(credential)


Ending = tuple[grpc.StatusCode, str, str]
_STOPPING: Ending = (grpc.StatusCode.UNAVAILABLE, "server_stopping", "this server stops")


def _ending(error: BaseException) -> Ending:
    """Return the status with which a stream ends."""
    if isinstance(error, DecodeError):
        error = checks.bad("a message cannot be read")
    if not isinstance(error, RotaError):
        log.error("worker stream failed", exc_info=error)
        return grpc.StatusCode.INTERNAL, "internal", "something unexpected went wrong"
    status = grpc.StatusCode[rpc_status_of(error)]
    return status, error.code, f"{error} — {error.hint}" if error.hint else str(error)


def _not_taken(kind: str | None) -> RotaError:
    """Return the error for a request that is not answered."""
    match kind:
        case "hello":
            return checks.bad("there is one hello in a stream")
        case None:
            return checks.bad("a request of a kind that this server does not know")
        case optional:
            return Conflict(f"this server does not answer {optional}", code="not_offered")


class _Credential:
    """Credential that a worker sent when it opened its stream."""

    def __init__(self, secret: str, desk: CredentialDesk, address: str) -> None:
        self._secret = secret
        self._desk = desk
        self._address = address

    async def check(self) -> WorkerIdentity:
        """Return the worker's identity; raise `Denied` unless the credential is valid now."""
        if not self._secret:
            raise Denied(
                "a worker needs a token",
                code="unauthenticated",
                hint="send `authorization: Bearer TOKEN`, made by rota worker token create",
            )
        return await self._desk.authenticate(self._secret, self._address)

    async def renew(self) -> Credential:
        """Return the credential that is to take the place of this one."""
        return await self._desk.renew(await self.check())


class _Conversation:
    """Stream of one worker."""

    def __init__(
        self,
        desk: WorkerDesk,
        credential: _Credential,
        incoming: AsyncIterator[pb.FromWorker],
        context: Context,
    ) -> None:
        self._desk = desk
        self._credential = credential
        self._incoming = incoming
        self._context = context
        self._session = ""
        self._stream = 0
        self._lease_seconds = 0.0
        self._has_beaten = asyncio.Event()
        self._is_leaving = False
        self._writing = asyncio.Lock()
        self._room = asyncio.Semaphore(_MAX_WAITING)
        self._listening: asyncio.Task[None] | None = None
        self._is_to_stop = False

    async def run(self) -> None:
        """Serve the worker until it disconnects, or until an error that ends its stream."""
        await self._credential.check()
        await self._context.send_initial_metadata(((checks.ADMITTED, "1"),))
        try:
            await self._register()
            async with asyncio.TaskGroup() as group:
                unasked = [
                    group.create_task(self._send_orders()),
                    group.create_task(self._expect_beats()),
                ]
                async with asyncio.TaskGroup() as answering:
                    self._listening = answering.create_task(self._listen(answering))
                    if self._is_to_stop:  # that came before its welcome was sent
                        self._listening.cancel()
                for task in unasked:
                    task.cancel()
        finally:
            if self._session:
                await self._desk.disconnected(self._session, self._stream)

    def stop_listening(self) -> None:
        """Take no more requests; `run` ends when the received ones are answered."""
        self._is_to_stop = True
        if self._listening is not None:
            self._listening.cancel()

    async def _register(self) -> None:
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                message = await anext(self._incoming)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise Conflict("no hello came", code="out_of_order") from error
        if message.WhichOneof("request") != "hello":
            raise Conflict("the first message has to be a hello", code="out_of_order")
        hello = messages.hello_from(message.hello)
        welcome = await self._desk.register(hello, await self._credential.check())
        self._session, self._stream = welcome.session, welcome.stream
        self._lease_seconds = welcome.lease_seconds
        await self._send(message.number, welcome=messages.welcome_message(welcome))

    async def _expect_beats(self) -> None:
        """Raise `Conflict` when no beat with a valid token came for a whole lease."""
        while True:
            self._has_beaten.clear()
            try:
                async with asyncio.timeout(self._lease_seconds):
                    await self._has_beaten.wait()
            except TimeoutError as error:
                raise Conflict("no beat came for a whole lease", code="silent_worker") from error

    async def _listen(self, answering: asyncio.TaskGroup) -> None:
        async for message in self._incoming:
            await self._room.acquire()
            answering.create_task(self._answer(message))

    async def _answer(self, message: pb.FromWorker) -> None:
        try:
            if not message.number:
                raise checks.bad("a request needs a number above 0")
            await self._send(message.number, **await self._handled(message))
        finally:
            self._room.release()

    async def _handled(self, message: pb.FromWorker) -> dict[str, Any]:
        """Handle a request; return the answer by the name of its field."""
        try:
            kind = message.WhichOneof("request")
            handlers: dict[str | None, Callable[[Any], Awaitable[dict[str, Any]]]] = {
                "beat": self._beat,
                "start": self._start,
                "report": self._report,
                "output": self._output,
                "progress": self._progress,
                "steps": self._note,
                "handles": self._keep_handles,
                "commits": self._commits,
                "blob_read": self._read_blob,
                "blob_write": self._write_blob,
                "leave": self._leave,
                "credential": self._renew_credential,
            }
            if kind is None or kind not in handlers:
                raise _not_taken(kind)
            return await handlers[kind](getattr(message, kind))
        except (NotFound, Conflict, Unavailable) as error:
            return {"refusal": messages.refusal_message(error)}

    async def _read_blob(self, message: pb.BlobRead) -> dict[str, Any]:
        piece = await self._desk.read_blob(self._session, blob_read_from(message))
        return {"blob": blob_piece_message(piece)}

    async def _write_blob(self, message: pb.BlobPiece) -> dict[str, Any]:
        written = await self._desk.write_blob(self._session, blob_piece_from(message))
        return {"blob_written": blob_written_message(written)}

    async def _beat(self, message: pb.Beat) -> dict[str, Any]:
        await self._credential.check()  # a token that was revoked ends here
        self._has_beaten.set()
        answer = await self._desk.beat(self._session, messages.beat_from(message))
        return {"beat": messages.beat_answer_message(answer)}

    async def _start(self, message: pb.Starts) -> dict[str, Any]:
        answer = await self._desk.start(self._session, messages.starts_from(message))
        return {"start": messages.start_answer_message(answer)}

    async def _report(self, message: pb.Report) -> dict[str, Any]:
        answer = await self._desk.report(self._session, messages.report_from(message))
        return {"report": messages.report_answer_message(answer)}

    async def _output(self, message: pb.OutputChunks) -> dict[str, Any]:
        chunks = [messages.chunk_from(item) for item in checks.items(message.items, "output")]
        answer = await self._desk.output(self._session, chunks)
        return {"report": messages.report_answer_message(answer)}

    async def _progress(self, message: pb.ProgressItems) -> dict[str, Any]:
        items = [progress_from(each) for each in checks.items(message.items, "progress")]
        await self._desk.progress(self._session, items)
        return {"done": pb.Done()}

    async def _note(self, message: pb.StepNotes) -> dict[str, Any]:
        notes = [note_from(each) for each in checks.items(message.items, "notes")]
        await self._desk.note(self._session, notes)
        return {"done": pb.Done()}

    async def _keep_handles(self, message: pb.Handles) -> dict[str, Any]:
        answer = await self._desk.keep_handles(self._session, handles_from(message))
        return {"report": messages.report_answer_message(answer)}

    async def _commits(self, message: pb.Commits) -> dict[str, Any]:
        answer = await self._desk.commits(self._session, commits_from(message))
        return {"report": messages.report_answer_message(answer)}

    async def _renew_credential(self, _: pb.CredentialRequest) -> dict[str, Any]:
        return {"credential": messages.credential_message(await self._credential.renew())}

    async def _leave(self, _: pb.Leave) -> dict[str, Any]:
        self._is_leaving = True
        await self._desk.leave(self._session)
        return {"done": pb.Done()}

    async def _send_orders(self) -> None:
        try:
            while True:
                order = await self._desk.next_order(self._session, self._stream)
                for message in messages.order_messages(order):
                    await self._write(message)
        except NotFound:
            if not self._is_leaving:
                raise

    async def _send(self, number: int, **answer: Any) -> None:
        await self._write(pb.FromServer(number=number, **answer))

    async def _write(self, message: pb.FromServer) -> None:
        async with self._writing:  # gRPC takes one message of a stream at a time
            await self._context.write(message)

"""Link of a worker and a server on one machine, over a Unix socket for their user only."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import stat
import struct
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import structlog

from rota.domain.errors import (
    Conflict,
    Denied,
    Invalid,
    NotFound,
    RotaError,
    Unavailable,
    first_of,
)
from rota.link.parts import OUTDATED_SERVER, OUTDATED_WORKER, in_parts, in_requests
from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit
from rota.ports.work import (
    UNREADABLE,
    Beat,
    BeatAnswer,
    Credential,
    Dispatch,
    Hello,
    Order,
    OutputChunk,
    Progress,
    Refused,
    RemoteHandle,
    Report,
    ReportAnswer,
    Start,
    StartAnswer,
    StepNote,
    Welcome,
    WorkerDesk,
)

# Frames are those of `sdk/host/wire.py`, four bytes of length and MessagePack. They are described
# twice: the link and the SDK may not import one another, nor the SDK what lies beneath both.
_LENGTH_BYTES = 4
# Of the frames and all they carry. Whoever changes what the other side must understand adds one.
PROTOCOL = 2
_NO_PROTOCOL = 1  # of the releases that told none
MAX_FRAME = 128 * 1024 * 1024
PIECE = 8 * 1024 * 1024  # bytes; a dispatch above it travels as several frames
ORDER = 0  # the number of a frame that answers nothing

T = TypeVar("T")


class Frame(msgspec.Struct, frozen=True, array_like=True):
    number: int  # a request's, repeated in its answer; ORDER: sent unasked
    verb: str  # "" in answers
    body: msgspec.Raw
    error: tuple[str, str, str] | None = None  # code, message, kind of a refused request


class Verb(msgspec.Struct, frozen=True):
    request: msgspec.msgpack.Decoder[Any]
    answer: msgspec.msgpack.Decoder[Any]


def _verb(request: Any, answer: Any) -> Verb:
    return Verb(msgspec.msgpack.Decoder(request), msgspec.msgpack.Decoder(answer))


class Registration(msgspec.Struct, frozen=True, array_like=True):
    """A hello with its version: a server that does not know that reads no hello in it."""

    protocol: int
    hello: msgspec.Raw


class Registered(msgspec.Struct, frozen=True, array_like=True):
    protocol: int
    welcome: msgspec.Raw


class _Named(msgspec.Struct, frozen=True):
    """Fields that all versions of a hello have."""

    worker: str = ""


VERBS = {
    "register": _verb(msgspec.Raw, Registered),
    "beat": _verb(Beat, BeatAnswer),
    "start": _verb(tuple[Start, ...], StartAnswer),
    "report": _verb(Report, ReportAnswer),
    "output": _verb(tuple[OutputChunk, ...], ReportAnswer),
    "progress": _verb(tuple[Progress, ...], None),
    "note": _verb(tuple[StepNote, ...], None),
    "commits": _verb(tuple[SourceCommit, ...], ReportAnswer),
    "blob_read": _verb(BlobRead, BlobPiece),
    "blob_write": _verb(BlobPiece, BlobWritten),
    "handles": _verb(tuple[RemoteHandle, ...], ReportAnswer),
    "leave": _verb(None, None),
}
ORDERS = msgspec.msgpack.Decoder(Order)
_registrations = msgspec.msgpack.Decoder(Registration)
_hellos = msgspec.msgpack.Decoder(Hello)
_welcomes = msgspec.msgpack.Decoder(Welcome)
_names = msgspec.msgpack.Decoder(_Named)
_frames = msgspec.msgpack.Decoder(Frame)
encode = msgspec.msgpack.encode


def packed(frame: Frame) -> bytes:
    """Encode a frame for the wire."""
    data = encode(frame)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Read the next frame; raise `ConnectionError` at the end or if the frame is invalid."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        if length > MAX_FRAME:
            raise ConnectionError(f"a frame of {length} bytes is too long")
        return _frames.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, *UNREADABLE) as error:
        raise ConnectionError("the connection ended") from error


log = structlog.get_logger()

_ANSWER_SECONDS = 10.0
_BAD_MESSAGE = "bad_message"
_NOTHING = msgspec.Raw(encode(None))
_LOGGED = {  # event and hint, by what a worker of another release is told
    "outdated_worker": ("worker.outdated", "install this release there"),
    "outdated_server": ("worker.newer", "install its release here first"),
}
_KINDS: dict[str, type[RotaError]] = {
    "NotFound": NotFound,
    "Denied": Denied,
    "Conflict": Refused,
    "Unavailable": Refused,
}


class LocalLink:
    """Worker side. Implements `rota.ports.work.WorkerLink`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self._end: RotaError = Unavailable("the connection to the server is gone")
        self._pump = asyncio.ensure_future(self._receive_all())

    @classmethod
    async def connect(cls, path: Path) -> LocalLink:
        """Connect; raise `Unavailable` if no server listens, `Denied` if it is another user's."""
        try:
            with _own_folder(path.parent) as folder:
                address = _address(folder, path.name)
                reader, writer = await asyncio.open_unix_connection(address, limit=MAX_FRAME)
        except OSError as error:
            raise Unavailable(f"no server listens at {path}: {error.strerror}") from error
        peer = _peer_of(writer)
        if not peer.is_trusted:
            writer.close()
            raise Denied(
                f"the process {peer.pid} that listens at {path} belongs to uid {peer.uid},"
                f" not to uid {os.geteuid()}",
                code="foreign_server",
                hint="end that process, then start the server of this data folder again",
            )
        return cls(reader, writer)

    async def register(self, hello: Hello) -> Welcome:
        try:
            body = Registration(PROTOCOL, msgspec.Raw(encode(hello)))
            answer: Registered = await self._ask("register", body)
        except Unavailable as error:
            if error.code == _BAD_MESSAGE:  # it knows no registration with a version
                raise _other_release(_NO_PROTOCOL, PROTOCOL) from error
            raise
        if answer.protocol != PROTOCOL:
            raise _other_release(answer.protocol, PROTOCOL)
        try:
            return _welcomes.decode(answer.welcome)
        except UNREADABLE as error:
            raise Unavailable(f"the server sent what cannot be read: {error}") from error

    async def beat(self, beat: Beat) -> BeatAnswer:
        answer: BeatAnswer = await self._ask("beat", beat)
        return answer

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        answer: StartAnswer = await self._ask("start", tuple(starts))
        return answer

    async def report(self, report: Report) -> ReportAnswer:
        answer: ReportAnswer = await self._ask("report", report)
        return answer

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        answer: ReportAnswer = await self._ask("output", tuple(chunks))
        return answer

    async def progress(self, items: Sequence[Progress]) -> None:
        await self._ask("progress", tuple(items))

    async def note(self, items: Sequence[StepNote]) -> None:
        for piece in in_requests(items):
            await self._ask("note", tuple(piece))

    async def commits(self, items: Sequence[SourceCommit]) -> ReportAnswer:
        answer: ReportAnswer = await self._ask("commits", tuple(items))
        return answer

    async def read_blob(self, wish: BlobRead) -> BlobPiece:
        piece: BlobPiece = await self._ask("blob_read", wish)
        return piece

    async def write_blob(self, piece: BlobPiece) -> BlobWritten:
        written: BlobWritten = await self._ask("blob_write", piece)
        return written

    async def keep_handles(self, items: Sequence[RemoteHandle]) -> ReportAnswer:
        answer: ReportAnswer = await self._ask("handles", tuple(items))
        return answer

    async def leave(self) -> None:
        await self._ask("leave", None)

    async def renew_credential(self) -> Credential:
        raise Refused("a worker of the server's own machine has no credential", code="not_offered")

    async def receive(self) -> Order:
        order = await self._orders.get()
        if order is None:
            raise Unavailable("the server closed the connection")
        return order

    async def close(self) -> None:
        self._pump.cancel()
        self._orders.put_nowait(None)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        with suppress(asyncio.CancelledError):
            await self._pump

    async def _ask(self, verb: str, body: Any) -> Any:
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (verb, future)
        try:
            if self._pump.done():
                raise self._end
            self._writer.write(packed(Frame(number, verb, msgspec.Raw(encode(body)))))
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._writer.drain()
                return await future
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"the server did not answer {verb}") from error
        finally:
            self._waiting.pop(number, None)
            if not future.cancel() and not future.cancelled():
                future.exception()  # seen by nobody, if the write failed: asyncio would log it

    async def _receive_all(self) -> None:
        try:
            while True:
                self._accept(await read_frame(self._reader))
        except (OSError, RotaError, *UNREADABLE) as error:
            broken = Unavailable(f"the connection broke: {error}")
            self._end = error if isinstance(error, Denied) else broken
            for _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(self._end)
            self._orders.put_nowait(None)

    def _accept(self, frame: Frame) -> None:
        if frame.number == ORDER and frame.error is not None:
            raise _refusal(frame.error)
        if frame.number == ORDER:
            self._orders.put_nowait(ORDERS.decode(frame.body))
            return
        verb, future = self._waiting.get(frame.number, ("", None))
        if future is None or future.done():
            return
        if frame.error is not None:
            future.set_exception(_refusal(frame.error))
        else:
            future.set_result(VERBS[verb].answer.decode(frame.body))


def _refusal(error: tuple[str, str, str]) -> RotaError:
    """Return an error that a worker can act on; if the request was at fault, it reconnects."""
    code, message, kind = error
    return _KINDS.get(kind, Unavailable)(message, code=code)


def _other_release(of_server: int, of_worker: int) -> Unavailable:
    """Return what to tell a worker; not that it is denied, which would end all that it runs."""
    if of_server < of_worker:
        return Unavailable(OUTDATED_SERVER, code="outdated_server")
    return Unavailable(OUTDATED_WORKER, code="outdated_worker")


def _refused(error: Exception) -> tuple[str, str, str]:
    code = error.code if isinstance(error, RotaError) else _BAD_MESSAGE
    kinds = (cls for cls in (NotFound, Denied, Conflict, Unavailable) if isinstance(error, cls))
    return code, str(error), next(kinds, type(error)).__name__


class LocalLinkServer:
    """Server side: one connection per worker."""

    def __init__(self, desk: WorkerDesk, path: Path) -> None:
        self._desk = desk
        self._path = path
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._others: set[str] = set()  # names of workers of other releases that came
        self._is_closing = False

    async def open(self) -> None:
        """Listen in a folder created for it; raise `Denied` if that folder is another user's."""
        try:
            listener = _bind(self._path)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be made: {error.strerror}") from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_FRAME)

    async def close(self) -> None:
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            peer = _peer_of(writer)
            if peer.is_trusted:
                await _Conversation(self._desk, reader, writer, self._admit).run()
            else:
                await _turn_away(peer, writer)
        except asyncio.CancelledError:
            if not self._is_closing:  # asyncio itself would log it: nobody awaits a connection
                raise
        finally:
            self._connections.discard(task)
            writer.close()

    def _admit(self, body: msgspec.Raw) -> Hello:
        """Return the hello of a registration; raise `Unavailable` if it is of another release."""
        told = _registration_in(body)
        if told.protocol == PROTOCOL:
            return _readable(_hellos, told.hello)
        worker = _readable(_names, told.hello).worker
        error = _other_release(PROTOCOL, told.protocol)
        if worker not in self._others:  # it comes again every two seconds
            self._others.add(worker)
            event, hint = _LOGGED[error.code]
            log.warning(event, worker=worker, hint=hint)
        raise error


def _registration_in(body: msgspec.Raw) -> Registration:
    try:
        return _registrations.decode(body)
    except UNREADABLE:
        return Registration(_NO_PROTOCOL, body)  # nothing but a hello


def _readable(decoder: msgspec.msgpack.Decoder[T], body: msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except UNREADABLE as error:  # not a bad message: servers of former releases say so to all
        raise Invalid(f"this is no hello: {error}", code="invalid_hello") from error


class _Peer(NamedTuple):
    """Process at the other end, as the kernel recorded it at connect or listen."""

    pid: int
    uid: int
    gid: int

    @property
    def is_trusted(self) -> bool:
        return self.uid in (os.geteuid(), 0)


def _peer_of(writer: asyncio.StreamWriter) -> _Peer:
    connection: socket.socket = writer.get_extra_info("socket")
    layout = "3i"
    size = struct.calcsize(layout)
    return _Peer(
        *struct.unpack(layout, connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    )


async def _turn_away(peer: _Peer, writer: asyncio.StreamWriter) -> None:
    """Refuse a process of another user; nothing it sends is read."""
    log.warning("link.foreign_process", pid=peer.pid, uid=peer.uid)
    message = f"this server is for workers of uid {os.geteuid()}, not of uid {peer.uid}"
    error = ("foreign_worker", message, Denied.__name__)
    with suppress(OSError):
        writer.write(packed(Frame(ORDER, "", _NOTHING, error)))
        await writer.drain()


def _bind(path: Path) -> socket.socket:
    """Bind a socket at this path.

    A private mode of the socket alone would not do: it has none until it is bound.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _own_folder(path.parent) as folder:
            os.fchmod(folder, 0o700)
            with suppress(FileNotFoundError):  # of a server that was killed
                os.unlink(path.name, dir_fd=folder)
            listener.bind(_address(folder, path.name))
            os.chmod(path.name, 0o600, dir_fd=folder)
    except BaseException:
        listener.close()
        raise
    return listener


@contextmanager
def _own_folder(path: Path) -> Iterator[int]:
    """Open the folder of a socket; raise `Denied` if another user owns it or may change it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in (os.geteuid(), 0) or mode & 0o022:
            raise Denied(
                f"{path} is not safe for a socket: uid {status.st_uid} owns it, mode {mode:04o}",
                code="unsafe_folder",
                hint=f"remove {path}, and start the server of this data folder again",
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _address(folder: int, name: str) -> str:
    """Return the address of a socket in an open folder.

    The kernel accepts 107 bytes of a path, and a data folder may have a longer one; nor can anybody
    replace the folder after it was checked.
    """
    return f"/proc/self/fd/{folder}/{name}"


class _Conversation:
    """Connection of one worker, on the server."""

    def __init__(
        self,
        desk: WorkerDesk,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        admit: Callable[[msgspec.Raw], Hello],
    ) -> None:
        self._desk = desk
        self._reader = reader
        self._writer = writer
        self._admit = admit
        self._has_registered = False
        self._session = ""
        self._stream = 0

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                await self._listen(group)
                raise ConnectionError
        except* (OSError, RotaError):
            pass  # the worker is gone or talked nonsense; its lease decides the rest
        except* Exception as group:  # the edge of a connection: others go on
            log.error("worker stream failed", exc_info=first_of(group))
        finally:
            if self._session:
                await self._desk.disconnected(self._session, self._stream)

    async def _listen(self, group: asyncio.TaskGroup) -> None:
        with suppress(OSError):
            while True:
                frame = await read_frame(self._reader)
                group.create_task(self._answer(frame, group))

    async def _answer(self, frame: Frame, group: asyncio.TaskGroup) -> None:
        try:
            request = VERBS[frame.verb].request.decode(frame.body)
            answer = await self._handle(frame.verb, request, group)
            reply = Frame(frame.number, "", msgspec.Raw(encode(answer)))
        except (RotaError, KeyError, *UNREADABLE) as error:
            reply = Frame(frame.number, "", _NOTHING, _refused(error))
        self._writer.write(packed(reply))
        await self._writer.drain()

    async def _handle(self, verb: str, request: Any, group: asyncio.TaskGroup) -> Any:
        if verb == "register":
            return await self._register(request, group)
        if not self._session:
            raise NotFound("register first", code="session_not_found")
        handlers: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "beat": self._desk.beat,
            "start": self._desk.start,
            "report": self._desk.report,
            "output": self._desk.output,
            "progress": self._desk.progress,
            "note": self._desk.note,
            "commits": self._desk.commits,
            "blob_read": self._desk.read_blob,
            "blob_write": self._desk.write_blob,
            "handles": self._desk.keep_handles,
        }
        if verb == "leave":
            return await self._desk.leave(self._session)
        return await handlers[verb](self._session, request)

    async def _register(self, body: msgspec.Raw, group: asyncio.TaskGroup) -> Registered:
        hello = self._admit(body)
        if self._has_registered:  # its first session would have no connection
            raise Invalid("there is one hello in a connection", code="invalid_hello")
        self._has_registered = True
        welcome = await self._desk.register(hello)
        self._session, self._stream = welcome.session, welcome.stream
        group.create_task(self._send_orders())
        return Registered(PROTOCOL, msgspec.Raw(encode(welcome)))

    async def _send_orders(self) -> None:
        while True:
            order = await self._desk.next_order(self._session, self._stream)
            for body in _order_bodies(order):
                self._writer.write(packed(Frame(ORDER, "", msgspec.Raw(body))))
                await self._writer.drain()


def _order_bodies(order: Order) -> Iterator[bytes]:
    """Encode an order as one frame's body, or as several if it is long."""
    if isinstance(order, Dispatch):
        return in_parts(order, encode, len, PIECE)
    return iter([encode(order)])

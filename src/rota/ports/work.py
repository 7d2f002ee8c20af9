"""Messages between server and worker. Every message is a batch; one run is a batch of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol

import msgspec

from rota.domain.errors import RotaError, codes_of
from rota.domain.ids import micros
from rota.domain.spec import JobSpec

MAX_NUMBER = 2**31 - 1  # of an attempt or a chunk: what every store can hold
MAX_TOTAL = 2**48  # far more lines or bytes than anything prints, and sums of it fit everywhere
KNOWN_SPECS = 10_000  # told in a stream: a worker remembers the latest, a server counts on no more
MAX_ITEMS = 1_000  # in one request of a worker
MAX_LABELS = 100  # of a worker; also of the resources it offers
MAX_NAME = 200  # characters; also of a label and of its value
MAX_AMOUNT = 10**18  # thousandths of a resource
LAST_INSTANT = micros(datetime(2200, 1, 1, tzinfo=UTC))

# What a worker may say: adapters refuse the rest when they read a message.
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
Total = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOTAL)]
Code = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
Micros = Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT)]
Millis = Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT // 1_000)]


class Fence(msgspec.Struct, frozen=True, array_like=True):
    """Right to write about a run: valid only while the store knows this very attempt."""

    run: str
    attempt: Number


class Work(msgspec.Struct, frozen=True, array_like=True):
    """One attempt to execute. The spec travels apart, once per job version and session."""

    run: str
    attempt: int
    job_id: str
    job_version: int
    due_at: int  # microseconds
    inputs: dict[str, Any] | None = None
    deadline_at: int | None = None  # microseconds; the run must be over by then
    cart: str | None = None  # None: it is of no cart
    item: str | None = None  # its key in that cart; None: it is of no cart, or the check of one

    @property
    def fence(self) -> Fence:
        return Fence(self.run, self.attempt)


class SpecEntry(msgspec.Struct, frozen=True, array_like=True):
    job_id: str
    job_version: int
    spec: JobSpec


class Dispatch(msgspec.Struct, frozen=True, tag="dispatch"):
    """Work for a worker, with the specs it has not seen in this session."""

    work: tuple[Work, ...]
    specs: tuple[SpecEntry, ...] = ()
    first: int = 0  # which item of the stream's work its first one is, from 1; 0: not counted


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Attempts to stop at once."""

    fences: tuple[Fence, ...]


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """Runs whose output somebody waits for: send it soon."""

    runs: tuple[str, ...]


Order = Dispatch | Cancel | Watch  # what a server sends a worker unasked


class StepOutcome(msgspec.Struct, frozen=True, array_like=True):
    """End of one step; `result` is completed, failed, timed_out, cancelled or skipped."""

    name: str
    result: str
    exit_code: Code | None = None
    signal: Code | None = None
    seconds: float = 0.0
    tries: Number = 1


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """End of an attempt. Sent until acknowledged; the same one twice is harmless."""

    run: str
    attempt: Number
    result: str  # AttemptResult
    started_at: Micros  # by the worker's estimate of the store's clock
    ended_at: Micros
    exit_code: Code | None = None
    signal: Code | None = None
    message: str = ""
    outputs: Any = None
    steps: tuple[StepOutcome, ...] = ()
    cpu_seconds: float = 0.0
    max_memory_bytes: Total = 0
    output: bytes = b""  # records of small output that rides along; bigger output went before
    output_bytes: Total = 0
    output_lines: Total = 0
    truncated: bool = False


class ChunkMeta(msgspec.Struct, frozen=True, array_like=True):
    """Position of a chunk in the whole output."""

    number: Number
    first_line: Total
    lines: Total
    bytes: Total  # of text, uncompressed
    first_at: Millis  # since 1970
    last_at: Millis


class OutputChunk(msgspec.Struct, frozen=True, array_like=True):
    run: str
    attempt: Number
    meta: ChunkMeta
    data: bytes  # compressed records


class Start(msgspec.Struct, frozen=True, array_like=True):
    """Attempt that begins (a permit is asked before it does) or has begun."""

    run: str
    attempt: Number
    started_at: Micros  # by the worker's estimate of the store's clock


class Progress(msgspec.Struct, frozen=True, array_like=True):
    run: str
    attempt: Number
    done: float
    total: float | None
    message: str = ""


class Hello(msgspec.Struct, frozen=True):
    """Offer of a worker that registers."""

    worker: str
    pool: str
    slots: int
    labels: Mapping[str, str] = {}
    functions: tuple[str, ...] = ()
    guard_mode: str = ""
    version: str = ""
    resumes: str = ""  # the session it had before its connection broke; "" = none
    succeeds: str = (
        ""  # the session of its earlier life, of which no process can be left; "" = none
    )
    resources: Mapping[str, Amount] = {}  # thousandths by name, without slots


class Welcome(msgspec.Struct, frozen=True):
    """Answer of the server to a worker that registers."""

    session: str
    lease_seconds: float
    store_now: int  # microseconds
    stream: int = 1  # which connection of the session this is


class Beat(msgspec.Struct, frozen=True):
    """Renewal of a session. `held` are all attempts the worker knows it has leased."""

    held: tuple[Fence, ...] = ()
    stopping: bool = False  # finish what runs, send nothing new
    received: Total | None = None  # items of work that came in this stream; None: not counted
    stream: Total = 0  # which one that is; 0: not told


class BeatAnswer(msgspec.Struct, frozen=True):
    alive: bool  # False: the session is over, stop everything and register anew
    store_now: int = 0  # microseconds
    cancel: tuple[Fence, ...] = ()
    unknown: tuple[Fence, ...] = ()  # the worker believes them leased, the store does not: kill
    draining: bool = False  # it gets nothing new until somebody says otherwise


class ReportAnswer(msgspec.Struct, frozen=True):
    """Answer to reports. What is in neither list has to be sent again, a little later."""

    accepted: tuple[Fence, ...] = ()
    fenced: tuple[Fence, ...] = ()  # refused; what once was its own is kept aside as a late result


class StartAnswer(msgspec.Struct, frozen=True):
    """Answer to starts. Only what was granted may be executed."""

    granted: tuple[Fence, ...] = ()
    cancelled: tuple[Fence, ...] = ()
    refused: tuple[Fence, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Identity of a worker by its credential."""

    name: str
    pool: str | None  # the only one it may serve; None: any


class WorkerLink(Protocol):
    """Connection of one worker. A broken one is `Unavailable`; the worker connects anew.

    Requests are answered in any order; each waits at most a few seconds.
    """

    async def register(self, hello: Hello) -> Welcome: ...

    async def beat(self, beat: Beat) -> BeatAnswer: ...

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        """Make PROCESSING durable: before executing where delivery is at_most_once."""
        ...

    async def report(self, outcomes: Sequence[Outcome]) -> ReportAnswer: ...

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer: ...

    async def progress(self, items: Sequence[Progress]) -> None:
        """Send progress: a hint, which may be lost."""
        ...

    async def receive(self) -> Order:
        """Return the next order of the server."""
        ...

    async def leave(self) -> None:
        """End the session: the worker has nothing leased any more."""
        ...

    async def close(self) -> None: ...


class WorkerDesk(Protocol):
    """Server's side of the `WorkerLink`, one method a verb."""

    async def register(self, hello: Hello) -> Welcome: ...

    async def beat(self, session: str, beat: Beat) -> BeatAnswer: ...

    async def start(self, session: str, starts: Sequence[Start]) -> StartAnswer: ...

    async def report(self, session: str, outcomes: Sequence[Outcome]) -> ReportAnswer: ...

    async def output(self, session: str, chunks: Sequence[OutputChunk]) -> ReportAnswer: ...

    async def progress(self, session: str, items: Sequence[Progress]) -> None: ...

    async def next_order(self, session: str, stream: int) -> Order:
        """Return the next order for this connection. `NotFound` once there is a newer one."""
        ...

    async def leave(self, session: str) -> None: ...

    async def disconnected(self, session: str, stream: int) -> None:
        """Close a connection; a newer one of the session is not touched."""
        ...


MAX_MESSAGE = 32 * 1024 * 1024  # bytes; a larger one ends the call

# Names of gRPC's status codes. A code that is not here has the status of its error's class.
RPC_STATUS: Mapping[str, str] = {
    "malformed": "INVALID_ARGUMENT",
    "bad_cursor": "INVALID_ARGUMENT",
    "unauthenticated": "UNAUTHENTICATED",
    "bad_credentials": "UNAUTHENTICATED",
    "denied": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "session_not_found": "ABORTED",  # by a newer stream of the same worker
    "conflict": "FAILED_PRECONDITION",
    "etag_mismatch": "ABORTED",
    "too_large": "RESOURCE_EXHAUSTED",
    "invalid": "INVALID_ARGUMENT",
    "internal": "INTERNAL",
    "unavailable": "UNAVAILABLE",
}


def rpc_status_of(error: RotaError) -> str:
    """Return the status of an error's own code, else that of its class."""
    codes = (code for code in codes_of(error) if code in RPC_STATUS)
    return RPC_STATUS[next(codes, "internal")]


def bearer_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the secret of `authorization: Bearer SECRET`; "" if there is none."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, secret = value.partition(" ")
            return secret.strip() if scheme.lower() == "bearer" else ""
    return ""

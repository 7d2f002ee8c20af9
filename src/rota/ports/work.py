"""What travels between server and worker. Every message is a batch; one run is a batch of one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

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
    """The right to write about a run: valid only while the store knows this very attempt."""

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
    """How one step went; `result` is completed, failed, timed_out, cancelled or skipped."""

    name: str
    result: str
    exit_code: Code | None = None
    signal: Code | None = None
    seconds: float = 0.0
    tries: Number = 1


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The end of an attempt. Sent until acknowledged; the same one twice is harmless."""

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
    """Where a chunk of output lies in the whole."""

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
    """An attempt that begins (a permit is asked before it does) or has begun."""

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
    """What a worker offers."""

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
    """What the server grants."""

    session: str
    lease_seconds: float
    store_now: int  # microseconds
    stream: int = 1  # which connection of the session this is


class Beat(msgspec.Struct, frozen=True):
    """A renewal. `held` are all attempts the worker knows it holds."""

    held: tuple[Fence, ...] = ()
    stopping: bool = False  # finish what runs, send nothing new
    received: Total | None = None  # items of work that came in this stream; None: not counted
    stream: Total = 0  # which one that is; 0: not told


class BeatAnswer(msgspec.Struct, frozen=True):
    alive: bool  # False: the session is over, stop everything and register anew
    store_now: int = 0  # microseconds
    cancel: tuple[Fence, ...] = ()
    unknown: tuple[Fence, ...] = ()  # held by the worker, but not its by the store: kill
    draining: bool = False  # it gets nothing new until somebody says otherwise


class ReportAnswer(msgspec.Struct, frozen=True):
    """What is in neither has to be sent again, a little later."""

    accepted: tuple[Fence, ...] = ()
    fenced: tuple[Fence, ...] = ()  # refused; what once was its own is kept aside as a late result


class StartAnswer(msgspec.Struct, frozen=True):
    """Only what was granted may be executed."""

    granted: tuple[Fence, ...] = ()
    cancelled: tuple[Fence, ...] = ()
    refused: tuple[Fence, ...] = ()

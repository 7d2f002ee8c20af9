"""Messages between server and worker. Every message is a batch; one run is a batch of one.

What every attempt has travels in columns, from the statement that claims it to the process that
executes it and back: an object for each attempt, and for each of its messages, cost more than the
attempt itself. What only some attempts have is an object of its own, or is found by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec

from rota.domain.errors import Unavailable
from rota.domain.ids import micros
from rota.domain.spec import JobSpec

if TYPE_CHECKING:
    from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit

ATTEMPT_BITS = 32  # of the number of a fence; above them is the store's incarnation
MAX_NUMBER, MAX_FENCE = 2**31 - 1, 2**63 - 1  # of an attempt or a chunk; of a fence
MAX_TOTAL = 2**48  # far more lines or bytes than anything prints, and sums of it fit everywhere
KNOWN_SPECS = 10_000  # told in a stream: a worker remembers the latest, a server counts on no more
MAX_ITEMS = 1_000  # in one request of a worker
MAX_STEPS, MAX_NOTED_STEPS = 1_000, 100  # of an attempt; of one that goes on, the latest
MAX_LABELS, MAX_NAME = 100, 200  # of a worker, as resources; characters, also of a label's value
MAX_TEXT, MAX_LAST_LINE = 64 * 1024, 500  # characters of a text for people; of one in a note
MAX_AMOUNT, MAX_SLOTS = 10**18, 10_000  # thousandths of a resource; of a worker
MIN_LEASE, MAX_LEASE = 0.001, 2.0**31  # seconds
MAX_HANDLE = 4 * 1024  # bytes of what names the work of an attempt in another system
MAX_PARCEL = 256 * 1024  # bytes of output or of outcomes in a request, unless one has more
LAST_INSTANT = micros(datetime(2200, 1, 1, tzinfo=UTC))  # that a worker or the store's clock tells
MIN_INSTANT = micros(datetime.min.replace(tzinfo=UTC))  # of due times and deadlines
MAX_INSTANT = micros(datetime.max.replace(tzinfo=UTC))

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)

# What a worker or a server may say: adapters refuse the rest when they read a message.
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
FenceNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_FENCE)]
Total = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOTAL)]
Code = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
Micros = Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT)]
Millis = Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT // 1_000)]
LeaseSeconds = Annotated[float, msgspec.Meta(ge=MIN_LEASE, le=MAX_LEASE)]
Slots = Annotated[int, msgspec.Meta(ge=1, le=MAX_SLOTS)]

T = TypeVar("T")
JobRef = tuple[str, int]  # job id, version


def storable(text: str) -> str:
    """Clean a text for people: cut if too long, and without characters that no store can hold."""
    if not text:
        return ""
    readable = text[:MAX_TEXT].encode("utf-8", "replace").decode()
    return readable.replace("\0", "\N{REPLACEMENT CHARACTER}")


def attempt_in(number: int) -> int:
    """Return the attempt in the number of a fence."""
    return number & (1 << ATTEMPT_BITS) - 1


class Fence(msgspec.Struct, frozen=True, array_like=True):
    """Right to write about a run: valid only while the store knows this very attempt.

    Its number is the store's incarnation above the attempt's number; incarnation 0 leaves that.
    """

    run: str
    number: FenceNumber

    @property
    def attempt(self) -> int:
        return attempt_in(self.number)


class OfAttempt(msgspec.Struct, frozen=True, array_like=True):
    """Beginning of messages about one attempt."""

    run: str
    number: FenceNumber  # of its fence

    @property
    def fence(self) -> Fence:
        return Fence(self.run, self.number)


class Work(msgspec.Struct, frozen=True, array_like=True):
    """One attempt to execute. The spec travels apart, once per job version and session."""

    run: str
    number: int  # of its fence
    job_id: str
    job_version: int
    due_at: int  # microseconds
    inputs: dict[str, Any] | None = None
    deadline_at: int | None = None  # microseconds; the run must be over by then
    cart: str | None = None  # None: it is of no cart
    item: str | None = None  # its key in that cart; None: it is of no cart, or the check of one
    handle: str | None = None  # what an earlier attempt kept of the work elsewhere: go on with that
    commit: str = ""  # that an earlier attempt was fetched at; "": none was
    probed: Fence | None = None  # the attempt that it asks about; None: it is no probe

    @property
    def fence(self) -> Fence:
        return Fence(self.run, self.number)

    @property
    def attempt(self) -> int:
        return attempt_in(self.number)


class WorkBatch(msgspec.Struct, frozen=True, array_like=True):
    """Attempts to execute, in columns; what few of them have is found by position, from 0."""

    runs: list[str] = []
    numbers: list[int] = []  # of their fences
    due_at: list[int] = []  # microseconds
    jobs: list[JobRef] = []  # each once
    job_of: list[int] = []  # position in `jobs`; empty: all are of the first
    inputs: dict[int, str] = {}  # as JSON
    deadlines: dict[int, int] = {}  # microseconds; the run must be over by then
    carts: dict[int, tuple[str, str | None]] = {}  # and the item's key; None: the check of one
    handles: dict[int, str] = {}  # what earlier attempts kept of the work elsewhere, as JSON
    commits: dict[int, str] = {}  # that an earlier attempt was fetched at
    probes: dict[int, Fence] = {}  # the attempts that probes ask about

    def __len__(self) -> int:
        return len(self.runs)

    def fences(self) -> list[Fence]:
        return list(map(Fence, self.runs, self.numbers))

    def job(self, position: int) -> JobRef:
        return self.jobs[self.job_of[position] if self.job_of else 0]

    def by_job(self) -> dict[JobRef, Sequence[int]]:
        """Return the positions of the attempts at each job version."""
        if not self.job_of:
            return {self.jobs[0]: range(len(self.runs))} if self.runs else {}
        found: dict[int, list[int]] = {}
        for position, job in enumerate(self.job_of):
            found.setdefault(job, []).append(position)
        return {self.jobs[job]: positions for job, positions in found.items()}

    def part(self, positions: Sequence[int]) -> WorkBatch:
        """Return the attempts at these positions, in this order."""
        if len(positions) == len(self.runs):
            return self
        new = dict(zip(positions, range(len(positions)), strict=True))
        return WorkBatch(
            [self.runs[at] for at in positions],
            [self.numbers[at] for at in positions],
            [self.due_at[at] for at in positions],
            self.jobs,
            [self.job_of[at] for at in positions] if self.job_of else [],
            _moved(self.inputs, new),
            _moved(self.deadlines, new),
            _moved(self.carts, new),
            _moved(self.handles, new),
            _moved(self.commits, new),
            _moved(self.probes, new),
        )

    def works(self) -> Iterator[Work]:
        """Yield the attempts one by one, for whoever handles them so."""
        return map(self.work, range(len(self.runs)))

    def work(self, at: int) -> Work:
        inputs = self.inputs.get(at)
        cart, item = self.carts.get(at, (None, None))
        return Work(
            self.runs[at],
            self.numbers[at],
            *self.job(at),
            self.due_at[at],
            None if inputs is None else msgspec.json.decode(inputs),
            self.deadlines.get(at),
            cart,
            item,
            self.handles.get(at),
            self.commits.get(at, ""),
            self.probes.get(at),
        )

    @classmethod
    def of(cls, works: Iterable[Work]) -> WorkBatch:
        items = list(works)
        jobs = {(work.job_id, work.job_version): None for work in items}
        places = {job: place for place, job in enumerate(jobs)}
        return cls(
            [work.run for work in items],
            [work.number for work in items],
            [work.due_at for work in items],
            list(jobs),
            [places[work.job_id, work.job_version] for work in items] if len(jobs) > 1 else [],
            {
                at: msgspec.json.encode(work.inputs).decode()
                for at, work in enumerate(items)
                if work.inputs is not None
            },
            {at: w.deadline_at for at, w in enumerate(items) if w.deadline_at is not None},
            {at: (w.cart, w.item) for at, w in enumerate(items) if w.cart is not None},
            {at: w.handle for at, w in enumerate(items) if w.handle is not None},
            {at: w.commit for at, w in enumerate(items) if w.commit},
            {at: w.probed for at, w in enumerate(items) if w.probed is not None},
        )


def _moved(column: Mapping[int, T], new: Mapping[int, int]) -> dict[int, T]:
    return {new[at]: value for at, value in column.items() if at in new}


class SpecEntry(msgspec.Struct, frozen=True, array_like=True):
    job_id: str
    job_version: int
    spec: JobSpec


class Dispatch(msgspec.Struct, frozen=True, tag="dispatch"):
    """Work for a worker, with the specs it has not seen in this session."""

    batch: WorkBatch
    specs: tuple[SpecEntry, ...] = ()
    first: int = 0  # which item of the stream's work its first one is, from 1; 0: it has specs only


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Attempts to stop at once."""

    fences: tuple[Fence, ...]


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """Runs whose output somebody waits for: send it soon."""

    runs: tuple[str, ...]


class Move(msgspec.Struct, frozen=True, tag="move"):
    """Go to another server: this one stops."""


Order = Dispatch | Cancel | Watch | Move  # what a server sends a worker unasked


class StepOutcome(msgspec.Struct, frozen=True, array_like=True):
    """One step; `result` is completed, failed, timed_out, cancelled, skipped; in notes, running."""

    name: str
    result: str
    exit_code: Code | None = None
    signal: Code | None = None
    seconds: float = 0.0
    tries: Number = 1
    cpu_seconds: float = 0.0  # of all tries together
    max_memory_bytes: Total = 0  # of the try that took most
    cause: str = ""  # a word for what stopped it, such as `oom`; "": nothing special
    started_at: Micros = 0  # estimated on the store's clock; 0: not begun, or unknown
    first_line: Total = 0  # how many lines of output the attempt had then
    lines: Total = 0  # and how many came until it ended


class EndBatch(msgspec.Struct, frozen=True, array_like=True):
    """Attempts that completed and have no more to tell, in columns."""

    runs: list[str] = []
    numbers: list[FenceNumber] = []  # of their fences
    started_at: list[Micros] = []  # by the worker's estimate of the store's clock
    ended_at: list[Micros] = []
    cpu_micros: list[Total] = []
    outputs: dict[int, str] = {}  # as JSON, by position

    def __len__(self) -> int:
        return len(self.runs)

    def fences(self) -> list[Fence]:
        return list(map(Fence, self.runs, self.numbers))

    def part(self, positions: Sequence[int]) -> EndBatch:
        """Return the attempts at these positions, in this order."""
        new = dict(zip(positions, range(len(positions)), strict=True))
        return EndBatch(
            [self.runs[at] for at in positions],
            [self.numbers[at] for at in positions],
            [self.started_at[at] for at in positions],
            [self.ended_at[at] for at in positions],
            [self.cpu_micros[at] for at in positions],
            _moved(self.outputs, new),
        )


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """End of an attempt. Sent until acknowledged; the same one twice is harmless."""

    run: str
    number: FenceNumber  # of its fence
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
    cause: str = ""  # a word for what stopped it, such as `oom`; "": nothing special

    @property
    def fence(self) -> Fence:
        return Fence(self.run, self.number)

    @property
    def attempt(self) -> int:
        return attempt_in(self.number)


class Report(msgspec.Struct, frozen=True, array_like=True):
    """Ends of attempts: in columns, and outcomes of those that have more to tell."""

    ends: EndBatch = EndBatch()
    outcomes: tuple[Outcome, ...] = ()

    def __len__(self) -> int:
        return len(self.ends) + len(self.outcomes)

    def fences(self) -> list[Fence]:
        return [*self.ends.fences(), *(outcome.fence for outcome in self.outcomes)]


class ChunkMeta(msgspec.Struct, frozen=True, array_like=True):
    """Position of a chunk in the whole output."""

    number: Number
    first_line: Total
    lines: Total
    bytes: Total  # of text, uncompressed
    first_at: Millis  # since 1970
    last_at: Millis


class OutputChunk(OfAttempt, frozen=True, array_like=True):
    meta: ChunkMeta
    data: bytes  # compressed records


class Start(OfAttempt, frozen=True, array_like=True):
    """Attempt that begins (a permit is asked before it does) or has begun."""

    started_at: Micros  # by the worker's estimate of the store's clock


class Progress(OfAttempt, frozen=True, array_like=True):
    done: float
    total: float | None
    message: str = ""


class RemoteHandle(OfAttempt, frozen=True, array_like=True):
    """Remote handle: the name of an attempt's work in another system, for the attempts after it."""

    handle: str  # as JSON; "": that work is over, the next attempt begins anew


class StepNote(OfAttempt, frozen=True, array_like=True):
    """How an attempt stands that goes on: replaces what was told of it before."""

    at: Micros  # by the worker's estimate of the store's clock
    first_step: Number = 0  # number of the first one of `steps`
    steps: tuple[StepOutcome, ...] = ()  # the latest that have begun, in their order
    output_lines: Total = 0  # printed so far
    output_bytes: Total = 0
    last_line: str = ""  # the last whole one, or its beginning


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """Something that a worker tried at its start, and whether it has it."""

    kind: str  # one of `rota.domain.walls.OfferKind`, or another that is only shown
    name: str
    reason: str = ""  # why it does not have it; "": it has it


class JobTypeNote(msgspec.Struct, frozen=True, array_like=True):
    """Type of a plug-in that a worker offers: what a store keeps of it."""

    name: str
    api_version: Number = 0  # 0: not told
    schema: str = "{}"  # JSON Schema of its parameters, as text; {}: they are not checked


class Witness(msgspec.Struct, frozen=True, array_like=True):
    """How far a store had come when somebody saw it. Nobody tells or compares it yet.

    It will show that a store was put back to an earlier time: what happened since may happen again.
    """

    store: str
    incarnation: Total = 0
    tick: Total = 0


class Hello(msgspec.Struct, frozen=True):
    """Offer of a worker that registers."""

    worker: str
    pool: str
    slots: Slots
    labels: Mapping[str, str] = {}
    functions: tuple[str, ...] = ()
    guard_mode: str = ""
    version: str = ""
    resumes: str = ""  # the session it had before its connection broke; "" = none
    succeeds: str = ""  # the session of its earlier life, which is over for sure; "" = none
    resources: Mapping[str, Amount] = {}  # thousandths by name, without slots
    offers: tuple[Offer, ...] = ()  # () from a worker that tells none
    witness: Witness | None = None  # the highest that it was told
    job_types: tuple[JobTypeNote, ...] = ()  # those of its offers that plug-ins bring


class Welcome(msgspec.Struct, frozen=True):
    """Answer of the server to a worker that registers."""

    session: str
    lease_seconds: LeaseSeconds
    store_now: Micros
    stream: int = 1  # which connection of the session this is
    requests: tuple[str, ...] = ()  # optional requests that this server answers
    witness: Witness | None = None


class Beat(msgspec.Struct, frozen=True):
    """Renewal of a session. `held` are all attempts the worker knows it has leased."""

    held: tuple[Fence, ...] = ()
    stopping: bool = False  # finish what runs, send nothing new
    received: Total = 0  # items of work that came in this stream
    stream: Total = 0  # which one that is; 0: not told
    trouble: str = ""  # what it cannot do at present, such as delivering output; "": nothing
    given_up: tuple[Fence, ...] = ()  # over, but no server took their end: not held any more


class BeatAnswer(msgspec.Struct, frozen=True):
    alive: bool  # False: the session is over, stop everything and register anew
    store_now: Micros = 0
    cancel: tuple[Fence, ...] = ()
    unknown: tuple[Fence, ...] = ()  # the worker believes them leased, the store does not: kill
    draining: bool = False  # it gets nothing new until somebody says otherwise
    witness: Witness | None = None


class ReportAnswer(msgspec.Struct, frozen=True):
    """Answer to a report or to output: what is not named here was accepted."""

    refused: tuple[Fence, ...] = ()  # what once was the worker's own is kept as a late result
    again: tuple[Fence, ...] = ()  # could not be dealt with yet: send it again, a little later


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
    credential: str | None = None  # id of its token
    is_renewable: bool = False  # its next credential comes over the stream


class Credential(msgspec.Struct, frozen=True):
    """A credential of a worker, told to it this once."""

    token: str
    expires_at: int  # microseconds

    def __repr__(self) -> str:
        return f"Credential(expires_at={self.expires_at})"


class JoinWish(msgspec.Struct, frozen=True):
    """Request of a worker that has a join token."""

    worker: str
    pool: str
    replaces: bool = False  # a credential that this name has


CREDENTIAL = "credential"  # the optional request by which a worker asks for its next one
STEPS = "steps"  # the one by which it sends notes,
HANDLES = "handles"  # and the one by which it keeps remote handles
RUNNING = "running"  # the result of a step that goes on


class Refused(Unavailable):
    """A server answered that it cannot do it now: the link is well, and trying later may help."""


class WorkerLink(Protocol):
    """Connection of one worker. A broken one is `Unavailable`; the worker connects anew.

    Requests are answered in any order; each waits at most a few seconds. A server that cannot do
    what it is asked at present answers so, which is `Refused`; `NotFound`: the session is over.
    """

    async def register(self, hello: Hello) -> Welcome: ...

    async def beat(self, beat: Beat) -> BeatAnswer: ...

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        """Make PROCESSING durable: before executing where delivery is at_most_once."""
        ...

    async def report(self, report: Report) -> ReportAnswer: ...

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        """Send chunks of output that fit one message; several requests may be under way."""
        ...

    async def progress(self, items: Sequence[Progress]) -> None:
        """Send progress: a hint, which may be lost."""
        ...

    # These, and `renew_credential`, only where the welcome named the request.
    async def note(self, items: Sequence[StepNote]) -> None: ...
    async def keep_handles(self, items: Sequence[RemoteHandle]) -> ReportAnswer: ...
    async def commits(self, items: Sequence[SourceCommit]) -> ReportAnswer: ...

    async def read_blob(self, wish: BlobRead) -> BlobPiece: ...
    async def write_blob(self, piece: BlobPiece) -> BlobWritten: ...

    async def receive(self) -> Order: ...

    async def leave(self) -> None:
        """End the session: the worker has nothing leased any more."""
        ...

    async def renew_credential(self) -> Credential:
        """Ask for the next credential; only where the welcome named the request."""
        ...

    async def close(self) -> None: ...


class WorkerDesk(Protocol):
    """Server's side of the `WorkerLink`, one method a verb."""

    async def register(self, hello: Hello, identity: WorkerIdentity | None = None) -> Welcome:
        """Register a worker; `identity` is what its credential says, None: it needs none here."""
        ...

    async def beat(self, session: str, beat: Beat) -> BeatAnswer: ...

    async def start(self, session: str, starts: Sequence[Start]) -> StartAnswer: ...

    async def report(self, session: str, report: Report) -> ReportAnswer: ...

    async def output(self, session: str, chunks: Sequence[OutputChunk]) -> ReportAnswer: ...

    async def progress(self, session: str, items: Sequence[Progress]) -> None: ...

    async def note(self, session: str, items: Sequence[StepNote]) -> None: ...

    async def commits(self, session: str, items: Sequence[SourceCommit]) -> ReportAnswer: ...

    async def read_blob(self, session: str, wish: BlobRead) -> BlobPiece: ...

    async def write_blob(self, session: str, piece: BlobPiece) -> BlobWritten: ...

    async def keep_handles(self, session: str, items: Sequence[RemoteHandle]) -> ReportAnswer: ...

    async def next_order(self, session: str, stream: int) -> Order:
        """Return the next order for this connection. `NotFound` once there is a newer one."""
        ...

    async def leave(self, session: str) -> None: ...

    async def disconnected(self, session: str, stream: int) -> None:
        """Close a connection; a newer one of the session is not touched."""
        ...

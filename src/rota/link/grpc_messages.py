"""Conversion of worker and server messages to and from `contracts/rota/v1/worker.proto`.

Values are checked when read: `Invalid` means that the stream has to end. The size of a chunk is
not checked here: one that is too large is refused, while the stream goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from rota.contracts import worker_pb2 as pb
from rota.domain.errors import Conflict, Denied, Invalid, NotFound, RotaError, Unavailable
from rota.domain.output import INLINE_LIMIT
from rota.domain.spec import JobSpec
from rota.link import grpc_checks as checks
from rota.ports.work import (
    MAX_AMOUNT,
    MAX_ITEMS,
    MAX_LABELS,
    Beat,
    BeatAnswer,
    Cancel,
    ChunkMeta,
    Dispatch,
    Fence,
    Hello,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    ReportAnswer,
    SpecEntry,
    Start,
    StartAnswer,
    StepOutcome,
    Watch,
    Welcome,
    Work,
)

MAX_OUTPUTS = 8 * 1024 * 1024  # bytes of a result as JSON
MAX_SLOTS = 10_000
_MAX_HELD = 5 * MAX_SLOTS  # ends whose answers were lost are held besides
_MAX_HELLO = 1024 * 1024  # bytes
_MAX_FUNCTIONS = 10_000
_RESULT = "ATTEMPT_RESULT_"
_STEP_RESULT = "STEP_RESULT_"
# Rota's words for the values of an enum. 0 is not among them: it stands for one that was forgotten.
_RESULTS = {n: name.removeprefix(_RESULT) for name, n in pb.AttemptResult.items() if n}
_RESULT_NUMBERS = {word: n for n, word in _RESULTS.items()}
_STEP_RESULTS = {
    n: name.removeprefix(_STEP_RESULT).lower() for name, n in pb.StepResult.items() if n
}


def fence_messages(fences: Sequence[Fence]) -> list[pb.Fence]:
    return [pb.Fence(run=fence.run, attempt=fence.attempt) for fence in fences]


def fences_from(messages: Sequence[pb.Fence]) -> tuple[Fence, ...]:
    return tuple(Fence(message.run, message.attempt) for message in messages)


def hello_message(hello: Hello) -> pb.Hello:
    return pb.Hello(
        worker=hello.worker,
        pool=hello.pool,
        slots=hello.slots,
        labels=hello.labels,
        resources=hello.resources,
        functions=hello.functions,
        guard_mode=hello.guard_mode,
        version=hello.version,
        resumes=hello.resumes,
        succeeds=hello.succeeds,
    )


def hello_from(message: pb.Hello) -> Hello:
    if not 1 <= message.slots <= MAX_SLOTS:
        raise checks.bad(f"slots: 1 to {MAX_SLOTS:,} are allowed, not {message.slots:,}")
    checks.count(message.ByteSize(), "bytes of a hello", _MAX_HELLO)
    checks.count(len(message.labels), "labels", MAX_LABELS)
    checks.count(len(message.resources), "resources", MAX_LABELS)
    functions = checks.items(message.functions, "functions", _MAX_FUNCTIONS)
    return Hello(
        worker=checks.name(message.worker, "worker"),
        pool=checks.name(message.pool, "pool"),
        slots=message.slots,
        labels={
            checks.name(key, "label"): checks.label(value) for key, value in message.labels.items()
        },
        resources={
            checks.name(key, "resource"): checks.count(amount, "resource", MAX_AMOUNT)
            for key, amount in message.resources.items()
        },
        functions=tuple(checks.name(each, "function") for each in functions),
        guard_mode=checks.text(message.guard_mode),
        version=checks.text(message.version),
        resumes=checks.name(message.resumes, "resumes") if message.resumes else "",
        succeeds=checks.name(message.succeeds, "succeeds") if message.succeeds else "",
    )


def beat_message(beat: Beat) -> pb.Beat:
    return pb.Beat(
        held=fence_messages(beat.held),
        stopping=beat.stopping,
        received=beat.received,
        stream=beat.stream,
    )


def beat_from(message: pb.Beat) -> Beat:
    held = checks.items(message.held, "held", _MAX_HELD)
    received = checks.count(message.received, "items received")
    return Beat(
        held=tuple(map(_fence_from, held)),
        stopping=message.stopping,
        received=received if message.HasField("received") else None,
        stream=checks.count(message.stream, "stream"),
    )


def _fence_from(message: pb.Fence) -> Fence:
    return Fence(checks.name(message.run, "run"), checks.number(message.attempt, "attempt"))


def start_message(start: Start) -> pb.Start:
    return pb.Start(run=start.run, attempt=start.attempt, started_at=start.started_at)


def start_from(message: pb.Start) -> Start:
    return Start(
        checks.name(message.run, "run"),
        checks.number(message.attempt, "attempt"),
        checks.instant(message.started_at, "started_at"),
    )


def outcome_message(outcome: Outcome) -> pb.Outcome:
    outputs = None if outcome.outputs is None else msgspec.json.encode(outcome.outputs)
    message = outcome.message
    if outputs is not None and len(outputs) > MAX_OUTPUTS:
        # The work is done; that its result cannot travel must not have it done again and again.
        message = message or f"its outputs were not kept: {len(outputs):,} bytes are too many"
        outputs = None
    return pb.Outcome(
        run=outcome.run,
        attempt=outcome.attempt,
        result=_RESULT_NUMBERS[outcome.result],
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        message=checks.text(message),
        outputs_json=outputs,
        steps=[_step_message(step) for step in outcome.steps],
        cpu_seconds=outcome.cpu_seconds,
        max_memory_bytes=outcome.max_memory_bytes,
        output=outcome.output,
        output_bytes=outcome.output_bytes,
        output_lines=outcome.output_lines,
        truncated=outcome.truncated,
    )


def outcome_from(message: pb.Outcome) -> Outcome:
    return Outcome(
        run=checks.name(message.run, "run"),
        attempt=checks.number(message.attempt, "attempt"),
        result=_word(_RESULTS, message.result, "attempt_result"),
        started_at=checks.instant(message.started_at, "started_at"),
        ended_at=checks.instant(message.ended_at, "ended_at"),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        message=checks.text(message.message),
        outputs=_outputs_from(message),
        steps=tuple(map(_step_from, checks.items(message.steps, "steps"))),
        cpu_seconds=checks.seconds(message.cpu_seconds, "cpu_seconds"),
        max_memory_bytes=checks.count(message.max_memory_bytes, "max_memory_bytes"),
        output=checks.data(message.output, INLINE_LIMIT, "output"),
        output_bytes=checks.count(message.output_bytes, "output_bytes"),
        output_lines=checks.count(message.output_lines, "output_lines"),
        truncated=message.truncated,
    )


def _outputs_from(message: pb.Outcome) -> Any:
    if not message.HasField("outputs_json"):
        return None
    return checks.json(message.outputs_json, MAX_OUTPUTS, "outputs_json")


def _step_message(step: StepOutcome) -> pb.StepOutcome:
    return pb.StepOutcome(
        name=step.name,
        result=pb.StepResult.Value(_STEP_RESULT + step.result.upper()),
        exit_code=step.exit_code,
        signal=step.signal,
        seconds=step.seconds,
        tries=step.tries,
    )


def _step_from(message: pb.StepOutcome) -> StepOutcome:
    return StepOutcome(
        name=checks.text(message.name),
        result=_word(_STEP_RESULTS, message.result, "step_result"),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        seconds=checks.seconds(message.seconds, "seconds"),
        tries=checks.number(message.tries, "tries"),
    )


def _word(words: Mapping[int, str], number: int, what: str) -> str:
    if number not in words:
        raise checks.bad(f"{what}: {number} is not one")
    return words[number]


def chunk_message(chunk: OutputChunk) -> pb.OutputChunk:
    meta = chunk.meta
    return pb.OutputChunk(
        run=chunk.run,
        attempt=chunk.attempt,
        number=meta.number,
        first_line=meta.first_line,
        lines=meta.lines,
        text_bytes=meta.bytes,
        first_at_ms=meta.first_at,
        last_at_ms=meta.last_at,
        data=chunk.data,
    )


def chunk_from(message: pb.OutputChunk) -> OutputChunk:
    return OutputChunk(
        run=checks.name(message.run, "run"),
        attempt=checks.number(message.attempt, "attempt"),
        meta=_meta_from(message),
        data=message.data,
    )


def _meta_from(message: pb.OutputChunk) -> ChunkMeta:
    return ChunkMeta(
        number=checks.number(message.number, "number"),
        first_line=checks.count(message.first_line, "first_line"),
        lines=checks.count(message.lines, "lines"),
        bytes=checks.count(message.text_bytes, "text_bytes"),
        first_at=checks.instant(message.first_at_ms * 1_000, "first_at_ms") // 1_000,
        last_at=checks.instant(message.last_at_ms * 1_000, "last_at_ms") // 1_000,
    )


def progress_message(progress: Progress) -> pb.Progress:
    return pb.Progress(
        run=progress.run,
        attempt=progress.attempt,
        done=progress.done,
        total=progress.total,
        message=progress.message,
    )


def progress_from(message: pb.Progress) -> Progress:
    return Progress(
        run=checks.name(message.run, "run"),
        attempt=checks.number(message.attempt, "attempt"),
        done=checks.measure(message.done, "done"),
        total=checks.measure(message.total, "total") if message.HasField("total") else None,
        message=checks.text(message.message),
    )


log = structlog.get_logger()

PIECE = 4 * 1024 * 1024  # bytes; a batch above it, or of too many, travels as several messages
_specs = msgspec.json.Decoder(JobSpec)
_KINDS = {
    Invalid: pb.REFUSAL_KIND_INVALID,
    NotFound: pb.REFUSAL_KIND_NOT_FOUND,
    Conflict: pb.REFUSAL_KIND_CONFLICT,
    Denied: pb.REFUSAL_KIND_DENIED,
    Unavailable: pb.REFUSAL_KIND_UNAVAILABLE,
}


def in_pieces(messages: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the messages in order, in batches that are small enough to be sent."""
    piece: list[Any] = []
    size = 0
    for message in messages:
        added = message.ByteSize()
        if piece and (size + added > PIECE or len(piece) >= MAX_ITEMS):
            yield piece
            piece, size = [], 0
        piece.append(message)
        size += added
    if piece:
        yield piece


def welcome_message(welcome: Welcome) -> pb.Welcome:
    return pb.Welcome(
        session=welcome.session,
        lease_seconds=welcome.lease_seconds,
        store_now=welcome.store_now,
        stream=welcome.stream,
    )


def welcome_from(message: pb.Welcome) -> Welcome:
    return Welcome(message.session, message.lease_seconds, message.store_now, message.stream)


def beat_answer_message(answer: BeatAnswer) -> pb.BeatAnswer:
    return pb.BeatAnswer(
        alive=answer.alive,
        store_now=answer.store_now,
        cancel=fence_messages(answer.cancel),
        unknown=fence_messages(answer.unknown),
        draining=answer.draining,
    )


def beat_answer_from(message: pb.BeatAnswer) -> BeatAnswer:
    return BeatAnswer(
        alive=message.alive,
        store_now=message.store_now,
        cancel=fences_from(message.cancel),
        unknown=fences_from(message.unknown),
        draining=message.draining,
    )


def start_answer_message(answer: StartAnswer) -> pb.StartAnswer:
    return pb.StartAnswer(
        granted=fence_messages(answer.granted),
        cancelled=fence_messages(answer.cancelled),
        refused=fence_messages(answer.refused),
    )


def start_answer_from(message: pb.StartAnswer) -> StartAnswer:
    return StartAnswer(
        granted=fences_from(message.granted),
        cancelled=fences_from(message.cancelled),
        refused=fences_from(message.refused),
    )


def report_answer_message(answer: ReportAnswer) -> pb.ReportAnswer:
    return pb.ReportAnswer(
        accepted=fence_messages(answer.accepted), fenced=fence_messages(answer.fenced)
    )


def report_answer_from(message: pb.ReportAnswer) -> ReportAnswer:
    return ReportAnswer(fences_from(message.accepted), fences_from(message.fenced))


def refusal_message(error: RotaError) -> pb.Refusal:
    kinds = (kind for cls, kind in _KINDS.items() if isinstance(error, cls))
    kind = next(kinds, pb.REFUSAL_KIND_UNAVAILABLE)
    return pb.Refusal(kind=kind, code=error.code, message=str(error))


def refusal_from(message: pb.Refusal) -> RotaError:
    """Return an error that a worker can act on; on all others it reconnects."""
    match message.kind:
        case pb.REFUSAL_KIND_NOT_FOUND:
            return NotFound(message.message, code=message.code)
        case pb.REFUSAL_KIND_DENIED:
            return Denied(message.message, code=message.code)
        case _:
            return Unavailable(message.message, code=message.code)


def order_messages(order: Order) -> Iterator[pb.FromServer]:
    """Encode an order as one message, or as several if it is long."""
    match order:
        case Dispatch(work=work, specs=specs, first=first):
            whole = pb.Dispatch(
                work=[_work_message(item) for item in work],
                specs=[_spec_message(entry) for entry in specs],
                first=first,
            )
            yield from (pb.FromServer(dispatch=part) for part in _parts(whole))
        case Cancel(fences=fences):
            yield pb.FromServer(cancel=pb.Cancel(fences=fence_messages(fences)))
        case Watch(runs=runs):
            yield pb.FromServer(watch=pb.Watch(runs=runs))


def _parts(whole: pb.Dispatch) -> Iterator[pb.Dispatch]:
    if whole.ByteSize() <= PIECE:
        yield whole
        return
    for specs in in_pieces(whole.specs):  # first: no work travels ahead of its spec
        yield pb.Dispatch(specs=specs)
    first = whole.first
    for work in in_pieces(whole.work):
        yield pb.Dispatch(work=work, first=first)
        first += len(work) if first else 0


def order_from(message: pb.FromServer) -> Order | None:
    """Decode the order in a message; None if this version of Rota does not know it."""
    match message.WhichOneof("message"):
        case "dispatch":
            work = tuple(_work_from(item) for item in message.dispatch.work)
            specs = tuple(_readable_specs(message.dispatch.specs))
            return Dispatch(work, specs, message.dispatch.first)
        case "cancel":
            return Cancel(fences_from(message.cancel.fences))
        case "watch":
            return Watch(tuple(message.watch.runs))
        case _:
            return None


def _work_message(work: Work) -> pb.Work:
    return pb.Work(
        run=work.run,
        attempt=work.attempt,
        job_id=work.job_id,
        job_version=work.job_version,
        due_at=work.due_at,
        inputs_json=None if work.inputs is None else msgspec.json.encode(work.inputs),
        deadline_at=work.deadline_at,
        cart=work.cart,
        item=work.item,
    )


def _work_from(message: pb.Work) -> Work:
    inputs: dict[str, Any] | None = None
    if message.HasField("inputs_json"):
        inputs = msgspec.json.decode(message.inputs_json)
    return Work(
        run=message.run,
        attempt=message.attempt,
        job_id=message.job_id,
        job_version=message.job_version,
        due_at=message.due_at,
        inputs=inputs,
        deadline_at=message.deadline_at if message.HasField("deadline_at") else None,
        cart=message.cart if message.HasField("cart") else None,
        item=message.item if message.HasField("item") else None,
    )


def _spec_message(entry: SpecEntry) -> pb.SpecEntry:
    return pb.SpecEntry(
        job_id=entry.job_id,
        job_version=entry.job_version,
        spec_json=msgspec.json.encode(entry.spec),
    )


def _readable_specs(messages: Sequence[pb.SpecEntry]) -> Iterator[SpecEntry]:
    """Yield the readable specs; this worker refuses only the work of a spec it cannot read."""
    for message in messages:
        try:
            spec = _specs.decode(message.spec_json)
        except msgspec.MsgspecError as error:
            log.error("worker.unreadable_job", job_id=message.job_id, error=str(error))
        else:
            yield SpecEntry(message.job_id, message.job_version, spec)

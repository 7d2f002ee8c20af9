"""Messages of worker and server as those of `contracts/rota/v2/worker.proto`, and back.

Values are checked when read: `Invalid` means that the stream has to end. The size of a chunk is
not checked here: one that is too large is refused, while the stream goes on. Columns are lists on
both sides and are passed on and checked as a whole: nothing here is done once for each attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import structlog

from rota.contracts import worker_pb2 as pb
from rota.domain.errors import Conflict, Denied, Invalid, NotFound, RotaError, Unavailable
from rota.domain.output import INLINE_LIMIT
from rota.domain.spec import JobSpec
from rota.link import grpc_checks as checks
from rota.link.parts import in_parts
from rota.ports.work import (
    MAX_AMOUNT,
    MAX_FENCE,
    MAX_ITEMS,
    MAX_LABELS,
    MAX_LEASE,
    MAX_NUMBER,
    MAX_SLOTS,
    MAX_STEPS,
    MIN_LEASE,
    UNREADABLE,
    Beat,
    BeatAnswer,
    Cancel,
    ChunkMeta,
    Credential,
    Dispatch,
    EndBatch,
    Fence,
    Hello,
    JobTypeNote,
    Move,
    Offer,
    Order,
    Outcome,
    OutputChunk,
    Refused,
    Report,
    ReportAnswer,
    SpecEntry,
    Start,
    StartAnswer,
    StepOutcome,
    Watch,
    Welcome,
    Witness,
    WorkBatch,
    storable,
)

log = structlog.get_logger()

MAX_OUTPUTS = 8 * 1024 * 1024  # bytes of a result as JSON
PIECE = 1024 * 1024  # bytes; a dispatch above it travels as several messages
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
_STEP_RESULT_NUMBERS = {word: n for n, word in _STEP_RESULTS.items()}
_KINDS = {
    Invalid: pb.REFUSAL_KIND_INVALID,
    NotFound: pb.REFUSAL_KIND_NOT_FOUND,
    Conflict: pb.REFUSAL_KIND_CONFLICT,
    Denied: pb.REFUSAL_KIND_DENIED,
    Unavailable: pb.REFUSAL_KIND_UNAVAILABLE,
}
_specs = msgspec.json.Decoder(JobSpec)


# --- fences


def fences_message(fences: Iterable[Fence]) -> pb.Fences:
    named = list(fences)
    return pb.Fences(runs=[each.run for each in named], fences=[each.number for each in named])


def fences_from(message: pb.Fences, most: int = _MAX_HELD) -> tuple[Fence, ...]:
    return tuple(map(Fence, *fence_columns(message, "fences", most)))


def fence_columns(
    message: pb.Fences | pb.Starts | pb.Ends | pb.Handles | pb.Commits, what: str, most: int
) -> tuple[list[str], list[int]]:
    """Return the two columns that name attempts."""
    runs, numbers = list(message.runs), list(message.fences)
    checks.items(runs, what, most)
    checks.names(runs, "run")
    checks.column(numbers, runs, f"fences of {what}", MAX_FENCE)
    return runs, numbers


def fence_of(
    message: pb.Outcome | pb.OutputChunk | pb.Progress | pb.StepNote | pb.BlobRead | pb.BlobPiece,
) -> tuple[str, int]:
    return checks.name(message.run, "run"), checks.count(message.fence, "fence", MAX_FENCE)


# --- hello, beats, starts


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
        offers=[pb.Offer(kind=o.kind, name=o.name, reason=o.reason) for o in hello.offers],
        resumes=hello.resumes,
        succeeds=hello.succeeds,
        witness=_witness_message(hello.witness),
        job_types=[
            pb.JobType(name=it.name, api_version=it.api_version, schema_json=it.schema)
            for it in hello.job_types
        ],
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
        guard_mode=storable(message.guard_mode),
        version=storable(message.version),
        resumes=checks.name(message.resumes, "resumes") if message.resumes else "",
        succeeds=checks.name(message.succeeds, "succeeds") if message.succeeds else "",
        offers=tuple(map(_offer_from, checks.items(message.offers, "offers", MAX_LABELS))),
        witness=_witness_from(message),
        job_types=tuple(map(_type_from, checks.items(message.job_types, "types", MAX_LABELS))),
    )


def _type_from(message: pb.JobType) -> JobTypeNote:
    return JobTypeNote(
        checks.name(message.name, "name of a type"),
        checks.count(message.api_version, "api_version", MAX_NUMBER),
        storable(message.schema_json) or "{}",
    )


def _offer_from(message: pb.Offer) -> Offer:
    return Offer(
        checks.name(message.kind, "kind of an offer"),
        checks.name(message.name, "name of an offer"),
        storable(message.reason),
    )


def credential_message(credential: Credential) -> pb.Credential:
    return pb.Credential(token=credential.token, expires_at=credential.expires_at)


def credential_from(message: pb.Credential) -> Credential:
    return Credential(message.token, message.expires_at)


def _witness_message(witness: Witness | None) -> pb.Witness | None:
    if witness is None:
        return None
    return pb.Witness(store=witness.store, incarnation=witness.incarnation, tick=witness.tick)


def _witness_from(message: pb.Hello | pb.Welcome | pb.BeatAnswer) -> Witness | None:
    if not message.HasField("witness"):
        return None
    return Witness(
        checks.name(message.witness.store, "store"),
        checks.count(message.witness.incarnation, "incarnation"),
        checks.count(message.witness.tick, "tick"),
    )


def welcome_message(welcome: Welcome) -> pb.Welcome:
    return pb.Welcome(
        session=welcome.session,
        lease_seconds=welcome.lease_seconds,
        store_now=welcome.store_now,
        stream=welcome.stream,
        requests=welcome.requests,
        witness=_witness_message(welcome.witness),
    )


def welcome_from(message: pb.Welcome) -> Welcome:
    if not MIN_LEASE <= message.lease_seconds <= MAX_LEASE:
        raise checks.bad(f"lease_seconds: {message.lease_seconds} is no lease")
    return Welcome(
        checks.name(message.session, "session"),
        message.lease_seconds,
        checks.instant(message.store_now, "store_now"),
        message.stream,
        tuple(message.requests),
        _witness_from(message),
    )


def beat_message(beat: Beat) -> pb.Beat:
    return pb.Beat(
        held=fences_message(beat.held),
        stopping=beat.stopping,
        received=beat.received,
        stream=beat.stream,
        trouble=storable(beat.trouble),
        given_up=fences_message(beat.given_up),
    )


def beat_from(message: pb.Beat) -> Beat:
    return Beat(
        held=fences_from(message.held),
        stopping=message.stopping,
        received=checks.count(message.received, "items received"),
        stream=checks.count(message.stream, "stream"),
        trouble=storable(message.trouble),
        given_up=fences_from(message.given_up),
    )


def beat_answer_message(answer: BeatAnswer) -> pb.BeatAnswer:
    return pb.BeatAnswer(
        alive=answer.alive,
        store_now=answer.store_now,
        cancel=fences_message(answer.cancel),
        unknown=fences_message(answer.unknown),
        draining=answer.draining,
        witness=_witness_message(answer.witness),
    )


def beat_answer_from(message: pb.BeatAnswer) -> BeatAnswer:
    return BeatAnswer(
        alive=message.alive,
        store_now=checks.instant(message.store_now, "store_now"),
        cancel=fences_from(message.cancel),
        unknown=fences_from(message.unknown),
        draining=message.draining,
        witness=_witness_from(message),
    )


def starts_message(starts: Sequence[Start]) -> pb.Starts:
    return pb.Starts(
        runs=[start.run for start in starts],
        fences=[start.number for start in starts],
        started_at=[start.started_at for start in starts],
    )


def starts_from(message: pb.Starts) -> list[Start]:
    runs, numbers = fence_columns(message, "starts", MAX_ITEMS)
    started_at = checks.instants(list(message.started_at), runs, "started_at")
    return list(map(Start, runs, numbers, started_at))


def start_answer_message(answer: StartAnswer) -> pb.StartAnswer:
    return pb.StartAnswer(
        granted=fences_message(answer.granted),
        cancelled=fences_message(answer.cancelled),
        refused=fences_message(answer.refused),
    )


def start_answer_from(message: pb.StartAnswer) -> StartAnswer:
    return StartAnswer(
        granted=fences_from(message.granted),
        cancelled=fences_from(message.cancelled),
        refused=fences_from(message.refused),
    )


# --- reports


def report_message(report: Report) -> pb.Report:
    ends = report.ends
    return pb.Report(
        ends=pb.Ends(
            runs=ends.runs,
            fences=ends.numbers,
            started_at=ends.started_at,
            ended_at=ends.ended_at,
            cpu_micros=ends.cpu_micros,
            outputs_json=ends.outputs,
        ),
        outcomes=[_outcome_message(outcome) for outcome in report.outcomes],
    )


def report_from(message: pb.Report) -> Report:
    checks.count(len(message.ends.runs) + len(message.outcomes), "ends", MAX_ITEMS)
    ends = _ends_from(message.ends) if message.ends.runs else EndBatch()
    return Report(ends, tuple(map(_outcome_from, message.outcomes)))


def _ends_from(message: pb.Ends) -> EndBatch:
    runs, numbers = fence_columns(message, "ends", MAX_ITEMS)
    outputs = checks.positions(dict(message.outputs_json), runs, "outputs_json")
    for text in outputs.values():
        checks.json(text, MAX_OUTPUTS, "outputs_json")
    return EndBatch(
        runs,
        numbers,
        checks.instants(list(message.started_at), runs, "started_at"),
        checks.instants(list(message.ended_at), runs, "ended_at"),
        checks.column(list(message.cpu_micros), runs, "cpu_micros"),
        outputs,
    )


def _outcome_message(outcome: Outcome) -> pb.Outcome:
    outputs = None if outcome.outputs is None else msgspec.json.encode(outcome.outputs).decode()
    message = outcome.message
    if outputs is not None and len(outputs) > MAX_OUTPUTS:
        # The work is done; that its result cannot travel must not have it done again and again.
        message = message or f"its outputs were not kept: {len(outputs):,} bytes are too many"
        outputs = None
    return pb.Outcome(
        run=outcome.run,
        fence=outcome.number,
        result=_RESULT_NUMBERS[outcome.result],
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        message=storable(message),
        outputs_json=outputs,
        steps=[step_message(step) for step in outcome.steps],
        cpu_seconds=outcome.cpu_seconds,
        max_memory_bytes=outcome.max_memory_bytes,
        output=outcome.output,
        output_bytes=outcome.output_bytes,
        output_lines=outcome.output_lines,
        truncated=outcome.truncated,
        cause=storable(outcome.cause),
    )


def _outcome_from(message: pb.Outcome) -> Outcome:
    run, number = fence_of(message)
    return Outcome(
        run,
        number,
        result=_word(_RESULTS, message.result, "attempt_result"),
        started_at=checks.instant(message.started_at, "started_at"),
        ended_at=checks.instant(message.ended_at, "ended_at"),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        message=storable(message.message),
        outputs=checks.json(message.outputs_json, MAX_OUTPUTS, "outputs_json")
        if message.HasField("outputs_json")
        else None,
        steps=tuple(map(_ended_from, checks.items(message.steps, "steps", MAX_STEPS))),
        cpu_seconds=checks.seconds(message.cpu_seconds, "cpu_seconds"),
        max_memory_bytes=checks.count(message.max_memory_bytes, "max_memory_bytes"),
        output=checks.data(message.output, INLINE_LIMIT, "output"),
        output_bytes=checks.count(message.output_bytes, "output_bytes"),
        output_lines=checks.count(message.output_lines, "output_lines"),
        truncated=message.truncated,
        cause=checks.label(message.cause),
    )


def step_message(step: StepOutcome) -> pb.StepOutcome:
    return pb.StepOutcome(
        name=step.name,
        result=_STEP_RESULT_NUMBERS[step.result],
        exit_code=step.exit_code,
        signal=step.signal,
        seconds=step.seconds,
        tries=step.tries,
        cpu_seconds=step.cpu_seconds,
        max_memory_bytes=step.max_memory_bytes,
        cause=storable(step.cause),
        started_at=step.started_at,
        first_line=step.first_line,
        lines=step.lines,
    )


def step_from(message: pb.StepOutcome) -> StepOutcome:
    return StepOutcome(
        name=storable(message.name),
        result=_word(_STEP_RESULTS, message.result, "step_result"),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        seconds=checks.seconds(message.seconds, "seconds"),
        tries=checks.number(message.tries, "tries"),
        cpu_seconds=checks.seconds(message.cpu_seconds, "cpu_seconds"),
        max_memory_bytes=checks.count(message.max_memory_bytes, "max_memory_bytes"),
        cause=checks.label(message.cause),
        started_at=checks.instant(message.started_at, "started_at"),
        first_line=checks.count(message.first_line, "first_line"),
        lines=checks.count(message.lines, "lines"),
    )


def _ended_from(message: pb.StepOutcome) -> StepOutcome:
    if message.result == pb.STEP_RESULT_RUNNING:
        raise checks.bad("step_result: a step goes on although its attempt has ended")
    return step_from(message)


def _word(words: Mapping[int, str], number: int, what: str) -> str:
    if number not in words:
        raise checks.bad(f"{what}: {number} is not one")
    return words[number]


def report_answer_message(answer: ReportAnswer) -> pb.ReportAnswer:
    if not answer.refused and not answer.again:
        return pb.ReportAnswer()
    return pb.ReportAnswer(
        refused=fences_message(answer.refused), again=fences_message(answer.again)
    )


def report_answer_from(message: pb.ReportAnswer) -> ReportAnswer:
    return ReportAnswer(fences_from(message.refused), fences_from(message.again))


# --- output


def chunk_message(chunk: OutputChunk) -> pb.OutputChunk:
    meta = chunk.meta
    return pb.OutputChunk(
        run=chunk.run,
        fence=chunk.number,
        number=meta.number,
        first_line=meta.first_line,
        lines=meta.lines,
        text_bytes=meta.bytes,
        first_at_ms=meta.first_at,
        last_at_ms=meta.last_at,
        data=chunk.data,
    )


def chunk_from(message: pb.OutputChunk) -> OutputChunk:
    return OutputChunk(*fence_of(message), meta=_meta_from(message), data=message.data)


def _meta_from(message: pb.OutputChunk) -> ChunkMeta:
    return ChunkMeta(
        number=checks.number(message.number, "number"),
        first_line=checks.count(message.first_line, "first_line"),
        lines=checks.count(message.lines, "lines"),
        bytes=checks.count(message.text_bytes, "text_bytes"),
        first_at=checks.instant(message.first_at_ms * 1_000, "first_at_ms") // 1_000,
        last_at=checks.instant(message.last_at_ms * 1_000, "last_at_ms") // 1_000,
    )


# --- refusals


def refusal_message(error: RotaError) -> pb.Refusal:
    kinds = (kind for cls, kind in _KINDS.items() if isinstance(error, cls))
    kind = next(kinds, pb.REFUSAL_KIND_UNAVAILABLE)
    return pb.Refusal(kind=kind, code=error.code, message=str(error))


def refusal_from(message: pb.Refusal) -> RotaError:
    """Return an error that a worker can act on; if the request was at fault, it reconnects."""
    match message.kind:
        case pb.REFUSAL_KIND_NOT_FOUND:
            return NotFound(message.message, code=message.code)
        case pb.REFUSAL_KIND_DENIED:
            return Denied(message.message, code=message.code)
        case pb.REFUSAL_KIND_INVALID:
            return Unavailable(message.message, code=message.code)
        case _:
            return Refused(message.message, code=message.code)


# --- orders


def order_messages(order: Order) -> Iterator[pb.FromServer]:
    """Encode an order as one message, or as several if it is long."""
    match order:
        case Dispatch():
            parts = in_parts(order, _dispatch_message, pb.Dispatch.ByteSize, PIECE)
            yield from (pb.FromServer(dispatch=part) for part in parts)
        case Cancel(fences=fences):
            yield pb.FromServer(cancel=pb.Cancel(fences=fences_message(fences)))
        case Watch(runs=runs):
            yield pb.FromServer(watch=pb.Watch(runs=runs))
        case Move():
            yield pb.FromServer(move=pb.Move())


def _dispatch_message(dispatch: Dispatch) -> pb.Dispatch:
    batch = dispatch.batch
    return pb.Dispatch(
        first=dispatch.first,
        runs=batch.runs,
        fences=batch.numbers,
        due_at=batch.due_at,
        jobs=[pb.JobVersion(job_id=job, version=version) for job, version in batch.jobs],
        job_of=batch.job_of,
        inputs_json=batch.inputs,
        deadline_at=batch.deadlines,
        carts={at: pb.CartItem(cart=c, item=item) for at, (c, item) in batch.carts.items()},
        handles={at: handle.encode() for at, handle in batch.handles.items()},
        specs=[_spec_message(entry) for entry in dispatch.specs],
        commits=batch.commits,
        probes={at: pb.ProbedAttempt(run=f.run, fence=f.number) for at, f in batch.probes.items()},
    )


def order_from(message: pb.FromServer) -> Order | None:
    """Decode the order in a message; None if this version of Rota does not know it."""
    match message.WhichOneof("message"):
        case "dispatch":
            return _dispatch_from(message.dispatch)
        case "cancel":
            return Cancel(fences_from(message.cancel.fences))
        case "watch":
            return Watch(tuple(message.watch.runs))
        case "move":
            return Move()
        case _:
            return None


def _dispatch_from(message: pb.Dispatch) -> Dispatch:
    batch = WorkBatch(
        list(message.runs),
        list(message.fences),
        list(message.due_at),
        [(job.job_id, job.version) for job in message.jobs],
        list(message.job_of),
        dict(message.inputs_json),
        dict(message.deadline_at),
        {
            at: (item.cart, item.item if item.HasField("item") else None)
            for at, item in message.carts.items()
        },
        {at: handle.decode("utf-8", "replace") for at, handle in message.handles.items()},
        dict(message.commits),
        {at: Fence(each.run, each.fence) for at, each in message.probes.items()},
    )
    return Dispatch(batch, tuple(_readable_specs(message.specs)), message.first)


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
        except UNREADABLE as error:
            log.error("worker.unreadable_job", job_id=message.job_id, error=str(error))
        else:
            yield SpecEntry(message.job_id, message.job_version, spec)

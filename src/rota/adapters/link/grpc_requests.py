"""What a worker says, as messages of `contracts/rota/v1/worker.proto` and back.

It is checked when it is read: `Invalid` means that the stream has to end. How large a chunk may be
is not checked here: one that is too large is refused, while the stream goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.adapters.link import grpc_checks as checks
from rota.contracts import worker_pb2 as pb
from rota.domain.output.recorder import INLINE_LIMIT
from rota.ports.work import (
    MAX_AMOUNT,
    MAX_LABELS,
    Beat,
    ChunkMeta,
    Fence,
    Hello,
    Outcome,
    OutputChunk,
    Progress,
    Start,
    StepOutcome,
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

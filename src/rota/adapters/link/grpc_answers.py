"""What a server says, as messages of `contracts/rota/v1/worker.proto` and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import structlog

from rota.adapters.link.grpc_requests import fence_messages, fences_from
from rota.contracts import worker_pb2 as pb
from rota.domain.errors import Conflict, Denied, Invalid, NotFound, RotaError, Unavailable
from rota.domain.spec import JobSpec
from rota.ports.work import (
    MAX_ITEMS,
    BeatAnswer,
    Cancel,
    Dispatch,
    Order,
    ReportAnswer,
    SpecEntry,
    StartAnswer,
    Watch,
    Welcome,
    Work,
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
    """The same messages in order, in batches that are small enough to travel."""
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
    """The error that a worker can act on; to all the others it answers by connecting anew."""
    match message.kind:
        case pb.REFUSAL_KIND_NOT_FOUND:
            return NotFound(message.message, code=message.code)
        case pb.REFUSAL_KIND_DENIED:
            return Denied(message.message, code=message.code)
        case _:
            return Unavailable(message.message, code=message.code)


def order_messages(order: Order) -> Iterator[pb.FromServer]:
    """An order as one message, or as several if it is long."""
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
    """The order in a message; None if this version of Rota does not know it."""
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
    """What a newer server sends may be beyond this worker, which then refuses that work alone."""
    for message in messages:
        try:
            spec = _specs.decode(message.spec_json)
        except msgspec.MsgspecError as error:
            log.error("worker.unreadable_job", job_id=message.job_id, error=str(error))
        else:
            yield SpecEntry(message.job_id, message.job_version, spec)

"""What attempts that go on tell, as messages of `contracts/rota/v2/worker.proto`, and back."""

from __future__ import annotations

from collections.abc import Sequence

from rota.contracts import worker_pb2 as pb
from rota.link import grpc_checks as checks
from rota.link.grpc_messages import fence_columns, fence_of, step_from, step_message
from rota.ports.work import (
    MAX_HANDLE,
    MAX_ITEMS,
    MAX_LAST_LINE,
    MAX_NOTED_STEPS,
    Progress,
    RemoteHandle,
    StepNote,
    storable,
)


def progress_message(progress: Progress) -> pb.Progress:
    return pb.Progress(
        run=progress.run,
        fence=progress.number,
        done=progress.done,
        total=progress.total,
        message=storable(progress.message),
    )


def progress_from(message: pb.Progress) -> Progress:
    return Progress(
        *fence_of(message),
        done=checks.measure(message.done, "done"),
        total=checks.measure(message.total, "total") if message.HasField("total") else None,
        message=storable(message.message),
    )


def note_message(note: StepNote) -> pb.StepNote:
    return pb.StepNote(
        run=note.run,
        fence=note.number,
        at=note.at,
        first_step=note.first_step,
        steps=map(step_message, note.steps),
        output_lines=note.output_lines,
        output_bytes=note.output_bytes,
        last_line=storable(note.last_line),
    )


def note_from(message: pb.StepNote) -> StepNote:
    steps = checks.items(message.steps, "steps of a note", MAX_NOTED_STEPS)
    return StepNote(
        *fence_of(message),
        at=checks.instant(message.at, "at"),
        first_step=checks.number(message.first_step, "first_step"),
        steps=tuple(map(step_from, steps)),
        output_lines=checks.count(message.output_lines, "output_lines"),
        output_bytes=checks.count(message.output_bytes, "output_bytes"),
        last_line=storable(message.last_line[:MAX_LAST_LINE]),
    )


def handles_message(items: Sequence[RemoteHandle]) -> pb.Handles:
    return pb.Handles(
        runs=[item.run for item in items],
        fences=[item.number for item in items],
        handles=[item.handle.encode() for item in items],
    )


def handles_from(message: pb.Handles) -> list[RemoteHandle]:
    runs, numbers = fence_columns(message, "handles", MAX_ITEMS)
    if len(message.handles) != len(runs):
        raise checks.bad(f"handles: {len(message.handles)} values for {len(runs)} runs")
    return list(map(RemoteHandle, runs, numbers, map(_handle, message.handles)))


def _handle(data: bytes) -> str:
    try:
        text = checks.data(data, MAX_HANDLE, "handle").decode()
    except UnicodeDecodeError:
        raise checks.bad("handle: it is not UTF-8") from None
    if text:
        checks.json(text, MAX_HANDLE, "handle")
    return text

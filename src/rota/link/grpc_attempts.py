"""Messages about attempts that go on (`contracts/rota/v2/worker.proto`), and back: progress, notes,
handles of work elsewhere, files and commits.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.contracts import worker_pb2 as pb
from rota.domain.files import MOST_PATH, PARCEL
from rota.domain.git import COMMIT
from rota.link import grpc_checks as checks
from rota.link.grpc_messages import fence_columns, fence_of, step_from, step_message
from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit
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


# --- files


def blob_read_message(wish: BlobRead) -> pb.BlobRead:
    return pb.BlobRead(
        run=wish.run,
        fence=wish.number,
        digest=wish.digest,
        offset=wish.offset,
        length=wish.length,
    )


def blob_read_from(message: pb.BlobRead) -> BlobRead:
    return BlobRead(
        *fence_of(message),
        digest=checks.name(message.digest, "digest"),
        offset=checks.count(message.offset, "offset"),
        length=checks.number(message.length, "length"),
    )


def blob_piece_message(piece: BlobPiece) -> pb.BlobPiece:
    return pb.BlobPiece(
        run=piece.run,
        fence=piece.number,
        digest=piece.digest,
        offset=piece.offset,
        data=piece.data,
        size=piece.size,
        path=piece.path,
        step=piece.step,
    )


def blob_piece_from(message: pb.BlobPiece) -> BlobPiece:
    if len(message.path) > MOST_PATH:
        raise checks.bad(f"path: at most {MOST_PATH:,} characters are allowed")
    return BlobPiece(
        *fence_of(message),
        digest=checks.name(message.digest, "digest"),
        offset=checks.count(message.offset, "offset"),
        data=checks.data(message.data, PARCEL, "data"),
        size=checks.count(message.size, "size"),
        path=message.path,
        step=checks.number(message.step, "step"),
    )


def blob_written_message(written: BlobWritten) -> pb.BlobWritten:
    return pb.BlobWritten(digest=written.digest, received=written.received)


def blob_written_from(message: pb.BlobWritten) -> BlobWritten:
    return BlobWritten(
        checks.name(message.digest, "digest"), checks.count(message.received, "received")
    )


def commits_message(commits: Sequence[SourceCommit]) -> pb.Commits:
    return pb.Commits(
        runs=[each.run for each in commits],
        fences=[each.number for each in commits],
        commits=[each.commit for each in commits],
    )


def commits_from(message: pb.Commits) -> tuple[SourceCommit, ...]:
    runs, numbers = fence_columns(message, "commits", MAX_ITEMS)
    commits = list(message.commits)
    if len(commits) != len(runs):
        raise checks.bad(f"commits: {len(commits):,} values for {len(runs):,} runs")
    if not all(map(COMMIT.fullmatch, commits)):
        raise checks.bad("a commit is 40 or 64 hexadecimal digits")
    return tuple(map(SourceCommit, runs, numbers, commits))

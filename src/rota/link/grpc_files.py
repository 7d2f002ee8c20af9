"""Files of attempts, as messages of `contracts/rota/v2/worker.proto`, and back."""

from __future__ import annotations

from collections.abc import Sequence

from rota.contracts import worker_pb2 as pb
from rota.domain.files import MOST_PATH, PARCEL
from rota.domain.git import COMMIT
from rota.link import grpc_checks as checks
from rota.link.grpc_messages import fence_columns, fence_of
from rota.ports.files import BlobPiece, BlobRead, BlobWritten, SourceCommit
from rota.ports.work import MAX_ITEMS


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

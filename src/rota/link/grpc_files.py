"""Files of attempts, as messages of `contracts/rota/v2/worker.proto`, and back."""

from __future__ import annotations

from rota.contracts import worker_pb2 as pb
from rota.domain.files import MOST_PATH, PARCEL
from rota.link import grpc_checks as checks
from rota.link.grpc_messages import fence_of
from rota.ports.files import BlobPiece, BlobRead, BlobWritten


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

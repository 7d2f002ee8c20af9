"""Files that are kept of projects: what the store knows of them, and how workers ask for them.

Their bytes are in `Blobs`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol

import msgspec

from rota.domain.git import COMMIT
from rota.domain.ids import JobId, RunId, SessionId
from rota.ports.work import Fence, Number, OfAttempt, Total

COMMITS = "commits"  # the optional request by which a worker tells what it fetched
BLOB_READ = "blob_read"  # the optional request by which a worker fetches files
BLOB_WRITE = "blob_write"  # the one by which it keeps artifacts


@dataclass(frozen=True, slots=True)
class KeptFile:
    """File whose bytes are all there, and verified."""

    id: str  # of the upload that brought it: its blobs are below it
    project: str
    digest: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """Use of a file as an artifact."""

    session: SessionId  # of the worker that tells it
    fence: Fence
    step: int  # from 0
    path: str  # below the work folder
    keep: timedelta


@dataclass(frozen=True, slots=True)
class Artifact:
    """File that a step of an attempt left behind."""

    run: RunId
    attempt: int
    step: int  # from 0
    path: str  # below the work folder
    digest: str
    size: int
    kept_at: datetime
    keep_until: datetime


@dataclass(frozen=True, slots=True)
class ArtifactQuery:
    run: RunId
    attempt: int | None = None  # None: any
    step: int | None = None
    path: str | None = None
    after: tuple[int, int, str] = (-1, -1, "")  # attempt, step and path of the one before
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """Attempt that a session has, as far as it decides about files."""

    project: str
    job_id: JobId
    job_version: int
    inputs: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SpentFile:
    """File that nobody needs any more, as far as its row tells."""

    file: KeptFile
    is_kept: bool  # else it was never finished, or is going already


class SourceCommit(OfAttempt, frozen=True, array_like=True):
    """Commit that the code of an attempt was fetched at: later ones at the run have the same."""

    commit: Annotated[str, msgspec.Meta(pattern=f"^{COMMIT.pattern}$")]


class BlobRead(OfAttempt, frozen=True, array_like=True):
    """Wish for a piece of a file that an attempt needs: of its source, or an input."""

    digest: str
    offset: Total
    length: Number


class BlobPiece(OfAttempt, frozen=True, array_like=True):
    """Piece of a file: one that was asked for, or the next one of an artifact."""

    digest: str  # of the whole
    offset: Total
    data: bytes
    size: Total  # of the whole
    path: str = ""  # of an artifact, below the work folder
    step: Number = 0  # that made it, from 0


class BlobWritten(msgspec.Struct, frozen=True, array_like=True):
    """How much of an artifact is there: go on from here. All of it: it is kept."""

    digest: str
    received: Total


class FileStore(Protocol):
    async def note_commits(
        self, session: SessionId, commits: Sequence[SourceCommit]
    ) -> tuple[Fence, ...]:
        """Keep what runs were fetched at, once; return those that the session has not leased."""
        ...

    async def begin_file(self, new: KeptFile, most: int | None) -> None:
        """Note a file whose bytes are about to come, and reserve its size.

        `Conflict` with the code `file_quota` if the project would have more than `most` bytes.
        """
        ...

    async def grow_file(self, file: KeptFile, more: int, most: int | None) -> None:
        """Reserve more for a file, and keep it from being taken for abandoned. As `begin_file`."""
        ...

    async def finish_file(self, file: KeptFile, use: NewArtifact | None = None) -> KeptFile:
        """Keep a file whose bytes are all there, with its real size, perhaps as an artifact.

        Where the project has one with this digest, that is the one that is kept, and the bytes
        that came now go. `Conflict`: the attempt is not the session's, or the file was taken for
        abandoned.
        """
        ...

    async def forget_files(self, ids: Collection[str]) -> int:
        """Forget files whose bytes are gone, and what they have of the quota."""
        ...

    async def touch_files(
        self, project: str, digests: Collection[str], keep: timedelta
    ) -> dict[str, KeptFile]:
        """Keep these files of a project for so long at least; return those that are there."""
        ...

    async def spent_files(self, limit: int) -> list[SpentFile]:
        """List files whose time is over and that no artifact needs, the oldest first."""
        ...

    async def needed_digests(self, project: str) -> frozenset[str]:
        """Return the digests that jobs, live runs and carts of a project name."""
        ...

    async def doom_files(self, ids: Collection[str]) -> frozenset[str]:
        """Let files go whose time is still over and that no artifact needs; return which.

        They are not found from then on, so that their bytes can be deleted.
        """
        ...

    async def bytes_of_files(self, project: str) -> int:
        """Return how much a project has in files."""
        ...

    async def held_attempt(self, session: SessionId, fence: Fence) -> HeldAttempt | None:
        """Return an attempt that goes on in this session; None: it has none such."""
        ...

    async def artifacts(self, query: ArtifactQuery) -> Sequence[Artifact]:
        """List artifacts of a run, by attempt, step and path."""
        ...

    async def forget_artifacts(self, limit: int) -> int:
        """Forget artifacts whose time is over."""
        ...

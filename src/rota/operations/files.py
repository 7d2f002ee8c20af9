"""Files of projects: taken in, verified, kept once, read piece by piece, and collected.

The bytes of a file lie in the blob store in pieces, below the id of the upload that brought them.
A file is found by its digest only once all of them were there and the digest was right, so that
nobody ever reads half a file, or another one than was meant. Its size is reserved in the project's
quota before its bytes come.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from rota.domain.errors import Conflict, Invalid, NotFound, Problem, Unavailable
from rota.domain.files import (
    INPUT_KEPT_FOR,
    MOST_FILE_BYTES,
    PIECE,
    UNUSED_FOR,
    digests_of,
    hex_of,
    pieces_of,
    place_of,
)
from rota.domain.ids import new_file_id
from rota.domain.jobfile import JobFile
from rota.domain.keys import Quota
from rota.operations.engine import Engine
from rota.operations.limits import find_quota
from rota.ports.files import ArtifactQuery, KeptFile, NewArtifact

log = structlog.get_logger()

_COLLECTED = 100  # files in one step


async def quota_of(engine: Engine, project: str) -> int | None:
    """Return how many bytes of files a project may have; None: no bound."""
    standing = await find_quota(engine, project)
    quota = standing.declaration if standing else Quota(project)
    return quota.file_bytes


@dataclass(slots=True)
class Incoming:
    """File that comes: hashed, cut into pieces and within the quota. One piece is in memory."""

    engine: Engine
    file: KeptFile  # its size is what is reserved
    most: int | None  # bytes that the project may have
    expected: int | None  # bytes of the whole; None: not told
    received: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    _piece: bytearray = field(default_factory=bytearray)
    _pieces: int = 0  # that are in the blob store
    _is_over: bool = False

    @classmethod
    async def begin(
        cls, engine: Engine, project: str, digest: str, size: int | None = None
    ) -> Incoming:
        """Begin to take in a file; `Conflict` if the project has no room for it."""
        hex_of(digest)
        if size is not None:
            _refuse_size(size)
        most = await quota_of(engine, project)
        file = KeptFile(new_file_id(), project, digest, size or 0)
        await engine.store.begin_file(file, most)
        return cls(engine, file, most, size)

    async def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        view = memoryview(data)
        while view:
            part = view[: PIECE - len(self._piece)]
            self._take(part)
            view = view[len(part) :]
            if len(self._piece) == PIECE:
                await self._put()

    def _take(self, part: memoryview) -> None:
        self.received += len(part)
        if self.expected is not None and self.received > self.expected:
            raise _wrong(f"more came than the {self.expected:,} bytes that were announced")
        self._hash.update(part)
        self._piece += part

    async def _put(self) -> None:
        """Put the piece that is in memory, once there is room for it."""
        more = max(self.received - self.file.size, 0)
        _refuse_size(self.received)
        if more or self._pieces:  # else it was reserved just now
            await self.engine.store.grow_file(self.file, more, self.most)
        self.file = replace(self.file, size=self.file.size + more)
        await self.engine.blobs.put(_key(self.file, self._pieces), bytes(self._piece))
        self._pieces += 1
        self._piece.clear()

    async def finish(self, use: NewArtifact | None = None) -> KeptFile:
        """Keep the file, once its digest was verified; it is found from then on."""
        if self.expected is not None and self.received != self.expected:
            raise _wrong(f"{self.received:,} of {self.expected:,} bytes came")
        if f"sha256:{self._hash.hexdigest()}" != self.file.digest:
            raise _wrong(f"what came has the digest sha256:{self._hash.hexdigest()}")
        if self._piece:
            await self._put()
        whole = replace(self.file, size=self.received)
        kept = await self.engine.store.finish_file(whole, use)
        self._is_over = True
        if kept.id != whole.id:  # it was there: these bytes are too many
            await self._remove()
        return kept

    async def abandon(self) -> None:
        """Leave nothing of a file that is not whole; what cannot be deleted now goes later."""
        if not self._is_over:
            self._is_over = True
            await self._remove()

    async def _remove(self) -> None:
        try:
            await remove_bytes(self.engine, self.file)
            await self.engine.store.forget_files([self.file.id])
        except (Unavailable, Conflict) as error:
            log.warning("file.left_over", file=self.file.id, error=error.message)


def _refuse_size(size: int) -> None:
    if size > MOST_FILE_BYTES:
        raise Invalid(f"a file has at most {MOST_FILE_BYTES:,} bytes", code="too_large")


def _wrong(message: str) -> Invalid:
    return Invalid(
        f"the file did not come as it was announced: {message}",
        code="wrong_digest",
        hint="was it changed meanwhile? send it again",
    )


def _key(file: KeptFile, number: int) -> str:
    return f"{place_of(file.project, file.digest, file.id)}/{number}"


async def remove_bytes(engine: Engine, file: KeptFile) -> None:
    await engine.blobs.delete(place_of(file.project, file.digest, file.id))


async def take_in(
    engine: Engine, project: str, digest: str, data: AsyncIterator[bytes], size: int | None
) -> KeptFile:
    """Take in a file that somebody sends. Whatever goes wrong, nothing of it stays."""
    with engine.files.place(project):
        incoming = await Incoming.begin(engine, project, digest, size)
        try:
            async for part in data:
                await incoming.feed(part)
            return await incoming.finish()
        finally:
            # Shielded: a caller that hangs up cancels all that is awaited here.
            await asyncio.shield(incoming.abandon())


def no_such_file(digest: str) -> NotFound:
    """Return the error for a file that is not there, and for one of another project."""
    return NotFound(
        f"there is no file {digest} in this project", code="file_not_found", hint="rota upload FILE"
    )


async def find_file(
    engine: Engine, project: str, digest: str, keep: timedelta = UNUSED_FOR
) -> KeptFile:
    """Return a file of a project, which is kept for so long from now on at least."""
    hex_of(digest)
    found = await engine.store.touch_files(project, [digest], keep)
    if digest not in found:
        raise no_such_file(digest)
    return found[digest]


async def require_inputs(
    engine: Engine, project: str, inputs: Collection[Mapping[str, object]]
) -> None:
    """Raise `Invalid` if inputs name files that the project does not have; keep the others.

    Costs nothing where no input is a file.
    """
    wanted = [pair for each in inputs for pair in digests_of(each).items()]
    if not wanted:
        return
    digests = sorted({digest for _, digest in wanted})
    found = await engine.store.touch_files(project, digests, INPUT_KEPT_FOR)
    missing = dict.fromkeys((name, digest) for name, digest in wanted if digest not in found)
    if missing:
        raise Invalid(
            "the project does not have all files that are given",
            [
                Problem(f"there is no file {digest} in this project", name, hint="rota upload FILE")
                for name, digest in missing
            ],
            code="file_not_found",
        )


async def require_sources(engine: Engine, file: JobFile) -> None:
    """Raise `Invalid` if jobs of a file name uploads that their projects do not have."""
    wanted: dict[str, set[str]] = {}
    for entry in file.jobs:
        if entry.spec.upload is not None:
            wanted.setdefault(entry.spec.project, set()).add(entry.spec.upload.digest)
    problems = []
    for project, digests in sorted(wanted.items()):
        found = await engine.store.touch_files(project, sorted(digests), UNUSED_FOR)
        problems += [
            entry.problem_at(
                ("source",),
                f"project {project} has no file {entry.spec.upload.digest}",
                "upload it first: rota upload FILE",
            )
            for entry in file.jobs
            if entry.spec.project == project
            and entry.spec.upload is not None
            and entry.spec.upload.digest not in found
        ]
    if problems:
        raise Invalid("the job file names files that are not there", problems)


async def read_part(engine: Engine, file: KeptFile, offset: int, length: int) -> bytes:
    """Return some bytes of a file from a place on, at most as far as a piece of it goes."""
    if not 0 <= offset < file.size:
        return b""
    piece = await _piece(engine, file, offset // PIECE)
    start = offset % PIECE
    return piece[start : start + length]


async def _piece(engine: Engine, file: KeptFile, number: int) -> bytes:
    try:
        return await engine.files.piece(engine.blobs, _key(file, number))
    except NotFound as error:
        raise _missing_piece(file) from error


async def read_file(engine: Engine, file: KeptFile) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file, a piece at a time; pieces are not kept in memory."""
    for number in range(pieces_of(file.size)):
        try:
            yield await engine.blobs.get(_key(file, number))
        except NotFound as error:
            raise _missing_piece(file) from error


def _missing_piece(file: KeptFile) -> Unavailable:
    message = f"a piece of file {file.digest} is not in the blob store any more"
    return Unavailable(message, code="blob_missing")


async def collect(engine: Engine, limit: int = _COLLECTED) -> int:
    """Delete files that nobody needs any more, a bounded number; return how many."""
    spent = await engine.store.spent_files(limit)
    kept = [each.file for each in spent if each.is_kept]
    needed: set[str] = set()
    for project in sorted({file.project for file in kept}):
        digests = await engine.store.needed_digests(project)
        still = sorted({file.digest for file in kept if file.project == project} & digests)
        if still:  # looked at again in a day
            await engine.store.touch_files(project, still, UNUSED_FOR)
            needed |= {file.id for file in kept if file.project == project and file.digest in still}
    doomed = await engine.store.doom_files(
        [each.file.id for each in spent if each.file.id not in needed]
    )
    gone = []
    for each in spent:
        if each.file.id in doomed:
            await remove_bytes(engine, each.file)
            gone.append(each.file.id)
    if gone:
        await engine.store.forget_files(gone)
        log.info("files.collected", count=len(gone))
    return len(gone)


async def find_artifact(engine: Engine, query: ArtifactQuery, project: str) -> KeptFile:
    """Return the file of the latest artifact that a query finds."""
    found = await engine.store.artifacts(query)
    if not found:
        raise NotFound(
            f"run {query.run} has no artifact {query.path}",
            code="artifact_not_found",
            hint=f"rota run artifacts {query.run} lists them",
        )
    digest = found[-1].digest
    files = await engine.store.touch_files(project, [digest], timedelta(0))
    if digest not in files:
        raise no_such_file(digest)
    return files[digest]

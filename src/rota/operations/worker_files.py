"""Files of attempts, as workers fetch and keep them: in small parts, and only their own.

What a worker may fetch is what its attempt names: the upload of its job version, and its inputs.
What it may keep is what the step declared. Each part is fenced. A file that comes lives in the
memory of one server: where a worker finds itself at another one, or this one was started anew, it
begins anew.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from rota.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rota.domain.files import (
    DIGEST,
    INPUT_KEPT_FOR,
    MOST_ARTIFACTS,
    PARCEL,
    digests_of,
    matching,
    path_fault,
)
from rota.domain.git import step_numbered
from rota.domain.ids import RunId, SessionId
from rota.domain.quantities import format_size
from rota.domain.spec import Artifacts, JobSpec
from rota.operations.engine import Engine
from rota.operations.files import Incoming, find_file, no_such_file, read_part
from rota.ports.files import (
    ArtifactQuery,
    BlobPiece,
    BlobRead,
    BlobWritten,
    HeldAttempt,
    KeptFile,
    NewArtifact,
)
from rota.ports.work import Fence

_IDLE = timedelta(minutes=1)  # after which a file that does not go on is given up
_PLACES = 16  # for files that come to a server at the same time, each with a piece in memory
_KNOWN, _KNOWN_FOR = 1_000, timedelta(hours=1)  # files that are kept for much longer
_REMEMBERED = 10_000  # steps of which it is known how much they have kept

STALE_ATTEMPT = "stale_attempt"  # the code of what is not the worker's any more
Key = tuple[SessionId, Fence, int, str]  # step and path


@dataclass(slots=True)
class _Coming:
    """Artifact that comes."""

    incoming: Incoming
    use: NewArtifact
    used_at: float  # monotonic
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _Kept:
    """Files and bytes that a step has kept so far."""

    files: int = 0
    bytes: int = 0


class WorkerFiles:
    """Files of the attempts of one server's workers."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._coming: dict[Key, _Coming] = {}
        self._places: Counter[SessionId] = Counter()  # that its files have, or are about to
        self._kept: OrderedDict[tuple[Fence, int], _Kept] = OrderedDict()
        self._files: OrderedDict[tuple[str, str], tuple[KeptFile, float]] = OrderedDict()

    async def read(self, session: SessionId, wish: BlobRead) -> BlobPiece:
        """Return a part of a file that the attempt names."""
        held, spec = await self._held(session, wish.fence)
        own = set(digests_of(held.inputs).values())
        if spec.upload is not None:
            own.add(spec.upload.digest)
        if wish.digest not in own or not DIGEST.fullmatch(wish.digest):
            raise no_such_file(wish.digest[:80])
        file = await self._file(held.project, wish.digest)
        data = await read_part(self._engine, file, wish.offset, min(wish.length, PARCEL))
        return BlobPiece(wish.run, wish.number, file.digest, wish.offset, data, file.size)

    async def _file(self, project: str, digest: str) -> KeptFile:
        """Return a file; that it is kept is written down once, not for each of its parts."""
        now = self._monotonic()
        file, until = self._files.pop((project, digest), (None, now))
        if file is None or until <= now:
            file = await find_file(self._engine, project, digest, INPUT_KEPT_FOR)
            until = now + _KNOWN_FOR.total_seconds()
        self._files[project, digest] = file, until
        if len(self._files) > _KNOWN:
            self._files.popitem(last=False)
        return file

    async def write(self, session: SessionId, piece: BlobPiece) -> BlobWritten:
        """Take the next part of an artifact; say how much of it is there."""
        try:
            return await self._write(session, piece)
        except Invalid as error:  # of the file, not of the message: the stream goes on
            raise Conflict(error.message, code=error.code, hint=error.hint) from error

    async def _write(self, session: SessionId, piece: BlobPiece) -> BlobWritten:
        await self.give_up_idle()
        held, spec = await self._held(session, piece.fence)
        key = (session, piece.fence, piece.step, piece.path)
        coming = self._coming.get(key)
        if coming is not None and coming.incoming.file.digest != piece.digest:
            await self._drop(key, coming)  # the file was changed, and is told anew
            coming = None
        if coming is None:
            if piece.offset:
                return await self._where(held, piece)
            coming = await self._begin(key, held, spec, piece)
        async with coming.turn:
            return await self._take(key, coming, piece)

    async def _begin(self, key: Key, held: HeldAttempt, spec: JobSpec, piece: BlobPiece) -> _Coming:
        declared = self._declared(spec, piece)
        session, fence, step, path = key
        use = NewArtifact(session, fence, step, path, declared.keep)
        self._take_place(session)
        try:
            incoming = await Incoming.begin(self._engine, held.project, piece.digest, piece.size)
        except BaseException:
            self._leave_place(session)
            raise
        if key in self._coming:  # the same part came twice at once
            self._leave_place(session)
            await incoming.abandon()
            return self._coming[key]
        coming = self._coming[key] = _Coming(incoming, use, self._monotonic())
        return coming

    def _take_place(self, session: SessionId) -> None:
        """Take a place for a file that comes; `Unavailable` if its worker has its share of them.

        No worker has more than it leaves to others: one that sends slowly keeps them for long.
        """
        if _PLACES - self._places.total() <= self._places[session]:
            raise Unavailable("as many files are coming as may at a time", code="too_many_uploads")
        self._places[session] += 1

    def _leave_place(self, session: SessionId) -> None:
        self._places[session] -= 1
        self._places += Counter()  # forgets workers that have none

    def _declared(self, spec: JobSpec, piece: BlobPiece) -> Artifacts:
        """Return what the step declared; `Conflict` if this file is not of that."""
        step = step_numbered(spec, piece.step)
        declared = step.artifacts if step is not None else None
        if fault := path_fault(piece.path):  # a long one is not compared
            raise Conflict(fault, code="file_refused")
        if declared is None or not matching(piece.path, declared.paths):
            raise Conflict("the step declares no such artifact", code="file_refused")
        kept = self._kept.get((piece.fence, piece.step)) or _Kept()
        if kept.files >= MOST_ARTIFACTS:
            raise Conflict(f"a step keeps at most {MOST_ARTIFACTS:,} files", code="file_refused")
        if kept.bytes + piece.size > declared.limit:
            limit = format_size(declared.limit)
            raise Conflict(f"a step of the job keeps at most {limit}", code="file_refused")
        return declared

    async def _take(self, key: Key, coming: _Coming, piece: BlobPiece) -> BlobWritten:
        incoming = coming.incoming
        coming.used_at = self._monotonic()
        if piece.offset != incoming.received:
            return BlobWritten(piece.digest, incoming.received)
        try:
            if len(piece.data) > PARCEL or (not piece.data and piece.size):
                raise Conflict("a part of a file has 1 to 262,144 bytes", code="file_refused")
            await incoming.feed(piece.data)
            if incoming.received < piece.size:
                return BlobWritten(piece.digest, incoming.received)
            await incoming.finish(coming.use)
        except BaseException:
            await asyncio.shield(self._drop(key, coming))
            raise
        self._forget(key, coming)
        self._count(piece)
        return BlobWritten(piece.digest, piece.size)

    def _count(self, piece: BlobPiece) -> None:
        kept = self._kept.setdefault((piece.fence, piece.step), _Kept())
        kept.files += 1
        kept.bytes += piece.size
        if len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)

    async def _where(self, held: HeldAttempt, piece: BlobPiece) -> BlobWritten:
        """Say how much is there of a file that does not come here: all of it, or nothing."""
        query = ArtifactQuery(RunId(piece.run), piece.number, piece.step, piece.path)
        found = await self._engine.store.artifacts(query)
        is_there = any(artifact.digest == piece.digest for artifact in found)
        return BlobWritten(piece.digest, piece.size if is_there else 0)

    async def _drop(self, key: Key, coming: _Coming) -> None:
        self._forget(key, coming)
        await coming.incoming.abandon()

    def _forget(self, key: Key, coming: _Coming) -> None:
        if self._coming.get(key) is coming:
            del self._coming[key]
            self._leave_place(key[0])

    async def give_up_idle(self) -> int:
        """Give up files of which nothing more came; return how many."""
        before = self._monotonic() - _IDLE.total_seconds()
        idle = [(key, each) for key, each in self._coming.items() if each.used_at < before]
        for key, coming in idle:
            if not coming.turn.locked():
                await self._drop(key, coming)
        return len(idle)

    async def _held(self, session: SessionId, fence: Fence) -> tuple[HeldAttempt, JobSpec]:
        held = await self._engine.store.held_attempt(session, fence)
        if held is None:
            raise Conflict("the attempt is not this worker's any more", code=STALE_ATTEMPT)
        ref = (held.job_id, held.job_version)
        specs = await self._engine.specs.find(self._engine.store, [ref])
        if ref not in specs:
            raise NotFound("the job's definition cannot be read", code="file_not_found")
        return held, specs[ref]

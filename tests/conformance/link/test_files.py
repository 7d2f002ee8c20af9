"""Files of attempts over every link: fetched, kept, resumed, and only those of one's own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.clock import SystemClock
from rota.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rota.domain.files import PARCEL, PIECE
from rota.operations import worker_files
from rota.operations.files import find_file, read_file, take_in
from rota.ports.files import BLOB_READ, BLOB_WRITE, ArtifactQuery, BlobPiece, BlobRead, KeptFile
from rota.ports.work import Dispatch, Fence, Refused, Work, WorkerLink
from rota.worker.files import LinkedFiles
from testkit.builders import hello, new_job
from tests.conformance.link.conftest import Shop

pytestmark = pytest.mark.anyio

BOTH = (BLOB_READ, BLOB_WRITE)


@pytest.fixture
async def link(shop: Shop) -> AsyncIterator[WorkerLink]:
    link = await shop.connect()
    yield link
    await link.close()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def uploaded(shop: Shop, data: bytes, project: str = "default") -> str:
    async def sent() -> AsyncIterator[bytes]:
        yield data

    return (await take_in(shop.engine, project, digest_of(data), sent(), None)).digest


async def taken(
    shop: Shop,
    link: WorkerLink,
    digest: str = "",
    inputs: dict[str, Any] | None = None,
    worker: str = "worker",
    **limits: Any,
) -> Work:
    """A run that has been dispatched to the worker: its step keeps all that is in `out`."""
    declared = {"paths": ["out"], **limits}
    document: dict[str, Any] = {"steps": [{"run": "true", "artifacts": declared}]}
    if digest:
        document["source"] = {"upload": {"digest": digest, "name": "code.sh"}}
    new = new_job(f"job-of-{worker}", shop.scene.clock.instant)
    await shop.engine.store.save_jobs(
        [replace(new, document={"name": new.name, **document})], removed=[], actor="ann"
    )
    welcome = await link.register(hello(worker))
    await shop.scene.trigger(new.id, inputs=inputs)
    await shop.floor.claim_for(welcome.session)
    order = await link.receive()
    assert isinstance(order, Dispatch)
    return order.batch.work(0)


def files_over(link: WorkerLink, patience: float = 5) -> LinkedFiles:
    return LinkedFiles(lambda: (link, BOTH), SystemClock(), timedelta(seconds=patience))


def written(tmp_path: Path, data: bytes) -> int:
    path = tmp_path / "source"
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


async def fetched(
    files: LinkedFiles, fence: Fence, digest: str, tmp_path: Path, most: int = 1024**3
) -> bytes:
    into = os.open(tmp_path / "into", os.O_RDWR | os.O_CREAT)
    try:
        size = await files.fetch(fence, digest, into, most)
        return os.pread(into, size + 1, 0)
    finally:
        os.close(into)


async def kept_bytes(shop: Shop, run: str) -> dict[str, bytes]:
    found = {}
    for artifact in await shop.engine.store.artifacts(ArtifactQuery(run)):  # type: ignore[arg-type]
        file = await find_file(shop.engine, "default", artifact.digest)
        parts = [part async for part in read_file(shop.engine, file)]
        found[artifact.path] = b"".join(parts)
    return found


async def test_a_server_offers_both_in_its_welcome(link: WorkerLink) -> None:
    assert set(BOTH) <= set((await link.register(hello())).requests)


async def test_a_file_of_many_parts_is_found_once(
    shop: Shop, link: WorkerLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find it is a write, which waits for those of the whole project."""
    data = random.Random(5).randbytes(6 * PARCEL)
    work = await taken(shop, link, await uploaded(shop, data))
    asked: list[tuple[Any, ...]] = []

    async def counted(*arguments: Any) -> KeptFile:
        asked.append(arguments)
        return await find_file(*arguments)

    monkeypatch.setattr(worker_files, "find_file", counted)

    assert await fetched(files_over(link), work.fence, digest_of(data), tmp_path) == data
    assert len(asked) == 1


async def test_a_file_that_is_too_large_is_not_written(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    digest = await uploaded(shop, bytes(3 * PARCEL))
    work = await taken(shop, link, digest)

    data = await fetched(files_over(link), work.fence, digest, tmp_path, 3 * PARCEL - 1)

    assert data == b""


@pytest.mark.parametrize("size", [0, 1, PARCEL, PARCEL + 1, PIECE + 7])
async def test_code_and_inputs_come_as_they_were_uploaded(
    shop: Shop, link: WorkerLink, tmp_path: Path, size: int
) -> None:
    code, data = random.Random(size).randbytes(size), b"1,2"
    given = {"data": {"file": "d.csv", "digest": await uploaded(shop, data), "size": 3}}
    work = await taken(shop, link, await uploaded(shop, code), given)

    files = files_over(link)

    assert await fetched(files, work.fence, digest_of(code), tmp_path) == code
    (tmp_path / "into").unlink()
    assert await fetched(files, work.fence, digest_of(data), tmp_path) == data


async def test_what_the_attempt_does_not_name_is_the_same_as_nothing(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    work = await taken(shop, link)
    there = await uploaded(shop, b"of another job of the project")

    for digest in (there, digest_of(b"nowhere"), "sha256:x", "../../etc/passwd"):
        with pytest.raises(NotFound) as refused:
            await link.read_blob(BlobRead(work.run, work.number, digest, 0, PARCEL))
        assert refused.value.code == "file_not_found"
        assert refused.value.message.replace(digest, "") == "there is no file  in this project"


async def test_another_attempt_than_one_s_own_is_refused(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    code = await uploaded(shop, b"code")
    work = await taken(shop, link, code)
    stale = Fence(work.run, work.number + 1)

    with pytest.raises(Refused) as refused:
        await link.read_blob(BlobRead(stale.run, stale.number, code, 0, 10))
    assert refused.value.code == "stale_attempt"
    with pytest.raises(Conflict):
        await files_over(link).keep(stale, 0, "out/a", written(tmp_path, b"abc"))
    assert await kept_bytes(shop, work.run) == {}


@pytest.mark.parametrize("size", [0, 1, PARCEL, PARCEL + 1, PIECE + 7])
async def test_an_artifact_is_kept_byte_for_byte(
    shop: Shop, link: WorkerLink, tmp_path: Path, size: int
) -> None:
    work = await taken(shop, link)
    data = random.Random(size).randbytes(size)

    digest = await files_over(link).keep(work.fence, 0, "out/a", written(tmp_path, data))

    assert digest == digest_of(data)
    assert await kept_bytes(shop, work.run) == {"out/a": data}


class Cutting:
    """A link that breaks after each so many requests; what was asked last gets no answer."""

    def __init__(self, shop: Shop, every: int) -> None:
        self._shop = shop
        self._every = every
        self._left = every
        self.link: WorkerLink | None = None
        self.session = ""
        self.cuts = 0

    async def connect(self) -> WorkerLink:
        self.link = await self._shop.connect()
        welcome = await self.link.register(hello(resumes=self.session))
        self.session = welcome.session
        return self.link

    def serving(self) -> tuple[WorkerLink, tuple[str, ...]]:
        if self.link is None:
            raise Unavailable("not connected")
        return self, BOTH  # type: ignore[return-value]

    async def read_blob(self, wish: BlobRead) -> Any:
        return await self._asked("read_blob", wish)

    async def write_blob(self, piece: BlobPiece) -> Any:
        return await self._asked("write_blob", piece)

    async def _asked(self, verb: str, message: Any) -> Any:
        link = self.link
        assert link is not None
        answer = await getattr(link, verb)(message)
        self._left -= 1
        if self._left:
            return answer
        self._left, self.link = self._every, None
        self.cuts += 1
        await link.close()
        self.reconnecting = asyncio.ensure_future(self.connect())
        raise Unavailable("the connection broke")


async def test_a_file_goes_on_where_the_stream_was_cut(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    data = random.Random(3).randbytes(5 * PARCEL + 9)
    cutting = Cutting(shop, every=2)
    work = await taken(shop, link, await uploaded(shop, data))
    [session] = await shop.scene.store.sessions(alive_only=True)
    cutting.session = session.id
    await cutting.connect()
    files = LinkedFiles(cutting.serving, SystemClock())

    assert await fetched(files, work.fence, digest_of(data), tmp_path) == data
    cuts = cutting.cuts
    assert cuts >= 2
    await files.keep(work.fence, 1, "out/a", written(tmp_path, data))  # step 0 brought the file

    assert cutting.cuts > cuts
    assert await kept_bytes(shop, work.run) == {"out/a": data}
    await (await cutting.reconnecting).close()


async def test_a_server_that_knows_nothing_of_the_beginning_gets_it_again(
    shop: Shop, link: WorkerLink
) -> None:
    work = await taken(shop, link)
    data = bytes(PARCEL + 1)

    def part(offset: int) -> BlobPiece:
        end = min(offset + PARCEL, len(data))
        return BlobPiece(
            work.run, work.number, digest_of(data), offset, data[offset:end], len(data), "out/a", 0
        )

    assert (await link.write_blob(part(PARCEL))).received == 0
    assert (await link.write_blob(part(0))).received == PARCEL
    assert (await link.write_blob(part(0))).received == PARCEL  # its answer was lost
    assert (await link.write_blob(part(PARCEL))).received == len(data)
    assert (await link.write_blob(part(PARCEL))).received == len(data)  # the last one, again
    assert await kept_bytes(shop, work.run) == {"out/a": data}


async def test_other_bytes_than_the_digest_says_leave_nothing(shop: Shop, link: WorkerLink) -> None:
    work = await taken(shop, link)

    with pytest.raises(Refused) as refused:
        await link.write_blob(
            BlobPiece(work.run, work.number, digest_of(b"x"), 0, b"y", 1, "out/a", 0)
        )

    assert refused.value.code == "wrong_digest"
    assert await kept_bytes(shop, work.run) == {}
    assert await shop.engine.store.bytes_of_files("default") == 0


@pytest.mark.parametrize(
    ("path", "step"),
    [("other/a", 0), ("out/a", 1), ("out/../../a", 0), ("/out", 0), ("out/\x1b[2J", 0), ("", 0)],
)
async def test_what_the_step_does_not_declare_is_not_kept(
    shop: Shop, link: WorkerLink, tmp_path: Path, path: str, step: int
) -> None:
    work = await taken(shop, link)

    with pytest.raises(Invalid):
        await files_over(link).keep(work.fence, step, path, written(tmp_path, b"abc"))

    assert await kept_bytes(shop, work.run) == {}


async def test_a_step_keeps_no_more_than_its_limit(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    work = await taken(shop, link, max="1KiB")
    files = files_over(link)
    await files.keep(work.fence, 0, "out/a", written(tmp_path, bytes(600)))

    with pytest.raises(Invalid, match="at most 1KiB"):
        await files.keep(work.fence, 0, "out/b", written(tmp_path, bytes(601)))

    assert (await kept_bytes(shop, work.run)).keys() == {"out/a"}


async def test_a_file_that_changes_while_it_is_read_is_not_kept(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    work = await taken(shop, link)
    source = written(tmp_path, bytes(4 * PARCEL))

    class Changing:
        def __getattr__(self, verb: str) -> Any:
            return getattr(link, verb)

        async def write_blob(self, piece: BlobPiece) -> Any:
            (tmp_path / "source").write_bytes(b"x" * 4 * PARCEL)
            return await link.write_blob(piece)

    files = LinkedFiles(lambda: (Changing(), BOTH), SystemClock())
    with pytest.raises(Invalid):
        await files.keep(work.fence, 0, "out/a", source)

    assert await kept_bytes(shop, work.run) == {}


async def test_a_file_that_grows_is_kept_as_it_was(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    work = await taken(shop, link)
    source = written(tmp_path, bytes(PARCEL + 1))

    class Growing:
        async def write_blob(self, piece: BlobPiece) -> Any:
            with (tmp_path / "source").open("ab") as file:
                file.write(b"more")
            return await link.write_blob(piece)

    files = LinkedFiles(lambda: (Growing(), BOTH), SystemClock())  # type: ignore[arg-type,return-value]
    await files.keep(work.fence, 0, "out/a", source)

    assert await kept_bytes(shop, work.run) == {"out/a": bytes(PARCEL + 1)}


async def test_no_more_is_kept_than_was_asked_for(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    work = await taken(shop, link)

    await files_over(link).keep(work.fence, 0, "out/a", written(tmp_path, b"abcdef"), 3)

    assert await kept_bytes(shop, work.run) == {"out/a": b"abc"}


async def test_no_worker_has_more_places_for_files_than_it_leaves_to_others(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    """A worker that sends slowly keeps what it has: others can still send theirs."""
    slow = await taken(shop, link)
    data = bytes(PARCEL + 1)

    def part(work: Work, path: str) -> BlobPiece:
        whole = len(data)
        return BlobPiece(
            work.run, work.number, digest_of(data), 0, data[:PARCEL], whole, f"out/{path}", 0
        )

    begun, refused = 0, []
    for answer in await asyncio.gather(
        *(link.write_blob(part(slow, str(number))) for number in range(20)), return_exceptions=True
    ):
        if isinstance(answer, Refused):
            refused.append(answer.code)
        else:
            begun += 1
    other_link = await shop.connect("other")
    other = await taken(shop, other_link, worker="other")
    digest = await files_over(other_link).keep(other.fence, 0, "out/a", written(tmp_path, data))
    await other_link.close()

    assert (begun, set(refused)) == (8, {"too_many_uploads"})
    assert digest == digest_of(data)


async def test_a_place_is_free_again_once_its_file_is_kept_or_given_up(
    shop: Shop, link: WorkerLink, tmp_path: Path
) -> None:
    work = await taken(shop, link)
    files = files_over(link)

    for number in range(20):
        bad = BlobPiece(work.run, work.number, digest_of(b"x"), 0, b"y", 1, f"out/{number}", 0)
        with pytest.raises(Refused):
            await link.write_blob(bad)
        await files.keep(work.fence, 0, f"out/{number}", written(tmp_path, bytes(number + 1)))

    assert len(await kept_bytes(shop, work.run)) == 20


async def test_without_a_server_it_gives_up_in_the_end(tmp_path: Path) -> None:
    def nobody() -> Any:
        raise Unavailable("not connected")

    files = LinkedFiles(nobody, SystemClock(), timedelta(milliseconds=10))

    with pytest.raises(Unavailable, match="no server took or gave the file"):
        await files.keep(Fence("r_1", 1), 0, "a", written(tmp_path, b"abc"))

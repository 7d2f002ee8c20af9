"""What attempts print: its index arrives with them, or after them, or never."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.domain.ids import RunId
from rota.ports.records import StoredChunk
from rota.ports.work import ChunkMeta, Fence
from rota.store.script import Many, Script, query
from rota.store.tx import Tx

_MAX_COUNT = 2**31  # lines or bytes of a chunk, of which an attempt has fewer than that
_MAX_LINE = 2**62


def open_outputs(session: str, runs: Collection[str]) -> Script[frozenset[Fence]]:
    """Attempts at these runs that the session has leased, or that ended with output to come."""
    rows = yield query("printing_fences", ids=runs, session=session)
    return frozenset(Fence(row["id"], row["attempt"]) for row in rows)


def add_chunks(
    tx: Tx, session: str, chunks: Sequence[tuple[Fence, StoredChunk]]
) -> Script[tuple[Fence, ...]]:
    """Record output that is in the blob store, of attempts that the session has leased or ended."""
    runs = {fence.run for fence, _ in chunks}
    yield query("runs_to_change", ids=runs)  # an end of theirs must see these chunks, or be seen
    open_fences = yield from open_outputs(session, runs)
    accepted = [(fence, chunk) for fence, chunk in chunks if fence in open_fences]
    if accepted:
        values = [_values(session, fence, chunk) for fence, chunk in accepted]
        yield Many("insert_chunk", values, exactly=False)
        yield from settle_output({fence.run for fence, _ in accepted})
    return tuple(dict.fromkeys(fence for fence, _ in chunks if fence not in open_fences))


def _values(session: str, fence: Fence, chunk: StoredChunk) -> tuple[object, ...]:
    """Values for `insert_chunk`, in its order."""
    meta = chunk.meta
    return (
        fence.run,
        fence.attempt,
        meta.number,
        session,
        _bounded(meta.first_line, _MAX_LINE),
        _bounded(meta.lines),
        _bounded(meta.bytes),
        meta.first_at,
        meta.last_at,
        chunk.key,
    )


def _bounded(count: int, limit: int = _MAX_COUNT) -> int:
    """A number that a worker tells, so small that no sum of such overflows."""
    return max(0, min(count, limit))


def settle_output(runs: Collection[str]) -> Script[None]:
    """Output of ended attempts is no longer pending once its last line has arrived.

    A worker sends in order and goes on only after an answer: the last line comes last.
    """
    if runs:
        yield query("settle_run_output", ids=runs)
        yield query("settle_attempt_output", ids=runs)


def tear_output(sessions: Collection[str]) -> Script[None]:
    """Output that is still on workers whose sessions are over will not come.

    The transaction has locked the runs that it belongs to.
    """
    yield query("tear_run_output", sessions=sessions)
    yield query("tear_attempt_output", sessions=sessions)


def chunks(run: RunId, attempt: int) -> Script[list[StoredChunk]]:
    rows = yield query("select_chunks", run=run, attempt=attempt)
    return [
        StoredChunk(
            ChunkMeta(
                r["number"], r["first_line"], r["lines"], r["bytes"], r["first_at"], r["last_at"]
            ),
            r["key"],
        )
        for r in rows
    ]


def inline_output(run: RunId, attempt: int) -> Script[bytes]:
    rows = yield query("select_inline_output", run=run, attempt=attempt)
    return (rows[0]["output"] or b"") if rows else b""

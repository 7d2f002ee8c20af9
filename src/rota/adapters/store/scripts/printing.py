"""What attempts print: its index arrives with them, or after them, or never."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.adapters.store.script import Many, Script, query
from rota.ports.records import StoredChunk
from rota.ports.work import Fence


def add_chunks(
    session: str, chunks: Sequence[tuple[Fence, StoredChunk]]
) -> Script[tuple[Fence, ...]]:
    """Record output that is in the blob store, of attempts that the session holds or has ended."""
    runs = {fence.run for fence, _ in chunks}
    yield query("runs_to_change", ids=runs)  # an end of theirs must see these chunks, or be seen
    rows = yield query("printing_fences", ids=runs, session=session)
    open_fences = {Fence(row["id"], row["attempt"]) for row in rows}
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
        meta.first_line,
        meta.lines,
        meta.bytes,
        meta.first_at,
        meta.last_at,
        chunk.key,
    )


def settle_output(runs: Collection[str]) -> Script[None]:
    """Output of ended attempts is no longer pending once its last line has arrived.

    A worker sends in order and goes on only after an answer: the last line comes last.
    """
    if runs:
        yield query("settle_run_output", ids=runs)
        yield query("settle_attempt_output", ids=runs)


def tear_output(sessions: Collection[str]) -> Script[None]:
    """Output that is still on workers whose sessions are over will not come."""
    if not sessions:
        return
    rows = yield query("runs_with_pending_output", sessions=sessions)
    if rows:
        yield query("runs_to_change", ids=[row["id"] for row in rows])
        yield query("tear_run_output", sessions=sessions)
    yield query("tear_attempt_output", sessions=sessions)

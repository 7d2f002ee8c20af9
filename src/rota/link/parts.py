"""Long messages in parts, so that a stream stays free for others, and messages for peers of another
release: for both links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rota.ports.work import MAX_ITEMS, Dispatch, StepNote, WorkBatch

T = TypeVar("T")

# Told when the other side speaks another version of the protocol.
OUTDATED_WORKER = (
    "this server is of a newer release: install that release on this worker, too"
    " (docs/upgrading.md)"
)
OUTDATED_SERVER = (
    "this server is of an older release, or none of Rota:"
    " install this worker's release there first (docs/upgrading.md)"
)

_STEPS_TOGETHER = 1_000  # of all notes in one request


def in_parts(
    dispatch: Dispatch, encode: Callable[[Dispatch], T], size: Callable[[T], int], most: int
) -> Iterator[T]:
    """Encode a dispatch, halved until the parts are small enough; no work goes before its spec."""
    whole = encode(dispatch)
    if size(whole) <= most or len(dispatch.specs) + len(dispatch.batch) <= 1:
        yield whole
        return
    for half in _halves(dispatch):
        yield from in_parts(half, encode, size, most)


def _halves(dispatch: Dispatch) -> tuple[Dispatch, Dispatch]:
    batch, specs, first = dispatch.batch, dispatch.specs, dispatch.first
    if specs and len(batch):
        return Dispatch(WorkBatch(), specs), Dispatch(batch, (), first)
    if specs:
        middle = len(specs) // 2
        return Dispatch(WorkBatch(), specs[:middle]), Dispatch(WorkBatch(), specs[middle:])
    middle = len(batch) // 2
    return (
        Dispatch(batch.part(range(middle)), (), first),
        Dispatch(batch.part(range(middle, len(batch))), (), first and first + middle),
    )


def in_requests(notes: Sequence[StepNote]) -> Iterator[list[StepNote]]:
    """Divide notes into requests that are not too long."""
    together: list[StepNote] = []
    steps = 0
    for note in notes:
        if together and (steps + len(note.steps) > _STEPS_TOGETHER or len(together) == MAX_ITEMS):
            yield together
            together, steps = [], 0
        together.append(note)
        steps += len(note.steps)
    if together:
        yield together

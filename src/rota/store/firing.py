"""New runs from schedules that are due."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.domain.ids import micros, scheduled_run_id
from rota.domain.run import Trigger
from rota.ports.records import Fired, Firing, Ownership, Room
from rota.ports.work import WorkBatch
from rota.store import shards
from rota.store.claims import fill, free_worker
from rota.store.gates import LockGates
from rota.store.rows import optional_micros, reasons_to
from rota.store.schedules import insert_unanswered, moved_meanwhile
from rota.store.script import Many, Script, query
from rota.store.submissions import Draft, insert_drafts
from rota.store.tx import Tx


class _Current(NamedTuple):
    """A step of a schedule that stands where it is thought to."""

    firing: Firing
    claimed: int  # where that is
    answered_before: int  # the latest due time that had its answer; 0: there was none
    answered: Sequence[int]  # see `_answered`


def fire(
    tx: Tx,
    firings: Sequence[Firing],
    ownership: Ownership,
    room: Room | None,
    locking: LockGates,
) -> Script[Fired]:
    """Insert the runs that are due, advance their schedules, and fill the room of a worker."""
    lost = yield from shards.lost(ownership, {firing.shard for firing in firings})
    firings = [firing for firing in firings if firing.shard not in lost]
    # Filled at the end, but locked here: sessions come before gates in the order of locks.
    worker = (yield from free_worker(tx, room)) if room else None
    locked = yield from locking({firing.job_id for firing in firings})
    accepted = yield from _current(tx.now, [each for each in firings if each.job_id in locked])
    run_count = yield from _answer(tx, accepted)
    claimed = (yield from fill(tx, worker, room)) if worker and room else WorkBatch()
    return Fired(
        accepted=frozenset(each.firing.job_id for each in accepted),
        run_count=run_count,
        lost_shards=lost,
        claimed=claimed,
    )


def answer_overdue(tx: Tx, overdue: Firing) -> Script[None]:
    """Answer what a schedule owes before it is changed. `Conflict` if it has moved on meanwhile."""
    accepted = yield from _current(tx.now, [overdue])
    if not accepted:
        raise moved_meanwhile(overdue.job_id)
    yield from _answer(tx, accepted)


def _answer(tx: Tx, current: Sequence[_Current]) -> Script[int]:
    firings = [each.firing for each in current]
    drafts = yield from _unknown(current)
    yield from insert_drafts(tx, drafts, actor="scheduler")
    yield Many("advance_schedule", [_advance(each) for each in current])
    yield from insert_unanswered((firing.job_id, firing.answered) for firing in firings)
    finished = [firing.job_id for firing in firings if firing.finishes_job]
    if finished:
        done = yield query("finish_jobs", ids=finished, now=tx.now)
        tx.record_each("job.finished", done, actor="scheduler")
    return len(drafts)


def _current(now: int, firings: Sequence[Firing]) -> Script[list[_Current]]:
    """Those whose time has come and whose schedule stands where they think, one for each job."""
    rows = yield query("claimed_schedules", ids={firing.job_id for firing in firings})
    stands = {row["job_id"]: row for row in rows}
    accepted = []
    for firing in firings:
        claimed, row = micros(firing.claimed_next_at), stands.get(firing.job_id)
        if row is None or claimed > now:
            continue
        if row["next_at"] == claimed and row["version"] == firing.schedule_version:
            before = row["answered_to"]
            accepted.append(_Current(firing, claimed, before, _answered(before, firing)))
            del stands[firing.job_id]
    return accepted


def _unknown(current: Iterable[_Current]) -> Script[list[Draft]]:
    """Leave out due times that have a run: an edit may lead a schedule over them again."""
    wanted: dict[str, Draft] = {}
    again = []
    for each in current:
        for draft in _drafts(each):
            wanted[draft.id] = draft
            if draft.due_at <= each.answered_before:
                again.append(draft.id)
    for row in (yield query("known_runs", ids=again)) if again else ():
        del wanted[row["id"]]
    return list(wanted.values())


def _drafts(current: _Current) -> Iterable[Draft]:
    firing = current.firing
    for planned in firing.runs:
        due_at = micros(planned.due_at)
        yield Draft(
            id=scheduled_run_id(firing.job_id, planned.due_at),
            job_id=firing.job_id,
            job_version=firing.job_version,
            trigger=Trigger.SCHEDULE,
            due_at=due_at,
            release_at=micros(planned.release_at),
            created_by="scheduler",
            reasons=reasons_to((planned.reason,)) if planned.reason else None,
            is_caught_up=planned.is_caught_up,
            previous_due=_latest_before(due_at, current.answered),
        )


def _answered(before: int, firing: Firing) -> Sequence[int]:
    """The due times that have their answer with it, or the last ones of their stretch, in order.

    With the latest one `before`; 0: there was none.
    """
    times = [micros(run.due_at) for run in firing.runs]
    if len(times) == 1 and before < times[0] and not firing.answered:
        return before, times[0]
    return sorted({before, *times, *(micros(it.last) for it in firing.answered)})


def _latest_before(due_at: int, times: Sequence[int]) -> int | None:
    place = bisect_left(times, due_at)
    return (times[place - 1] or None) if place else None


def _advance(current: _Current) -> tuple[int | None, int, int, str, int, int]:
    firing = current.firing
    return (
        optional_micros(firing.next_at),
        int(firing.waits),
        current.answered[-1],
        firing.job_id,
        current.claimed,
        firing.schedule_version,
    )

"""Notes: what workers tell of attempts that go on.

One row for each attempt that lived long enough to have something to tell, replaced by what is told
next. Whoever reads one looks whether the attempt goes on, so that no claim and no end writes here:
the rows of those that are over are deleted now and then. They are hints, and lost if the database
crashes (on PostgreSQL the table has no log): workers tell all of them again every minute.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from rota.domain.ids import RunId
from rota.domain.run import Note
from rota.ports.work import RUNNING, Fence, StepNote, StepOutcome
from rota.store.rows import note_from, outcomes_from, to_json
from rota.store.script import Columns, Script, query
from rota.store.tx import Tx

_LOST = "lost"  # the result of a step that its worker did not live to tell the end of


def tell(tx: Tx, session: str, notes: Sequence[StepNote]) -> Script[frozenset[Fence]]:
    """Replace what is known of attempts that the session has; returns those that it has."""
    latest = {note.run: note for note in notes}
    told = [latest[run] for run in sorted(latest)]
    columns: dict[str, list[object]] = {
        "id": [note.run for note in told],
        "number": [note.number for note in told],
        "told_at": [note.at for note in told],
        "first_step": [note.first_step for note in told],
        "steps": [to_json(note.steps) for note in told],
        "output_lines": [note.output_lines for note in told],
        "output_bytes": [note.output_bytes for note in told],
        "last_line": [note.last_line for note in told],
    }
    rows = yield Columns("tell_notes", columns, {"session": session})
    return frozenset(Fence(row["run_id"], row["attempt"]) for row in rows)


def notes(runs: Collection[str]) -> Script[dict[RunId, Note]]:
    """Notes about those of these runs whose latest attempt goes on."""
    rows = yield query("select_notes", ids=runs)
    return {RunId(row["run_id"]): note_from(row) for row in rows}


def forget(tx: Tx, limit: int) -> Script[int]:
    """Delete what was told of attempts that are over."""
    rows = yield query("forget_notes", limit=limit)
    return len(rows)


def steps_of_lost(runs: Collection[str]) -> Script[dict[Fence, tuple[StepOutcome, ...]]]:
    """The steps of attempts that are about to be lost, as far as their workers told."""
    rows = yield query("select_notes", ids=runs)
    return {
        Fence(row["run_id"], row["attempt"]): tuple(map(_as_lost, outcomes_from(row["steps"])))
        for row in rows
    }


def _as_lost(step: StepOutcome) -> StepOutcome:
    return msgspec.structs.replace(step, result=_LOST) if step.result == RUNNING else step

"""`rota ps`: the runs that go on or wait, wherever they do."""

from __future__ import annotations

from rota.cli import times
from rota.cli.options import EVERYBODY, REMOTE, AtMost, Remote, Whose
from rota.cli.printing import Column, ListView, print_list
from rota.cli.references import ask_list
from rota.cli.runs import HAS_TIMES, Where, attempt_words, short_detail
from rota.cli.terminal import inert_output
from rota.cli.watching import elapsed, progress_words, share_of
from rota.sdk.answers import Run
from rota.sdk.client import Client

_NOTHING = "–"


def _step(run: Run) -> str:
    """Return the step that goes on, or the state of a run that no worker executes."""
    return run.note.step if run.note and run.note.step else run.state.lower()


def _elapsed(run: Run) -> str:
    """Return how long it has been executed, or waited for."""
    return elapsed(run.started_at or run.created_at, times.now()) or _NOTHING


def _progress(run: Run) -> str:
    return _NOTHING if run.progress is None else progress_words(run.progress)


def _far(run: Run) -> str:
    """Return the progress as a number only."""
    if run.progress is None:
        return _NOTHING
    share = share_of(run.progress)
    return f"{run.progress.done:g}" if share is None else f"{share:.0%}"


def _last_line(run: Run) -> str:
    """Return what a run printed last; of one that waits, why."""
    if run.note and run.note.last_line:
        return inert_output(run.note.last_line)
    return short_detail(run)


GOING: ListView[Run] = ListView(
    columns=(
        Column("RUN", lambda run: run.id, is_id=True),
        Column("JOB", lambda run: run.job),
        Column("STEP", _step),
        Column("ELAPSED", _elapsed),
        Column("PROGRESS", _progress, narrower=[_far]),
        Column("LAST LINE", _last_line),
        Column("STATE", lambda run: run.state.lower(), is_state=True, only_wide=True),
        Column("LINES", lambda run: _lines(run), only_wide=True),
        Column("ATTEMPT", lambda run: attempt_words(run, run.attempt), only_wide=True),
        Column("WORKER", lambda run: run.worker or _NOTHING, only_wide=True),
        Column("TRIGGER", lambda run: run.trigger, only_wide=True),
        Column("PRIORITY", lambda run: str(run.priority), only_wide=True),
    ),
    name=lambda run: run.id,
    empty="no run is going or waiting; start one with: rota trigger JOB",
)


def _lines(run: Run) -> str:
    return _NOTHING if run.note is None else f"{run.note.output_lines:,}"


def ps(
    *,
    where: Where = None,
    whose: Whose = EVERYBODY,
    limit: AtMost = 100,
    remote: Remote = REMOTE,
) -> None:
    """List the runs that are not over: step, elapsed time, progress and what they printed last."""
    with remote.connect() as client:
        zone = times.zone_name() if where and HAS_TIMES.search(where) else None
        call = Client.list_runs(where=where, active=True, created_by=whose.creator, timezone=zone)
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, GOING)

"""Runs as tables and pages."""

from __future__ import annotations

import json
from datetime import datetime

from rota.cli import times
from rota.cli.failures import counted
from rota.cli.printing import ListView
from rota.cli.steps import step_line
from rota.cli.table import Column, write_pairs, write_table
from rota.cli.terminal import Terminal
from rota.sdk.answers import Attempt, Run, RunDetail

_NOTHING = "–"


def _took(run: Run) -> str:
    return _NOTHING if run.duration_seconds is None else times.length(run.duration_seconds)


def _detail(run: Run) -> str:
    """What is worth knowing of it in a few words: why it waits, or how it ended."""
    if run.waiting:
        opens = run.reasons[0].eligible_at if run.reasons else None
        return f"{run.waiting}, opens {times.moment(opens, times.now())}" if opens else run.waiting
    if run.state == "SCHEDULED" and run.eligible_at:
        return f"it starts {times.relative(run.eligible_at, times.now())}"
    return run.message or run.cause or _NOTHING


def _late(run: Run) -> str:
    late = run.lateness_seconds
    return _NOTHING if late is None else times.length(late)


RUNS: ListView[Run] = ListView(
    columns=(
        Column("RUN", lambda run: run.id, is_whole=True),
        Column("JOB", lambda run: run.job),
        Column("STATE", lambda run: run.state.lower(), is_state=True),
        Column("DUE", lambda run: times.moment(run.due_at, times.now())),
        Column("TOOK", _took),
        Column("DETAIL", _detail),
        Column("TRIGGER", lambda run: run.trigger, only_wide=True),
        Column("ATTEMPT", lambda run: attempt_words(run, run.attempt), only_wide=True),
        Column("WORKER", lambda run: run.worker or _NOTHING, only_wide=True),
        Column("LATE", _late, only_wide=True),
        Column("PRIORITY", lambda run: str(run.priority), only_wide=True),
    ),
    name=lambda run: run.id,
    empty="no runs match; start one with: rota trigger JOB",
)


def _output(attempt: Attempt) -> str:
    return f"{counted(attempt.output.lines, 'line')} ({attempt.output.state})"


_ATTEMPTS: tuple[Column[Attempt], ...] = (
    Column("ATTEMPT", lambda attempt: str(attempt.number)),
    Column("RESULT", lambda attempt: (attempt.result or "going").lower(), is_state=True),
    Column("WORKER", lambda attempt: attempt.worker or _NOTHING),
    Column("EXIT", lambda attempt: ended_by(attempt) or _NOTHING),
    Column("TOOK", lambda attempt: _length(attempt.duration_seconds)),
    Column("CPU", lambda attempt: times.length(attempt.cpu_seconds)),
    Column("MEMORY", lambda attempt: f"{attempt.max_memory_bytes / 2**20:.0f} MiB"),
    Column("OUTPUT", _output),
)


def _length(seconds: float | None) -> str:
    return _NOTHING if seconds is None else times.length(seconds)


def ended_by(ended: Run | Attempt) -> str:
    """`exit 1`, `signal 9`, or ""."""
    if ended.signal is not None:
        return f"signal {ended.signal}"
    return "" if ended.exit_code is None else f"exit {ended.exit_code}"


def attempt_words(run: Run, number: int) -> str:
    """`2 of 3`; lost ones do not count against the limit, so `4 (1 lost)` has none beside it."""
    return f"{number} ({run.losses} lost)" if run.losses else f"{number} of {run.max_attempts}"


def _state(run: Run) -> str:
    notes = [
        f"attempt {attempt_words(run, run.attempt)}" if run.attempt else "",
        "alone" if run.is_alone else "",
        ended_by(run),
        "" if run.duration_seconds is None else times.length(run.duration_seconds),
    ]
    return " · ".join([run.state.lower(), *(note for note in notes if note)])


def _waits_for(run: Run) -> str:
    """Nothing is told of a run that waits for a worker, as all do that are queued."""
    is_ordinary = run.state == "QUEUED" and not run.reasons
    return "" if is_ordinary else run.waiting or ""


def write_run(terminal: Terminal, run: RunDetail, present: datetime) -> None:
    """A run on one page."""
    inputs = run.inputs or {}
    late = run.lateness_seconds
    write_pairs(
        terminal,
        [
            ("run", run.id),
            ("job", f"{run.job} (version {run.job_version})"),
            ("state", _state(run)),
            ("waits for", _waits_for(run)),
            ("cause", run.cause),
            ("message", run.message),
            ("trigger", f"{run.trigger} by {run.created_by}" if run.created_by else run.trigger),
            ("due", times.moment(run.due_at, present)),
            ("started", times.moment(run.first_started_at, present)),
            ("late by", _lateness(late, run.is_late)),
            ("ended", times.moment(run.ended_at, present)),
            ("inputs", " ".join(f"{key}={_plain(value)}" for key, value in inputs.items())),
            ("outputs", "" if run.outputs is None else _json(run.outputs)),
            ("retry of", run.retry_of or ""),
            ("follows", run.follows or ""),
            ("backfill", run.backfill or ""),
            ("cart", " · ".join(part for part in (run.cart, run.item) if part)),
        ],
    )
    if run.attempts:
        terminal.write()
        write_table(terminal, _ATTEMPTS, run.attempts)
    if run.attempts and run.attempts[-1].steps:
        _write_steps(terminal, run.attempts[-1])
    for late_result in run.late_results:
        report = f"attempt {late_result.attempt} reported {late_result.result.lower()}"
        terminal.write(f"refused: {report} after its lease had ended")


def _lateness(seconds: float | None, is_late: bool | None) -> str:
    if seconds is None:
        return "its objective was missed" if is_late else ""
    return (
        f"{times.length(seconds)}, its objective was missed" if is_late else times.length(seconds)
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_steps(terminal: Terminal, attempt: Attempt) -> None:
    terminal.write()
    width = max(len(step.name) for step in attempt.steps)
    for step in attempt.steps:
        terminal.write(step_line(step, width))

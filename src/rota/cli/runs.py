"""`rota run`: see, watch and steer runs."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Annotated, Literal, NoReturn

from cyclopts import App, Parameter

from rota.cli import times
from rota.cli.external import external_pairs, report
from rota.cli.failures import counted
from rota.cli.files import artifacts, download
from rota.cli.job_views import walls_words
from rota.cli.logs import logs
from rota.cli.options import (
    DESTROYING,
    EVERYBODY,
    REMOTE,
    WRITING,
    AtMost,
    Destroying,
    Duration,
    Format,
    Priority,
    Remote,
    Whose,
    Writing,
)
from rota.cli.printing import Column, ListView, print_list, print_one, write_pairs, write_table
from rota.cli.references import (
    WAITING,
    ActiveRunReferences,
    EndedRunReference,
    LatestRunReference,
    UnknownRunReference,
    WaitingRunReference,
    active_run,
    ask,
    ask_list,
    run_or_ended,
    run_or_latest,
    unknown_run,
    waiting_run,
)
from rota.cli.terminal import MANY, Exit, Rehearsed, Terminal, inert, inert_output, width_of
from rota.cli.watching import (
    elapsed,
    interrupted,
    progress_words,
    step_line,
    took,
)
from rota.cli.watching import watch as watch_run
from rota.cli.why import write_why
from rota.sdk.answers import Attempt, LinkedRun, Probe, Run, RunDetail, Step
from rota.sdk.client import Client
from rota.sdk.exchange import Call

_NOTHING = "–"
_LEASED = frozenset({"CLAIMED", "PROCESSING"})  # a worker has it


def _took(run: Run) -> str:
    return _NOTHING if run.duration_seconds is None else times.length(run.duration_seconds)


def _detail(run: Run) -> str:
    """Return why a run waits, or how it ended, in a few words."""
    if run.waiting:
        opens = run.reasons[0].eligible_at if run.reasons else None
        return f"{run.waiting}, opens {times.moment(opens, times.now())}" if opens else run.waiting
    if run.state == "SCHEDULED" and run.eligible_at:
        return f"it starts {times.relative(run.eligible_at, times.now())}"
    detail = run.message or run.cause or _NOTHING
    return f"probe: {detail}" if run.trigger == "probe" and detail != _NOTHING else detail


def short_detail(run: Run) -> str:
    """Return the detail, unless DUE or STATE tells it already."""
    starts_when_due = run.state == "SCHEDULED" and not run.waiting and run.eligible_at == run.due_at
    return _NOTHING if starts_when_due or _waits_as_usual(run) else _detail(run)


def _late(run: Run) -> str:
    late = run.lateness_seconds
    return _NOTHING if late is None else times.length(late)


RUNS: ListView[Run] = ListView(
    columns=(
        Column("RUN", lambda run: run.id, is_id=True),
        Column("JOB", lambda run: run.job),
        Column("STATE", lambda run: run.state.lower(), is_state=True),
        Column(
            "DUE",
            lambda run: times.moment(run.due_at, times.now()),
            narrower=[lambda run: times.distance(run.due_at, times.now())],
            is_spare=True,
        ),
        Column("TOOK", _took, is_spare=True),
        Column("DETAIL", _detail, narrower=[short_detail], is_note=True),
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
    lines = counted(attempt.output.lines, "line")
    return f"{lines} so far" if attempt.result is None else f"{lines} ({attempt.output.state})"


_ATTEMPTS: tuple[Column[Attempt], ...] = (
    Column("ATTEMPT", lambda attempt: str(attempt.number)),
    Column("RESULT", lambda attempt: (attempt.result or "going").lower(), is_state=True),
    Column("WORKER", lambda attempt: attempt.worker or _NOTHING),
    Column("EXIT", lambda attempt: ended_by(attempt) or _NOTHING),
    Column("TOOK", lambda attempt: _attempt_took(attempt)),
    Column("CPU", lambda attempt: _used(attempt.cpu_seconds)),
    Column("MEMORY", lambda attempt: _memory(attempt.max_memory_bytes)),
    Column("OUTPUT", _output),
)


def _memory(size: int) -> str:
    return f"{size / 2**20:.0f} MiB" if size else _NOTHING  # no process takes none: not measured


def _used(seconds: float) -> str:
    return times.length(seconds) if seconds else _NOTHING


def _attempt_took(attempt: Attempt) -> str:
    if attempt.duration_seconds is not None:
        return times.length(attempt.duration_seconds)
    if attempt.result is not None:
        return _NOTHING
    so_far = elapsed(attempt.started_at, times.now())
    return f"{so_far} so far" if so_far else _NOTHING


def ended_by(ended: Run | Attempt | Step) -> str:
    """Return `exit 1`, `signal 9`, or ""."""
    if ended.signal is not None:
        return f"signal {ended.signal}"
    return "" if ended.exit_code is None else f"exit {ended.exit_code}"


def attempt_words(run: Run, number: int) -> str:
    """Return `2 of 3`; `4 (1 lost, 2 interrupted)` has no limit: these do not count against it."""
    others = {"lost": run.losses, "interrupted": interrupted(run)}
    uncounted = ", ".join(f"{count} {word}" for word, count in others.items() if count)
    return f"{number} ({uncounted})" if uncounted else f"{number} of {run.max_attempts}"


def _state(run: Run) -> str:
    notes = [
        f"attempt {attempt_words(run, run.attempt)}" if run.attempt else "",
        "alone" if run.is_alone else "",
        ended_by(run),
        took(run) or _going_for(run),
    ]
    return " · ".join([run.state.lower(), *(note for note in notes if note)])


def _going_for(run: Run) -> str:
    """Return how long it has been executed so far; "" if no worker does."""
    going = run.state in _LEASED and elapsed(run.started_at, times.now())
    return f"{going} so far" if going else ""


def _waits_for(run: Run) -> str:
    """Return what a run waits for; "" for a worker, for which all queued runs wait."""
    return "" if _waits_as_usual(run) else run.waiting or ""


def _waits_as_usual(run: Run) -> bool:
    return run.state == "QUEUED" and not run.reasons


def write_run(terminal: Terminal, run: RunDetail, present: datetime, *, wide: bool = False) -> None:
    """Print a run on one page."""
    inputs = run.inputs or {}
    late = run.lateness_seconds
    write_pairs(
        terminal,
        [
            ("run", run.id),
            ("job", f"{run.job} (version {run.job_version})"),
            ("title", run.title),
            ("state", _state(run)),
            ("waits for", _waits_for(run)),
            ("step", _current(run, present)),
            ("progress", "" if run.progress is None else progress_words(run.progress)),
            ("last line", inert_output(run.note.last_line) if run.note else ""),
            *external_pairs(run.external, present),
            ("cause", _cause(run)),
            ("message", run.message),
            ("commit", run.commit),
            ("isolation", walls_words(run) if run.external is None else ""),
            ("trigger", f"{run.trigger} by {run.created_by}" if run.created_by else run.trigger),
            ("due", times.moment(run.due_at, present)),
            ("started", times.moment(run.first_started_at, present)),
            ("late by", _lateness(late, run.is_late)),
            ("ended", times.moment(run.ended_at, present)),
            ("used", _taken(run)),
            ("inputs", " ".join(f"{key}={_plain(value)}" for key, value in inputs.items())),
            ("outputs", "" if run.outputs is None else _json(run.outputs)),
            ("retry of", run.retry_of or ""),
            ("after", _linked(run.after) if run.after else run.follows or ""),
            ("followed by", " · ".join(map(_linked, run.followed_by))),
            ("probe of", run.probe_of or ""),
            ("probes", " · ".join(map(_probe, run.probes))),
            ("backfill", run.backfill or ""),
            ("cart", " · ".join(part for part in (run.cart, run.item) if part)),
        ],
    )
    if run.attempts:
        terminal.write()
        write_table(terminal, _ATTEMPTS, run.attempts)
    if run.attempts and run.attempts[-1].steps:
        _write_steps(terminal, run.attempts[-1], wide=wide)
    for late_result in run.late_results:
        told = f"attempt {late_result.attempt} reported {late_result.result.lower()}"
        when = "its lease had ended" if run.external is None else "it was over"
        terminal.write(f"refused: {told} after {when}")


def _probe(probe: Probe) -> str:
    return f"{probe.id} ({probe.answer or probe.state.lower()})"


def _linked(run: LinkedRun) -> str:
    return f"{run.id} ({run.job}, {run.state.lower()})"


# Causes that are limits of the run, or of its machine where it has none, and what they mean.
_LIMITS = {
    "oom": ("memory", "it was killed for the memory that it took"),
    "processes": ("processes", "it could start no more processes"),
    "disk": ("disk", "it was killed for the disk that it took"),
}


def _cause(run: RunDetail) -> str:
    """Return the cause of an end; of one by a limit what that is."""
    if run.cause not in _LIMITS:
        return run.cause
    name, words = _LIMITS[run.cause]
    limit = run.limits.get(name)
    return f"{run.cause}: {words}{f', at most {limit}' if limit is not None else ''}"


def _taken(run: RunDetail) -> str:
    """Format `cpu 3.2s · memory 812 MiB` of the latest attempt that was measured."""
    measured = (it for it in reversed(run.attempts) if it.cpu_seconds or it.max_memory_bytes)
    latest = next(measured, None)
    if latest is None:
        return ""
    memory = f" · memory {_memory(latest.max_memory_bytes)}" if latest.max_memory_bytes else ""
    return f"cpu {times.length(latest.cpu_seconds)}{memory}"


def _current(run: Run, present: datetime) -> str:
    """Return the step that goes on, and how long it has: `Test · 12 s`."""
    note = run.note
    if note is None or not note.step:
        return ""
    return " · ".join(filter(None, [note.step, elapsed(note.step_started_at, present)]))


def _lateness(seconds: float | None, is_late: bool | None) -> str:
    if seconds is None:
        return "its objective was missed" if is_late else ""
    return (
        f"{times.length(seconds)}, its objective was missed" if is_late else times.length(seconds)
    )


def _plain(value: object) -> str:
    match value:
        case str():
            return value
        case {"file": str(name), "digest": str(), "size": int(size)}:
            return f"{name} ({counted(size, 'byte')})"
        case _:
            return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_STEPS: tuple[Column[Step], ...] = (
    Column("STEP", lambda step: step.shown),
    Column("RESULT", lambda step: step.result, is_state=True),
    Column("EXIT", lambda step: ended_by(step) or _NOTHING),
    Column("TOOK", lambda step: _NOTHING if _is_skipped(step) else times.length(step.seconds)),
    Column("TRIES", lambda step: _NOTHING if _is_skipped(step) else str(step.tries)),
    Column("CPU", lambda step: _used(step.cpu_seconds)),
    Column("MEMORY", lambda step: _memory(step.max_memory_bytes)),
    Column("CAUSE", lambda step: step.cause or _NOTHING),
)


def _is_skipped(step: Step) -> bool:
    return step.result == "skipped"


def _write_steps(terminal: Terminal, attempt: Attempt, *, wide: bool) -> None:
    terminal.write()
    if wide:
        write_table(terminal, _STEPS, attempt.steps)
        return
    width = max(width_of(inert(step.shown)) for step in attempt.steps)
    for step in attempt.steps:
        terminal.write(step_line(step, width))


app = App(name="run", help="List, show, watch, cancel, retry … runs.")
app.command(logs)
app.command(artifacts)
app.command(download)
app.command(report)

HAS_TIMES = re.compile(r"\b(?:since|until):", re.IGNORECASE)
Where = Annotated[
    str | None, Parameter(help="A filter, such as 'state:failed job:nightly-* since:6h'.")
]


@app.command(name="list")
def list_(
    *,
    where: Where = None,
    active: Annotated[bool, Parameter(help="Only runs that are not over.")] = False,
    state: Annotated[str | None, Parameter(help="Only runs in this state.")] = None,
    job: Annotated[
        str | None, Parameter(help="Only runs of this job; * stands for any text.")
    ] = None,
    whose: Whose = EVERYBODY,
    limit: AtMost = 20,
    remote: Remote = REMOTE,
) -> None:
    """List runs, newest first.

    A run is of who asked for it; one that a schedule or another job made, of who made its job.
    """
    with remote.connect() as client:
        zone = times.zone_name() if where and HAS_TIMES.search(where) else None
        call = Client.list_runs(
            where=where,
            active=active or None,
            state=state,
            job=job,
            created_by=whose.creator,
            timezone=zone,
        )
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, RUNS)


@app.command
def show(run: LatestRunReference, /, *, remote: Remote = REMOTE) -> None:
    """Show a run: state, times, attempts and steps."""
    with remote.connect() as client:
        found = ask(client, Client.get_run(run_or_latest(client, run)))
    print_one(
        remote,
        found,
        name=lambda run: run.id,
        page=lambda terminal, run: write_run(
            terminal, run, times.now(), wide=remote.format is Format.WIDE
        ),
    )


@app.command
def watch(
    run: LatestRunReference,
    /,
    *,
    timeout: Annotated[
        Duration | None, Parameter(help="Stop watching after this time (30s, 5m).")
    ] = None,
    remote: Remote = REMOTE,
) -> Exit:
    """Follow a run to its end; the exit code says how it ended."""
    with remote.connect() as client:
        return watch_run(client, run_or_latest(client, run), remote, timeout=timeout)


@app.command
def why(run: LatestRunReference, /, *, remote: Remote = REMOTE) -> None:
    """Explain why a run is where it is, and what would move it on."""
    with remote.connect() as client:
        found = run_or_latest(client, run)
        explained = ask(client, Client.explain(found))
    print_one(
        remote,
        explained,
        name=lambda _: found,
        page=lambda terminal, why: write_why(terminal, why, times.now()),
    )


@app.command
def cancel(*runs: ActiveRunReferences, destroying: Destroying = DESTROYING) -> None:
    """Cancel runs; what is running is asked to stop, then killed after its grace."""
    terminal = destroying.terminal()
    with destroying.connect() as client:
        ids = [active_run(client, run) for run in runs]
        if destroying.dry_run:
            _rehearse_cancel(terminal, [client.get_run(each) for each in ids])
        if len(ids) > MANY:
            question = f"cancel {len(ids):,} runs?"
            terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
        for each in ids:
            cancelled = ask(client, Client.cancel_run(each))
            print_one(
                destroying,
                cancelled,
                name=lambda run: run.id,
                page=lambda terminal, run: terminal.tell(
                    f"cancelling {run.id}, {run.state.lower()} now"
                ),
            )


def _has_stopped(run: RunDetail) -> bool:
    return run.is_final or run.state == "UNKNOWN"


def _would_cancel(run: RunDetail) -> str:
    state = run.state.lower()
    if _has_stopped(run):
        return f"would not cancel {run.id}: it is {state} already"
    if state in WAITING:
        return f"would cancel {run.id}: it is {state} and would not start"
    return (
        f"would cancel {run.id}: it is {state}, would be asked to stop and killed after its grace"
    )


def _rehearse_cancel(terminal: Terminal, runs: list[RunDetail]) -> NoReturn:
    for run in runs:
        terminal.tell(_would_cancel(run))
    raise Rehearsed(changes=not all(map(_has_stopped, runs)))


@app.command
def retry(
    run: EndedRunReference,
    /,
    *,
    watch: Annotated[bool, Parameter(name=["--watch", "-w"], help="Follow the new run.")] = False,
    timeout: Annotated[
        Duration | None, Parameter(help="With --watch: stop watching after this time (30s, 5m).")
    ] = None,
    writing: Writing = WRITING,
) -> Exit:
    """Run it again: a new run with the same inputs."""
    terminal = writing.terminal()
    with writing.connect() as client:
        old = run_or_ended(client, run)
        if writing.dry_run:
            found = client.get_run(old)
            state = found.state.lower()
            would = f"would run {old} again, as a new run; it is {state} now"
            would_not = f"would not retry {old}: it is {state} and has not ended"
            writing.rehearse(would if found.is_final else would_not, changes=found.is_final)
        new = ask(client, Client.retry_run(old))
        terminal.tell(f"retrying {old}")
        if watch:
            return watch_run(client, new.value.id, writing, timeout=timeout)
    print_one(
        writing,
        new,
        name=lambda run: run.id,
        page=lambda terminal, run: terminal.write(f"run {run.id} {run.state.lower()}"),
    )
    return Exit.DONE


@app.command
def resolve(
    run: UnknownRunReference,
    /,
    *,
    as_: Annotated[
        Literal["completed", "failed", "retry"], Parameter(name="--as", help="What happened to it.")
    ],
    writing: Writing = WRITING,
) -> None:
    """Say how an unknown run ended, or that it shall be tried again."""
    with writing.connect() as client:
        found = unknown_run(client, run)
        if writing.dry_run:
            state = client.get_run(found).state.lower()
            would = f"would resolve {found} as {as_}; it is {state} now"
            would_not = f"would not resolve {found}: it is {state}, not unknown"
            is_open = state == "unknown"
            writing.rehearse(would if is_open else would_not, changes=is_open)
        resolved = ask(client, Client.resolve_run(found, as_))
    print_one(
        writing,
        resolved,
        name=lambda run: run.id,
        page=lambda terminal, run: terminal.tell(f"{run.id} is {run.state.lower()} now"),
    )


@app.command
def hold(run: WaitingRunReference, /, *, writing: Writing = WRITING) -> None:
    """Keep a run that waits from starting until it is released."""
    with writing.connect() as client:
        found = waiting_run(client, run)
        _rehearse(writing, client, found, "hold")
        _steer(writing, client, Client.hold_run(found))


@app.command
def release(run: WaitingRunReference, /, *, writing: Writing = WRITING) -> None:
    """End a hold: the run waits again like any other."""
    with writing.connect() as client:
        found = waiting_run(client, run)
        _rehearse(writing, client, found, "release")
        _steer(writing, client, Client.release_run(found))


@app.command
def reprioritise(
    run: WaitingRunReference,
    priority: Annotated[Priority, Parameter(name="PRIORITY")],
    /,
    *,
    writing: Writing = WRITING,
) -> None:
    """Give a run that waits another priority."""
    with writing.connect() as client:
        found = waiting_run(client, run)
        _rehearse(writing, client, found, f"give priority {priority} to")
        _steer(writing, client, Client.reprioritise_run(found, priority))


def _rehearse(writing: Writing, client: Client, run: str, what: str) -> None:
    """With `--dry-run`, end the command here with what it would do."""
    if writing.dry_run:
        state = client.get_run(run).state.lower()
        waits = state in WAITING
        would = f"would {what} {run}; it is {state} now"
        would_not = f"would not {what} {run}: it is {state} and does not wait"
        writing.rehearse(would if waits else would_not, changes=waits)


def _steer(writing: Writing, client: Client, call: Call[Run]) -> None:
    print_one(writing, ask(client, call), name=lambda run: run.id, page=_write_standing)


def _write_standing(terminal: Terminal, run: Run) -> None:
    waiting = f": {run.waiting}" if run.waiting else ""
    terminal.tell(f"{run.id} is {run.state.lower()} now, priority {run.priority}{waiting}")
